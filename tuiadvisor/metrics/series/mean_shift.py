"""Since when a rank is late now and then: its mean moves, while its median stays where it was.

In: one value a step, no NaN.  Out: verified changes of the mean. A step in three that is late leaves the middle of the
steps as it was, so `changes` sees nothing; here both sides are compared by their means, with the uncertainty that
these really have: steps near each other resemble each other (bursts), so means of whole stretches are compared.
Source: Greyhound (act on a verified mean shift only).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS, NUM_STANDARD_ERRORS, Change
from tuiadvisor.metrics.series.periodic_onset import first_hit
from tuiadvisor.metrics.steps.arrays import mad_sigma, median

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats

MIN_STRETCHES: Final = 8  # of long steps, that may begin on either side
NUM_NOISE_SIGMAS: Final = 4.0  # beyond the median: a step that is long for a reason
MIN_SIDE_STEPS: Final = 3 * MIN_SEGMENT_STEPS  # a share of the steps is less sure than a level
MIN_LONG_STEPS: Final = 5  # fewer of them are chance
MAX_CHANGES: Final = 8  # a series with more has no levels
MAX_LOG_CHANCE: Final = math.log(1e-2)  # below it long steps begin on one side more often than chance allows


def find_mean_changes(values: Floats, min_shift: float) -> tuple[Change, ...]:
    """Verified changes of the mean, in order; before and after are the means of the steps around. min_shift: smaller
    ones are of no interest.
    """
    if values.size < 2 * MIN_SIDE_STEPS:
        return ()
    clipped = _tamed(values, min_shift)
    begins = _long_begins(values, min_shift)
    found: list[int] = []
    pending = [(0, clipped.size)]
    while pending and len(found) < MAX_CHANGES:
        start, stop = pending.pop()
        index = _split(clipped[start:stop], begins[start:stop], min_shift)
        if index is not None:
            found.append(start + index)
            pending += [(start, start + index), (start + index, stop)]
    found = sorted(
        {
            first_hit(clipped, start, stop)
            for start, stop in itertools.pairwise([*sorted(found), clipped.size])
        }
    )
    edges = [0, *found, clipped.size]
    means = [float(clipped[start:stop].mean()) for start, stop in itertools.pairwise(edges)]
    return tuple(
        Change(index, before, after)
        for index, before, after in zip(found, means[:-1], means[1:], strict=True)
        if abs(after - before) >= min_shift
    )


def _tamed(values: Floats, min_shift: float) -> Floats:
    """No step counts for more than the usual long one: a single stall is no new mean."""
    middle = median(values)
    reach = max(NUM_NOISE_SIGMAS * mad_sigma(values), min_shift)
    long, short = values[values > middle + reach], values[values < middle - reach]
    top = median(long) if long.size >= MIN_LONG_STEPS else middle + reach
    bottom = median(short) if short.size >= MIN_LONG_STEPS else middle - reach
    return np.clip(values, bottom, top)


def _long_begins(values: Floats, min_shift: float) -> Bools:
    """Where a stretch of long steps begins."""
    long = values > float(np.median(values)) + max(NUM_NOISE_SIGMAS * mad_sigma(values), min_shift)
    begins = long.copy()
    begins[1:] &= ~long[:-1]
    return begins


def _log_chance(begins: Bools, index: int) -> float:
    """Logarithm of a bound on the chance that stretches which begin by lot lie so unevenly about any split.

    Source: Chernoff's bound of a binomial tail, times the splits.
    """
    num, num_after = int(begins.sum()), int(begins[index:].sum())
    if num < MIN_LONG_STEPS:
        return 0.0
    share, expected = num_after / num, 1 - index / begins.size
    divergence = sum(
        part * math.log(part / by_lot)
        for part, by_lot in ((share, expected), (1 - share, 1 - expected))
        if part > 0
    )
    return math.log(begins.size) - num * divergence


def _split(values: Floats, begins: Bools, min_shift: float) -> int | None:
    """Where the means of both sides differ most, if they do so verifiably: by their error, or by how many stretches of
    long steps lie on either side.
    """
    num_steps = values.size
    if num_steps < 2 * MIN_SIDE_STEPS:
        return None
    size = np.arange(MIN_SIDE_STEPS, num_steps - MIN_SIDE_STEPS + 1)
    sums = np.cumsum(values)
    before = sums[size - 1] / size
    after = (sums[-1] - sums[size - 1]) / (num_steps - size)
    weight = np.sqrt(size * (num_steps - size) / num_steps)
    index = int(size[np.argmax(np.abs(after - before) * weight)])
    left, right = values[:index], values[index:]
    shift = abs(float(right.mean()) - float(left.mean()))
    if shift < min_shift:
        return None
    verified = (
        shift > NUM_STANDARD_ERRORS * _error(left, right) or _log_chance(begins, index) < MAX_LOG_CHANCE
    )
    return index if verified else None


def _error(left: Floats, right: Floats) -> float:
    """Of the difference of two means, if both sides were the same: as restless as the more restless of them.

    Means of stretches as long as the shorter side (or an eighth of the restless one) vary as bursts make them vary;
    what comes back regularly within such a stretch cancels out.
    """
    restless = max(left, right, key=lambda side: float(side.var()))
    length = max(1, min(left.size, right.size, restless.size // MIN_STRETCHES))
    sums = np.cumsum(np.concatenate(([0.0], restless)))
    stretches = (sums[length:] - sums[:-length]) / length
    variance = max(float(restless.var()), float(stretches.var()) * length)
    return math.sqrt(variance * (1 / left.size + 1 / right.size))
