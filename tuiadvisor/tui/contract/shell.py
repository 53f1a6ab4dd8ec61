"""What the application does for the navigator: the only way from keys to a feed, a terminal, a file.

In: commands.  Out: nothing, or where something was left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tuiadvisor.preferences import Preferences
    from tuiadvisor.tui.contract.desk import DeskCommand
    from tuiadvisor.tui.contract.feed import FeedCommand


class Shell(Protocol):
    """What the application does for the navigator."""

    def ask(self, command: FeedCommand | DeskCommand) -> None:
        """Send a command to the feed or the desk."""
        ...

    def leave(self, *, back: bool = False) -> None:
        """Quit at once; back: to where the screens were opened from, if that shows screens, too."""
        ...

    def alert(self, text: str) -> None:
        """Ring the terminal's bell and ask it for a notification."""
        ...

    def redraw(self) -> None:
        """Draw the whole screen anew."""
        ...

    def to_shell(self) -> str:
        """Stop here and give the terminal back to the shell until `fg`; returns why not, "" where it did."""
        ...

    def next_theme(self) -> str:
        """Use the next set of colours; returns its name."""
        ...

    def prefer(self, preferences: Preferences) -> None:
        """Show everything as preferred from now on."""
        ...

    def copy(self, text: str) -> str:
        """Put a text where the user can take it; returns where it is."""
        ...

    def picture(self) -> str:
        """Save the screen as a picture; returns where it is."""
        ...
