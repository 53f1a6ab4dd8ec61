"""Slow first steps: compilation, allocation, cold caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.causes.cause import Cause

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis

BREAK_EVEN_SHARE: Final = 0.05  # of the run: a warm-up that is less of it is not worth a word


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """What the first steps took beyond steady ones; unknown where they are the first seen, and maybe not the first."""
    if facts.met_late:
        return dict.fromkeys(("warmup_steps", "warmup_s", "warmup_break_even_steps", "warmup_share"))
    warmup, cycle_K = diagnosis.steadiness.warmup, diagnosis.barrier.cycle_K
    observed_s = float(np.nansum(np.where(np.isfinite(cycle_K), cycle_K, 0)))
    if warmup is None:
        return {
            "warmup_steps": 0 if observed_s else None,
            "warmup_s": 0.0 if observed_s else None,
            "warmup_break_even_steps": None,
            "warmup_share": None,
        }
    return {
        "warmup_steps": warmup.num_steps,
        "warmup_s": warmup.loss_s,
        "warmup_break_even_steps": warmup.loss_s / (BREAK_EVEN_SHARE * warmup.steady_step_s),
        "warmup_share": warmup.loss_s / observed_s if observed_s > 0 else None,
    }


WARMUP: Final = Cause(
    rules=("warmup",),
    metrics="""
job warmup_steps steps slow first steps
job warmup_s s lost to slow first steps in all
job warmup_break_even_steps steps after which the warm-up is less than 5 % of the run
job warmup_share share of the observed time lost to slow first steps
""",
    measure_job=measure_job,
)
