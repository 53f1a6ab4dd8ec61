"""Runs: the recordings of a folder with their step time and verdict; search, open, mark two and compare.

Rows are read in the background, those on the screen first: an unread one says so and stays usable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import (
    BLANK,
    Cell,
    Line,
    crop,
    fit,
    fit_middle,
    indent,
    line,
    row,
    rule,
    wrap,
    wrap_within,
)
from tuiadvisor.text.printed_page import page_text, page_width
from tuiadvisor.tui.contract.desk import GoLive, ListRuns, OpenRun
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import sections

if TYPE_CHECKING:
    from tuiadvisor.text.line import Span
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.job_list import Watched
    from tuiadvisor.views.run_list import RunEntry

MARGIN = 1
WHEN_WIDTH = 11
RANKS_WIDTH = 7  # "unknown" of a trace
DECISIONS = {"tune": "◆ tune", "rescale": "⇄ rescale", "stop": "■ stop", "keep": "✓ keep", "hang": "■ hang"}
DECISION_ROLES = {"tune": "warn", "rescale": "accent", "stop": "bad", "keep": "good"}
VERDICT_WIDTH = 10  # of its one word
ROOMY = 30  # rows of the page
MOST_MARKS = 2
LIVE = ("live", "")
FILTER_HINT = "name, job or verdict; enter keeps it, esc clears it"


def show_runs(place: Place) -> None:
    """The list of recordings, looked up anew."""
    place.shell.ask(ListRuns())
    place.show("runs")


def open_run(place: Place, path: str) -> None:
    """Replay a recording."""
    place.shell.ask(OpenRun(path))
    place.show("overview")


def go_live(place: Place) -> None:
    """From a recording back to the live run."""
    place.shell.ask(GoLive())
    place.show("overview")


def no_list_here(_state: FeedState, page: Page) -> str:
    """Only some pages have something to look for again."""
    return (
        "" if "refresh" in page.does else "only on the recordings, scaling or a comparison: press 8, 6 or 7"
    )


def is_live(_state: FeedState, page: Page) -> str:
    """From the live run one cannot return to it."""
    return "" if page.can_go_live else "this is the live run already, or there is none"


class Runs(Page):
    """The eighth screen."""

    name = "runs"
    title = "Runs"
    about = (
        "Each row is a recording (*.tuirec): its step time from first to last step, and the verdict at its "
        "end. Open one to replay it; mark two with m, in either order, and c compares them: the older one is before. "
        "m goes on to the next row, so that m m marks two neighbours."
    )
    is_screen = True
    may_be_first = True
    commands: ClassVar = (
        Command(
            "runs", ("8",), "8", "Runs", "the recordings of this folder: open, compare", "screens", show_runs
        ),
        Command(
            "refresh",
            ("u",),
            "u",
            "Look again",
            "look in the folder for new recordings",
            "runs",
            show_runs,  # elsewhere it is out of reach; a page with something else to look for says so in `does`
            no_list_here,
        ),
        Command(
            "live", ("V",), "V", "Live", "back from a recording to the live run", "runs", go_live, is_live
        ),
    )
    does: ClassVar = {"refresh": lambda place: place.shell.ask(ListRuns())}
    opens: ClassVar = {"run": open_run, "live": lambda place, _: go_live(place)}
    filter_hint = FILTER_HINT
    labels: ClassVar = {"mark": "Mark ↓", "compare_marked": "Compare"}
    abouts: ClassVar = {"open": "replay this recording, or return to the live run"}
    of_run = False
    terms = ("verdict",)
    keys = ("open", "mark", "compare_marked", "filter", "refresh", "live", "help", "quit")

    def __init__(self) -> None:
        super().__init__()
        self.marked: list[str] = []  # paths, in the order of marking
        self.height = 1

    def in_time(self) -> list[str]:
        """The marked recordings, the older file first: it is the state before."""
        age = {entry.path: number for number, entry in enumerate(self.desk.runs)}  # the newest first
        return sorted(self.marked, key=lambda path: -age.get(path, 0))

    def mark(self) -> str:
        """Mark or unmark the run under the cursor and go to the next row; returns what was done."""
        if self.cursor is None or self.cursor not in self.targets or self.cursor == LIVE:
            return "m: choose a recording first, with up and down"
        path = self.cursor[1]
        if path in self.marked:
            self.marked.remove(path)
            return f"{self._name(path)} is no longer marked"
        self.marked = [*self.marked, path][-MOST_MARKS:]
        self.move(1)  # as mutt and mc do
        if len(self.marked) < MOST_MARKS:
            on = "" if self.cursor[1] == path else ", the cursor on the next row"
            return f"{self._name(path)} is marked{on}: m marks another, c compares"
        before, after = self.in_time()
        return f"c compares {self._name(before)} (before) with {self._name(after)} (after)"

    def _name(self, path: str) -> str:
        return next((entry.name for entry in self.desk.runs if entry.path == path), path)

    def _marks(self) -> str:
        """What is marked, for the title of the list."""
        before, *after = map(self._name, self.in_time())
        return f"1 before: {before} · 2 after: {after[0]}" if after else f"* marked: {before}"

    def can_open(self, state: FeedState) -> bool:  # noqa: ARG002
        """Enter moves to the first recording without a cursor."""
        return True

    def turn(self, rows: int) -> None:
        """A screenful down the list, the cursor with it."""
        self.move(rows)

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return head, rows, and what is known of the row under the cursor."""
        desk, room = self.desk, width - 2 * MARGIN
        chosen = [entry for entry in desk.runs if passes(entry, self.filter)]
        self.marked = [path for path in self.marked if any(entry.path == path for entry in desk.runs)]
        columns = Columns(desk.runs, room)
        body = [_live_row(state, desk.open_path)] if desk.has_live and not self.filter else []
        body += [self.row(entry, columns) for entry in chosen]
        if not desk.runs:
            body += [BLANK, *(line((text, "dim")) for text in wrap(self._why_empty(), room))]
        elif not chosen:
            body.append(line((f"no name, job or verdict contains “{self.filter}”: / changes it", "dim")))
        below = self._below(chosen, room, rows_of_sentence(height)) if height >= 16 else []
        self.height = max(height - 2 - len(below), 1)
        if self.cursor is None and chosen:
            self.cursor = ("run", chosen[0].path)
        shown = self.arranged(
            [indent(crop(each, room), MARGIN) if each.spans else each for each in body], width, self.height
        )
        visible = {each.target[1] for each in shown if each.target and each.target[0] == "run"}
        self.wanted = tuple(
            entry.path for entry in chosen if entry.path in visible and entry.state == "unread"
        )
        head = [
            indent(rule(*self._title(len(chosen), room)), MARGIN),
            indent(crop(columns.head(), room), MARGIN),
        ]
        shown += [BLANK] * (self.height - len(shown))
        return [*head, *shown, *below]

    def _title(self, num_chosen: int, width: int) -> tuple[str, int, str]:
        found = text_of.count(len(self.desk.runs), "recording")
        if self.filter:
            found = f"filter “{self.filter}”: {num_chosen:,} of {found}"
        if self.desk.runs_note and not self.desk.runs:
            found = ""  # it is being looked: 0 would be a count that nobody made
        marks = self._marks() if self.marked else ""
        return "runs", width, " · ".join(part for part in (marks, self.desk.runs_note, found) if part)

    def _why_empty(self) -> str:
        if self.desk.runs_note:
            return self.desk.runs_note
        where = "this folder" if self.desk.folder in ("", ".") else self.desk.folder
        return (
            f"No recordings (*.tuirec) in {where}. tuiadvisor record -o run.tuirec makes one from a running training, "
            "tuiadvisor runs DIR looks elsewhere."
        )

    def row(self, entry: RunEntry, columns: Columns) -> Line:
        """Return a recording's row."""
        mark = " "
        if entry.path in self.marked:
            mark = str(self.in_time().index(entry.path) + 1) if len(self.marked) == MOST_MARKS else "*"
        is_open = entry.path == self.desk.open_path
        spans: list[Span] = [
            (mark, "accent"),
            ("▶" if is_open else " ", "accent"),
            (fit_middle(entry.name, columns.name) + " ", "strong" if is_open else "text"),
            (fit(entry.when, WHEN_WIDTH) + " ", "dim"),
        ]
        target = ("run", entry.path)
        if entry.state != "read":
            words = {"unread": "not read yet", "reading": "reading …"}.get(entry.state, entry.problem)
            spans.append((fit(words, columns.tail), "bad" if entry.state == "broken" else "dim"))
            return Line(tuple(spans), target)
        decision = entry.decision
        verdict = DECISIONS[decision] if decision else "… open" if entry.ended else "… not yet"
        spans += [
            (fit(text_of.count(entry.world_size), RANKS_WIDTH, "right") + " ", "text"),
            (fit(text_of.count(entry.last_step), 8, "right") + " ", "dim"),
            (
                fit(text_of.seconds(entry.step_s), 8, "right") + " ",
                sections.figure(text_of.seconds(entry.step_s))[1],
            ),
            *_spark(entry, columns.spark),
            (" " + fit(verdict, VERDICT_WIDTH), DECISION_ROLES.get(decision or "", "dim")),
        ]
        if columns.sentence:
            spans.append((" " + fit(plain_sentence(entry), columns.sentence), "dim"))
        return Line(tuple(spans), target)

    def _below(self, chosen: list[RunEntry], width: int, num_rows: int) -> list[Line]:
        """Return the sentence of the row under the cursor, and where its file is."""
        entry = next((each for each in chosen if self.cursor == ("run", each.path)), None)
        rows = [BLANK] * num_rows
        if entry is not None:
            said = entry.problem or entry.sentence or "enter opens it; its verdict comes when it was read"
            rows = [line((text, "text")) for text in wrap_within(said, width, num_rows)]
            rows += [BLANK] * (num_rows - len(rows))
        folder = self.desk.folder if self.desk.folder != "." else ""
        where = f"{entry.path} · {text_of.num_bytes(entry.num_bytes)}" if entry else folder
        parts = [where, entry.label, entry.ended] if entry else [where]
        rows.append(line((" · ".join(part for part in parts if part), "dim")))
        return [indent(crop(each, width), MARGIN) for each in [rule("selected", width), *rows]]


