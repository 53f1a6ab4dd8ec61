"""The present level of the job: the steps that belong together, so that a fault is sized from its onset on.

In: work between barriers and cycle of the steady steps, no NaN.  Out: Regime: where the window begins, and every
verified change of level, of the job and of single ranks. Noise of a shared machine changes levels too, for ten or
twenty steps at a time: a change counts at once only if it is the first of one rank's or one phase's, else when it has
lasted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import hypot
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS, Change, find_changes
from tuiadvisor.metrics.series.drift import MIN_PART_STEPS, NUM_PARTS, find_drift
from tuiadvisor.metrics.series.slow_noise import peers_of, slow_noise, without_levels
from tuiadvisor.metrics.steps.arrays import Floats, Ints, median, medians
from tuiadvisor.metrics.window.growth import growth_phase
from tuiadvisor.metrics.window.phase_levels import COMPARED_STEPS, SETTLED_STEPS, alternates
from tuiadvisor.metrics.window.rank_changes import MAX_SEARCHED_RANKS, find_rank_changes
from tuiadvisor.metrics.window.waves import (
    is_high,
    job_comes_and_goes,
    new_levels,
    rank_comes_and_goes,
    times_high,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.held_steps import HeldSteps
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.metrics.window.phase_levels import PhaseChange, Settled
    from tuiadvisor.metrics.window.rank_changes import RankChanges

MIN_SHIFT_SHARE: Final = 0.03  # of the cycle: smaller changes of level are not looked for
FEW_RANKS: Final = (
    4  # one that goes to another level moves the median of so few by half of that, or by all of it
)
NEW_REGIME_SHARE: Final = 0.05  # of the cycle: smaller ones date an onset, but begin no new window
ONE_PHASE: Final = 0.8  # of the growth in one phase: a change of the program, not of the machine
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

    @property
    def beyond_noise(self) -> tuple[int, ...]:
        """Columns at which levels began, each by more than noise that moves slowly makes of a rank."""
        begun = () if self.begun_by is None else (self.begun_by,)
        return tuple(change.index for change in (*(change for change, _ in self.earlier), *begun))


WHOLE: Final = Regime(0, (), {}, frozenset())


def find_regime(
    table: StepTable,
    columns: Ints,
    work_RK: Floats,
    beyond_RK: Floats,
    cycle_K: Floats,
    *,
    held: HeldSteps,
    since: Settled,
    as_was_RK: Floats | None = None,
    common: tuple[PhaseChange, ...] = (),
) -> Regime:
    """Changes of level of the job's cycle and of single ranks, and where the present level begins.

    work_RK and cycle_K: the table's columns `columns`, the ranks that can be compared. beyond_RK: `deviations` of that
    work. since: of `settled`. as_was_RK: as of `slow_noise`. common: phases that changed on all ranks, smallest shift
    NEW_REGIME_SHARE of the cycle.
    """
    if cycle_K.size < 2 * MIN_SEGMENT_STEPS:
        return WHOLE
    cycle_s = median(cycle_K)
    found = find_rank_changes(beyond_RK, MIN_SHIFT_SHARE * cycle_s, held)
    cycle_changes = find_changes(cycle_K, MIN_SHIFT_SHARE * cycle_s)
    by_row, intermittent = found.dating, found.intermittent
    starts = _rank_starts(found, work_RK, cycle_s, since)
    times_late = _times_late(found, work_RK, held, MIN_SHIFT_SHARE * cycle_s)
    if not (alternates(cycle_changes) or job_comes_and_goes(cycle_changes, cycle_K.size, held)):
        starts += [
            _Start(change, None)
            for change in new_levels(cycle_changes, cycle_K.size)
            if abs(change.shift) >= NEW_REGIME_SHARE * cycle_s
            and _is_believed(table, columns, change.index, cycle_changes, since)
        ]
    starts += _drift_starts(beyond_RK, cycle_s)
    bursts = [change.index for row in intermittent for change in found.levels[row]]
    starts = [start for start in starts if all(_is_apart(start.change, index) for index in bursts)]
    starts += _mean_starts(found, work_RK, cycle_s, since)
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
    if row is not None and work_RK.shape[0] <= FEW_RANKS:
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


def _times_late(found: RankChanges, work_RK: Floats, held: HeldSteps, min_shift: float) -> dict[int, int]:
    """Of rows that are late for a while, again and again, how many times, where their own work is longer then.

    Where others become slow together, who does not falls behind them whenever they are well: of more than half of the
    ranks the common level is theirs, and they are held against those that do not.
    """
    result: dict[int, tuple[Change, ...]] = {}
    in_time = []
    for row in sorted(found.intermittent & found.levels.keys()):
        levels, own_K = found.levels[row], work_RK[row]
        if row in found.in_turn or rank_comes_and_goes(row, levels, own_K.size, held):
            if _is_own(levels, own_K):
                result[row] = levels
            else:
                in_time.append(row)
    others = np.setdiff1d(np.arange(work_RK.shape[0]), in_time)
    if in_time and not result and others.size > 1:
        quick_K = medians(work_RK[in_time], 0)
        for row in others[:: -(-others.size // MAX_SEARCHED_RANKS)].tolist():
            levels = find_changes(work_RK[row] - quick_K, min_shift)
            if rank_comes_and_goes(row, levels, quick_K.size, held) and _is_own(levels, work_RK[row]):
                result[row] = levels
    if result and work_RK.shape[0] > MAX_SEARCHED_RANKS:
        result |= _late_with(result, work_RK)
    times = {row: times_high(levels) for row, levels in result.items()}
    return times if len(times) < work_RK.shape[0] else {}


def _late_with(known: dict[int, tuple[Change, ...]], work_RK: Floats) -> dict[int, tuple[Change, ...]]:
    """Rows that nobody searched whose own work is longer in the steps in which most of the known are late: a host's."""
    num_steps = work_RK.shape[1]
    high_RK = np.array([is_high(levels, num_steps) for levels in known.values()])
    high_K = 2 * high_RK.sum(axis=0) > len(known)
    if not high_K.any() or high_K.all():
        return {}
    typical = next(iter(known.values()))
    rise_s = median(np.array([abs(change.shift) for levels in known.values() for change in levels]))
    grown_R = work_RK[:, high_K].mean(axis=1) - work_RK[:, ~high_K].mean(axis=1)
    return {
        int(row): typical for row in np.flatnonzero(grown_R >= OWN_GROWTH * rise_s) if int(row) not in known
    }


