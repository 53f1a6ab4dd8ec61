"""Whether a rank's lateness is there in most of its steps, by one amount or by two, or comes and goes.

In: its work beyond its peers', a step each.  Out: seconds, and yes or no.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import Floats, mad_sigma, median, percentiles

# A rank that is late in at least 60 % of its steps has a median excess of at least this share of its mean excess;
# one that is late now and then has a median near zero.
PERSISTENT_MEDIAN: Final = 0.6
MODE_PERCENTILES: Final = (10, 90)
LATE_IN_BOTH: Final = 0.25  # of the longer kind's lateness: so late is no noise of a rank that is in time
MIN_MODE_SHARE: Final = 0.15  # of the steps in either mode; below that the median alone tells
MIN_MODE_SIGMAS: Final = 4.0  # between the modes: halves of one mode are 2 (normal) to 2.7 (uniform) apart


def persistence(excess_K: Floats) -> tuple[float, float, bool]:
    """(median, mean without the longest steps, whether the lateness is there in most steps)."""
    typical_s = median(excess_K)
    low, high = percentiles(excess_K, 2, 98)
    mean_s = float(np.clip(excess_K, low, high).mean())
    persistent = typical_s >= PERSISTENT_MEDIAN * mean_s and between_modes(excess_K) is None
    return typical_s, mean_s, persistent


def is_in_most_steps(excess_K: Floats) -> bool:
    """Whether the lateness is there in most steps, by one amount or by two."""
    typical_s, mean_s, persistent = persistence(excess_K)
    if persistent or typical_s < PERSISTENT_MEDIAN * mean_s:
        return persistent
    middle_s = between_modes(excess_K)
    return middle_s is not None and late_beyond_s(excess_K, middle_s) < middle_s


def late_beyond_s(excess_K: Floats, middle_s: float) -> float:
    """Seconds beyond which a rank with two kinds of steps is late: in both, where the shorter ones are late, too."""
    less_s, more_s = median(excess_K[excess_K <= middle_s]), median(excess_K[excess_K > middle_s])
    return less_s / 2 if less_s > LATE_IN_BOTH * more_s else middle_s


def between_modes(excess_K: Floats) -> float | None:
    """Seconds between two clearly apart kinds of steps, as of a rank late in every second one; None with one kind.

    There the median lies in either of them, or in between where no step is.
    """
    low, high = percentiles(excess_K, *MODE_PERCENTILES)
    middle_s = (low + high) / 2
    short, long = excess_K[excess_K <= middle_s], excess_K[excess_K > middle_s]
    if min(short.size, long.size) < MIN_MODE_SHARE * excess_K.size:
        return None
    apart_s = median(long) - median(short)
    return middle_s if apart_s > MIN_MODE_SIGMAS * max(mad_sigma(short), mad_sigma(long)) else None
