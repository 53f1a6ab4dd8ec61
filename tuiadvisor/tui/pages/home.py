"""Home: what trains on this machine and in Slurm, and the recordings of this folder; enter goes there, and asks first.

In: DeskState.  Out: lines. Nothing is put into a training before its question was answered with yes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import (
    BLANK,
    Line,
    clean,
    crop,
    fit,
    fit_middle,
    indent,
    line,
    rule,
    wrap,
    wrap_within,
)
from tuiadvisor.text.printed_page import page_text, page_width
from tuiadvisor.tui.contract.desk import Attach, ListJobs, ListRuns
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.contract.prompt import Prompt
from tuiadvisor.tui.pages.runs import (
    DECISION_ROLES,
    DECISIONS,
    VERDICT_WIDTH,
    Columns,
    Runs,
    plain_runs,
    plain_sentence,
    rows_of_sentence,
)

if TYPE_CHECKING:
    from tuiadvisor.text.line import Span
    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.job_list import JobEntry
    from tuiadvisor.views.run_list import RunEntry

MARGIN = 1
CURSOR = "▶ "
NAME_WIDTH = 16
MOST_OF_NAMES = 3  # part of the width that names may take
LEAST_APART = 6
OWNER_WIDTH = 8
FILE_WIDTH = 24
WITH_OWNER = 92  # columns from which owner and device have a place
WITH_STEP = 130  # and the step, its time, and where it is recorded
NOT_SEEN = "-"
NONE_HERE = "no training on this machine: tuiadvisor run -- torchrun … starts one, tuiadvisor demo shows one"


def show_home(place: Place) -> None:
    """What runs and what was recorded, looked up anew."""
    look(place)
    place.show("home")


def look(place: Place) -> None:
    """Look for trainings and recordings again."""
    place.shell.ask(ListJobs())
    place.shell.ask(ListRuns())


NARROW = 80  # columns: there, too, what has to be typed stands at the end of the question
TYPED = 6  # for the margin and what is typed


def ask_attach(place: Place, key: str) -> None:
    """Ask before anything is put into a training."""
    entry = next((each for each in place.desk.jobs if each.key == key), None)
    if entry is None:
        return
    reason = why_not_attached(entry, can_attach=_can_attach(place))
    if reason:
        place.say(reason)
        return
    if entry.watched is not None:
        place.shell.ask(Attach(entry.target))  # to look along: nothing is put into it
        return

    def answer(typed: str) -> None:
        said = typed.strip().lower()
        if said in {"y", "yes"}:
            place.shell.ask(Attach(entry.target))
        elif said in {"n", "no"}:
            drop()
        else:
            ask("Type y or n, then enter: attach to ", "?")

    def drop() -> None:
        place.say("not attached: nothing was put into it")

    def ask(before: str, after: str) -> None:
        after = f", {ranks}{after}"
        room = NARROW - len(before) - len(after) - TYPED
        question = f"{before}{fit_middle(_name(entry), room).rstrip()}{after}"
        place.ask_for(Prompt(question, "its probes leave when you quit", answer, drop=drop))

    ranks = text_of.count(entry.num_ranks, "rank") if entry.num_ranks is not None else entry.where
    ask("Attach to ", "? y or n, then enter")


def _can_attach(place: Place) -> bool:
    """Whether nothing else is watched here, or no longer."""
    state = place.state
    is_over = state.mode == "live" and state.view is not None and bool(state.view.ended)
    return place.desk.can_attach or (place.desk.goes_on and is_over)


def watch_next(place: Place) -> None:
    """The job of the run that has ended, which trains again."""
    place.shell.ask(Attach(place.state.next_run))


def no_next(state: FeedState, _page: Page) -> str:
    """It has to be found, and these screens to lead on."""
    if state.mode == "replay" or state.view is None or not state.view.ended:
        return "only in a live view whose run has ended: it watches the job's next run"
    return "" if state.next_run else "this job does not train here again, as far as is known"


def why_not_attached(entry: JobEntry, *, can_attach: bool) -> str:
    """Return why enter does not attach here, or ""."""
    if not entry.is_running:
        return f"{entry.where}: it can be watched once it runs"
    if entry.watched is not None and not entry.watched.hub:
        return "watched already; by whom is known once its recording was read: a moment"
    if not entry.is_ours and entry.watched is None:
        return f"a training of user {entry.owner}: look as that user or as root"
    if not can_attach:
        return f"one run is open here: in another terminal, tuiadvisor watch {' '.join(entry.target)}"
    return ""


class Home(Page):
    """What there is to look at."""

    name = "home"
    title = "Home"
    about = (
        "The trainings of this machine, your jobs in Slurm, the recordings of this folder. Enter on a training asks, "
        "then attaches as tuiadvisor watch does; where you watch it already, enter joins as a viewer and nothing more "
        "is put into it. Enter on a recording replays it; q comes back here. Dimmed: not watched, so nothing is known."
    )
    is_screen = True
    wants_jobs = True
    commands: ClassVar = (
        Command(
            "home", ("0",), "0", "Home", "what runs here, in Slurm, what was recorded", "screens", show_home
        ),
        Command(
            "next_run",
            ("o",),
            "o",
            "Next run",
            "in a live view whose run has ended: watch its job, which trains again",
            "screens",
            watch_next,
            no_next,
        ),
    )
    does: ClassVar = {"refresh": look}
    opens: ClassVar = {"job": ask_attach}
    of_run = False
    keys = ("open", "refresh", "runs", "help", "palette", "quit")
    labels: ClassVar = {"open": "Open"}
    abouts: ClassVar = {
        "open": "attach to this training, after a question; replay this recording",
        "refresh": "look for trainings, jobs and recordings again",
    }

    def __init__(self) -> None:
        super().__init__()
        self.rows_of_runs = Runs()

    def headline(self, state: FeedState) -> str:  # noqa: ARG002 - of the machine
        """The machine, and how many of each there are."""
        desk = self.desk
        if desk.is_looking:
            return f"HOME {desk.machine or 'looking …'}"
        here = sum(not each.slurm for each in desk.jobs)
        parts = [desk.machine, text_of.count(here, "training")]
        if len(desk.jobs) > here:
            parts.append(f"{text_of.count(len(desk.jobs) - here, 'job')} of yours in Slurm")
        if not unlisted(desk):
            parts.append(text_of.count(len(desk.runs), "recording"))
        return f"HOME {' · '.join(part for part in parts if part)}"

    def can_open(self, state: FeedState) -> bool:  # noqa: ARG002
        """Enter moves to the first row without a cursor."""
        return True

    def turn(self, rows: int) -> None:
        """A screenful down the list, the cursor with it."""
        self.move(rows)

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002 - of no run
        """Return the trainings, the jobs in Slurm, the recordings; the command of the selected one below."""
        desk, room = self.desk, width - 2 * MARGIN
        body = [line((text, "warn")) for text in wrap(desk.choosing, room)]
        body += [*job_lines(desk, room), BLANK, *self._recordings(desk, room)]
        self.wanted = tuple(entry.path for entry in desk.runs if entry.state == "unread")[:height]
        self._keep_cursor(body)
        body = [_pointed(each, is_here=each.target == self.cursor) if each.target else each for each in body]
        below = self._below(desk, room, rows_of_sentence(height))
        rows = [indent(crop(each, room), MARGIN) if each.spans else each for each in body]
        shown = self.arranged(rows, width, max(height - len(below), 1))
        shown += [BLANK] * (height - len(below) - len(shown))
        return [*shown, *below]

    def _keep_cursor(self, rows: list[Line]) -> None:
        """On the first row at first; beside it where its row is gone: a job that ended takes no selection with it."""
        there = list(dict.fromkeys(each.target for each in rows if each.target is not None))
        if self.desk.is_looking or not there or self.cursor in there:
            return
        former = self.targets.index(self.cursor) if self.cursor in self.targets else 0
        self.cursor = there[min(former, len(there) - 1)]
        self.follows = True

    def _recordings(self, desk: DeskState, width: int) -> list[Line]:
        self.rows_of_runs.desk = desk
        waits = unlisted(desk)
        found = "" if waits else text_of.count(len(desk.runs), "recording")
        where = "this folder" if desk.folder in ("", ".") else clean(desk.folder)
        title = rule(f"recordings in {where}", width, found if waits else desk.runs_note or found)
        if not desk.runs:
            return [title, line((waits or "none: tuiadvisor record -o run.tuirec keeps one", "dim"))]
        columns = Columns(desk.runs, width)
        return [title, columns.head(), *(self.rows_of_runs.row(entry, columns) for entry in desk.runs)]

    def _below(self, desk: DeskState, width: int, num_rows: int) -> list[Line]:
        job = next((each for each in desk.jobs if self.cursor == ("job", each.key)), None)
        run = next((each for each in desk.runs if self.cursor == ("run", each.path)), None)
        said: list[str] = []
        if job is not None:
            said = [job.watched.sentence if job.watched is not None else "", job.command]
            said = said if any(said) else [f"tuiadvisor watch {' '.join(job.target)}"]
        elif run is not None:
            said = [run.problem or run.sentence or run.path]
        each_gets = num_rows // max(sum(map(bool, said)), 1)  # a long sentence leaves the command its rows
        texts = [text for each in said if each for text in wrap_within(each, width, each_gets)]
        rows = [rule("selected", width), *(line((text, "text")) for text in texts)]
        rows += [BLANK] * (num_rows + 1 - len(rows))
        return [indent(crop(each, width), MARGIN) if each.spans else each for each in rows]


def unlisted(desk: DeskState) -> str:
    """Return why there is no list of recordings yet; "" once it is known that there are none."""
    if desk.runs:
        return ""
    return desk.runs_note or ("looking …" if desk.is_looking else "")


def _pointed(row: Line, *, is_here: bool) -> Line:
    """The row with the cursor's arrow, or none, in its first two cells."""
    rest: list[Span] = []
    left = len(CURSOR)
    for text, role in row.spans:
        rest.append((text[left:], role))
        left = max(left - len(text), 0)
    return replace(row, spans=((CURSOR if is_here else " " * len(CURSOR), "accent"), *rest))


