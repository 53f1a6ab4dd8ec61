"""What a screen is: its rows, its keys, its words; and the place in which its keys act.

A page is a class that declares everything of itself: name, title, help, the commands it brings, what usual commands do
here instead, what enter opens. `control/registry.py` lists the pages; nothing else needs to know one.
A page holds only what the user chose (cursor, scroll, sort, filter); what it shows is in the states it is given.
Pages import no Textual, so their behaviour is tested without a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from tuiadvisor.text.line import Line, Target, select
from tuiadvisor.tui.contract.desk import NO_DESK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuiadvisor.preferences import Preferences
    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.prompt import Prompt
    from tuiadvisor.tui.contract.shell import Shell
    from tuiadvisor.views.event import Alert


COPY_WIDTH = 100
COPY_ROWS = 2000


def always(_state: FeedState, _page: Page) -> str:
    """Nothing stands in a command's way."""
    return ""


@dataclass(frozen=True, slots=True)
class Command:
    """Something a key does: what it is called, where it works and why it does not, what it does."""

    name: str
    keys: tuple[str, ...]  # Textual's key names, or the character typed
    shown: str  # the key as written in footer and help
    label: str  # two words for the footer
    about: str  # a sentence for the help
    group: str  # one of commands.GROUPS: where it stands in help and palette
    do: Callable[[Place], None]
    why_not: Callable[[FeedState, Page], str] = always  # "" where it can be used now
    next_label: Callable[[FeedState, Page], str] | None = None  # what the key would do next, "" for its label


def opening(name: str, key: str, label: str, about: str) -> Command:
    """The command that shows the page of this name."""
    return Command(name, (key,), key, label, about, "screens", lambda place: place.show(name))


def only_on(name: str, reason: str) -> Callable[[FeedState, Page], str]:
    """A command that works on the page of this name alone."""
    return lambda _state, page: "" if page.name == name else reason


AnyPage = TypeVar("AnyPage", bound="Page")


class Place(Protocol):
    """The user's place in the screens as commands and prompts know it. The Navigator is one."""

    shell: Shell
    state: FeedState
    desk: DeskState
    stack: list[Page]
    page_rows: int  # that the page on top drew
    width: int  # of the screen as it was drawn last
    commands: tuple[Command, ...]  # all there are

    @property
    def page(self) -> Page:
        """The page on top."""

    def at(self, kind: type[AnyPage]) -> AnyPage:
        """The one page of this class."""

    def say(self, text: str) -> None:
        """Answer the last key in the footer."""

    def ask_for(self, prompt: Prompt) -> None:
        """Ask for a text in the footer."""

    def end_prompt(self, *, keep: bool) -> None:
        """Do what was typed, or take it back."""

    def turn_ribbon(self) -> None:
        """Show the whole run above the page, or no longer."""

    def turn_alerts(self) -> None:
        """Ring for alerts, or no longer; the banner stays."""

    def perform(self, name: str) -> None:
        """Do a command, or say why it cannot be done."""

    def show(self, name: str) -> None:
        """Put the page of this name on top."""

    def show_page(self, page: Page) -> None:
        """Put a page on top as it was left."""

    def show_detail(self, page: Page) -> None:
        """Put a page on top from its first row on."""

    def open_target(self, target: Target | None) -> None:
        """Open what enter or a click points at."""

    def go_back(self) -> None:
        """Close the page on top."""

    def quit(self) -> None:
        """Leave for home, where that is behind, else leave the screens."""


