"""Which page is open, what is being typed, what each key does, and the rows of the whole screen.

No Textual here: the application passes keys in and draws the rows it gets. In: FeedState, keys.  Out: lines.
"""

from __future__ import annotations

from time import monotonic, strftime
from typing import TYPE_CHECKING

from tuiadvisor.preferences import Preferences
from tuiadvisor.text.line import BLANK
from tuiadvisor.tui.contract import commands
from tuiadvisor.tui.contract.desk import NO_DESK
from tuiadvisor.tui.control import frame
from tuiadvisor.tui.control.actions import ACTIONS, FEED_COMMANDS
from tuiadvisor.tui.control.prompts import Prompts
from tuiadvisor.tui.pages.comparison import ComparePage
from tuiadvisor.tui.pages.details import FindingPage, RankPage
from tuiadvisor.tui.pages.guidance import Guidance
from tuiadvisor.tui.pages.help import HelpPage, PalettePage
from tuiadvisor.tui.pages.journal import Journal, LogPage
from tuiadvisor.tui.pages.overlap import OverlapPage
from tuiadvisor.tui.pages.overview import Overview
from tuiadvisor.tui.pages.pipeline import Pipeline
from tuiadvisor.tui.pages.preferences import PreferencesPage
from tuiadvisor.tui.pages.ranks import Ranks
from tuiadvisor.tui.pages.runs import Runs
from tuiadvisor.tui.pages.scaling import ScalingPage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.text.line import Line, Target
    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Page
    from tuiadvisor.tui.contract.shell import Shell

MESSAGE_S = 4.0
# Keys that close the intro card and do nothing else.
_ONLY_CLOSE = frozenset({"escape", "enter", "space"})