def job_lines(desk: DeskState, width: int) -> list[Line]:
    """Return the trainings of this machine, then those in Slurm where there are any."""
    here = [each for each in desk.jobs if not each.slurm]
    queued = [each for each in desk.jobs if each.slurm]
    columns = JobColumns(width, desk.jobs)
    found = "" if desk.is_looking and not here else text_of.count(len(here), "training")
    rows = [rule("running here", width, desk.jobs_note or found)]
    if here:
        rows += [columns.head(), *(_job_line(each, columns) for each in here)]
    else:
        rows += [line((text, "dim")) for text in wrap("looking …" if desk.is_looking else NONE_HERE, width)]
    if queued or desk.slurm_note:
        number = text_of.count(len(queued), "job") if queued or not desk.slurm_note else text_of.UNKNOWN
        rows += [BLANK, rule("yours in Slurm", width, number)]
        rows += [line((text, "dim")) for text in wrap_within(desk.slurm_note, width, 2)]
        rows += [_job_line(each, columns) for each in queued]
    return rows


class JobColumns:
    """Which columns there is room for: owner, device, step and file go before the verdict does."""

    def __init__(self, width: int, jobs: tuple[JobEntry, ...]) -> None:
        self.with_owner = width >= WITH_OWNER
        self.with_step = width >= WITH_STEP
        # A long name, or what tells jobs of one script apart, takes of the sentence: the selected row repeats it below.
        wanted = max((len(_name(each)) for each in jobs), default=0)
        self.name = max(min(wanted, width // MOST_OF_NAMES), NAME_WIDTH)
        fixed = 2 + self.name + 1 + 7 + 9 + 9
        fixed += (OWNER_WIDTH + 1 + 5) * self.with_owner + (10 + 9) * self.with_step
        self.file = FILE_WIDTH if self.with_step else 0
        self.verdict = max(width - fixed - self.file - (self.file > 0), VERDICT_WIDTH)

    def head(self) -> Line:
        """Return the head of the table."""
        return Line((("  ", "dim"), *((text, "dim") for text, _ in self.row(_HEAD))))

    def row(self, told: _Told) -> list[Span]:
        """Return a row's cells, each with a blank behind."""
        plain = told.role
        spans: list[Span] = [
            (_fitted(told.label, told.apart, self.name) + " ", "strong" if told.is_strong else plain)
        ]
        if self.with_owner:
            spans += [(fit(told.owner, OWNER_WIDTH) + " ", plain)]
        spans += [(fit(told.ranks, 6, "right") + " ", plain)]
        if self.with_owner:
            spans += [(fit(told.device, 4) + " ", plain)]
        spans += [(fit(told.since, 8, "right") + " ", plain)]
        if self.with_step:
            spans += [(fit(told.step, 9, "right") + " ", plain), (fit(told.step_s, 8, "right") + " ", plain)]
        spans += [(fit(told.steps_s, 8, "right") + " ", plain)]
        word = fit(told.word, VERDICT_WIDTH) if told.word else ""
        spans += [(word, told.word_role), (fit(told.sentence, self.verdict - len(word)), told.sentence_role)]
        if self.file:
            spans += [(" " + fit_middle(told.file, self.file), "dim")]
        return spans


@dataclass(frozen=True, slots=True)
class _Told:
    """A row's cells as text."""

    label: str
    owner: str
    ranks: str
    device: str
    since: str
    step: str
    step_s: str
    steps_s: str
    word: str
    sentence: str
    file: str
    apart: str = ""
    role: str = "dim"
    word_role: str = "dim"
    sentence_role: str = "dim"
    is_strong: bool = False


_HEAD = _Told(
    "job", "owner", "ranks", "on", "since", "to step", "step", "steps/s", "", "verdict", "recorded in"
)


def _job_line(entry: JobEntry, columns: JobColumns) -> Line:
    watched = entry.watched
    decision = watched.decision if watched is not None else None
    told = _Told(
        clean(entry.label),
        clean(entry.owner),
        entry.slurm or text_of.count(entry.num_ranks),
        entry.device,
        entry.since,
        NOT_SEEN if watched is None else text_of.count(watched.last_step),
        NOT_SEEN if watched is None else text_of.seconds(watched.step_s),
        NOT_SEEN if watched is None or watched.steps_s is None else f"{watched.steps_s:.3g}",
        DECISIONS[decision] if decision else "",
        _said(entry),
        _file(entry),
        clean(entry.apart),
        "text" if entry.is_watched or watched is not None else "dim",
        DECISION_ROLES.get(decision or "", "bad" if decision == "hang" else "dim"),
        "text" if decision else "dim",
        entry.is_watched or watched is not None,
    )
    return Line(((" " * len(CURSOR), "dim"), *columns.row(told)), ("job", entry.key))


def _name(entry: JobEntry) -> str:
    return f"{clean(entry.label)} {clean(entry.apart)}".rstrip()


def _fitted(label: str, apart: str, width: int) -> str:
    """The name, and as much of what tells it apart as there is room for: of a path its end."""
    room = width - len(label) - 1
    return fit(f"{label} {fit_middle(apart, room)}" if apart and room >= LEAST_APART else label, width)


def _said(entry: JobEntry) -> str:
    watched = entry.watched
    if watched is not None:
        if watched.share < 1:
            return f"reading what was recorded: {text_of.share(watched.share)}"
        return clean(plain_sentence(watched))
    if entry.is_watched and entry.num_hubs_not_read:
        num = entry.num_hubs_not_read
        which = "an older hub" if num == 1 else f"one of {num} older hubs"
        return f"watched, perhaps by {which} of yours: the newest alone are read here"
    if entry.is_watched:
        return "watched, but by no hub of yours here"
    if not entry.is_ours:
        return "another user's"
    return entry.where if entry.slurm else "not watched: enter asks"


def _file(entry: JobEntry) -> str:
    if entry.watched is None:
        return NOT_SEEN
    return clean(entry.watched.recording) or "not kept"


def plain_home(desk: DeskState, runs: tuple[RunEntry, ...], title: str) -> str:
    """Return the same as text: what a script or a pipe gets; each line ended by a newline."""
    return page_text([*job_lines(desk, page_width()), BLANK]) + plain_runs(runs, title)
