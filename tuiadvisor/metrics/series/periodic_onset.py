"""Since when a rank is late in every second, third ... step: dated by those steps alone.

In: lateness of a rank, one value a step, and about where it began.  Out: the first step of the row. A stall of the
machine a little before makes the mean of all steps rise too early; of the steps in the row it hits few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import median

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats

MAX_DISTANCE: Final = 12  # steps; rarer lateness is dated by its mean
MIN_TEETH: Final = 6  # late steps in a row at one distance: fewer keep it by chance
MIN_REGULAR: Final = 0.6  # of what begins late lies in the row, and of the row is late
MIN_SIDE_TEETH: Final = 3  # before a change and after it
MOVED_STEPS: Final = 40  # so far from the first guess at most


def first_hit(values: Floats, index: int, stop: int) -> int:
    """The index at which late steps at a fixed distance begin; the one given where there is no such row.

    values: none beyond the usual late one. index: first guess. stop: how far the lateness goes.
    """
    late_K = values[index:stop] > (median(values) + float(values.max())) / 2
    late_K[1:] &= ~late_K[:-1]
    found = _row(late_K)
    if found is None:
        return index
    distance, phase = found
    low, high = max(index - MOVED_STEPS, 0), min(index + MOVED_STEPS, stop)
    teeth = np.arange((index + phase) % distance, stop, distance)
    teeth = teeth[teeth >= low]
    late = values[teeth]
    size = np.arange(MIN_SIDE_TEETH, teeth.size - MIN_SIDE_TEETH + 1)
    size = size[teeth[np.minimum(size, teeth.size - 1)] <= high]
    if not size.size:
        return index
    sums = np.cumsum(late)
    before = sums[size - 1] / size
    after = (sums[-1] - sums[size - 1]) / (teeth.size - size)
    weight = np.sqrt(size * (teeth.size - size))
    best = int(np.argmax((after - before) * weight))
    return int(teeth[size[best]]) if after[best] > before[best] else index


def _row(begins: Bools) -> tuple[int, int] | None:
    """(distance, place of the first) of the row that holds most late steps; None where they keep no distance."""
    at = np.flatnonzero(begins)
    best: tuple[float, int, int] | None = None
    for distance in range(2, min(MAX_DISTANCE, begins.size // MIN_TEETH) + 1):
        counts = np.bincount(at % distance, minlength=distance)
        phase = int(np.argmax(counts))
        held = counts[phase] / max(at.size, 1)
        filled = counts[phase] / len(range(phase, begins.size, distance))
        if counts[phase] >= MIN_TEETH and min(held, filled) >= MIN_REGULAR:
            score = float(held * filled)
            if best is None or score > best[0]:
                best = score, distance, phase
    return None if best is None else best[1:]
