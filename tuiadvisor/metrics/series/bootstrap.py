"""How much two series of step times really differ: block bootstrap of the ratio of their means.

In: one value a step of each of two runs, in order.  Out: the ratio after / before with its 95 % interval. Pure and
deterministic: each series brings its own random stream, so swapping the runs inverts the interval exactly and a
run against itself gives 1.

Steps near each other resemble each other (a busy second, a hot device), so whole blocks are resampled. The block is
as long as the series' own slow changes ask for, at least an eighth of the run must then stand for one observation.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import percentiles

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats

CONFIDENCE: Final = 0.95  # of the interval of a comparison
NUM_RESAMPLES: Final = 2000  # ends of a 95 % interval move by some hundredths of its width
NUM_INTERVAL_RESAMPLES: Final = 200  # an interval is asked for with every view, a comparison once
MAX_INTERVAL_BLOCKS: Final = 48  # longer blocks in place of more of them: its cost is their number
MIN_BLOCKS: Final = 8  # with fewer a resample is nearly the series itself
MAX_BLOCKS: Final = 512  # means of more of them are as sure, and cost more
MAX_CORRELATION: Final = 0.95  # a series that only drifts: no more than a few observations in it
MIN_DEGREES: Final = 2.0  # below two the expansion of Student's quantile does not hold
_Z: Final = 1.959964  # 97.5 % of the normal distribution


@dataclass(frozen=True, slots=True)
class Ratio:
    """after / before of two means; low and high bound it with 95 % confidence."""

    expected: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Blocks:
    """How to resample a series: blocks of so many steps, and the variance its mean really has."""

    num_steps: int
    num_blocks: int
    variance: float
    num_independent: float  # blocks that would say as much if none resembled its neighbour


def blocks(values: Floats, max_blocks: int = MAX_BLOCKS) -> Blocks:
    """The block length among 1, 2, 4, ... n/8 at which the mean looks least certain.

    Batch means: with independent steps every length gives the same variance; slow changes make it grow until the
    blocks are as long as they are. Blocks that still resemble their neighbours are fewer observations than they
    count: (1 + r) / (1 - r) with r, their correlation, corrected for its bias in short series (Marriott and Pope).
    """
    shortest = max(1, -(-values.size // max_blocks))
    best = Blocks(shortest, max(values.size // shortest, 2), -1.0, 2.0)
    length = shortest
    while length == shortest or length <= values.size // MIN_BLOCKS:
        num_blocks = values.size // length
        means = values[values.size - num_blocks * length :].reshape(num_blocks, length).mean(axis=1)
        repetition = _repetition(means)
        variance = float(means.var(ddof=1)) / num_blocks * repetition
        if variance > best.variance:
            best = Blocks(length, num_blocks, variance, num_blocks / repetition)
        length *= 2
    return best


def _repetition(means: Floats) -> float:
    centred = means - means.mean()
    total = float((centred**2).sum())
    if total <= 0:
        return 1.0
    lag_one = float((centred[1:] * centred[:-1]).sum()) / total
    error = 1 / math.sqrt(means.size)
    if lag_one < error:  # no sign of correlation: chance alone gives as much
        return 1.0
    corrected = min(lag_one + (1 + 3 * lag_one) / means.size, MAX_CORRELATION)
    return (1 + corrected) / (1 - corrected)


def ratio_of_means(before: Floats, after: Floats) -> Ratio | None:
    """After / before of the means, None unless both series have positive means and at least 2 * MIN_BLOCKS steps."""
    if min(before.size, after.size) < 2 * MIN_BLOCKS:
        return None
    mean_before, mean_after = float(before.mean()), float(after.mean())
    if mean_before <= 0 or mean_after <= 0:
        return None
    drawn = np.log(_resampled_means(after)) - np.log(_resampled_means(before))
    middle = math.log(mean_after) - math.log(mean_before)
    low, high = percentiles(drawn, 50 - 50 * CONFIDENCE, 50 + 50 * CONFIDENCE)
    return Ratio(
        expected=math.exp(middle),
        low=math.exp(middle + min(low - middle, 0.0)),
        high=math.exp(middle + max(high - middle, 0.0)),
    )


def difference_of_means(before: Floats, after: Floats) -> tuple[float, float, float] | None:
    """(after - before, low, high) of the means with 95 % confidence; None as for `ratio_of_means`."""
    if min(before.size, after.size) < 2 * MIN_BLOCKS:
        return None
    middle = float(after.mean()) - float(before.mean())
    drawn = _resampled_means(after) - _resampled_means(before)
    low, high = percentiles(drawn, 50 - 50 * CONFIDENCE, 50 + 50 * CONFIDENCE)
    return middle, min(low, middle), max(high, middle)


def mean_interval(values: Floats, confidence: float) -> tuple[float, float]:
    """(low, high) of the mean of one series in step order; both the mean of fewer than two steps. No NaN."""
    mean = float(values.mean())
    if values.size < 2:
        return mean, mean
    drawn = _resampled_means(values, NUM_INTERVAL_RESAMPLES, MAX_INTERVAL_BLOCKS, floor=False)
    low, high = percentiles(drawn, 50 - 50 * confidence, 50 + 50 * confidence)
    return min(low, mean), max(high, mean)


def _resampled_means(
    values: Floats, num_resamples: int = NUM_RESAMPLES, max_blocks: int = MAX_BLOCKS, *, floor: bool = True
) -> Floats:
    """Means of series made of blocks of this one, spread as far as its mean is uncertain; floor: above zero."""
    found = blocks(values, max_blocks)
    length, num_blocks = found.num_steps, found.num_blocks
    sums = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[: length - 1])))))
    block_means = (sums[length:] - sums[:-length]) / length  # one a start, the series taken as a circle
    stream = np.random.default_rng(zlib.crc32(np.ascontiguousarray(values).tobytes()))
    means = block_means[stream.integers(0, block_means.size, (num_resamples, num_blocks))].mean(axis=1)
    middle, drawn = float(values.mean()), float(means.std())
    # Few blocks understate the spread, and their tails are Student's. An interval of one window may hold 20 steps:
    # there only blocks that say something new count. Two whole runs are longer, and between them power matters.
    known = num_blocks if floor else min(found.num_independent, num_blocks)
    degrees = max(known - 1, MIN_DEGREES)
    wanted = max(drawn, math.sqrt(max(found.variance, 0.0))) * student(degrees) / _Z
    smallest = 1e-6 * middle if floor and middle > 0 else -math.inf
    return np.asarray(
        np.maximum(middle + (means - means.mean()) * (wanted / drawn if drawn > 0 else 0.0), smallest)
    )


def student(degrees: float, z: float = _Z) -> float:
    """What Student's t is beyond as rarely as a normal distribution is beyond z, 97.5 % unless told.

    Source: Cornish-Fisher expansion, within 1 % from 4 degrees on.
    """
    z3, z5 = z**3, z**5
    return z + (z3 + z) / (4 * degrees) + (5 * z5 + 16 * z3 + 3 * z) / (96 * degrees**2)
