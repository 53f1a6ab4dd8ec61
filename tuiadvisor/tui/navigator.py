"""Which page is open, what is being typed, what each key does, and the rows of the whole screen.

No Textual here: the application passes keys in and draws the rows it gets. In: FeedState, keys.  Out: lines.
"""

from __future__ import annotations

from time import monotonic, strftime
from typing import TYPE_CHECKING, Protocol

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.preferences import Preferences, changed, moved, shown
from tuiadvisor.tui import chrome, commands
from tuiadvisor.tui.comparison import ComparePage
from tuiadvisor.tui.desk import NO_DESK
from tuiadvisor.tui.details import FindingPage, RankPage
from tuiadvisor.tui.guidance import Guidance, answer_hint, typed_answer
from tuiadvisor.tui.help import HelpPage, PalettePage
from tuiadvisor.tui.journal import Journal, LogPage
from tuiadvisor.tui.line import BLANK
from tuiadvisor.tui.overlap import OverlapPage
from tuiadvisor.tui.overview import Overview
from tuiadvisor.tui.pipeline import Pipeline
from tuiadvisor.tui.preferences import PreferencesPage
from tuiadvisor.tui.prompt import Prompt
from tuiadvisor.tui.ranks import Ranks
from tuiadvisor.tui.runs import Runs
from tuiadvisor.tui.scaling import ScalingPage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.tui.desk import DeskState
    from tuiadvisor.tui.feed import FeedState
    from tuiadvisor.tui.line import Line, Target
    from tuiadvisor.tui.page import Page

MESSAGE_S = 4.0
# Keys that close the intro card and do nothing else.
_ONLY_CLOSE = frozenset({"escape", "enter", "space"})


