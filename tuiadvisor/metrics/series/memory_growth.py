"""Memory that fills: whether a series of its use grows steadily, and when nothing is left at that pace.

In: seconds and shares of a capacity, ascending.  Out: Creep, None where it does not grow, or not steadily: what jumps
once (a cache that was allocated, a data set that was read) or saws up and down is no leak.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats

START_SHARE: Final = 0.2  # of the time seen: while a program settles its memory grows
MIN_SAMPLES: Final = 16  # four for each of the parts
MIN_SPAN_S: Final = 40.0  # of what is left after the start
MIN_GROWTH: Final = 0.01  # of the capacity within the span
MIN_FIT: Final = 0.9  # of the variance on one line
NUM_PARTS: Final = 4  # each of which must grow by ...
PART_PACE: Final = 0.4  # ... so much of the mean pace


@dataclass(frozen=True, slots=True)
class Creep:
    """Steady growth of something that has an end."""

    share: float  # of the capacity in use at the end
    per_s: float  # share a second
    left_s: float  # until nothing is left, at this pace
    span_s: float  # over which it was seen


def find_creep(times_s: Floats, shares: Floats) -> Creep | None:
    """The growth of the series after its start."""
    if times_s.size < MIN_SAMPLES:
        return None
    settled = times_s >= times_s[0] + START_SHARE * (times_s[-1] - times_s[0])
    times, values = times_s[settled], shares[settled]
    span_s = float(times[-1] - times[0])
    if times.size < MIN_SAMPLES // 2 or span_s < MIN_SPAN_S:
        return None
    per_s, at_0 = (float(value) for value in np.polyfit(times - times[0], values, 1))
    if per_s * span_s < MIN_GROWTH:
        return None
    spread = float(((values - values.mean()) ** 2).sum())
    missed = float(((values - at_0 - per_s * (times - times[0])) ** 2).sum())
    if missed > (1 - MIN_FIT) * spread:
        return None
    edges = np.interp(np.linspace(times[0], times[-1], NUM_PARTS + 1), times, values)
    if np.diff(edges).min() < PART_PACE * per_s * span_s / NUM_PARTS:
        return None
    share = float(values[-1])
    return Creep(share, per_s, max(1.0 - share, 0.0) / per_s, span_s)
