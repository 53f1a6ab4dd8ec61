"""What every page has: lines for a size, a cursor over the things that can be opened, a scroll offset.

A page holds only what the user chose (cursor, scroll, sort, filter); what it shows is in the FeedState.
Pages import no Textual, so their behaviour is tested without a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text.line import Line, Target, select

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.tui.contract.feed import FeedState


COPY_WIDTH = 100
COPY_ROWS = 2000


class Page:
    """A body of the screen between header and footer."""

    of_run = True  # shows the run that is open: its notices and replay keys belong here
    tells_losses = False  # one row above it says what was lost; the overview has a place of its own for that
    can_go_live = False  # a recording is shown and a live run is behind it
    name = ""
    title = ""
    keys: tuple[str, ...] = ()  # names of commands, most useful first: footer and help read them

    labels: ClassVar[Mapping[str, str]] = {}  # what a command is called here, where it is not its usual name
    abouts: ClassVar[Mapping[str, str]] = {}  # what it does here, where that is not what it usually does

    def __init__(self) -> None:
        self.cursor: Target | None = None
        self.top = 0  # first visible row of a page longer than the screen
        self.num_rows = 0
        self.num_below = 0  # rows that do not fit on the screen any more
        self.targets: list[Target] = []
        self.follows = False  # the cursor moved: bring it into view
        self.target_rows: dict[Target, int] = {}

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return exactly the rows to draw, at most `height`."""
        raise NotImplementedError

    def move(self, rows: int) -> None:
        """Move the cursor over the targets, or scroll where there are none."""
        if not self.targets:
            self.scroll(rows)
            return
        outside = -1 if rows > 0 else len(self.targets)
        index = (self.targets.index(self.cursor) if self.cursor in self.targets else outside) + rows
        self.cursor = self.targets[min(max(index, 0), len(self.targets) - 1)]
        self.follows = True

    def turn(self, rows: int) -> None:
        """Show the next or former screenful."""
        self.scroll(rows)

    def scroll(self, rows: int) -> None:
        """Move the view; `lines` keeps it within the page."""
        self.top = max(self.top + rows, 0)

    def opened(self) -> Target | None:
        """Return what enter opens."""
        return self.cursor if self.cursor in self.targets else None

    def copied(self, state: FeedState) -> str:
        """Return the whole page as text, beyond what fits on the screen; blank rows in a row are one."""
        top, self.top = self.top, 0
        rows = [row.text.rstrip() for row in self.lines(state, COPY_WIDTH, COPY_ROWS)]
        self.top = top
        kept = [text for place, text in enumerate(rows) if text or (place and rows[place - 1])]
        return "\n".join(kept).strip("\n") + "\n"

    def arranged(self, rows: list[Line], width: int, height: int) -> list[Line]:
        """Return the visible part of the rows with the cursor drawn; remembers the targets."""
        self.num_rows = len(rows)
        self.target_rows = {}
        for index, row in enumerate(rows):
            if row.target is not None:
                self.target_rows.setdefault(row.target, index)
        self.targets = list(self.target_rows)
        if self.follows and self.cursor in self.target_rows:
            place = self.target_rows[self.cursor]
            last = max(index for index, row in enumerate(rows) if row.target == self.cursor)
            self.top = min(max(self.top, last - height + 1), place)
        self.follows = False
        self.top = min(self.top, max(len(rows) - height, 0))
        self.num_below = max(len(rows) - self.top - height, 0)
        visible = rows[self.top : self.top + height]
        return [select(row, width) if row.target and row.target == self.cursor else row for row in visible]