def rows_of_sentence(height: int) -> int:
    """Return the rows below a list for the sentence of the selected row: more where there is room."""
    return 2 if height < ROOMY else 4


class Columns:
    """Widths of the list: the name takes what it needs, the sparkline and the sentence what is left."""

    def __init__(self, runs: tuple[RunEntry, ...], width: int) -> None:
        fixed = 2 + WHEN_WIDTH + 1 + RANKS_WIDTH + 1 + 9 + 9 + VERDICT_WIDTH + 2
        wanted = max((len(entry.name) for entry in runs), default=8)
        self.name = min(max(wanted, 8), max(width - fixed - 8, 8), 40)
        left = width - fixed - self.name - 1
        self.spark = min(max(left, 4), 24)
        self.sentence = max(left - self.spark - 1, 0) if left - self.spark > 20 else 0
        self.tail = width - 2 - self.name - 1 - WHEN_WIDTH - 1

    def head(self) -> Line:
        """Return the head of the table."""
        names = (
            Cell("", 1),
            Cell("name", self.name, "dim"),
            Cell("changed", WHEN_WIDTH, "dim"),
            Cell("ranks", RANKS_WIDTH, "dim", "right"),
            Cell("to step", 8, "dim", "right"),
            Cell("step", 8, "dim", "right"),
            Cell("trend", self.spark, "dim"),
            Cell("verdict", VERDICT_WIDTH, "dim"),
        )
        return row(names)


