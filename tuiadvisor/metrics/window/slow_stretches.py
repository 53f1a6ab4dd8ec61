"""Steps of the whole job that are longer for a while, again and again: a stretch of slow ones, then the usual ones.

In: StepTable, Regime, cycle and work between barriers, no NaN.  Out: SlowStretches, None where steps have one level or
one rank's lateness makes them long. What slows all ranks together is nobody's lateness, no pause (each step is but a
little longer) and no new level (it goes back): copies of a checkpoint, an evaluation, another job, heat.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import find_changes
from tuiadvisor.metrics.series.what_if import Gain, gain
from tuiadvisor.metrics.steps.arrays import median
from tuiadvisor.metrics.window.regime import MIN_SHIFT_SHARE, ONE_PHASE, grown_phase, work_growth

if TYPE_CHECKING:
    from tuiadvisor.metrics.series.change_points import Change
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.metrics.window.regime import Regime

MIN_LONGER: Final = 0.1  # Greyhound: act only on a verified shift of the mean of more than a tenth
MIN_STRETCHES: Final = 3  # that were seen to begin; two may be two events (chosen)
MAX_SLOW_SHARE: Final = 0.5  # of the steps: of more the slow level is the usual one
MIN_COMMON: Final = (
    0.8  # TraceML: name a cause only when it covers 80 %; here, ranks of so many share so much of the growth
)
REGULAR: Final = (
    0.25  # spread of the distances, of their mean: as pauses that are periodic (metrics/pauses/periodic)
)


@dataclass(frozen=True, slots=True)
class SlowStretches:
    """Of the steps since the job's present level began."""

    gain: Gain  # if all steps took what the usual ones take
    first_step: int  # job step at which the first one begins that was seen to begin
    num: int  # seen to begin
    num_steps: int  # that one typically lasts
    period_steps: float | None  # from one to the next; None: they come irregularly
    longer_share: float  # by which their steps are longer than the usual ones
    phase: str | None  # that grows most; None: none holds most of it
    work_growth: float | None  # by what share their tokens or samples are more; None: not told


def slow_stretches(
    table: StepTable,
    regime: Regime,
    columns: Ints,
    cycle_K: Floats,
    work_RK: Floats,
    *,
    all_ranks_seen: bool,
) -> SlowStretches | None:
    """Where all ranks are slower for a while. cycle_K, work_RK: of the table's columns `columns`, no NaN.

    all_ranks_seen: else a longer exchange may be the wait for a rank that nobody sees, and only work tells.
    """
    if sum(change.shift > 0 for change in regime.cycle_changes) < MIN_STRETCHES:
        return None
    # A level to which the job has returned is the present one to all else: here it is one of two.
    start = regime.start if regime.begun_by_row is not None else 0
    columns, cycle_K, work_RK = columns[start:], cycle_K[start:], work_RK[:, start:]
    are_compared = work_RK.shape[0] > 1
    if not cycle_K.size or not (are_compared or all_ranks_seen):
        return None
    shared_K = _shared(work_RK) if are_compared else cycle_K
    common_K = cycle_K - (work_RK.max(axis=0) - shared_K) if are_compared and all_ranks_seen else shared_K
    changes = find_changes(common_K, MIN_SHIFT_SHARE * median(cycle_K))
    is_slow_K, usual_s = _slow(common_K, changes)
    begins, lengths = _stretches(is_slow_K)
    if len(begins) < MIN_STRETCHES or not lengths or is_slow_K.mean() > MAX_SLOW_SHARE:
        return None
    slow_s = float(common_K[is_slow_K].mean())
    grown_s = float(cycle_K[is_slow_K].mean()) - float(cycle_K[~is_slow_K].mean())
    if slow_s < (1 + MIN_LONGER) * usual_s or slow_s - usual_s < MIN_COMMON * grown_s:
        return None
    phase, cover = grown_phase(table, columns[~is_slow_K], columns[is_slow_K])
    return SlowStretches(
        gain=gain(cycle_K, np.where(is_slow_K, np.maximum(common_K - usual_s, 0.0), 0.0)),
        first_step=int(table.steps_of(columns)[begins[0]]),
        num=len(begins),
        num_steps=round(median(np.array(lengths, dtype=np.float64))),
        period_steps=_period(table.steps_of(columns)[begins]),
        longer_share=slow_s / usual_s - 1,
        phase=phase if cover >= ONE_PHASE else None,
        work_growth=work_growth(table, columns[~is_slow_K], columns[is_slow_K]),
    )


def _shared(work_RK: Floats) -> Floats:
    """Work that MIN_COMMON of the ranks have at least, each step: of few ranks all of them."""
    place = int((1 - MIN_COMMON) * (work_RK.shape[0] - 1))
    shared: Floats = np.partition(work_RK, place, axis=0)[place]
    return shared


def _slow(common_K: Floats, changes: tuple[Change, ...]) -> tuple[Bools, float]:
    """(the steps between a change upwards and one back, what the others typically take)."""
    edges = [0, *(change.index for change in changes), common_K.size]
    levels = [median(common_K[begin:end]) for begin, end in itertools.pairwise(edges)]
    usual_s = median(common_K)
    is_slow_K = np.zeros(common_K.size, dtype=np.bool_)
    for level, (begin, end) in zip(levels, itertools.pairwise(edges), strict=True):
        is_slow_K[begin:end] = level > (1 + MIN_LONGER / 2) * usual_s
    return is_slow_K, median(common_K[~is_slow_K]) if not is_slow_K.all() else usual_s


def _stretches(is_slow_K: Bools) -> tuple[list[int], list[int]]:
    """(where stretches begin that were seen to, how long those last whose end was seen, too)."""
    edges: Ints = np.flatnonzero(np.diff(is_slow_K.astype(np.int8)))
    begins = [int(at) + 1 for at in edges if not is_slow_K[at]]
    ends = [int(at) + 1 for at in edges if is_slow_K[at]]
    lengths = [min((end for end in ends if end > begin), default=begin) - begin for begin in begins]
    return begins, [length for length in lengths if length > 0]


def _period(begins: Ints) -> float | None:
    distances = np.diff(begins).astype(np.float64)
    mean = float(distances.mean())
    return mean if float(np.abs(distances - mean).max()) <= REGULAR * mean else None