def _is_own(levels: tuple[Change, ...], own_K: Floats) -> bool:
    """Whether the rank's own work is longer in the steps of the higher level."""
    high_K = is_high(levels, own_K.size)
    rise_s = median(np.array([abs(change.shift) for change in levels]))
    return float(own_K[high_K].mean() - own_K[~high_K].mean()) >= OWN_GROWTH * rise_s


def _earlier(starts: list[_Start], latest: Change, work_RK: Floats) -> tuple[tuple[Change, int | None], ...]:
    """Those that began levels which are over, the largest of those that belong together; a drift began none."""
    kept: list[tuple[Change, int | None]] = []
    levels = (start for start in starts if not start.is_drift and start.phase is None)
    for start in sorted(levels, key=lambda start: -abs(start.change.shift)):
        change, row = start.change, start.row
        if row is not None and work_RK.shape[0] <= FEW_RANKS:
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


def _rank_starts(found: RankChanges, work_RK: Floats, cycle_s: float, since: Settled) -> list[_Start]:
    """Changes of a single rank's level, one that comes and goes left out."""
    return [
        _Start(change, row)
        for row, changes in found.levels.items()
        if row not in found.intermittent
        for change in changes
        if _begins_level(change, changes, work_RK[row], _large_s(found.num_ranks, cycle_s), since)
    ]


def _mean_starts(found: RankChanges, work_RK: Floats, cycle_s: float, since: Settled) -> list[_Start]:
    return [
        _Start(change, row)
        for row, changes in found.means.items()
        for change in changes
        if _begins_level(change, changes, work_RK[row], _large_s(found.num_ranks, cycle_s), since)
    ]


def _beyond_slow_noise(
    starts: list[_Start],
    work_RK: Floats,
    as_was_RK: Floats | None,
    levelled: Callable[..., Floats],
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
        peers = peers_of(work_RK.shape[0], start.row, late_rows)
        if np.isin(
            peers, late_rows
        ).any():  # of two or three ranks: the others' change is this one's mirror image
            at = (start.change.index,)
            noise = slow_noise(
                levelled(work_RK, known=at), peers, None if was_RK is None else levelled(as_was_RK, known=at)
            )
        else:
            noise = slow_noise(peers_RK, peers, was_RK)
        if noise is None:
            return True
        before, after = start.change.index, work_RK.shape[1] - start.change.index
        return abs(start.change.shift) > SLOW_SIGMAS * hypot(noise.error_s(before), noise.error_s(after))

    return [start for start in starts if is_beyond(start)]


def _large_s(num_ranks: int, cycle_s: float) -> float:
    """Two ranks deviate from their own middle: each by half of what is between them."""
    return NEW_REGIME_SHARE * cycle_s * (0.5 if num_ranks == 2 else 1.0)


def _begins_level(
    change: Change, changes: tuple[Change, ...], own_K: Floats, large_s: float, since: Settled
) -> bool:
    """A rank falls back among the others whenever those are held up for a moment: wait whether it lasts.

    It is last among them, too, when those are well again: of its own work nothing grew. Who was late before may be so
    for a moment again. changes: all of its own. own_K: its work.
    """
    if abs(change.shift) < large_s:
        return False
    before, after = _around(own_K, change.index)
    if change.shift > 0 and float(after - before) >= OWN_GROWTH * change.shift:
        return len(changes) == 1 or change.index <= since.by_steps
    return change.index <= since.since(changes)


def _around(work_RK: Floats, index: int) -> tuple[Floats, Floats]:
    """The mean work before a column and from it on, of each row or of the one given."""
    before, after = (
        work_RK[..., max(0, index - COMPARED_STEPS) : index],
        work_RK[..., index : index + COMPARED_STEPS],
    )
    return np.asarray(before.mean(axis=-1)), np.asarray(after.mean(axis=-1))


def _own_change(work_RK: Floats, change: Change) -> tuple[int, Change]:
    """Of few ranks the one whose own work changed most, and by how much: each is a large part of what is common."""
    before, after = _around(work_RK, change.index)
    row = int(np.argmax(np.abs(after - before)))
    return row, Change(change.index, float(before[row]), float(after[row]))


def _is_believed(
    table: StepTable, columns: Ints, index: int, changes: tuple[Change, ...], since: Settled
) -> bool:
    if index <= since.since(changes):
        return True
    phase, cover = growth_phase(table, columns, index)
    return len(changes) == 1 and phase != "comm_exposed" and cover >= ONE_PHASE
