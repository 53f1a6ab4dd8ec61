"""All ranks are slower for a while, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import PHASE_WORDS, Cause
from tuiadvisor.causes.slower_since import is_more_work

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.metrics.steps.held_steps import Throttled
    from tuiadvisor.metrics.window.slow_stretches import SlowStretches


def measure_job(diagnosis: Diagnosis, _facts: Facts) -> Values:
    """What they cost together, how long and how often they are, and where the time goes."""
    found = diagnosis.slow_stretches
    quiet = 0.0 if diagnosis.num_all_steady else None
    period = found.period_steps if found else None
    phase = found.phase if found else None
    return {
        "stretches_s": found.gain.loss_s if found else None,
        "stretches_share": found.gain.loss_s / found.gain.step_s if found else quiet,
        "stretches_share_low": found.gain.loss_low_s / found.gain.step_s if found else quiet,
        "stretches_num": found.num if found else 0,
        "stretches_steps": found.num_steps if found else None,
        "stretches_longer": found.longer_share if found else None,
        "stretches_since": found.first_step if found else None,
        "stretches_regular": int(period is not None),
        "stretches_words": _when_words(period),
        "stretches_unexplained": int(
            found is not None and not is_more_work(found.work_growth, found.longer_share)
        ),
        "stretches_held": int(found is not None and found.held is not None),
        "stretches_held_words": "" if found is None or found.held is None else _held_words(found.held),
        "stretches_phase": phase,
        "stretches_phase_words": "" if phase is None else f", mostly {_phase_words(phase)}",
        "stretches_in_data_wait": int(phase == "data_wait"),
    }


def _phase_words(phase: str) -> str:
    """Of all ranks: waiting for their next batch."""
    return PHASE_WORDS.get(phase, f"in {phase}").replace(" its ", " their ")


def words_within(found: SlowStretches | None, phase: str, of_all: Gain) -> str:
    """When a loss in a phase comes and goes: ', most of it for about 20 steps every 100 steps'; else empty."""
    if found is None or found.phase != phase:
        return ""
    how = "most of it" if found.gain.loss_s >= of_all.loss_s / 2 else "longer"
    return f", {how} for about {found.num_steps} steps {_when_words(found.period_steps)}"


def _when_words(period_steps: float | None) -> str:
    """How they come: every 100 steps."""
    return "at irregular distances" if period_steps is None else f"every {period_steps:.0f} steps"


def _held_words(held: Throttled) -> str:
    why = f" ({', '.join(held.reasons)})" if held.reasons else ""
    return f", while their devices run at {held.mhz:.0f} MHz against {held.free_mhz:.0f}{why}"


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If all steps took what the quicker ones take."""
    return diagnosis.slow_stretches.gain if diagnosis.slow_stretches is not None else None


SLOW_STRETCHES: Final = Cause(
    layer_of=lambda subject: "gpu-compute" if subject.values.get("stretches_held") else None,
    rules=("slow_stretches",),
    metrics="""
job stretches_share share of the step lost in stretches of steps that are slower on all ranks
job stretches_share_low share lower end of its interval
job stretches_s s a step, gone if all steps took what the quicker ones take
job stretches_num count stretches that were seen to begin
job stretches_steps steps that one typically lasts
job stretches_longer share by which their steps are longer than the quicker ones
job stretches_since steps job step at which the first one that was seen begins
job stretches_regular flag 1 if they come at equal distances
job stretches_words text "every 100 steps" or that they come irregularly
job stretches_held flag 1 if devices hold their clocks back in just these steps, by their own telling
job stretches_held_words text ", while their devices run at 1404 MHz against 1755 (thermal (hardware))"; else empty
job stretches_unexplained flag 1 if more tokens or samples do not explain the longer steps
job stretches_phase text phase that grows most in them; unknown where no phase holds most of it
job stretches_in_data_wait flag 1 if the wait for the next batch grows most in them
job stretches_phase_words text ", mostly in backward"; empty where that is not known
""",
    measure_job=measure_job,
    gain=gain,
    phase_metric="stretches_phase",
    told_by=("input_bound", "communication_bound"),
)