class Navigator:
    """The user's place in the screens."""

    def __init__(
        self,
        shell: Shell,
        state: FeedState,
        *,
        intro: str | None = None,
        first_page: str = "overview",
        preferences: Preferences | None = None,
        preferences_file: str = "",
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.shell: Shell = shell
        self.state: FeedState = state
        self.intro: str | None = intro
        self.clock: Callable[[], float] = clock
        self.overview: Overview = Overview()
        self.ranks: Ranks = Ranks()
        self.overlap: OverlapPage = OverlapPage()
        self.pipeline: Pipeline = Pipeline()
        self.runs: Runs = Runs()
        self.compare: ComparePage = ComparePage()
        self.advisor: Guidance = Guidance()
        self.scaling: ScalingPage = ScalingPage()
        self.preferences: PreferencesPage = PreferencesPage(preferences or Preferences(), preferences_file)
        self.journal: Journal = Journal()
        self.log: LogPage = LogPage(self.journal)
        self.help: HelpPage = HelpPage()
        self.palette: PalettePage = PalettePage()
        self.finding_page: FindingPage = FindingPage()
        self.rank_page: RankPage = RankPage()
        # The screens with a number: each replaces whatever is open.
        self.screens: dict[str, Page] = {
            page.name: page
            for page in (
                self.overview,
                self.ranks,
                self.pipeline,
                self.overlap,
                self.advisor,
                self.scaling,
                self.compare,
                self.runs,
            )
        }
        self.stack: list[Page] = [self.screens[first_page]]
        self.desk: DeskState = NO_DESK
        self.num_answers = 0
        self.asking: Prompts = Prompts(self)
        self.message = ""
        self.message_until_s = 0.0
        self.wire_note = ""
        self.page_rows: int = 1
        self.drawn: list[Line] = []

    @property
    def page(self) -> Page:
        """The page on top."""
        return self.stack[-1]

    def take_desk(self, desk: DeskState) -> None:
        """Show what lies beside the run; say the answer to the last command."""
        self.desk = self.runs.desk = self.compare.desk = self.advisor.desk = self.scaling.desk = desk
        for page in self.stack:
            page.can_go_live = desk.has_live and bool(desk.open_path)
        if desk.num_answers != self.num_answers:
            self.num_answers = desk.num_answers
            if desk.answer:
                self.say(desk.answer)
                self.journal.add(self.wall_time(), desk.answer)

    def take_state(self, state: FeedState) -> None:
        """Show a newer state of the run; what it tells of the tool itself goes into the log."""
        if state is not self.state or not self.journal.entries:
            self.journal.observe(self.wall_time(), state)
        self.state = state

    def wall_time(self) -> str:
        """Return the time of day, for the log."""
        return strftime("%H:%M:%S")

    def wanted_runs(self) -> tuple[str, ...]:
        """Return the recordings whose rows are on the screen and wait to be read."""
        return self.runs.wanted if self.page is self.runs else ()

    def rows(self, width: int, height: int) -> list[Line]:
        """Return the whole screen."""
        if width < frame.SMALLEST[0] or height < frame.SMALLEST[1]:
            self.drawn = frame.too_small(width, height)
            return self.drawn
        notice = frame.notice(self.state, width, height) if self.page.of_run else []
        notice += frame.lost(self.state, width) if self.page.tells_losses else []
        top = [frame.header(self.state, width), *notice]
        bar = frame.replay_bar(self.state, width)
        room = height - len(top) - len(bar) - 1
        self.page_rows = max(room - 4, 1)
        body = self.page.lines(self.state, width, room)[:room]
        body += [BLANK] * (room - len(body))
        if self.intro:
            body = frame.overlay(body, frame.card(self.intro, width), width)
        # The footer comes last: which keys are of use depends on what the page has drawn.
        self.drawn = [*top, *body, *bar, self._footer(width)]
        return self.drawn

    def _footer(self, width: int) -> Line:
        asked = self.asking.prompt
        if asked is not None:
            return frame.prompt(asked.question, asked.typed, asked.hint, width)
        if self.message and self.clock() > self.message_until_s:
            self.message = ""
        return frame.footer(self.state, self.page, width, self.message, self.wire_note)

    def say(self, text: str) -> None:
        """Answer the last key in the footer, for a few seconds."""
        self.message = text
        self.message_until_s = self.clock() + MESSAGE_S

    # --- keys and mouse

    def key(self, key: str, character: str | None) -> None:
        """Take a key: quit first, then an open prompt, the intro card, the commands."""
        printable = character is not None and character.isprintable() and key != "space"
        pressed = character if character is not None and printable else key
        if pressed in {"ctrl+c", "ctrl+q"} or (pressed == "q" and self.asking.prompt is None):
            self.shell.leave()
        elif self.asking.key(key, character):
            pass
        elif self.intro is not None:
            self.intro = None
            if pressed in commands.BY_KEY and pressed not in _ONLY_CLOSE:
                self.perform(commands.BY_KEY[pressed].name)
        elif pressed in commands.BY_KEY:
            self.perform(commands.BY_KEY[pressed].name)
        elif printable:
            self.say(f"{pressed} does nothing here: ? shows the keys")

    def paste(self, text: str) -> None:
        """Take pasted text into an open prompt."""
        self.asking.paste(text)

    def click(self, row: int) -> None:
        """Open what is drawn in a row of the screen."""
        target = self.drawn[row].target if 0 <= row < len(self.drawn) else None
        if self.intro is not None:
            self.intro = None
        elif target is not None and target[0] == "command":
            self.palette.cursor = target
            self.asking.close(keep=True)
        elif target is not None:
            self.page.cursor = target
            self.open_target(target)

    def perform(self, name: str) -> None:
        """Do a command, or say why it cannot be done."""
        self.message = ""
        reason = commands.why_not(name, self.state, self.page)
        if reason:
            self.say(f"{commands.BY_NAME[name].shown}: {reason}")
        elif name in FEED_COMMANDS:
            self.shell.ask(*FEED_COMMANDS[name])
        else:
            ACTIONS[name](self)

    def filtered(self) -> Ranks | Runs:
        """The list that `/` filters here."""
        return self.runs if self.page is self.runs else self.ranks

    def show_preferences(self) -> None:
        """What is preferred, over whatever is open."""
        self._show_detail(self.preferences)

    # --- pages

    def show_page(self, page: Page) -> None:
        """Put a page on top; a screen with a number replaces whatever is open."""
        page.can_go_live = self.desk.has_live and bool(self.desk.open_path)
        if page in self.screens.values():
            self.stack = [page]
        elif page in self.stack:
            del self.stack[self.stack.index(page) + 1 :]
        else:
            self.stack.append(page)

    def _first_target(self) -> Target | None:
        """What is meant without a cursor: the first finding of the overview, or the only thing there is."""
        findings = self.state.view.findings if self.state.view else ()
        if self.page is self.overview and findings:
            return ("finding", findings[0].id)
        return self.page.targets[0] if len(self.page.targets) == 1 else None

    def open_target(self, target: Target | None) -> None:
        """Open what enter or a click points at; without a cursor what is meant, else set the cursor."""
        target = target or self._first_target()
        if target is None:
            self.page.move(1)
        elif target[0] == "finding":
            self.finding_page.finding_id = target[1]
            self._show_detail(self.finding_page)
        elif target[0] == "run":
            self.shell.ask("open_run", target[1])
            self.show_page(self.overview)
        elif target[0] == "pattern":
            self.advisor.show_pattern(target[1])
        elif target[0] in ASKING:
            ASKING[target[0]](self.asking)
        elif target[0] == "live":
            self.go_live()
        elif target[0] == "group":
            self.ranks.toggle(target[1])
        elif target[0] == "rank":
            self.rank_page.rank = int(target[1])
            self.rank_page.cursor = None
            self._show_detail(self.rank_page)

    def _show_detail(self, page: Page) -> None:
        page.top = 0
        self.show_page(page)

    def go_back(self) -> None:
        """Close the page on top, or clear the filter, or return to the overview."""
        if len(self.stack) > 1:
            self.stack.pop()
        elif self.page in (self.ranks, self.runs) and self.filtered().filter:
            self.filtered().filter = ""
        elif self.page is not self.overview:
            self.show_page(self.overview)
        else:
            self.overview.cursor = None

    def go_live(self) -> None:
        """From a recording back to the live run."""
        self.shell.ask("go_live")
        self.show_page(self.overview)

    def show_runs(self) -> None:
        """The list of recordings, looked up anew."""
        self.shell.ask("list_runs")
        self.show_page(self.runs)

    def show_advisor(self) -> None:
        """The guided session on what is shown."""
        self.shell.ask("advise")
        self.show_page(self.advisor)

    def show_scaling(self) -> None:
        """How what is shown scales."""
        self.shell.ask("scale")
        self.show_page(self.scaling)

    def show_help(self) -> None:
        """Open the help for the page below, or close it."""
        if self.page is self.help:
            self.go_back()
            return
        self.help.below = self.page
        self._show_detail(self.help)

    def show_palette(self) -> None:
        """List the commands with a prompt that filters them."""
        self.palette.below = self.page
        self.palette.typed = ""
        self.palette.cursor = None
        self._show_detail(self.palette)
        self.asking.open("palette", ":", "type to filter, up and down choose, enter does it")


# What enter asks for in the footer.
ASKING: dict[str, Callable[[Prompts], None]] = {
    "question": Prompts.ask_question,
    "entry": Prompts.ask_size,
    "preference": Prompts.ask_preference,
}
