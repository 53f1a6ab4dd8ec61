"""Where single ranks change their level, or are late for a while again and again.

In: work between barriers, R ranks x K steps, no NaN.  Out: RankChanges: by row, the levels in most steps, and the means
of those that are late now and then.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import Change, find_changes, split_scores
from tuiadvisor.metrics.series.mean_shift import MIN_SIDE_STEPS, find_mean_changes
from tuiadvisor.metrics.steps.arrays import Floats, Ints, median, medians
from tuiadvisor.metrics.window.phase_levels import alternates
from tuiadvisor.metrics.window.waves import comes_and_goes, in_turn, rank_comes_and_goes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.held_steps import HeldSteps

SCREEN_SCORE: Final = 6.0  # standard errors at which a rank's series is searched for changes
MAX_SEARCHED_RANKS: Final = 32  # those that stand out most: the cost of a view
MAX_RESTLESS_RANKS: Final = 4  # searched for a change of their mean alone
MIN_QUIET_GAPS: Final = (
    3  # bursts that come back after a while: three times as long without one, and they had not begun
)


def deviations(work_RK: Floats) -> Floats:
    """Each rank's work beyond the ranks' common level, step by step: what slows all together cancels out."""
    return work_RK - medians(work_RK, 0)


@dataclass(frozen=True, slots=True)
class RankChanges:
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


def find_rank_changes(deviation_RK: Floats, min_shift: float, held: HeldSteps) -> RankChanges:
    """Of every row whose series changes. min_shift: seconds; held: what the ranks' devices tell of their clocks."""
    num_ranks, num_steps = deviation_RK.shape
    if num_ranks < 2:
        return RankChanges({}, {}, frozenset(), num_ranks)
    if num_ranks == 2:  # one is ahead by what the other is behind: one search serves both
        levels, means, is_intermittent = _series_changes(
            deviation_RK[1],
            min_shift,
            lambda levels: (
                rank_comes_and_goes(1, levels, num_steps, held)
                or rank_comes_and_goes(0, _mirrored(levels), num_steps, held)
            ),
        )
        return RankChanges(
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
    return RankChanges(levels_of, means_of, intermittent | taking_over, num_ranks, taking_over)


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
