"""The job's step became longer at some step and stayed so, or grows little by little.

In: StepTable, Regime, cycle and transfer of the steady steps.  Out: LevelShift, None where neither is so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.series.change_points import Change
from tuiadvisor.metrics.series.drift import NUM_PARTS, find_drift
from tuiadvisor.metrics.steps.arrays import Floats, Ints, median
from tuiadvisor.metrics.window.growth import grown_phase, growth_phase, work_growth
from tuiadvisor.metrics.window.phase_levels import COMPARED_STEPS, SETTLED_STEPS
from tuiadvisor.metrics.window.regime import NEW_REGIME_SHARE, OWN_GROWTH
from tuiadvisor.metrics.window.waves import comes_and_goes

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.metrics.window.regime import Regime


@dataclass(frozen=True, slots=True)
class LevelShift:
    """The job's step became longer at some step and stayed so."""

    since_step: int
    before_s: float
    after_s: float
    phase: str | None  # the phase that grew most, on the typical rank
    cover: float  # share of the growth that it holds
    num_steps: int  # seen since
    is_gradual: bool = False  # it grows little by little since `since_step`, and has no level
    work_growth: float | None = (
        None  # by what share a step's tokens or samples have grown with it; None: not told
    )
    within: int = 0  # steps: so exactly `since_step` is known; 0: to the step
    waits: float | None = (
        None  # share of the growth in which ranks wait for others or for the exchange; None: not known
    )


def level_shift(
    table: StepTable, regime: Regime, columns: Ints, cycle_K: Floats, transfer_K: Floats
) -> LevelShift | None:
    """The latest change of the job's step, if it made the step longer and that is still so.

    cycle_K, transfer_K: of these columns; transfer may be NaN, where arrivals are not seen.
    """
    gradual = _gradual(table, columns, cycle_K, transfer_K)
    if gradual is not None:  # its levels are steps of a stair
        return gradual
    change = regime.cycle_changes[-1] if regime.cycle_changes else _of_phase(regime, cycle_K)
    if change is None or change.shift <= 0:
        return None
    if comes_and_goes(regime.cycle_changes, cycle_K.size):  # the latest rise is one of many
        return None
    since_K = cycle_K[change.index :]
    # The way back may be too gradual to be a change of its own.
    if min(median(since_K), median(since_K[-SETTLED_STEPS:])) < (change.before + change.after) / 2:
        return None
    phase, cover = growth_phase(table, columns, change.index)
    if phase == "comm_exposed" and _waits_for_ranks(transfer_K, change):
        return None
    num_steps = int(columns.size) - change.index
    since = table.step_of(columns[change.index])
    before = columns[: change.index][-COMPARED_STEPS:]
    more = work_growth(table, before, columns[change.index :][:COMPARED_STEPS])
    return LevelShift(since, change.before, change.after, phase, cover, num_steps, work_growth=more)


def _of_phase(regime: Regime, cycle_K: Floats) -> Change | None:
    """Of steps too restless to tell it: a phase grew on all ranks, which began the window, and the steps with it."""
    begun, at = regime.begun_by, regime.start
    if regime.begun_by_phase is None or begun is None or begun.shift <= 0 or not 0 < at < cycle_K.size:
        return None
    found = Change(at, median(cycle_K[:at][-COMPARED_STEPS:]), median(cycle_K[at:]))
    least_s = max(OWN_GROWTH * begun.shift, NEW_REGIME_SHARE * found.before)
    return found if found.shift >= least_s else None


def _gradual(table: StepTable, columns: Ints, cycle_K: Floats, transfer_K: Floats) -> LevelShift | None:
    """A step that grows little by little: no change dates it."""
    drift = find_drift(cycle_K) if np.isfinite(cycle_K).all() else None
    if drift is None or drift.growth_s < NEW_REGIME_SHARE * drift.first_s:
        return None
    part = columns.size // NUM_PARTS
    first, last = columns[:part], columns[-part:]
    phase, cover = grown_phase(table, first, last)
    whole = Change(part, drift.first_s, drift.last_s)
    if phase == "comm_exposed" and _waits_for_ranks(
        np.concatenate((transfer_K[:part], transfer_K[-part:])), whole
    ):
        return None
    more = work_growth(table, first, last)
    since = table.step_of(columns[0])
    return LevelShift(since, drift.first_s, drift.last_s, phase, cover, int(columns.size), True, more)


def _waits_for_ranks(transfer_K: Floats, change: Change) -> bool:
    """The exchange grew because ranks come apart, now one, now another: not alike on all, and not the exchange."""
    before, after = transfer_K[: change.index][-COMPARED_STEPS:], transfer_K[change.index :][:COMPARED_STEPS]
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if not before.size or not after.size:
        return False
    return float(median(after) - median(before)) < OWN_GROWTH * change.shift
