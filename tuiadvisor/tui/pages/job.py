"""Several recordings of one job: one waterfall across its restarts, as a screen and as plain text.

In: JobView.  Out: lines, or text of at most 80 columns.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.goodput import name_of
from tuiadvisor.text.line import BLANK, Line, indent, line, rule, wrap
from tuiadvisor.text.printed_page import page_text, page_width
from tuiadvisor.tui.contract.desk import LookAtJob
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.pages.details import bullet
from tuiadvisor.tui.pages.goodput import goodput_lines

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.job import JobView, Recorded

MARGIN = 1


def show_job(place: Place) -> None:
    """The job of the run that is shown, its recordings looked up anew."""
    place.shell.ask(LookAtJob())
    place.show("job")


class JobPage(Page):
    """Goodput of the job, not of one of its runs."""

    name = "job"
    title = "Job"
    about = (
        "The run that is shown and the recordings of the folder that are of its job: same script, same model, one "
        "after the other. One waterfall from the first start to the last step: what restarts, time between them and "
        "steps done again take is lost. Enter opens a recording."
    )
    is_screen = True
    commands: ClassVar = (
        Command("job", ("J",), "J", "Job", "goodput of the job over all its recordings", "screens", show_job),
    )
    of_run = False
    terms = ("goodput", "useful", "startup")
    keys = ("goodput", "runs", "open", "help", "quit")

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002 - of several runs
        """Return waterfall and recordings, or why there are none."""
        room, job = width - 2 * MARGIN, self.desk.job
        note = self.desk.job_note
        rows = [line((text, "dim")) for text in wrap(note, room)] if note else []
        rows += job_rows(job, room) if job is not None else []
        return self.arranged([indent(each, MARGIN) if each.spans else each for each in rows], width, height)


def plain_job(job: JobView, *, plain_ascii: bool | None = None) -> str:
    """Return the job's waterfall, its recordings and what is not known, each line ended by a newline."""
    return page_text(job_rows(job, page_width()), plain_ascii=plain_ascii)


def job_rows(job: JobView, width: int) -> list[Line]:
    """Return all of it."""
    label = job.recordings[-1].view.run.label or "unnamed job"
    return [
        line((f"{label}: {text_of.count(len(job.recordings), 'recording')} of one job", "strong")),
        BLANK,
        *goodput_lines(job.goodput, width),
        *(each for note in job.notes for each in bullet("·", note, width)),
        BLANK,
        rule("recordings, in the order in which they ran", width),
        *(each for one in job.recordings for each in _recording(one, width)),
    ]


def _recording(one: Recorded, width: int) -> list[Line]:
    """Return its name, where it stands in the job, and its own verdict."""
    goodput = f"{name_of(one.view)} {text_of.share(one.view.useful_share)}"
    said = [goodput, one.view.ended or "still running when written"]
    said += [f"{text_of.seconds(one.gap_s)} after the one before"] if one.gap_s is not None else []
    if one.steps_again:
        said.append(f"{text_of.count(one.steps_again, 'step')} of it done again later")
    target = ("run", one.name) if PurePath(one.name).suffix else None
    head = bullet("▪", f"{one.name}: {', '.join(said)}", width)
    return [
        *(replace(each, target=target) for each in head),
        *(line(("  " + text, "dim")) for text in wrap(one.view.decided.sentence, width - 2)),
    ]