class Shell(Protocol):
    """What the application does for the navigator."""

    def ask(self, name: str, value: object = None) -> None:
        """Send a command to the feed."""
        ...

    def leave(self) -> None:
        """Quit at once."""
        ...

    def redraw(self) -> None:
        """Draw the whole screen anew."""
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
        self.shell = shell
        self.state = state
        self.intro = intro
        self.clock = clock
        self.overview = Overview()
        self.ranks = Ranks()
        self.overlap = OverlapPage()
        self.pipeline = Pipeline()
        self.runs = Runs()
        self.compare = ComparePage()
        self.advisor = Guidance()
        self.scaling = ScalingPage()
        self.preferences = PreferencesPage(preferences or Preferences(), preferences_file)
        self.journal = Journal()
        self.log = LogPage(self.journal)
        self.help = HelpPage()
        self.palette = PalettePage()
        self.finding_page = FindingPage()
        self.rank_page = RankPage()
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
        self.desk = NO_DESK
        self.num_answers = 0
        self.prompt: Prompt | None = None
        self.message = ""
        self.message_until_s = 0.0
        self.wire_note = ""
        self.page_rows = 1
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
        if width < chrome.SMALLEST[0] or height < chrome.SMALLEST[1]:
            self.drawn = chrome.too_small(width, height)
            return self.drawn
        notice = chrome.notice(self.state, width) if self.page.of_run else []
        notice += chrome.lost(self.state, width) if self.page.tells_losses else []
        top = [chrome.header(self.state, width), *notice]
        bar = chrome.replay_bar(self.state, width)
        room = height - len(top) - len(bar) - 1
        self.page_rows = max(room - 4, 1)
        body = self.page.lines(self.state, width, room)[:room]
        body += [BLANK] * (room - len(body))
        if self.intro:
            body = chrome.overlay(body, chrome.card(self.intro, width), width)
        # The footer comes last: which keys are of use depends on what the page has drawn.
        self.drawn = [*top, *body, *bar, self._footer(width)]
        return self.drawn

    def _footer(self, width: int) -> Line:
        if self.prompt is not None:
            return chrome.prompt(self.prompt.question, self.prompt.typed, self.prompt.hint, width)
        if self.message and self.clock() > self.message_until_s:
            self.message = ""
        return chrome.footer(self.state, self.page, width, self.message, self.wire_note)

    def say(self, text: str) -> None:
        """Answer the last key in the footer, for a few seconds."""
        self.message = text
        self.message_until_s = self.clock() + MESSAGE_S

    # --- keys and mouse

    def key(self, key: str, character: str | None) -> None:
        """Take a key: quit first, then an open prompt, the intro card, the commands."""
        printable = character is not None and character.isprintable() and key != "space"
        pressed = character if character is not None and printable else key
        if pressed in {"ctrl+c", "ctrl+q"} or (pressed == "q" and self.prompt is None):
            self.shell.leave()
        elif self.prompt is not None:
            self._type(self.prompt, key, character)
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
        if self.prompt is not None:
            self.prompt.insert(text)
            self._typed(self.prompt)

    def click(self, row: int) -> None:
        """Open what is drawn in a row of the screen."""
        target = self.drawn[row].target if 0 <= row < len(self.drawn) else None
        if self.intro is not None:
            self.intro = None
        elif target is not None and target[0] == "command":
            self.palette.cursor = target
            self._close_prompt(keep=True)
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

    # --- prompt

    def _type(self, prompt: Prompt, key: str, character: str | None) -> None:
        if key == "escape":
            self._close_prompt(keep=False)
        elif key == "enter":
            self._close_prompt(keep=True)
        elif prompt.name == "palette" and key in {"up", "down"}:
            self.palette.move(1 if key == "down" else -1)
        elif prompt.key(key, character):
            self._typed(prompt)

    def _typed(self, prompt: Prompt) -> None:
        if prompt.name == "filter":
            self.filtered().filter = prompt.typed
        elif prompt.name == "palette":
            self.palette.typed = prompt.typed

    def _close_prompt(self, *, keep: bool) -> None:
        prompt, self.prompt = self.prompt, None
        if prompt is None:
            return
        if prompt.name == "filter" and not keep:
            self.filtered().filter = ""
        elif prompt.name == "note" and keep:
            self._bookmark(prompt.typed)
        elif prompt.name == "answer" and keep:
            self._answer(prompt.typed)
        elif prompt.name == "size" and keep:
            self._state_size(prompt.typed)
        elif prompt.name == "preference" and keep:
            self._prefer_typed(prompt.typed)
        elif prompt.name == "seek" and keep:
            self._seek(prompt.typed)
        elif prompt.name == "palette":
            chosen = self.palette.opened()
            self.stack.remove(self.palette)
            if keep and chosen is not None:
                self.perform(chosen[1])

    def filtered(self) -> Ranks | Runs:
        """The list that `/` filters here."""
        return self.runs if self.page is self.runs else self.ranks

    def _seek(self, typed: str) -> None:
        where = self.state.replay or self.state.past
        text = typed.replace(",", "").strip()
        if not text:
            return
        if not (text.isascii() and text.isdecimal()):
            self.say(f"“{typed}” is not a step number: digits only")
            return
        step = int(text)
        first, last = (where.first_step, where.last_step) if where is not None else (None, None)
        if (first is not None and step < first) or (last is not None and step > last):
            ends = f"{first or 0:,} to {last:,}" if last is not None else f"steps from {first:,} on"
            what = "not in this recording: it" if self.state.replay is not None else "not held: the fold"
            self.say(f"step {step:,} is {what} holds {ends}")
            return
        self.shell.ask("seek_step", step)

    def filter_hint(self) -> str:
        """What may be typed into the filter."""
        return RUNS_HINT if self.page is self.runs else FILTER_HINT

    def _bookmark(self, note: str) -> None:
        step = self.state.replay.step if self.state.replay is not None else None
        if step is None:
            self.say("b: no step has been replayed yet")
            return
        self.shell.ask("bookmark", (step, note.strip()))

    def copy_page(self) -> None:
        """The whole page as text."""
        self.say(self.shell.copy(self.page.copied(self.state)))

    def _ask_question(self) -> None:
        asked = self.advisor.question()
        if asked is not None:
            typed = "" if asked.answer is None else str(asked.answer)
            empty = "empty skips it" if asked.answer is None else "empty takes it back"
            self.open_prompt("answer", "answer", f"{answer_hint(asked)}; {empty}, esc stops", typed)

    def _answer(self, typed: str) -> None:
        """Send what was typed and ask the next open question of this pattern."""
        asked = self.advisor.question()
        if asked is None:
            return
        if typed.strip() or asked.answer is not None:
            self.shell.ask("answer", (asked.id, typed_answer(asked, typed)))
        if self.advisor.advance():
            self._ask_question()
        else:
            self.say("that was the last open question of this pattern: right goes on to the next")

    def _ask_size(self) -> None:
        entry = self.scaling.entry()
        if entry is not None:
            self.open_prompt("size", entry.label, f"{entry.hint}; empty takes it back, esc stops", entry.text)

    def _state_size(self, typed: str) -> None:
        entry = self.scaling.entry()
        if entry is not None and typed.strip() != entry.text:
            self.shell.ask("state_size", (entry.name, typed))

    def show_preferences(self) -> None:
        """What is preferred, over whatever is open."""
        self._show_detail(self.preferences)

    def _ask_preference(self) -> None:
        option = self.preferences.option()
        if option is None:
            return
        if option.choices:
            self._prefer(moved(self.preferences.held, option.name, 1))
        else:
            typed = shown(self.preferences.held, option.name)
            self.open_prompt("preference", option.label, f"{option.about}; esc stops", typed)

    def _prefer_typed(self, typed: str) -> None:
        option = self.preferences.option()
        if option is None:
            return
        try:
            self._prefer(changed(self.preferences.held, option.name, typed.strip()))
        except TuiadvisorError as error:
            self.say(str(error))

    def _prefer(self, preferences: Preferences) -> None:
        """Show it at once and keep it."""
        if preferences != self.preferences.held:
            self.preferences.held = preferences
            self.shell.prefer(preferences)
            self.shell.ask("save_preferences", preferences)

    def open_prompt(self, name: str, question: str, hint: str, typed: str = "") -> None:
        """Ask for a text in the footer."""
        self.prompt = Prompt(name, question, hint, typed)

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
            ASKING[target[0]](self)
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

    def look_again(self) -> None:
        """Look into the folder for new recordings."""
        self.shell.ask("scale" if self.page is self.scaling else "list_runs")

    def compare_marked(self) -> None:
        """Compare the two marked recordings."""
        if len(self.runs.marked) < 2:
            self.say("c: mark two recordings first, with m: the one before the change, then the one after")
            return
        self.shell.ask("compare", tuple(self.runs.marked))
        self.show_page(self.compare)

    def swap(self) -> None:
        """Compare the other way round."""
        comparison = self.desk.comparison
        if comparison is None:
            self.say("w: nothing is compared yet")
            return
        self.shell.ask("compare", (comparison.after.path, comparison.before.path))

    def next_finding(self, by: int) -> None:
        """Show the next finding on its page, or select it on the overview."""
        findings = self.state.view.findings if self.state.view else ()
        if self.page is self.finding_page:
            found = self.finding_page.neighbour(self.state.view, by)
            if found is not None:
                self.open_target(("finding", found))
            return
        if self.page is not self.overview:
            self.show_page(self.overview)
        ids = [finding.id for finding in findings]
        current = self.overview.cursor[1] if self.overview.cursor else ""
        index = ids.index(current) + by if current in ids else 0 if by > 0 else -1
        self.overview.cursor = ("finding", ids[index % len(ids)])

    def next_rank(self, by: int) -> None:
        """Show the rank beside this one in the order of the table; in the session the next pattern; else go in time."""
        if self.page is self.preferences:
            pointed = self.preferences.opened()
            if pointed is not None:
                self._prefer(moved(self.preferences.held, pointed[1], by))
            return
        if self.page is self.scaling:
            pointed = self.scaling.opened()
            if pointed is not None:
                self.shell.ask("nudge_size", (pointed[1], by))
            return
        if self.page is self.advisor:
            self.advisor.side(by)
            return
        if self.page is not self.rank_page:
            self.shell.ask("stride", by)
            return
        order = self.ranks.order(self.state.view)
        if self.rank_page.rank in order:
            index = min(max(order.index(self.rank_page.rank) + by, 0), len(order) - 1)
            self.open_target(("rank", str(order[index])))
            self.ranks.cursor = ("rank", str(order[index]))

    def capture(self) -> None:
        """Ask for a profiler window in the rank that is shown or selected."""
        rank = commands.rank_at(self.page)
        if rank is not None:
            self.shell.ask("capture", rank)

    def detail(self) -> None:
        """Ask for steps in detail: of the rank whose details are open, else of all."""
        rank = self.rank_page.rank if self.page is self.rank_page else None
        self.shell.ask("detail", () if rank is None else (rank,))

    def toggle_pause(self) -> None:
        """Freeze or go on."""
        self.shell.ask("resume" if commands.is_paused(self.state) else "pause")

    def next_speed(self) -> None:
        """Ask for the next speed of the replay."""
        if self.state.replay is not None:
            self.shell.ask("speed", commands.next_speed(self.state.replay.speed))

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
        self.open_prompt("palette", ":", "type to filter, up and down choose, enter does it")

    def change_theme(self) -> None:
        """Use the next set of colours."""
        name = self.shell.next_theme()
        self.say(f"colours: {name} (, keeps them as a preference)")


