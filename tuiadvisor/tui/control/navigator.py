"""Which page is open, what each key does, and the rows of the whole screen.

No Textual here: the application passes keys in and draws the rows it gets. In: FeedState, keys.  Out: lines.
Keys, prompt, palette and footer are our own, not Textual's bindings, Input, command palette and Footer. `check_action`
hides or greys what cannot be done; here every key answers why not, in the footer, the palette and the help. And the
whole screen stays one list of rows: pages are tested without a terminal, and each frame is one cell difference, 535 to
744 bytes a second on 80x24 with 1,024 ranks (tests/benchmarks/RESULTS.md; aim 1 kB). What Textual's own widgets would
write there was not measured.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic, strftime
from typing import TYPE_CHECKING

from tuiadvisor.preferences import Preferences
from tuiadvisor.text.line import BLANK
from tuiadvisor.tui.contract.desk import NO_DESK
from tuiadvisor.tui.contract.feed import ChooseSteps
from tuiadvisor.tui.control import frame, in_time, ribbon
from tuiadvisor.tui.control.alerts import Alerts
from tuiadvisor.tui.control.prompts import Prompts
from tuiadvisor.tui.control.registry import PAGES, command_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.text.line import Line, Target
    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import AnyPage, Command, Page
    from tuiadvisor.tui.contract.prompt import Prompt
    from tuiadvisor.tui.contract.shell import Shell

MESSAGE_S = 4.0
LEAST_DRAG = 2  # columns; less is a click by an unsteady hand
Cell = tuple[int, int]  # row and column of the screen
# Escape and a character that arrive at once are one sign to Textual, which a Mac's option key would type.
_BEHIND_ESCAPE = dict(
    zip(
        "\u00a1\u2122\u00a3\u00a2\u221e\u00a7\u00b6\u2022\u00aa\u00ba\u2013\u2260",
        "1234567890-=",
        strict=True,
    )
)
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
        pages: tuple[type[Page], ...] = PAGES,
    ) -> None:
        """pages: the screens there are."""
        self.shell: Shell = shell
        self.state: FeedState = state
        self.intro: str | None = intro
        self.clock: Callable[[], float] = clock
        self.table = command_table(pages)
        self.commands: tuple[Command, ...] = self.table.commands
        self.pages: dict[type[Page], Page] = {kind: kind() for kind in pages}
        self.by_name: dict[str, Page] = {page.name: page for page in self.pages.values()}
        self.openers = {kind: opener for page in pages for kind, opener in page.opens.items()}
        for page in self.pages.values():
            page.take_preferences(preferences or Preferences(), preferences_file)
        self.home: Page = self.by_name["home" if first_page == "home" else "overview"]
        self.stack: list[Page] = [self.by_name[first_page]]
        self.desk: DeskState = NO_DESK
        self.num_answers = 0
        self.asking: Prompts = Prompts()
        self.alerts = Alerts(clock)
        self.alerts.take(state)  # what is there at first is no news: the application is not there yet to ring
        self.message = ""
        self.message_until_s = 0.0
        self.wire_note = ""
        self.page_rows: int = 1
        self.drawn: list[Line] = []
        self.shows_ribbon = True
        self.ribbon_row = self.body_row = 0  # where they begin on the screen
        self.has_bar = False  # the page's run has its line of time: beside it, as at home, there is none
        self.width = 0

    @property
    def page(self) -> Page:
        """The page on top."""
        return self.stack[-1]

    def at(self, kind: type[AnyPage]) -> AnyPage:
        """The one page of this class."""
        page = self.pages[kind]
        assert isinstance(page, kind)  # noqa: S101 - the table is made so
        return page

    def take_desk(self, desk: DeskState) -> None:
        """Show what lies beside the run; say the answer to the last command."""
        self.desk = desk
        for page in self.pages.values():
            page.desk = desk
        for page in self.stack:
            page.can_go_live = desk.has_live and bool(desk.open_path)
        if desk.num_answers != self.num_answers:
            self.num_answers = desk.num_answers
            if desk.answer:
                self.say(desk.answer)
                for page in self.pages.values():
                    page.take_answer(self.wall_time(), desk.answer)

    def take_state(self, state: FeedState) -> None:
        """Show a newer state of the run; every page is told of it, the log keeps what it tells of the tool itself."""
        when = self.wall_time()
        for page in self.pages.values():
            page.take_state(when, state)
        self.state = state
        told = self.alerts.take(state)
        if told is not None:
            self.shell.alert(told.words)
            for page in self.pages.values():
                page.take_alert(when, told, state)

    def wall_time(self) -> str:
        """Return the time of day, for the log."""
        return strftime("%H:%M:%S")

    def wanted_runs(self) -> tuple[str, ...]:
        """Return the recordings whose rows are on the screen and wait to be read."""
        return self.page.wanted

    def rows(self, width: int, height: int) -> list[Line]:
        """Return the whole screen."""
        self.width = width
        if width < frame.SMALLEST[0] or height < frame.SMALLEST[1]:
            self.drawn = frame.too_small(width, height)
            return self.drawn
        told = replace(self.state, notice="") if self.page.shows_announced(self.state) else self.state
        notice = frame.notice(told, width, height) if self.page.of_run else []
        notice += frame.lost(self.state, width, height) if self.page.tells_losses else []
        top = [
            frame.header(self.state, width, self.page.headline(self.state), self._tabs()),
            *self.alerts.rows(
                self.state,
                width,
                has_verdict=self.page.says_verdict,
                tells_findings=self.page.tells_findings,
            ),
            *notice,
        ]
        self.has_bar = self.page.of_run or self.page.about_run
        bar = frame.replay_bar(self.state, width) if self.has_bar else []
        self.ribbon_row = len(top)
        shows_run = self.shows_ribbon and (self.page.of_run or self.page.about_run)
        num_rows = ribbon.num_rows_for(
            height,
            is_screen=self.page.of_run and self.page.is_screen,
            has_stretch=self.page.of_run and self.state.stretch is not None,
        )
        if shows_run and num_rows and self.state.view is not None:
            top += ribbon.rows(
                self.state.view,
                width,
                self.state.stretch,
                events=self.state.events,
                num_rows=num_rows,
                with_brackets=self.page.of_run,
                share_read=1.0 if self.state.replay is None else self.state.replay.share_read,
            )
        self.body_row = len(top)
        self.page.has_ribbon = self.body_row > self.ribbon_row
        room = height - len(top) - len(bar) - 1
        self.page_rows = max(room - 4, 1)
        body = self.page.lines(self.state, width, room)[:room]
        body += [BLANK] * (room - len(body))
        if self.intro:
            body = frame.overlay(body, frame.card(self.intro, width), width)
        # The footer comes last: which keys are of use depends on what the page has drawn.
        self.drawn = [*top, *body, *bar, self._footer(width)]
        return self.drawn

    def _tabs(self) -> list[frame.Tab]:
        """The screens with a number, in the order of their numbers."""
        shown = [one for one in self.commands if one.group == "screens" and one.shown in "12345678"]
        return [
            frame.Tab(one.shown, one.label, one.name, is_open=one.name == self.stack[0].name)
            for one in sorted(shown, key=lambda each: int(each.shown))
        ]

    def _footer(self, width: int) -> Line:
        asked = self.asking.prompt
        if asked is not None:
            return frame.prompt(asked.question, asked.typed, asked.hint, width, asked.refused)
        if self.message and self.clock() > self.message_until_s:
            self.message = ""
        return frame.footer(
            self.table, self.state, self.page, width, message=self.message, wire=self.wire_note
        )

    def say(self, text: str) -> None:
        """Answer the last key in the footer, for a few seconds."""
        self.message = text
        self.message_until_s = self.clock() + MESSAGE_S

    # --- keys and mouse

    def key(self, key: str, character: str | None) -> None:
        """Take a key: quit first, then an open prompt, the intro card, the commands."""
        if (behind := self._behind_escape(key, character)) is not None:
            self.key("escape", None)
            self.key(behind, behind)
            return
        printable = character is not None and character.isprintable() and key != "space"
        pressed = character if character is not None and printable else key
        if pressed in {"ctrl+c", "ctrl+q"}:
            self.shell.leave()
        elif pressed == "q" and self.asking.prompt is None:
            self.quit()
        elif self.asking.key(key, character):
            pass
        elif self.intro is not None:
            self.intro = None
            if pressed in self.table.by_key and pressed not in _ONLY_CLOSE:
                self.perform(self.table.by_key[pressed].name)
        elif pressed in self.table.by_key:
            self.perform(self.table.by_key[pressed].name)
        elif printable:
            self.say(f"{pressed} does nothing here: ? shows the keys")

    def _behind_escape(self, key: str, character: str | None) -> str | None:
        """The character of two keys that came as one; what a keyboard has of its own may be typed in a prompt."""
        if key.startswith("alt+") and character is not None and len(character) == 1:
            return character
        return _BEHIND_ESCAPE.get(character or "") if self.asking.prompt is None else None

    def quit(self) -> None:
        """Leave what was opened from home for home, else leave the screens."""
        if self.desk.can_attach and self.page.name != "home":
            self.perform("home")  # which looks again: what was opened may have been written meanwhile
        else:
            self.shell.leave(back=True)

    def paste(self, text: str) -> None:
        """Take pasted text into an open prompt."""
        self.asking.paste(text)

    def turn_ribbon(self) -> None:
        """Show the whole run above the page, or no longer."""
        self.shows_ribbon = not self.shows_ribbon
        if self.shows_ribbon and not (self.page.of_run or self.page.about_run):
            self.say("above the screens of the run: press 1")

    def _step_at(self, row: int, column: int) -> int | None:
        """The step that is drawn in a cell of the ribbon or of the page."""
        if self.ribbon_row <= row < self.body_row and self.state.view is not None:
            stretch = self.state.stretch
            run = stretch.run if stretch is not None else self.state.view.trend
            return ribbon.step_at(self.state.view, run, column, self.width)
        if row == len(self.drawn) - 2 and self.has_bar and self.state.replay is not None:
            return frame.bar_step(self.state.replay, column, self.width)
        return self.page.step_at(row - self.body_row, column) if row >= self.body_row else None

    def drag(self, begin: Cell, end: Cell) -> bool:
        """Take the steps between two places of the ribbon as the stretch of all figures; False where none are."""
        on_ribbon = all(self.ribbon_row <= row < self.body_row for row, _ in (begin, end))
        if not on_ribbon or abs(begin[1] - end[1]) < LEAST_DRAG or self.intro is not None:
            return False
        first, last = sorted((begin[1], end[1]))
        steps = [
            step for column in range(first, last + 1) if (step := self._step_at(end[0], column)) is not None
        ]
        if not steps:
            return False
        self.shell.ask(ChooseSteps(steps[0], steps[-1]))
        return True

    def click(self, row: int, column: int = 0) -> None:
        """Do what the cell is named after, go to the step drawn there, or open what is drawn in this row."""
        named = self.drawn[row].spot(column) if 0 <= row < len(self.drawn) else ""
        if named and self.intro is None:
            self.asking.close(keep=False)
            kind, is_target, name = named.partition(":")
            if is_target:
                self.open_target((kind, name))
            else:
                self.perform(named)
            return
        step = self._step_at(row, column) if self.intro is None and row < len(self.drawn) - 1 else None
        if step is not None:
            in_time.seek(self, str(step))
            return
        target = self.drawn[row].target if 0 <= row < len(self.drawn) else None
        if self.intro is not None:
            self.intro = None
        elif target is not None:
            self.page.cursor = target
            self.open_target(target)

    def perform(self, name: str) -> None:
        """Do a command as the page on top does it, or say why it cannot be done."""
        self.message = ""
        command = self.table.by_name[name]
        reason = self.page.refusal(command, self.state)
        if reason:
            self.say(f"{command.shown}: {reason}")
        else:
            self.page.does.get(name, command.do)(self)

    def turn_alerts(self) -> None:
        """Ring for alerts, or no longer; the banner stays."""
        self.alerts.is_quiet = not self.alerts.is_quiet
        self.say("alerts: the banner alone" if self.alerts.is_quiet else "alerts: bell and notification, too")

    def ask_for(self, prompt: Prompt) -> None:
        """Ask for a text in the footer."""
        self.asking.open(prompt)

    def end_prompt(self, *, keep: bool) -> None:
        """Do what was typed, or take it back."""
        self.asking.close(keep=keep)

    # --- pages

    def show(self, name: str) -> None:
        """Put the page of this name on top."""
        self.show_page(self.by_name[name])

    def show_page(self, page: Page) -> None:
        """Put a page on top; a screen with a number replaces whatever is open."""
        page.can_go_live = self.desk.has_live and bool(self.desk.open_path)
        if page.is_screen:
            self.stack = [page]
        elif page in self.stack:
            del self.stack[self.stack.index(page) + 1 :]
        else:
            self.stack.append(page)

    def show_detail(self, page: Page) -> None:
        """Put a page on top from its first row on."""
        page.top = 0
        self.show_page(page)

    def open_target(self, target: Target | None) -> None:
        """Open what enter or a click points at; without a cursor what is meant, else set the cursor."""
        target = target or self.page.meant(self.state)
        if target is None:
            self.page.move(1)
        elif target[0] in self.openers:
            self.openers[target[0]](self, target[1])

    def go_back(self) -> None:
        """Close the page on top, or clear the filter, or return to the overview."""
        if len(self.stack) > 1:
            self.stack.pop()
        elif self.page.filter:
            self.page.filter = ""
        elif self.page is not self.home:
            self.perform(self.home.name)
        else:
            self.home.cursor = None
