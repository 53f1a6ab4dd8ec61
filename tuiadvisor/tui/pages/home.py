"""Home: what trains on this machine and in Slurm, and the recordings of this folder; enter goes there, and asks first.

In: DeskState.  Out: lines. Nothing is put into a training before its question was answered with yes.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Cell, Line, clean, crop, fit, indent, line, row, rule, to_ascii, wrap
from tuiadvisor.text.terminal import ascii_only
from tuiadvisor.tui.contract.desk import Attach, ListJobs, ListRuns
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.contract.prompt import Prompt
from tuiadvisor.tui.pages.runs import Columns, Runs, plain_runs

if TYPE_CHECKING:
    from tuiadvisor.text.line import Span
    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.job_list import JobEntry
    from tuiadvisor.views.run_list import RunEntry

MARGIN = 1
NAME_WIDTH = 16
OWNER_WIDTH = 8
WITH_COMMAND = 110  # columns from which the command has a place
NONE_HERE = "no training on this machine: tuiadvisor run -- torchrun … starts one, tuiadvisor demo shows one"


def show_home(place: Place) -> None:
    """What runs and what was recorded, looked up anew."""
    look(place)
    place.show("home")


def look(place: Place) -> None:
    """Look for trainings and recordings again."""
    place.shell.ask(ListJobs())
    place.shell.ask(ListRuns())


def ask_attach(place: Place, key: str) -> None:
    """Ask before anything is put into a training."""
    entry = next((each for each in place.desk.jobs if each.key == key), None)
    if entry is None:
        return
    reason = why_not_attached(entry, can_attach=place.desk.can_attach)
    if reason:
        place.say(reason)
        return

    def answer(typed: str) -> None:
        if typed.strip().lower() in {"y", "yes"}:
            place.shell.ask(Attach(entry.target))
        else:
            place.say("not attached: nothing was put into it")

    ranks = text_of.count(entry.num_ranks, "rank") if entry.num_ranks is not None else entry.where
    question = f"Attach to {clean(entry.label)}, {ranks}? y/n"
    place.ask_for(Prompt(question, "its probes leave when you quit", answer))


def why_not_attached(entry: JobEntry, *, can_attach: bool) -> str:
    """Return why enter does not attach here, or ""."""
    if not entry.is_running:
        return f"{entry.where}: it can be watched once it runs"
    if not entry.is_ours:
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
        "then attaches as tuiadvisor watch does; enter on a recording replays it. Dimmed: nobody watches it yet."
    )
    is_screen = True
    commands: ClassVar = (
        Command(
            "home", ("0",), "0", "Home", "what runs here, in Slurm, what was recorded", "screens", show_home
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

    def can_open(self, state: FeedState) -> bool:  # noqa: ARG002
        """Enter moves to the first row without a cursor."""
        return True

    def turn(self, rows: int) -> None:
        """A screenful down the list, the cursor with it."""
        self.move(rows)

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002 - of no run
        """Return the trainings, the jobs in Slurm, the recordings; the command of the selected one below."""
        desk, room = self.desk, width - 2 * MARGIN
        body = [*job_lines(desk, room), BLANK, *self._recordings(desk, room)]
        self.wanted = tuple(entry.path for entry in desk.runs if entry.state == "unread")[:height]
        if self.cursor is None and (first := first_target(desk)):
            self.cursor = first
        below = self._below(desk, room)
        rows = [indent(crop(each, room), MARGIN) if each.spans else each for each in body]
        shown = self.arranged(rows, width, max(height - len(below), 1))
        shown += [BLANK] * (height - len(below) - len(shown))
        return [*shown, *below]

    def _recordings(self, desk: DeskState, width: int) -> list[Line]:
        self.rows_of_runs.desk = desk
        found = text_of.count(len(desk.runs), "recording")
        where = "this folder" if desk.folder in ("", ".") else clean(desk.folder)
        title = rule(f"recordings in {where}", width, desk.runs_note or found)
        if not desk.runs:
            return [title, line(("none: tuiadvisor record -o run.tuirec keeps one", "dim"))]
        columns = Columns(desk.runs, width)
        return [title, columns.head(), *(self.rows_of_runs.row(entry, columns) for entry in desk.runs)]

    def _below(self, desk: DeskState, width: int) -> list[Line]:
        job = next((each for each in desk.jobs if self.cursor == ("job", each.key)), None)
        run = next((each for each in desk.runs if self.cursor == ("run", each.path)), None)
        said = ""
        if job is not None:
            said = job.command or f"tuiadvisor watch {' '.join(job.target)}"
        elif run is not None:
            said = run.problem or run.sentence or run.path
        texts = wrap(clean(said), width)[:2] if said else []
        rows = [rule("selected", width), *(line((text, "text")) for text in texts)]
        rows += [BLANK] * (3 - len(rows))
        return [indent(crop(each, width), MARGIN) if each.spans else each for each in rows]


def first_target(desk: DeskState) -> tuple[str, str] | None:
    """Return the first row there is."""
    if desk.jobs:
        return "job", desk.jobs[0].key
    return ("run", desk.runs[0].path) if desk.runs else None


def job_lines(desk: DeskState, width: int) -> list[Line]:
    """Return the trainings of this machine, then those in Slurm where there are any."""
    here = [each for each in desk.jobs if not each.slurm]
    queued = [each for each in desk.jobs if each.slurm]
    rows = [rule("running here", width, desk.jobs_note or text_of.count(len(here), "training"))]
    if here:
        rows += [_head(width), *(_job_line(each, width) for each in here)]
    else:
        rows += [line((text, "dim")) for text in wrap("looking …" if desk.is_looking else NONE_HERE, width)]
    if queued or desk.slurm_note:
        rows += [BLANK, rule("yours in Slurm", width, text_of.count(len(queued), "job"))]
        rows += [line((text, "dim")) for text in wrap(clean(desk.slurm_note), width)[:2]]
        rows += [_job_line(each, width) for each in queued]
    return rows


def _head(width: int) -> Line:
    cells = [
        Cell("", 1),
        Cell("job", NAME_WIDTH, "dim"),
        Cell("owner", OWNER_WIDTH, "dim"),
        Cell("ranks", 6, "dim", "right"),
        Cell("on", 4, "dim"),
        Cell("since", 8, "dim", "right"),
        Cell("", 1),
        Cell("watched", 24, "dim"),
    ]
    if width >= WITH_COMMAND:
        cells.append(Cell("command", 7, "dim"))
    return row(tuple(cells))


def _job_line(entry: JobEntry, width: int) -> Line:
    told, role = "not watched: enter asks", "dim"
    if entry.is_watched:
        told, role = "● watched", "good"
    elif not entry.is_ours:
        told = "another user's"
    elif entry.slurm:
        told = entry.where
    plain = "text" if entry.is_watched else "dim"
    ranks = entry.slurm or text_of.count(entry.num_ranks)
    spans: list[Span] = [
        ("▶" if entry.is_watched else " ", "good"),
        (" ", "text"),
        (fit(clean(entry.label), NAME_WIDTH) + " ", "strong" if entry.is_watched else plain),
        (fit(clean(entry.owner), OWNER_WIDTH) + " ", plain),
        (fit(ranks, 6, "right") + " ", plain),
        (fit(entry.device, 4) + " ", plain),
        (fit(entry.since, 8, "right") + "   ", plain),
        (fit(told, 24) + " ", role),
    ]
    if width >= WITH_COMMAND:
        spans.append((clean(entry.command), "dim"))
    return crop(Line(tuple(spans), ("job", entry.key)), width)


def plain_home(desk: DeskState, runs: tuple[RunEntry, ...], title: str) -> str:
    """Return the same as text: what a script or a pipe gets; each line ended by a newline."""
    text = "\n".join(row.text.rstrip() for row in job_lines(desk, 80)) + "\n\n"
    if ascii_only(os.environ, getattr(sys.stdout, "encoding", None)):
        text = to_ascii(text)
    return text + plain_runs(runs, title)
