"""Where a series changes its level: the onset of a fault.

In: one value a step.  Out: the steps at which a verified mean shift begins. A change counts only if both sides
keep to their own level (Greyhound acts on a verified shift only): alternating or wandering series have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import Floats, mad_sigma, median, medians, percentiles, row_percentiles

MIN_SEGMENT_STEPS: Final = 8  # a level needs this many steps to be believed
NUM_STANDARD_ERRORS: Final = 4.0  # one false change in 16,000 places
NUM_STANDARD_ERRORS_OF_MEAN: Final = 4.5  # of the best of some hundred splits
PURITY: Final = 0.8  # share of each side that must lie on its own side of the midpoint
SMOOTHING_STEPS: Final = 5  # single steps scatter across the midpoint of a small change; five together do not
NEIGHBOURHOOD_STEPS: Final = 64  # what is compared around a change: far history may have other levels
MAX_CHANGES: Final = 32  # a series with more has no levels


@dataclass(frozen=True, slots=True)
class Change:
    """The level of a series moves from `before` to `after` at `index`."""

    index: int
    before: float
    after: float

    @property
    def shift(self) -> float:
        """After minus before."""
        return self.after - self.before


def split_scores(values_RK: Floats) -> tuple[Floats, Floats]:
    """For each row the best split: (score in standard errors, index), by the largest difference of means."""
    num_steps = values_RK.shape[1]
    if num_steps < 2 * MIN_SEGMENT_STEPS:
        return np.zeros(values_RK.shape[0]), np.zeros(values_RK.shape[0])
    low, high = (limit[:, None] for limit in row_percentiles(values_RK, 2, 98))
    clipped = np.clip(values_RK, low, high)  # a few long steps must not look like a new level
    sums = np.cumsum(clipped, axis=1)
    size = np.arange(MIN_SEGMENT_STEPS, num_steps - MIN_SEGMENT_STEPS + 1)
    before = sums[:, MIN_SEGMENT_STEPS - 1 : num_steps - MIN_SEGMENT_STEPS]
    # In place: of hundreds of ranks each array more is a megabyte of fresh pages.
    score = sums[:, -1:] - before
    score /= num_steps - size
    score -= before / size
    np.abs(score, out=score)
    score *= np.sqrt(size * (num_steps - size) / num_steps)
    best = np.argmax(score, axis=1)
    # Noise from neighbours' differences: a change of level, or many, does not inflate it.
    steps = np.diff(clipped, axis=1)
    noise = medians(np.abs(steps, out=steps), 1) * (1.4826 / np.sqrt(2)) + 1e-12
    return score[np.arange(len(best)), best] / noise, size[best].astype(np.float64)


def _smooth(values: Floats, level: float, reach: float) -> Floats:
    clipped = np.clip(values, level - reach, level + reach)
    return np.convolve(clipped, np.full(SMOOTHING_STEPS, 1 / SMOOTHING_STEPS), mode="valid")


def _verify(values: Floats, index: int, min_shift: float, reach_steps: int) -> Change | None:
    before = values[max(0, index - reach_steps) : index]
    after = values[index : index + reach_steps]
    level_before, level_after = median(before), median(after)
    shift = abs(level_after - level_before)
    sigma = max(mad_sigma(before), mad_sigma(after))
    standard_error = 1.25 * sigma * float(np.sqrt(1 / before.size + 1 / after.size))
    if shift <= max(min_shift, NUM_STANDARD_ERRORS * standard_error):
        return None
    middle = (level_before + level_after) / 2
    reach = shift + 4 * sigma  # a spike may not tip its neighbours
    if not _means_differ(before, after, middle, reach):
        return None
    pure_before = np.mean((_smooth(before, level_before, reach) > middle) == (level_before > middle))
    pure_after = np.mean((_smooth(after, level_after, reach) > middle) == (level_after > middle))
    if min(pure_before, pure_after) < PURITY:
        return None
    return Change(index, level_before, level_after)


def _means_differ(before: Floats, after: Floats, middle: float, reach: float) -> bool:
    """A median jumps by the whole distance where a few more steps than half are long by chance; a mean does not."""
    before, after = (np.clip(side, middle - reach, middle + reach) for side in (before, after))
    error = float(np.sqrt(before.var() / before.size + after.var() / after.size))
    return abs(float(after.mean() - before.mean())) > NUM_STANDARD_ERRORS_OF_MEAN * error


def _steepest(values: Floats) -> int | None:
    """Where the steps after differ most from the steps before: the edge of a burst, which has no best split."""
    width = 2 * MIN_SEGMENT_STEPS
    if values.size < 2 * width:
        return None
    low, high = percentiles(values, 2, 98)
    sums = np.concatenate(([0.0], np.cumsum(np.clip(values, low, high))))
    middle = np.arange(width, values.size - width + 1)
    difference = sums[middle + width] - 2 * sums[middle] + sums[middle - width]
    return int(middle[np.argmax(np.abs(difference))])


def find_changes(values: Floats, min_shift: float) -> tuple[Change, ...]:
    """Verified changes of a series without NaN, in order. min_shift: smaller ones are of no interest."""
    found: list[Change] = []
    pending = [(0, values.size)]
    while pending and len(found) < MAX_CHANGES:
        start, stop = pending.pop()
        if stop - start < 2 * MIN_SEGMENT_STEPS:
            continue
        _, index = split_scores(values[None, start:stop])
        segment = values[start:stop]
        change = _verify(segment, int(index[0]), min_shift, NEIGHBOURHOOD_STEPS)
        if change is None and (edge := _steepest(segment)) is not None:
            change = _verify(segment, edge, min_shift, 2 * MIN_SEGMENT_STEPS)
        if change is None:
            continue
        found.append(Change(start + change.index, change.before, change.after))
        pending += [(start, start + change.index), (start + change.index, stop)]
    return tuple(sorted(found, key=lambda change: change.index))
