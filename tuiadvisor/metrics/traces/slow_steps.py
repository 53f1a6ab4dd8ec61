"""Slow steps of one series of step times, as found in training logs.

In: seconds, one a step.  Out: median, tail, lost seconds, and the steps that stand out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import median

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats

SLOW: Final = 1.25  # of the median: a step worth naming
LOST: Final = 1.05  # of the median: beyond that the excess counts as lost
MIN_STEPS: Final = 8  # fewer have no median worth its name


@dataclass(frozen=True, slots=True)
class SlowSteps:
    """Seconds. slow: (index, seconds) of steps longer than 1.25 medians."""

    num_steps: int
    median_s: float
    p95_s: float
    max_s: float
    variation: float  # standard deviation / mean
    lost_s: float
    slow: tuple[tuple[int, float], ...]


def slow_steps(step_s: Floats) -> SlowSteps | None:
    """What stands out; None when there are too few steps for a median to mean anything."""
    if step_s.size < MIN_STEPS:
        return None
    usual_s = median(step_s)
    over = step_s > LOST * usual_s
    return SlowSteps(
        num_steps=int(step_s.size),
        median_s=usual_s,
        p95_s=float(np.sort(step_s)[int(0.95 * step_s.size)]),
        max_s=float(step_s.max()),
        variation=float(step_s.std() / step_s.mean()),
        lost_s=float((step_s[over] - usual_s).sum()),
        slow=tuple((int(i), float(step_s[i])) for i in np.flatnonzero(step_s > SLOW * usual_s)),
    )