def _spark(entry: RunEntry, width: int) -> list[Span]:
    if not any(value is not None for value in entry.spark):
        return [(fit("no step", width), "unknown")]
    return list(bars.spark_line(entry.spark, width).spans)


def plain_sentence(entry: RunEntry | Watched) -> str:
    """Return the verdict's sentence without the decision, which stands before it."""
    word, colon, rest = entry.sentence.partition(":")
    return rest.strip() if colon and word.lower() == (entry.decision or "") else entry.sentence


def _live_row(state: FeedState, open_path: str) -> Line:
    here = "▶" if not open_path else " "
    label = state.view.run.label if state.view is not None and not open_path else "the live run"
    return line(
        (" " + here, "accent"),
        ("live  ", "good"),
        (label, "strong"),
        ("  enter shows it", "dim"),
        target=LIVE,
    )


def passes(entry: RunEntry, wanted: str) -> bool:
    """Return whether every word typed is in a run's name, job, time or verdict."""
    held = f"{entry.name} {entry.label} {entry.when} {entry.decision or ''} {entry.sentence}".lower()
    return all(word in held for word in wanted.lower().split())


def plain_runs(runs: tuple[RunEntry, ...], title: str, *, plain_ascii: bool | None = None) -> str:
    """Return the list as text, each line ended by a newline; plain_ascii None asks stdout and the locale."""
    page, width = Runs(), page_width()
    columns = Columns(runs, width)
    columns.sentence = 0  # it has a row of its own
    rows = [*(line(text) for text in wrap(title, width)), rule("runs", width), columns.head()]
    for entry in runs:
        rows.append(page.row(entry, columns))
        rows += [indent(line((text, "dim")), 4) for text in wrap(plain_sentence(entry), width - 4)]
    return page_text([crop(each, width) for each in rows], plain_ascii=plain_ascii)
