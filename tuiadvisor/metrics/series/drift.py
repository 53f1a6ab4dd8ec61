"""A time that grows little by little: no change point dates it, and no mean over a window sizes it.

In: seconds, one value a step.  Out: Drift, None where it does not grow, or grows in one jump: a change of level; what
its growth costs in a window of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import NUM_STANDARD_ERRORS
from tuiadvisor.metrics.series.what_if import NORMAL_QUANTILE, of_share
from tuiadvisor.metrics.steps.arrays import median

if TYPE_CHECKING:
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.metrics.steps.arrays import Floats

NUM_PARTS: Final = 8  # few enough that each has a sure median, enough for a trend of them
MIN_PART_STEPS: Final = 8  # as change_points.MIN_SEGMENT_STEPS: what a median takes
MIN_RISES: Final = (
    6  # of the 7 from part to part; by lot that happens in 6 % of the series, so the jump is asked too
)
MAX_JUMP: Final = 0.5  # of the growth between two parts


@dataclass(frozen=True, slots=True)
class Drift:
    """Medians of the first and last eighth of the steps."""

    first_s: float
    last_s: float
    num_steps: int  # between their middles
    noise_s: float = 0.0  # standard deviation of a step about its eighth
    error_s: float = 0.0  # standard error of first_s

    @property
    def growth_s(self) -> float:
        """Over the steps seen."""
        return self.last_s - self.first_s


def find_drift(series_K: Floats) -> Drift | None:
    """Steady growth over the series; steps with NaN are left out."""
    values = series_K[np.isfinite(series_K)]
    if values.size < NUM_PARTS * MIN_PART_STEPS:
        return None
    parts = np.array_split(values, NUM_PARTS)
    levels = np.array([median(part) for part in parts])
    growth = float(levels[-1] - levels[0])
    rises = np.diff(levels)
    if growth <= 0 or int((rises > 0).sum()) < MIN_RISES or float(rises.max()) > MAX_JUMP * growth:
        return None
    noise = float(
        np.median([1.4826 * median(np.abs(part - level)) for part, level in zip(parts, levels, strict=True)])
    )
    error = 1.25 * noise * np.sqrt(2 / parts[0].size)
    if growth < NUM_STANDARD_ERRORS * error:
        return None
    alone = error / float(np.sqrt(2))
    return Drift(float(levels[0]), float(levels[-1]), values.size - parts[0].size, noise, alone)


def growth_gain(drift: Drift, step_K: Floats, series_K: Floats) -> Gain | None:
    """If it had stayed as it was at first, in these steps; None where none of them is known.

    The interval is of the noise about the growth and of the first level, not of the growth itself: blocks of a series
    that rises differ by its rise, which is no chance.
    """
    known_K = np.isfinite(series_K) & np.isfinite(step_K)
    step_s = float(step_K[known_K].mean()) if known_K.any() else 0.0
    if step_s <= 0:
        return None
    loss_s = float(series_K[known_K].mean()) - drift.first_s
    error_s = float(np.hypot(drift.noise_s / np.sqrt(known_K.sum()), drift.error_s))
    low_s, high_s = loss_s - NORMAL_QUANTILE * error_s, loss_s + NORMAL_QUANTILE * error_s
    return of_share(step_s, max(loss_s, 0.0) / step_s, low_s / step_s, high_s / step_s)
