"""Whether what the last rank to arrive spends in a collective is the transfer, or a wait for a rank nobody saw.

In: of the calls it was last to, its own time in them, how far it was behind the others, and the place in their step.
Out: whether its time has nothing to do with when it came. A wait ends when the unseen rank comes, so it is shorter by
as much as this one was later; a transfer takes as long whenever it begins, however much its time varies by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import mad_sigma

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

MIN_FREEDOM: Final = 8  # calls beyond the means they are held against, as diagnosis' MIN_CLEAR_STEPS
# Sigmas (of a normal distribution 99 %) of what the last one's time changes by for each nanosecond that it is later.
SIGMAS: Final = 2.33
# That change, at most: 0 of a transfer. Of a wait it is -1, and -0.5 to -0.9 where the others it is held against vary
# as much as it does. Chosen on the jobs of tests/accuracy/missing_trace.py.
MOST_SHORTER: Final = -0.35
FAR_SIGMAS: Final = 3.0  # a call further from the middle says nothing: a pause is longer than any wait


def take_as_long(own_K: Floats, behind_K: Floats, place_K: Ints) -> bool:
    """Whether K calls take as long whenever their last rank came; False where they do not tell.

    own_K, behind_K: nanoseconds. place_K: what is compared with its like only, as calls of one bucket.
    """
    _, place_K = np.unique(place_K, return_inverse=True)
    middle = np.array(
        [np.median(behind_K[place_K == place]) for place in range(int(place_K.max(initial=-1)) + 1)]
    )
    from_middle_K = behind_K - middle[place_K] if middle.size else behind_K
    near_K = np.abs(from_middle_K) <= FAR_SIGMAS * mad_sigma(from_middle_K)
    num_free = np.count_nonzero(near_K) - np.unique(place_K[near_K]).size - 1
    if num_free < MIN_FREEDOM:
        return False
    later_K, longer_K = (_from_mean(values_K, place_K, near_K) for values_K in (behind_K, own_K))
    squared = float(later_K @ later_K)
    if squared <= 0:
        return False
    change = float(later_K @ longer_K) / squared
    rest_K = longer_K - change * later_K
    error = (float(rest_K @ rest_K) / num_free / squared) ** 0.5
    return bool(change - SIGMAS * error > MOST_SHORTER)


def _from_mean(values_K: Floats, place_K: Ints, near_K: Bools) -> Floats:
    """Those near the middle, against the mean of their place."""
    place_N, values_N = place_K[near_K], values_K[near_K]
    mean = np.bincount(place_N, values_N) / np.maximum(np.bincount(place_N), 1)
    return np.asarray(values_N - mean[place_N])
