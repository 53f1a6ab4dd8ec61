"""A time that grows little by little: no change point dates it, and no mean over a window sizes it.

In: seconds, one value a step.  Out: Drift, None where it does not grow, or grows in one jump: a change of level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import NUM_STANDARD_ERRORS
from tuiadvisor.metrics.steps.arrays import median

if TYPE_CHECKING:
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
    return Drift(float(levels[0]), float(levels[-1]), values.size - parts[0].size)
