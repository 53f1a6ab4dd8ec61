"""A rank that holds all the others up for longer than a step, now and then: too rare for a share of steps to show.

In: work between barriers, R ranks x K steps.  Out: its stalls.
"""

from __future__ import annotations

from math import comb, log, log1p
from typing import Final

import numpy as np

from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS
from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints, median
from tuiadvisor.metrics.window.rank_changes import MIN_QUIET_GAPS

STALL_SHARE: Final = 1.0  # of a step: so far behind the next to last of the ranks it is no jitter
MIN_STALLS: Final = 4  # of one rank in the window: fewer are no habit
STALL_ALIKE: Final = 0.5  # of the rank's typical one
MIN_STALL_LOSS: Final = 0.03  # of the time
STALL_CHANCE: Final = (
    5e-3  # that stalls which hit ranks by lot would hit one rank so often: 5 of 5 among 4 ranks
)
MAX_LOG_CHANCE_OF_HITS: Final = log(1e-3)  # that late steps fall so unevenly by lot


def find_stalls(work_RK: Floats, cycle_K: Floats) -> tuple[Bools, dict[int, int]]:
    """(R x K: where one rank alone holds the others up for longer than a step, how often by row), if it does so often.

    Too rare for a share of steps to show: 300 ms every 70th step of 25 ms cost as much as 4 ms in each.
    """
    num_ranks, num_steps = work_RK.shape
    last_K = np.argmax(np.ascontiguousarray(work_RK.T), axis=1)
    others_RK = work_RK.copy()
    others_RK[last_K, np.arange(num_steps)] = -np.inf
    gap_K = work_RK[last_K, np.arange(num_steps)] - others_RK.max(axis=0)
    at = np.flatnonzero(gap_K > STALL_SHARE * median(cycle_K))
    result = np.zeros((num_ranks, num_steps), dtype=np.bool_)
    times: dict[int, int] = {}
    if at.size < MIN_STALLS:
        return result, times
    last = last_K[at]
    for row in np.unique(last).tolist():
        own = at[last == row]
        # Others' stalls count if they are of that size: a spike of one step is no pause of twenty.
        alike = gap_K[at] > STALL_ALIKE * median(gap_K[own])
        # Steps near each other with one culprit are one event: a neighbour's burst of work is not four.
        begins = np.flatnonzero(alike)
        begins = begins[
            np.concatenate(([True], (np.diff(at[begins]) > MIN_SEGMENT_STEPS) | (np.diff(last[begins]) != 0)))
        ]
        num_own = int((last[begins] == row).sum())
        costly = float(gap_K[own].sum()) > MIN_STALL_LOSS * float(cycle_K.sum())
        own_begins = at[begins[last[begins] == row]]
        if num_own < MIN_STALLS or not costly or have_ended(own_begins, num_steps):
            continue
        if chance_by_lot(num_own, int(begins.size), num_ranks) < STALL_CHANCE:
            result[row, own], times[row] = True, num_own
    return result, times


def chance_by_lot(num_events: int, total: int, num_ranks: int) -> float:
    """Upper bound on the probability that of `total` events that hit ranks by lot one rank has so many or more."""
    ways = sum(comb(total, k) * (num_ranks - 1) ** (total - k) for k in range(num_events, total + 1))
    return float(num_ranks * (ways / num_ranks**total))


def have_ended(begins: Ints, num_steps: int) -> bool:
    """Whether events that came again and again no longer do: by far more steps than ever between two, and by lot."""
    quiet = num_steps - 1 - int(begins[-1])
    log_chance = begins.size * log1p(-quiet / num_steps)
    return quiet > MIN_QUIET_GAPS * int(np.diff(begins).max()) and log_chance < MAX_LOG_CHANCE_OF_HITS
