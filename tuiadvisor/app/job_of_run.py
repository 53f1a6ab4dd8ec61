"""The recordings beside a run that are of its job, as one waterfall across its restarts.

In: the run's view, views of recordings that may be of the same job.  Out: JobView; what cannot be of it is left out
with the reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.judge.job import job_view
from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.advisor.judge.job import Named
    from tuiadvisor.views.job import JobView
    from tuiadvisor.views.run_list import RunEntry

MAX_RECORDINGS: Final = 16  # beside the run: each is read from end to end
ALONE: Final = "no other recording of this job lies in the folder: record each restart into it"


def worth_reading(entries: Iterable[RunEntry], label: str, own_paths: Iterable[str]) -> tuple[str, ...]:
    """Paths of the newest recordings that may be of the job: what was read already and is of another script is not."""
    own = set(own_paths)
    maybe = [
        entry.path
        for entry in entries
        if entry.path not in own
        and entry.state != "broken"
        and not (entry.state == "read" and entry.label != label)
    ]
    return tuple(maybe[:MAX_RECORDINGS])


def job_of(own: Named, others: Iterable[Named]) -> JobView:
    """The job of this run over all that can be of it. TuiadvisorError where nothing of the run itself is known."""
    held = [own]
    found = job_view(held)
    left_out = []
    for other in others:
        if other[1].run.label != own[1].run.label:
            continue  # another script: nobody would look for it here
        try:
            found = job_view([*held, other])
        except TuiadvisorError as error:
            left_out.append(f"left out: {error}")
            continue
        held.append(other)
    notes = (*found.notes, *left_out) if len(held) > 1 else (ALONE, *left_out)
    return replace(found, notes=notes)
