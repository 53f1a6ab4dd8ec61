"""Stragglers that vary from step to step: noise, or work that differs from batch to batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause, Loss
from tuiadvisor.metrics.diagnosis import MAX_TURNS_OF_ONE

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """What is lost to it."""
    turns, left_s = diagnosis.turn_taking, _left_s(diagnosis)
    return {
        "on_device_clock": float(facts.device is not None),
        "turn_taking_s": left_s,
        "turn_least_words": "at least " if diagnosis.table.meets_within else "",
        "turn_taking_share": left_s / turns.step_s if turns and left_s is not None else None,
    }


def _left_s(diagnosis: Diagnosis) -> float | None:
    """Without what garbage collection explains, which has a finding of its own; None where it is mostly one rank's."""
    turns, collections = diagnosis.turn_taking, diagnosis.collections
    if diagnosis.turns_of_one > MAX_TURNS_OF_ONE:
        return None  # one rank's, though it is not known well enough to name it
    told_s = collections.gain.loss_s if collections is not None else 0.0
    return max(turns.loss_s - told_s, 0.0) if turns else None


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If each step's work were spread evenly."""
    return diagnosis.turn_taking


def loss(diagnosis: Diagnosis) -> Loss | None:
    """Of every step: nobody's fault, and no useful time either."""
    left_s = _left_s(diagnosis)
    return Loss("taking_turns", left_s) if left_s else None


TAKING_TURNS: Final = Cause(
    rules=("taking_turns",),
    metrics="""
job on_device_clock flag 1 if steps are told by the devices' own clocks, which nothing else makes late
job turn_taking_share share of the step lost to stragglers that vary from step to step
job turn_least_words text "at least " where ranks meet within backward, too, which no clock tells; else empty
job turn_taking_s s a step, gone if each step's work were spread evenly over the ranks
""",
    measure_job=measure_job,
    gain=gain,
    loss=loss,
    counts_once_found=True,
    blames_nobody=True,
)
