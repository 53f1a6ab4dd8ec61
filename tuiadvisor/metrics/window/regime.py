"""The present level of the job: the steps that belong together, so that a fault is sized from its onset on.

In: work between barriers and cycle of the steady steps, no NaN.  Out: Regime: where the window begins, and every
verified change of level, of the job and of single ranks. Noise of a shared machine changes levels too, for ten or
twenty steps at a time: a change counts at once only if it is one rank's or one phase's, else when it has lasted.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial
from math import hypot
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS, Change, find_changes, split_scores
from tuiadvisor.metrics.series.drift import MIN_PART_STEPS, NUM_PARTS, find_drift
from tuiadvisor.metrics.series.mean_shift import MIN_SIDE_STEPS, find_mean_changes
from tuiadvisor.metrics.series.slow_noise import peers_of, slow_noise, without_levels
from tuiadvisor.metrics.steps.arrays import Floats, Ints, column_median, median, medians
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX
from tuiadvisor.metrics.window.phase_levels import COMPARED_STEPS, SETTLED_STEPS, alternates
from tuiadvisor.metrics.window.waves import (
    comes_and_goes,
    in_turn,
    is_high,
    job_comes_and_goes,
    rank_comes_and_goes,
    times_high,
)
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.held_steps import HeldSteps
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.metrics.window.phase_levels import PhaseChange

MIN_SHIFT_SHARE: Final = 0.03  # of the cycle: smaller changes of level are not looked for
NEW_REGIME_SHARE: Final = 0.05  # of the cycle: smaller ones date an onset, but begin no new window
ONE_PHASE: Final = 0.8  # of the growth in one phase: a change of the program, not of the machine
SCREEN_SCORE: Final = 6.0  # standard errors at which a rank's series is searched for changes
MAX_SEARCHED_RANKS: Final = 32  # those that stand out most: the cost of a view
MAX_RESTLESS_RANKS: Final = 4  # searched for a change of their mean alone
MIN_QUIET_GAPS: Final = (
    3  # bursts that come back after a while: three times as long without one, and they had not begun
)
SLOW_SIGMAS: Final = 3.0  # of the difference of two means: less is a level that slow noise makes
OWN_GROWTH: Final = 0.5  # of a longer step: so much of it the transfer itself must have grown


@dataclass(frozen=True, slots=True)
class Regime:
    """Indices count the columns given."""

    start: int
    cycle_changes: tuple[Change, ...]
    rank_changes: dict[int, tuple[Change, ...]]
    intermittent_rows: frozenset[int]
    begun_by: Change | None = None  # the change at `start`
    begun_by_row: int | None = None  # whose it is; None: the whole job's
    begun_by_phase: str | None = None  # which changed on all ranks; None: all of the step
    earlier: tuple[
        tuple[Change, int | None], ...
    ] = ()  # of the same kinds, in order: whose; None: the whole job's
    # Of rows that are late for a while, again and again, by levels that were each verified: how many times.
    times_late: dict[int, int] = field(default_factory=dict)
    is_sliding: bool = False  # nothing happened at `start`: lateness grows, and the window is its latest part

    @property
    def lasting(self) -> dict[int, tuple[Change, ...]]:
        """Changes by row, of those that do not come and go."""
        return {row: found for row, found in self.rank_changes.items() if row not in self.intermittent_rows}


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


WHOLE: Final = Regime(0, (), {}, frozenset())


def deviations(work_RK: Floats) -> Floats:
    """Each rank's work beyond the ranks' common level, step by step: what slows all together cancels out."""
    return work_RK - medians(work_RK, 0)


@dataclass(frozen=True, slots=True)
class _RankChanges:
    """Of single ranks, by row: levels in most steps, and means of those that are late now and then."""

    levels: dict[int, tuple[Change, ...]]
    means: dict[int, tuple[Change, ...]]  # where no level changes
    intermittent: frozenset[int]
    num_ranks: int
    in_turn: frozenset[int] = frozenset()  # of the intermittent ones: known by whom they take over from

    @property
    def dating(self) -> dict[int, tuple[Change, ...]]:
        """What dates a rank's lateness, in order."""
        result = {}
        for row in sorted(self.levels.keys() | self.means.keys()):
            means, levels = self.means.get(row, ()), self.levels.get(row, ())
            # Of one that comes and goes the levels are its bursts.
            changes = means if row in self.intermittent and means else levels + means
            result[row] = tuple(sorted(changes, key=lambda change: change.index))
        return result


