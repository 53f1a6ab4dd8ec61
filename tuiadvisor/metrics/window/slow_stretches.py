"""Steps of the whole job that are longer for a while, again and again: a stretch of slow ones, then quicker ones.

In: StepTable, Regime, cycle and work between barriers, no NaN.  Out: SlowStretches, None where steps have one level or
one rank's lateness makes them long. What slows all ranks together is nobody's lateness, no pause (each step is but a
little longer) and no new level (it goes back): copies of a checkpoint, an evaluation, another job, heat.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import (
    MIN_SEGMENT_STEPS,
    NUM_STANDARD_ERRORS_OF_MEAN,
    find_changes,
)
from tuiadvisor.metrics.series.what_if import Gain, at_least, gain, least_of_events
from tuiadvisor.metrics.steps.arrays import median
from tuiadvisor.metrics.window.growth import grown_phase, work_growth
from tuiadvisor.metrics.window.regime import MIN_SHIFT_SHARE, ONE_PHASE
from tuiadvisor.metrics.window.waves import (
    ALL_BUT_STRAYS,
    MIN_HELD_MORE,
    MIN_TIMES,
    MIN_TIMES_SEEN,
    comes_and_goes,
    is_held_when_high,
    is_high,
    may_go_on,
    times_high,
)

if TYPE_CHECKING:
    from tuiadvisor.metrics.series.change_points import Change
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.steps.held_steps import HeldSteps, Throttled
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.metrics.window.regime import Regime

MIN_LONGER: Final = 0.1  # Greyhound: act only on a verified shift of the mean of more than a tenth
LEAST_TOLD: Final = MIN_LONGER / 2  # where devices themselves tell of it
MAX_SLOW_SHARE: Final = 0.5  # of the steps: of more the slow level is the usual one
MAX_WAVE_SHARE: Final = (
    0.9  # where two levels come back as they were: a quick one this rare is the exception (chosen)
)
MIN_COMMON: Final = (
    0.8  # TraceML: name a cause only when it covers 80 %; here, ranks of so many share so much of the growth
)
MIN_NEXT: Final = 0.7  # of the distances are one period: of pauses so many agree (metrics/pauses/periodic)
MIN_DISTANCES: Final = 2  # from one to the next: a single one is always regular
REGULAR: Final = (
    0.25  # of their median: so far distances are from it, as pauses that are periodic (pauses/periodic)
)


@dataclass(frozen=True, slots=True)
class SlowStretches:
    """Of the steps since the job's present level began."""

    gain: Gain  # if all steps took what the quicker ones take
    first_step: int  # job step at which the first one begins that was seen to begin
    num: int  # seen to begin or to end
    num_steps: int  # that one typically lasts
    period_steps: float | None  # from one to the next; None: they come irregularly
    longer_share: float  # by which their steps are longer than the quicker ones
    phase: str | None  # that grows most; None: none holds most of it
    work_growth: float | None  # by what share their tokens or samples are more; None: not told
    held: Throttled | None = None  # devices hold their clocks back in them, and not between; None: not told


def slow_stretches(
    table: StepTable,
    regime: Regime,
    columns: Ints,
    cycle_K: Floats,
    work_RK: Floats,
    *,
    held: HeldSteps,
    all_ranks_seen: bool,
) -> SlowStretches | None:
    """Where all ranks are slower for a while. cycle_K, work_RK: of the table's columns `columns`, no NaN.

    all_ranks_seen: else a longer exchange may be the wait for a rank that nobody sees, and only work tells.
    """
    clocks = held.common()
    if clocks is None and times_high(regime.cycle_changes) < MIN_TIMES:
        return None
    # A level to which the job has returned is the present one to all else: here it is one of two.
    start = regime.start if regime.begun_by_row is not None else 0
    columns, cycle_K, work_RK = columns[start:], cycle_K[start:], work_RK[:, start:]
    are_compared = work_RK.shape[0] > 1
    if not cycle_K.size or not (are_compared or all_ranks_seen):
        return None
    shared_K = _shared(work_RK) if are_compared else cycle_K
    common_K = cycle_K - (work_RK.max(axis=0) - shared_K) if are_compared and all_ranks_seen else shared_K
    clocks = None if clocks is None else replace(clocks, share_K=clocks.share_K[start:])
    levels = _levels(common_K, find_changes(common_K, MIN_SHIFT_SHARE * median(cycle_K)), clocks)
    if levels is None:
        return None
    is_slow_K = levels.is_slow_K
    begins, lengths = _stretches(is_slow_K)
    num = len(begins) + int(is_slow_K[0])
    # Means: of restless steps the typical one is shorter than what they take.
    slow_s, usual_s = float(common_K[is_slow_K].mean()), float(common_K[~is_slow_K].mean())
    grown_s = float(cycle_K[is_slow_K].mean()) - float(cycle_K[~is_slow_K].mean())
    if slow_s < (1 + levels.least_longer) * usual_s or slow_s - usual_s < MIN_COMMON * grown_s:
        return None
    phase, cover = grown_phase(table, columns[~is_slow_K], columns[is_slow_K])
    return SlowStretches(
        gain=at_least(
            gain(cycle_K, np.where(is_slow_K, np.maximum(common_K - usual_s, 0.0), 0.0)), least_of_events(num)
        ),
        first_step=int(table.steps_of(columns)[begins[0]]),
        num=num,
        num_steps=round(median(np.array(lengths, dtype=np.float64))),
        period_steps=_period(table.steps_of(columns), is_slow_K),
        longer_share=slow_s / usual_s - 1,
        phase=phase if cover >= ONE_PHASE else None,
        work_growth=work_growth(table, columns[~is_slow_K], columns[is_slow_K]),
        held=levels.clocks,
    )