class Page:
    """A body of the screen between header and footer. The class attributes are what it declares of itself."""

    name = ""
    title = ""
    about = ""  # the paragraph above its keys in the help
    is_screen = False  # it has a number and replaces whatever is open; else it lies over it
    may_be_first = False  # it may be preferred as the first screen
    of_run = True  # shows the run that is open: its notices and replay keys belong here
    about_run = False  # else: speaks of that run as a whole, so it stands above
    says_verdict = False  # the decision stands at its top, so no banner has to repeat it
    tells_findings = True  # a finding that opens has its banner above; a stall always has
    wants_jobs = False  # shows what runs, so the list is kept up to date while it is on top
    tells_losses = False  # one row above it says what was lost; the overview has a place of its own for that
    filter_hint = ""  # what may be typed into its filter; "" for a page that is no list
    terms: tuple[str, ...] = ()  # of `text/glossary.py` that stand on it: the help explains them
    keys: tuple[str, ...] = ()  # names of commands, most useful first: footer and help read them
    commands: ClassVar[
        tuple[Command, ...]
    ] = ()  # that this page brings; they work, or say why not, everywhere

    labels: ClassVar[Mapping[str, str]] = {}  # what a command is called here, where it is not its usual name
    abouts: ClassVar[
        Mapping[str, str]
    ] = {}  # what it does here, in words, where that is not what it usually does
    does: ClassVar[Mapping[str, Callable[[Place], None]]] = {}  # and the doing
    own: ClassVar[frozenset[str]] = frozenset()  # of `does`: where no usual condition stands in their way
    opens: ClassVar[Mapping[str, Callable[[Place, str], None]]] = {}  # kind of target: what enter on one does

    def __init__(self) -> None:
        self.cursor: Target | None = None
        self.top = 0  # first visible row of a page longer than the screen
        self.num_rows = 0
        self.rows_shown = 0  # at once of those; 0: not drawn yet
        self.num_below = 0  # rows that do not fit on the screen any more
        self.targets: list[Target] = []
        self.follows = False  # the cursor moved: bring it into view
        self.target_rows: dict[Target, int] = {}
        self.filter = ""
        self.wanted: tuple[str, ...] = ()  # recordings on the screen whose rows wait to be read
        self.can_go_live = False  # a recording is shown and a live run is behind it
        self.desk = NO_DESK
        self.has_ribbon = False  # the whole run stands above it

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return exactly the rows to draw, at most `height`."""
        raise NotImplementedError

    def refusal(self, command: Command, state: FeedState) -> str:
        """Why a command cannot be used on this page now, or an empty text."""
        return "" if command.name in self.own else command.why_not(state, self)

    def headline(self, state: FeedState) -> str:  # noqa: ARG002 - pages beside the run override
        """A badge's word and what stands behind it in the header, instead of the run that is open; "" for the run."""
        return ""

    def shows_announced(self, state: FeedState) -> bool:  # noqa: ARG002 - pages with a card override
        """Whether the stacks that the notice announces stand on this page, so that it need not lead there."""
        return False

    # --- what it is told, whether it is on top or not

    def take_preferences(self, held: Preferences, file: str) -> None:
        """What is preferred as the screens begin, and where it is kept."""

    def take_state(self, when: str, state: FeedState) -> None:
        """A newer state of the run; when: the time of day."""

    def take_alert(self, when: str, alert: Alert, state: FeedState) -> None:
        """What the terminal was rung for."""

    def take_answer(self, when: str, text: str) -> None:
        """What came of a command."""

    # --- cursor

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
        """Show the next or former screenful, of what scrolls where a part of the page stands still."""
        most = self.rows_shown or abs(rows)
        self.scroll(max(min(rows, most), -most))

    def scroll(self, rows: int) -> None:
        """Move the view; `lines` keeps it within the page."""
        self.top = max(self.top + rows, 0)

    def pointed(self) -> Target | None:
        """Return what the cursor stands on; asked at every picture, it changes nothing."""
        return self.cursor if self.cursor in self.targets else None

    def opened(self) -> Target | None:
        """Return what enter opens."""
        return self.pointed()

    def can_open(self, state: FeedState) -> bool:  # noqa: ARG002 - pages that need it override
        """Whether enter does anything."""
        return bool(self.targets)

    def step_at(self, row: int, column: int) -> int | None:  # noqa: ARG002 - pages with a map of steps override
        """Return the step that is drawn in a cell of the page, None where none is."""
        return None

    def meant(self, state: FeedState) -> Target | None:  # noqa: ARG002
        """What enter opens without a cursor: the only thing there is."""
        return self.targets[0] if len(self.targets) == 1 else None

    def copied(self, state: FeedState) -> str:
        """Return the whole page as text, beyond what fits on the screen; blank rows in a row are one."""
        top, self.top = self.top, 0
        rows = [row.text.rstrip() for row in self.lines(state, COPY_WIDTH, COPY_ROWS)]
        self.top = top
        kept = [text for place, text in enumerate(rows) if text or (place and rows[place - 1])]
        return "\n".join(kept).strip("\n") + "\n"

    def arranged(self, rows: list[Line], width: int, height: int) -> list[Line]:
        """Return the visible part of the rows with the cursor drawn; remembers the targets."""
        self.num_rows, self.rows_shown = len(rows), height
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
