"""One rank is late for a stretch of steps, then another one: a rotating straggler, and no single rank to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import PHASE_WORDS, Cause, Loss, rank_words
from tuiadvisor.causes.uneven_lengths import explains
from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.series.what_if import gain as gain_of

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """Unknown where ranks were not compared; zero where they were and none was late in stretches."""
    wanders = diagnosis.wandering
    compared = diagnosis.compared_rows.size > 1 and bool(diagnosis.steady.num_steps)
    share = 0.0 if compared else None
    values: Values = {
        "wandering_share": share,
        "wandering_share_low": share,
        **dict.fromkeys(("wandering_s", "wandering_steps", "wandering_since", "wandering_phase")),
        "wandering_words": "",
        "wandering_ranks": "",
        "wandering_in_data": 0 if compared else None,
    }
    lost = gain(diagnosis, facts)
    if wanders is None or lost is None or share is None or explains(diagnosis):
        return values
    covers = wanders.cover >= MIN_COVER
    whole = f", mostly {PHASE_WORDS.get(wanders.phase, wanders.phase)}" if wanders.phase else ""
    return values | {
        "wandering_s": lost.loss_s,
        "wandering_share": lost.loss_s / lost.step_s,
        "wandering_share_low": lost.loss_low_s / lost.step_s,
        "wandering_steps": round(wanders.found.stretch_steps),
        "wandering_since": wanders.since_step,
        "wandering_phase": wanders.phase,
        "wandering_words": f"{rank_words(wanders.ranks)}{whole if covers else ''}",
        "wandering_ranks": rank_words(wanders.ranks),
        "wandering_in_data": int(covers and wanders.phase == "data_wait"),
    }


def gain(diagnosis: Diagnosis, _facts: Facts | None) -> Gain | None:
    """If no rank were late for a stretch; of the window."""
    if diagnosis.wandering is None:
        return None
    cycle_K = diagnosis.steady_barrier.cycle_K
    return gain_of(cycle_K, diagnosis.wandering.found.loss_K[-cycle_K.size :])


def loss(diagnosis: Diagnosis) -> Loss | None:
    """Of every step."""
    found = gain(diagnosis, None)
    return Loss("wandering_lateness", found.loss_s) if found is not None else None


ROTATING_LATENESS: Final = Cause(
    rules=("wandering_lateness",),
    metrics="""
job wandering_s s a step, gone without the rotating straggler: one rank after another late for a stretch of steps
job wandering_share share of the step
job wandering_share_low share lower end of its interval
job wandering_steps steps typical number of steps that a rank is the straggler before the next one is
job wandering_since steps job step since which stragglers rotate; unknown where they always did
job wandering_phase text phase that holds most of the delay
job wandering_in_data flag 1 if most of the delay is waiting for batches
job wandering_ranks text the ranks among which the straggler rotates
job wandering_words text the ranks among which the straggler rotates, and the phase that holds most of the delay
""",
    measure_job=measure_job,
    gain=gain,
    phase_metric="wandering_phase",
    loss=loss,
    counts_once_found=True,
    blames_nobody=True,
)
