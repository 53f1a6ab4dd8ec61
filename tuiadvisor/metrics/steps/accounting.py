"""Time accounting: seconds and shares of each phase of a step, for a rank and for the job.

In: StepTable of steady steps.  Out: name -> seconds or share; None where no hook observed the phase (its time is
in `other` then). The known parts sum to the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor import phases
from tuiadvisor.metrics.steps.arrays import Floats, finite_or_none, finite_or_nones, row_mean
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.step_table import StepTable

RARE: Final = [PHASES.index(name) for name in phases.PAUSES]
PhaseTimes = dict[str, float | None]


def phase_seconds_PR(table: StepTable) -> Floats:
    """Mean seconds a step of each phase and rank; NaN where a rank never observed the phase."""
    num_steps = np.maximum(table.present_RK.sum(axis=1), 1)
    shape = table.phase_s_PRK.shape[:2]
    total, observed = np.empty(shape), np.empty(shape, dtype=np.bool_)
    for phase, seconds_RK in enumerate(table.phase_s_PRK):  # one by one: all together do not fit the cache
        known = np.isfinite(seconds_RK)
        if known.all():
            observed[phase], total[phase] = True, seconds_RK.sum(axis=1) / num_steps
            continue
        observed[phase] = known.any(axis=1)
        if not observed[phase].any():
            total[phase] = 0.0
            continue
        # Steps before a hook's first event count as 0 for it: their time is in `other`, and the sum must close.
        total[phase] = np.where(known, seconds_RK, 0.0).sum(axis=1) / num_steps
    # A hook that sees one way of writing a checkpoint or of evaluating does not prove that there was none.
    observed[RARE] &= total[RARE] > 0
    return np.where(observed, total, np.nan)


def seconds_of_ranks(seconds_PR: Floats) -> list[PhaseTimes]:
    """Seconds a step of each rank, by phase name."""
    columns = [finite_or_nones(row) for row in seconds_PR]
    return [dict(zip(PHASES, values, strict=True)) for values in zip(*columns, strict=True)]


def shares_PR(seconds_PR: Floats) -> Floats:
    """`shares` of each rank, P x R; NaN where it says None."""
    known = np.isfinite(seconds_PR)
    total_R = np.where(known, seconds_PR, 0.0).sum(axis=0)
    return np.where(known & (total_R > 0), seconds_PR / np.where(total_R > 0, total_R, 1.0), np.nan)


def job_seconds(seconds_PR: Floats) -> PhaseTimes:
    """Mean over the ranks that have steps; None where no rank observed the phase."""
    has_steps = np.isfinite(seconds_PR).any(axis=0)
    if not has_steps.any():
        return dict.fromkeys(PHASES)
    columns = seconds_PR[:, has_steps]
    known = np.isfinite(columns)
    mean = np.where(known, columns, 0.0).mean(axis=1)
    return {
        name: finite_or_none(mean[index]) if known[index].any() else None for index, name in enumerate(PHASES)
    }


def shares(seconds: PhaseTimes) -> PhaseTimes:
    """Shares of the step; they sum to 1 over the known phases. All None without a step."""
    total = sum([value for value in seconds.values() if value is not None])
    if total <= 0:
        return dict.fromkeys(seconds)
    return {name: None if value is None else value / total for name, value in seconds.items()}


def rank_step_seconds(table: StepTable) -> Floats:
    """Mean step of every rank; NaN for a rank without steps."""
    return row_mean(table.step_s_RK)


def least_compute_s(table: StepTable) -> float:
    """Compute in the mean step of the rank that has least of it: no cure makes a step shorter; 0 where unknown."""
    forward_RK, backward_RK = (table.phase_s_PRK[PHASES.index(name)] for name in ("forward", "backward"))
    compute_R = row_mean(forward_RK + backward_RK)
    known = compute_R[np.isfinite(compute_R)]
    return float(known.min()) if known.size else 0.0
