"""Several recordings of one job as plain text, at most 80 columns.

In: JobView.  Out: lines of text.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Line, line, rule, to_ascii, wrap
from tuiadvisor.text.terminal import ascii_only
from tuiadvisor.tui.pages.details import bullet
from tuiadvisor.tui.pages.goodput import goodput_lines

if TYPE_CHECKING:
    from tuiadvisor.views.job import JobView, Recorded

WIDTH = 80


def job_lines(job: JobView, *, plain_ascii: bool | None = None) -> list[str]:
    """Return the job's waterfall, its recordings and what is not known."""
    if plain_ascii is None:
        plain_ascii = ascii_only(os.environ, getattr(sys.stdout, "encoding", None))
    label = job.recordings[-1].view.run.label or "unnamed job"
    rows = [
        line((f"{label}: {len(job.recordings)} recordings of one job", "strong")),
        BLANK,
        *goodput_lines(job.goodput, WIDTH),
        *(each for note in job.notes for each in bullet("·", note, WIDTH)),
        BLANK,
        rule("recordings, in the order in which they ran", WIDTH),
        *(each for one in job.recordings for each in _recording(one)),
    ]
    texts = ["".join(text for text, _ in row.spans).rstrip() for row in rows]
    return [to_ascii(text) for text in texts] if plain_ascii else texts


def _recording(one: Recorded) -> list[Line]:
    """Return its name, where it stands in the job, and its own verdict."""
    said = [f"goodput {text_of.share(one.view.useful_share)}", one.view.ended or "still running when written"]
    said += [f"{text_of.seconds(one.gap_s)} after the one before"] if one.gap_s is not None else []
    if one.steps_again:
        said.append(f"{text_of.count(one.steps_again, 'step')} of it done again later")
    return [
        *bullet("▪", f"{one.name}: {', '.join(said)}", WIDTH),
        *(line(("  " + text, "dim")) for text in wrap(one.view.decided.sentence, WIDTH - 2)),
    ]