def _shared(work_RK: Floats) -> Floats:
    """Work that MIN_COMMON of the ranks have at least, each step: of few ranks all of them."""
    place = int((1 - MIN_COMMON) * (work_RK.shape[0] - 1))
    shared: Floats = np.partition(work_RK, place, axis=0)[place]
    return shared


@dataclass(frozen=True, slots=True)
class _Levels:
    is_slow_K: Bools
    clocks: Throttled | None  # which tell of them
    least_longer: float = MIN_LONGER


def _levels(common_K: Floats, changes: tuple[Change, ...], clocks: Throttled | None) -> _Levels | None:
    """The slow steps and the quicker ones, by verified changes of level or else by what devices say of their clocks."""
    held_K = None if clocks is None else clocks.share_K
    if held_K is not None and not changes:
        found = _by_clocks(common_K, held_K, clocks)
    elif held_K is not None and is_held_when_high(changes, held_K):
        found = _Levels(_slow(common_K, changes, held_K), clocks, LEAST_TOLD)
    else:
        found = _waves(common_K, changes) or _rare(common_K, changes)
    if found is None or not found.is_slow_K.any():
        return None
    begins, lengths = _stretches(found.is_slow_K)
    is_told = found.clocks is not None
    is_again = len(begins) + int(found.is_slow_K[0]) >= (MIN_TIMES_SEEN if is_told else MIN_TIMES)
    return found if is_again and begins and lengths and _goes_on(found.is_slow_K) else None


def _goes_on(is_slow_K: Bools) -> bool:
    """Whether the last stretch, slow or quick, may be one more of its kind."""
    edges = [0, *(int(at) + 1 for at in np.flatnonzero(np.diff(is_slow_K.astype(np.int8)))), is_slow_K.size]
    lengths = [end - begin for begin, end in itertools.pairwise(edges)]
    return may_go_on(lengths[-1], lengths[-3:0:-2])


def _rare(common_K: Floats, changes: tuple[Change, ...]) -> _Levels | None:
    """Levels above the usual one, however unlike each other."""
    found = _Levels(_slow(common_K, changes, None), None)
    return found if found.is_slow_K.mean() <= MAX_SLOW_SHARE else None


def _waves(common_K: Floats, changes: tuple[Change, ...]) -> _Levels | None:
    """Two levels that come back as they were: the slow one may be had more often than the quick one."""
    is_slow_K = is_high(changes, common_K.size)
    if not comes_and_goes(changes, common_K.size) or is_slow_K.mean() > MAX_WAVE_SHARE:
        return None
    return _Levels(is_slow_K, None)


def _by_clocks(common_K: Floats, held_K: Floats, clocks: Throttled | None) -> _Levels | None:
    """Stretches too short to be levels: steps in which devices are held back against those in which they are not.

    Samples are a second apart, so that neighbours are taken for one another: the difference is at least so much.
    """
    is_slow_K, is_free_K = held_K >= MIN_HELD_MORE, held_K < MIN_HELD_MORE
    slow, free = common_K[is_slow_K], common_K[is_free_K]
    if min(slow.size, free.size) < MIN_SEGMENT_STEPS or len(_stretches(is_slow_K)[0]) < MIN_TIMES:
        return None
    error_s = float(np.sqrt(slow.var() / slow.size + free.var() / free.size))
    if float(slow.mean() - free.mean()) <= NUM_STANDARD_ERRORS_OF_MEAN * error_s:
        return None
    return _Levels(is_slow_K, clocks, LEAST_TOLD)


def _slow(common_K: Floats, changes: tuple[Change, ...], held_K: Floats | None) -> Bools:
    """The steps between a change upwards and one back.

    held_K: what devices tell: then it is known which level is the usual one, however rare it is.
    """
    edges = [0, *(change.index for change in changes), common_K.size]
    levels = [median(common_K[begin:end]) for begin, end in itertools.pairwise(edges)]
    is_free_K = np.ones(common_K.size, dtype=np.bool_) if held_K is None else held_K < MIN_HELD_MORE
    usual_s = median(common_K[is_free_K])
    is_slow_K = np.zeros(common_K.size, dtype=np.bool_)
    for level, (begin, end) in zip(levels, itertools.pairwise(edges), strict=True):
        is_slow_K[begin:end] = level > (1 + LEAST_TOLD) * usual_s
    return is_slow_K


def _stretches(is_slow_K: Bools) -> tuple[list[int], list[int]]:
    """(where stretches begin that were seen to, how long those last whose end was seen, too)."""
    edges: Ints = np.flatnonzero(np.diff(is_slow_K.astype(np.int8)))
    begins = [int(at) + 1 for at in edges if not is_slow_K[at]]
    ends = [int(at) + 1 for at in edges if is_slow_K[at]]
    lengths = [min((end for end in ends if end > begin), default=begin) - begin for begin in begins]
    return begins, [length for length in lengths if length > 0]


def _period(steps: Ints, is_slow_K: Bools) -> float | None:
    """Steps from one stretch to the next, by where they begin and where they end."""
    edges: Ints = np.flatnonzero(np.diff(is_slow_K.astype(np.int8)))
    begins, ends = steps[edges[~is_slow_K[edges]] + 1], steps[edges[is_slow_K[edges]] + 1]
    distances = np.concatenate((np.diff(begins), np.diff(ends))).astype(np.float64)
    if distances.size < MIN_DISTANCES:
        return None
    period = median(distances)
    times = np.maximum(np.round(distances / period), 1)  # a stretch between may not have been seen
    fits = np.abs(distances - times * period) <= REGULAR * period
    is_regular = fits.mean() >= ALL_BUT_STRAYS and (fits & (times == 1)).mean() >= MIN_NEXT
    return period if is_regular else None