def _rank_changes(deviation_RK: Floats, min_shift: float, held: HeldSteps) -> _RankChanges:
    num_ranks, num_steps = deviation_RK.shape
    if num_ranks < 2:
        return _RankChanges({}, {}, frozenset(), num_ranks)
    if num_ranks == 2:  # one is ahead by what the other is behind: one search serves both
        levels, means, is_intermittent = _series_changes(
            deviation_RK[1],
            min_shift,
            lambda levels: (
                rank_comes_and_goes(1, levels, num_steps, held)
                or rank_comes_and_goes(0, _mirrored(levels), num_steps, held)
            ),
        )
        return _RankChanges(
            {0: _mirrored(levels), 1: levels} if levels else {},
            {0: _mirrored(means), 1: means} if means else {},
            frozenset((0, 1)) if is_intermittent or alternates(_mirrored(levels)) else frozenset(),
            2,
        )
    found = {
        row: _series_changes(deviation_RK[row], min_shift, partial(_returns, held, row, num_steps))
        for row in _suspects(deviation_RK, min_shift)
    }
    levels_of = {row: levels for row, (levels, _, _) in found.items() if levels}
    intermittent = frozenset(row for row, (_, _, is_intermittent) in found.items() if is_intermittent)
    waving = {
        row for row in intermittent & levels_of.keys() if _returns(held, row, num_steps, levels_of[row])
    }
    taking_over = in_turn(levels_of, waving) - intermittent
    means_of = {row: means for row, (_, means, _) in found.items() if means and row not in taking_over}
    return _RankChanges(levels_of, means_of, intermittent | taking_over, num_ranks, taking_over)


def _returns(held: HeldSteps, row: int, num_steps: int, levels: tuple[Change, ...]) -> bool:
    return rank_comes_and_goes(row, levels, num_steps, held)


def changes_against(work_RK: Floats, row: int, peers: Ints, min_shift: float) -> tuple[Change, ...]:
    """What dates a rank's lateness where others are late too: its work beyond that of ranks that are not.

    As more of them become late the common level moves, and who was late before would seem to recover.
    """
    beyond_K = work_RK[row] - medians(work_RK[peers], 0)
    levels, means, is_intermittent = _series_changes(
        beyond_K, min_shift, lambda levels: comes_and_goes(levels, beyond_K.size)
    )
    changes = means if is_intermittent and means else levels + means
    return tuple(sorted(changes, key=lambda change: change.index))


def _suspects(deviation_RK: Floats, min_shift: float) -> list[int]:
    """Rows whose series may change: by their score, and a few whose mean does though the score is low.

    Of a rank that is late in every second step most neighbours differ, which looks like noise.
    """
    scores, index = split_scores(deviation_RK)
    order = np.argsort(-scores, kind="stable")[:MAX_SEARCHED_RANKS]
    chosen = {int(row) for row in order if scores[row] > SCREEN_SCORE}
    at = index.astype(np.int64)
    if at.size and at.min() > 0:
        sums = np.cumsum(deviation_RK, axis=1)
        before = sums[np.arange(at.size), at - 1]
        shift = (sums[:, -1] - before) / (deviation_RK.shape[1] - at) - before / at
        largest = np.argsort(-shift, kind="stable")[:MAX_RESTLESS_RANKS]
        chosen |= {int(row) for row in largest if shift[row] >= min_shift}
    return sorted(chosen)


def _series_changes(
    deviation_K: Floats, min_shift: float, returns: Callable[[tuple[Change, ...]], bool]
) -> tuple[tuple[Change, ...], tuple[Change, ...], bool]:
    """(changes of level, changes of the mean that are none of level, whether it comes and goes).

    returns: whether levels that last do, as `waves.comes_and_goes`.
    """
    levels = find_changes(deviation_K, min_shift)
    is_intermittent = alternates(levels) or not _hold(levels, deviation_K)
    if not is_intermittent and returns(levels):
        # The mean of the steps moves with each of these levels, and says nothing beside.
        return levels, _first_burst(levels, deviation_K, min_shift), True
    # Of a rank that is late in a part of its steps no level moves; of one that comes and goes, too many do.
    edges = [] if is_intermittent else [change.index for change in levels]
    means = tuple(
        change
        for change in find_mean_changes(deviation_K, min_shift)
        if all(abs(change.index - edge) > MIN_SIDE_STEPS for edge in edges)
    )
    if is_intermittent and not means:
        means = _first_burst(levels, deviation_K, min_shift)
    return levels, means, is_intermittent