# Commands that only pass through to the feed.
FEED_COMMANDS: dict[str, tuple[str, object]] = {
    "step_back": ("step", -1),
    "step_forward": ("step", 1),
    "mark_back": ("prev_finding", None),
    "mark_forward": ("next_finding", None),
    "end": ("end", None),
}

FILTER_HINT = "7, 8-15, host, stage 2, live, outlier …; enter keeps it, esc clears it"
RUNS_HINT = "name, job or verdict; enter keeps it, esc clears it"
SEEK_HINT = "its number; enter goes there, esc closes"

# What enter asks for in the footer.
ASKING: dict[str, Callable[[Navigator], None]] = {
    "question": Navigator._ask_question,  # noqa: SLF001 - the class's own table
    "entry": Navigator._ask_size,  # noqa: SLF001
    "preference": Navigator._ask_preference,  # noqa: SLF001
}

ACTIONS: dict[str, Callable[[Navigator], None]] = {
    "overview": lambda here: here.show_page(here.overview),
    "ranks": lambda here: here.show_page(here.ranks),
    "pipeline": lambda here: here.show_page(here.pipeline),
    "runs": Navigator.show_runs,
    "compare": lambda here: here.show_page(here.compare),
    "overlap": lambda here: here.show_page(here.overlap),
    "advisor": Navigator.show_advisor,
    "scaling": Navigator.show_scaling,
    "log": lambda here: here.show_page(here.log),
    "report": lambda here: here.shell.ask("report"),
    "copy": Navigator.copy_page,
    "picture": lambda here: here.say(here.shell.picture()),
    "bookmark": lambda here: here.open_prompt("note", "note", "what is to be seen here; enter keeps it"),
    "mark": lambda here: here.say(here.runs.mark()),
    "compare_marked": Navigator.compare_marked,
    "swap": Navigator.swap,
    "refresh": Navigator.look_again,
    "live": Navigator.go_live,
    "help": Navigator.show_help,
    "palette": Navigator.show_palette,
    "back": Navigator.go_back,
    "quit": lambda here: here.shell.leave(),
    "open": lambda here: here.open_target(here.page.opened()),
    "up": lambda here: here.page.move(-1),
    "down": lambda here: here.page.move(1),
    "page_up": lambda here: here.page.turn(-here.page_rows),
    "page_down": lambda here: here.page.turn(here.page_rows),
    "first": lambda here: here.page.move(-1_000_000),
    "last": lambda here: here.page.move(1_000_000),
    "next_finding": lambda here: here.next_finding(1),
    "previous_finding": lambda here: here.next_finding(-1),
    "next_rank": lambda here: here.next_rank(1),
    "previous_rank": lambda here: here.next_rank(-1),
    "sort": lambda here: here.say(f"sorted by {here.ranks.next_sort()}"),
    "reverse": lambda here: here.ranks.turn_round(),
    "group": lambda here: here.say(here.ranks.next_grouping(here.state.view)),
    "open_all": lambda here: here.ranks.toggle_all(),
    "heat": lambda here: here.ranks.change_map(),
    "filter": lambda here: here.open_prompt("filter", "/", here.filter_hint(), here.filtered().filter),
    "capture": Navigator.capture,
    "detail": Navigator.detail,
    "pause": Navigator.toggle_pause,
    "seek": lambda here: here.open_prompt("seek", "step", SEEK_HINT),
    "speed": Navigator.next_speed,
    "theme": Navigator.change_theme,
    "preferences": Navigator.show_preferences,
    "redraw": lambda here: here.shell.redraw(),
}
