"""How long a step this run is used to: what it does again and again, not what once befell it.

In: the longest time of each step over all ranks.  Out: seconds; None where no step tells.
A job with a checkpoint that nobody marks is not told to hang at each; one that hung once is, the next time, at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.hang.detection import LONGER_THAN_USUAL, MIN_STILL_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.metrics.steps.arrays import Floats

# Chosen: two pauses of a run, each told as a stall, may be two accidents; a third one like them is its own.
ACCIDENTS: Final = 2
# Chosen, of all steps: of fewer, which differ in length, one long may be usual.
STEPS_PER_ACCIDENT: Final = 10


def used_to_s(
    longest_K: Floats, is_stop: Callable[[int], bool], earlier_s: Sequence[float] = ()
) -> float | None:
    """The longest step but for the accidents; is_stop(column): somebody stopped a process in it.

    longest_K: below 0 where a step is no measure. earlier_s: long steps that are no longer among these. What holds up a
    rank at the end of its step is in the others' next one: steps side by side are one event.
    """
    num_left = min(ACCIDENTS, int((longest_K >= 0).sum()) // STEPS_PER_ACCIDENT)
    columns: list[int] = []
    for column in map(int, np.argsort(longest_K)[::-1]):
        if longest_K[column] < 0 or len(columns) > num_left:
            break
        asks = longest_K[column] * LONGER_THAN_USUAL > MIN_STILL_S
        if asks and (any(abs(column - one) == 1 for one in columns) or is_stop(column)):
            continue
        columns.append(column)
    lengths = sorted([*(float(longest_K[column]) for column in columns), *earlier_s], reverse=True)
    return lengths[min(num_left, len(lengths) - 1)] if columns else None
