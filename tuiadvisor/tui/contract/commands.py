"""All commands in one table, in the order of help and palette; footer, help, palette and dispatch read it.

In: the commands that pages and `control` declare, FeedState and page.  Out: commands, labels, reasons.
"""

from __future__ import annotations

from string import ascii_letters, digits
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Command, Page

GROUPS = ("screens", "keeping", "help", "leaving", "moving", "ranks", "runs", "time", "looks")


class CommandTable:
    """Commands by name and by key."""

    def __init__(self, commands: Iterable[Command]) -> None:
        """Raise ValueError where two have one name or one key, or a group is not in GROUPS."""
        self.commands = tuple(sorted(commands, key=lambda command: GROUPS.index(command.group)))
        self.by_name: dict[str, Command] = {}
        self.by_key: dict[str, Command] = {}
        for command in self.commands:
            if command.name in self.by_name:
                raise ValueError(f"two commands are called {command.name}")
            self.by_name[command.name] = command
            for key in command.keys:
                if key in self.by_key:
                    words = f"key {key} is {self.by_key[key].name} already, not {command.name}"
                    raise ValueError(f"{words}; free: {' '.join(self._free_keys())}")
                self.by_key[key] = command

    def _free_keys(self) -> list[str]:
        taken = {key for command in self.commands for key in command.keys}
        return [key for key in (*digits, *ascii_letters) if key not in taken]

    def usable(self, names: Iterable[str], state: FeedState, page: Page) -> list[Command]:
        """Return the commands that would work now."""
        found = (self.by_name[name] for name in names)
        return [command for command in found if not page.refusal(command, state)]


def label(command: Command, state: FeedState, page: Page) -> str:
    """Return the footer's words: what the key would do next."""
    following = command.next_label(state, page) if command.next_label is not None else ""
    return following or page.labels.get(command.name, command.label)