def _hold(levels: tuple[Change, ...], deviation_K: Floats) -> bool:
    """Whether most steps from each change to the next keep to its level: at the edge of a short burst they do not."""
    edges = [0, *(change.index for change in levels), deviation_K.size]
    medians = [median(deviation_K[at:end]) for at, end in itertools.pairwise(edges)]
    return all(
        (before - middle) * (change.before - middle) > 0 and (after - middle) * (change.after - middle) > 0
        for change, before, after in zip(levels, medians[:-1], medians[1:], strict=True)
        for middle in [(change.before + change.after) / 2]
    )


def _first_burst(levels: tuple[Change, ...], deviation_K: Floats, min_shift: float) -> tuple[Change, ...]:
    """The beginning of a series of bursts, if it was quiet before for much longer than between them."""
    first, later = levels[0], levels[1:]
    gaps = [up.index - down.index for down, up in itertools.pairwise(later) if down.shift < 0 < up.shift]
    if first.shift < 0 or not gaps or first.index < MIN_QUIET_GAPS * max(gaps):
        return ()
    begun = Change(first.index, first.before, float(deviation_K[first.index :].mean()))
    return (begun,) if begun.shift >= min_shift else ()


def _mirrored(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    return tuple(Change(change.index, -change.before, -change.after) for change in changes)


def find_regime(
    table: StepTable,
    columns: Ints,
    work_RK: Floats,
    beyond_RK: Floats,
    cycle_K: Floats,
    *,
    held: HeldSteps,
    as_was_RK: Floats | None = None,
    common: tuple[PhaseChange, ...] = (),
) -> Regime:
    """Changes of level of the job's cycle and of single ranks, and where the present level begins.

    work_RK and cycle_K: the table's columns `columns`, the ranks that can be compared. beyond_RK: `deviations` of that
    work. as_was_RK: as of `slow_noise`. common: phases that changed on all ranks, smallest shift NEW_REGIME_SHARE of
    the cycle.
    """
    if cycle_K.size < 2 * MIN_SEGMENT_STEPS:
        return WHOLE
    cycle_s = median(cycle_K)
    found = _rank_changes(beyond_RK, MIN_SHIFT_SHARE * cycle_s, held)
    cycle_changes = find_changes(cycle_K, MIN_SHIFT_SHARE * cycle_s)
    by_row, intermittent = found.dating, found.intermittent
    starts = _rank_starts(found, cycle_s, cycle_K.size)
    times_late = _times_late(found, work_RK, held)
    if not (alternates(cycle_changes) or job_comes_and_goes(cycle_changes, cycle_K.size, held)):
        starts += [
            _Start(change, None)
            for change in cycle_changes
            if abs(change.shift) >= NEW_REGIME_SHARE * cycle_s
            and _is_believed(table, columns, change.index, cycle_K.size)
        ]
    starts += _drift_starts(beyond_RK, cycle_s)
    bursts = [change.index for row in intermittent for change in found.levels[row]]
    starts = [start for start in starts if all(_is_apart(start.change, index) for index in bursts)]
    starts += _mean_starts(found, cycle_s, cycle_K.size)
    lasting = {row: levels for row, levels in found.levels.items() if row not in intermittent}
    levelled = partial(without_levels, levels=lasting, least_s=NEW_REGIME_SHARE * cycle_s)
    starts = _beyond_slow_noise(starts, work_RK, as_was_RK, levelled)
    at = [start.change.index for start in starts]
    starts += [
        _Start(entry.change, None, entry.phase)
        for entry in common
        if all(_is_apart(entry.change, index) for index in at)
    ]
    if not starts:
        return Regime(0, cycle_changes, by_row, intermittent, times_late=times_late)
    latest = max(starts, key=lambda start: (start.change.index, abs(start.change.shift)))
    if latest.is_drift:
        begin = latest.change.index
        return Regime(begin, cycle_changes, by_row, intermittent, times_late=times_late, is_sliding=True)
    row, change, phase = latest.row, latest.change, latest.phase
    if row is not None and work_RK.shape[0] == 2:
        row, change = _own_change(work_RK, change)
    if phase is not None:  # of several that changed together: the one that costs
        near = [start for start in starts if start.phase and not _is_apart(change, start.change.index)]
        grown = max(near, key=lambda start: start.change.shift)
        phase, change = grown.phase, grown.change
    return Regime(
        latest.change.index,
        cycle_changes,
        by_row,
        intermittent,
        change,
        row,
        phase,
        _earlier(starts, latest.change, work_RK),
        times_late,
    )


def _times_late(found: _RankChanges, work_RK: Floats, held: HeldSteps) -> dict[int, int]:
    """Of rows that are late for a while, again and again, how many times, where their own work is longer then.

    Where others become slow together, who does not falls behind them whenever they are well.
    """
    result = {}
    for row in sorted(found.intermittent & found.levels.keys()):
        levels, own_K = found.levels[row], work_RK[row]
        if row in found.in_turn or rank_comes_and_goes(row, levels, own_K.size, held):
            high_K = is_high(levels, own_K.size)
            rise_s = median(np.array([abs(change.shift) for change in levels]))
            if float(own_K[high_K].mean() - own_K[~high_K].mean()) >= OWN_GROWTH * rise_s:
                result[row] = times_high(levels)
    return result if len(result) < work_RK.shape[0] else {}


def _earlier(starts: list[_Start], latest: Change, work_RK: Floats) -> tuple[tuple[Change, int | None], ...]:
    """Those that began levels which are over, the largest of those that belong together; a drift began none."""
    kept: list[tuple[Change, int | None]] = []
    levels = (start for start in starts if not start.is_drift and start.phase is None)
    for start in sorted(levels, key=lambda start: -abs(start.change.shift)):
        change, row = start.change, start.row
        if row is not None and work_RK.shape[0] == 2:
            row, change = _own_change(work_RK, change)
        others = (latest, *(each for each, _ in kept))
        if change.index < latest.index and all(_is_apart(change, each.index) for each in others):
            kept.append((change, row))
    return tuple(sorted(kept, key=lambda pair: pair[0].index))


@dataclass(frozen=True, slots=True)
class _Start:
    """A change that may begin the present level."""

    change: Change
    row: int | None  # None: of all ranks
    phase: str | None = None
    is_drift: bool = False  # it has been coming for long


def _drift_starts(beyond_RK: Floats, cycle_s: float) -> list[_Start]:
    """Where ranks become late little by little: there is no level, so only the latest part is the present."""
    num_ranks, num_steps = beyond_RK.shape
    part = num_steps // NUM_PARTS
    if num_ranks < 2 or part < MIN_PART_STEPS:
        return []
    growth_R = medians(beyond_RK[:, -part:], 1) - medians(beyond_RK[:, :part], 1)
    large = _large_s(num_ranks, cycle_s)
    grown = np.argsort(-growth_R, kind="stable")[:MAX_SEARCHED_RANKS]
    start = num_steps - max(part, SETTLED_STEPS)  # so short that it is nearly level
    drifts = {int(row): find_drift(beyond_RK[row]) for row in grown if growth_R[row] >= large}
    return [
        _Start(Change(start, drift.first_s, drift.last_s), row, is_drift=True)
        for row, drift in drifts.items()
        if drift is not None
    ]


def _is_apart(change: Change, index: int) -> bool:
    return abs(change.index - index) > MIN_SEGMENT_STEPS


def _rank_starts(found: _RankChanges, cycle_s: float, num_steps: int) -> list[_Start]:
    """Changes of a single rank's level, one that comes and goes left out."""
    return [
        _Start(change, row)
        for row, changes in found.levels.items()
        if row not in found.intermittent
        for change in changes
        if _begins_level(change, found.num_ranks, cycle_s, num_steps)
    ]


def _mean_starts(found: _RankChanges, cycle_s: float, num_steps: int) -> list[_Start]:
    return [
        _Start(change, row)
        for row, changes in found.means.items()
        for change in changes
        if _begins_level(change, found.num_ranks, cycle_s, num_steps)
    ]


def _beyond_slow_noise(
    starts: list[_Start],
    work_RK: Floats,
    as_was_RK: Floats | None,
    levelled: Callable[[Floats], Floats],
) -> list[_Start]:
    """Without changes of a rank's level that are no larger than noise makes them which moves slowly.

    Ranks that change together show nothing of each other's noise; one that went to another level, without that.
    """
    was_RK = None if as_was_RK is None else levelled(as_was_RK)
    peers_RK = levelled(work_RK)

    def is_beyond(start: _Start) -> bool:
        if start.row is None:
            return True
        together = {
            one.row for one in starts if one.row is not None and not _is_apart(start.change, one.change.index)
        }
        late_rows = np.array(sorted(together), dtype=np.int64)
        noise = slow_noise(peers_RK, peers_of(work_RK.shape[0], start.row, late_rows), was_RK)
        if noise is None:
            return True
        before, after = start.change.index, work_RK.shape[1] - start.change.index
        return abs(start.change.shift) > SLOW_SIGMAS * hypot(noise.error_s(before), noise.error_s(after))

    return [start for start in starts if is_beyond(start)]


def _large_s(num_ranks: int, cycle_s: float) -> float:
    """Two ranks deviate from their own middle: each by half of what is between them."""
    return NEW_REGIME_SHARE * cycle_s * (0.5 if num_ranks == 2 else 1.0)


def _begins_level(change: Change, num_ranks: int, cycle_s: float, num_steps: int) -> bool:
    """A rank falls back among the others whenever those are held up for a moment: wait whether it lasts."""
    large = _large_s(num_ranks, cycle_s)
    return change.shift >= large or (change.shift <= -large and num_steps - change.index >= SETTLED_STEPS)


def _own_change(work_RK: Floats, change: Change) -> tuple[int, Change]:
    """Of two ranks the one whose own work changed more, and by how much."""
    before = work_RK[:, max(0, change.index - COMPARED_STEPS) : change.index].mean(axis=1)
    after = work_RK[:, change.index : change.index + COMPARED_STEPS].mean(axis=1)
    row = int(np.argmax(np.abs(after - before)))
    return row, Change(change.index, float(before[row]), float(after[row]))


def _is_believed(table: StepTable, columns: Ints, index: int, num_steps: int) -> bool:
    if num_steps - index >= SETTLED_STEPS:
        return True
    phase, cover = growth_phase(table, columns, index)
    return phase != "comm_exposed" and cover >= ONE_PHASE


def growth_phase(table: StepTable, columns: Ints, index: int) -> tuple[str | None, float]:
    """(phase that grew most at a change, share of the growth that it holds), on the typical rank."""
    return grown_phase(
        table, columns[max(0, index - COMPARED_STEPS) : index], columns[index : index + COMPARED_STEPS]
    )


def grown_phase(table: StepTable, before: Ints, after: Ints) -> tuple[str | None, float]:
    """(phase that grew most from some columns to others, share of the growth that it holds), on the typical rank."""
    """The same of these columns against those."""
    growth: dict[str, float] = {}
    for name, layer in PHASE_INDEX.items():
        values = table.phase_s_PRK[layer]
        old, new = column_median(values[:, before]), column_median(values[:, after])
        if np.isfinite(old).any() and np.isfinite(new).any():
            growth[name] = float(np.nanmedian(new) - np.nanmedian(old))
    phase = max(growth, key=lambda name: (growth[name], -PHASES.index(name)), default=None)
    grown = sum(max(value, 0.0) for value in growth.values())
    return phase, max(growth[phase], 0.0) / grown if phase is not None and grown > 0 else 0.0


def level_shift(
    table: StepTable, regime: Regime, columns: Ints, cycle_K: Floats, transfer_K: Floats
) -> LevelShift | None:
    """The latest change of the job's step, if it made the step longer and that is still so.

    cycle_K, transfer_K: of these columns; transfer may be NaN, where arrivals are not seen.
    """
    gradual = _gradual(table, columns, cycle_K, transfer_K)
    if gradual is not None:  # its levels are steps of a stair
        return gradual
    if not regime.cycle_changes or regime.cycle_changes[-1].shift <= 0:
        return None
    if comes_and_goes(regime.cycle_changes, cycle_K.size):  # the latest rise is one of many
        return None
    change = regime.cycle_changes[-1]
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


def work_growth(table: StepTable, before: Ints, after: Ints) -> float | None:
    """By what share a step has more tokens, or samples where these are not told, of the ranks that tell them."""
    for counts_RK in (table.tokens_RK, table.samples_RK):
        old, new = counts_RK[:, before], counts_RK[:, after]
        told_R = np.isfinite(old).all(axis=1) & np.isfinite(new).all(axis=1)
        if told_R.any() and old[told_R].sum() > 0:
            return float(new[told_R].mean() / old[told_R].mean()) - 1
    return None


def _waits_for_ranks(transfer_K: Floats, change: Change) -> bool:
    """The exchange grew because ranks come apart, now one, now another: not alike on all, and not the exchange."""
    before, after = transfer_K[: change.index][-COMPARED_STEPS:], transfer_K[change.index :][:COMPARED_STEPS]
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if not before.size or not after.size:
        return False
    return float(median(after) - median(before)) < OWN_GROWTH * change.shift
