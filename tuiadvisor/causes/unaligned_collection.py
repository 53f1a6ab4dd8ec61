"""Ranks collect garbage at different steps, and all wait for whoever does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause
from tuiadvisor.metrics.window.rotating import MAX_SHARE_OF_ONE

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.collections import CollectionLoss
    from tuiadvisor.metrics.series.what_if import Gain


def measure_job(diagnosis: Diagnosis, _facts: Facts) -> Values:
    """What they cost together, and what one of them takes."""
    found = _of_all(diagnosis)
    quiet = 0.0 if diagnosis.compared_rows.size > 1 else None
    return {
        "collection_s": found.gain.loss_s if found else None,
        "collection_share": found.gain.loss_s / found.gain.step_s if found else quiet,
        "collection_share_low": found.gain.loss_low_s / found.gain.step_s if found else quiet,
        "collection_length_s": found.length_s if found else None,
        "collection_steps": found.num_steps if found else None,
    }


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If all ranks collected at the same steps, rarely."""
    found = _of_all(diagnosis)
    return found.gain if found is not None else None


def _of_all(diagnosis: Diagnosis) -> CollectionLoss | None:
    """None where ranks that are named for it hold most of the loss: then it is theirs, and told once."""
    found = diagnosis.collections
    theirs_s = sum(entry.late.gain.loss_s for entry in diagnosis.stragglers if entry.cause.is_collecting)
    return None if found is None or theirs_s > MAX_SHARE_OF_ONE * found.gain.loss_s else found


UNALIGNED_COLLECTION: Final = Cause(
    rules=("unaligned_collection",),
    metrics="""
job collection_share share of the step lost while now one rank, now another collects garbage
job collection_share_low share lower end of its interval
job collection_s s a step, gone if no rank collected on its own
job collection_length_s s a typical collection that the others wait for
job collection_steps steps steps in which they do
""",
    measure_job=measure_job,
    gain=gain,
)
