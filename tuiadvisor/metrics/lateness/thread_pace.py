"""Whether the thread whose device waits for launches is slower than the others', or only behind them.

In: seconds a step of that thread and of the others, all steps.  Out: ThreadPace.

Threads that look at nothing meet nowhere: their devices wait for each other, they do not. Of threads as fast as each
other, with steps of any length, one gets behind by chance or by one stop, and stays there: how far they are apart is a
random walk, and for all that time its device alone has nothing queued. A slower thread is told by how that distance
moves: it grows beyond chance, or it is kept, as by threads that wait for room in their queues or for their devices.
"""

from __future__ import annotations

from math import exp, factorial, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from tuiadvisor.metrics.lateness.late_phase import MAX_STEPS
from tuiadvisor.metrics.lateness.late_ranks import MIN_OWN_WAIT
from tuiadvisor.metrics.lateness.stalls import MAX_LOG_CHANCE_OF_HITS
from tuiadvisor.metrics.series.bootstrap import blocks

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats

# slower: beyond chance. alike: as threads do that are as fast. open: neither is sure.
ThreadPace = Literal["slower", "alike", "open"]

BLOCK_STEPS: Final = (
    24  # chosen: beside longer ones a hundred steps are no four, shorter ones hide a slow thread
)
MAX_LEAD_STEPS: Final = 8  # that a thread may be ahead of another one: torch queues about a thousand launches
NUM_STALL_SIGMAS: Final = 5.0  # a step so far off is a stop, which is no pace: as one of 64 steps, alone
MAX_CHANCE_OF_ALIKE: Final = 0.05  # rarer, and threads as fast are doubted; the usual level
NUM_TESTS: Final = 3  # growing, returning, staying: the least of their chances is so many times as likely
# The range of a random walk of variance 1: log P(range <= r) is about -RANGE / r^2. From 5 % to 95 % of 24 steps, by
# their own deviation, of 20,000 walks: 1 % below 0.43, 10 % below 0.63. What one block alone may tell is bounded.
RANGE: Final = 0.87
MIN_CHANCE_OF_BLOCK: Final = 0.005
# Dickey and Fuller's t with a mean, of 12,000 walks of 64 to 300 steps: 1 % beyond 3.46, a tenth of them 0.65 further.
UNIT_ROOT_T: Final = 3.46
UNIT_ROOT_DECADE: Final = 0.65


def thread_pace(own_K: Floats, others_PK: Floats, excess_s: float, num_ranks: int) -> ThreadPace:
    """What the typical other thread says. NaN where a step is not known.

    excess_s: what its device is late by. num_ranks: any of which might have been behind.
    """
    chances = []
    for other_K in others_PK:
        known_K = np.isfinite(own_K) & np.isfinite(other_K)
        if known_K.sum() >= BLOCK_STEPS:
            chances.append(_chance(own_K[known_K][-MAX_STEPS:], other_K[known_K][-MAX_STEPS:], excess_s))
    if not chances:
        return "open"
    chance = float(np.median(chances))
    if chance * num_ranks <= exp(MAX_LOG_CHANCE_OF_HITS):
        return "slower"
    return "open" if chance <= MAX_CHANCE_OF_ALIKE or own_K.size < 2 * BLOCK_STEPS else "alike"


def _chance(own_K: Floats, other_K: Floats, excess_s: float) -> float:
    """That threads as fast as each other move apart so far, or stay so near."""
    apart_K = own_K - other_K
    far_s = NUM_STALL_SIGMAS * float(apart_K.std())
    if far_s <= 0:
        return 1.0
    is_near_K = np.abs(apart_K - apart_K.mean()) <= far_s
    tests = _of_growing(apart_K[is_near_K], excess_s), _of_returning(apart_K, is_near_K)
    return min(1.0, NUM_TESTS * min(*tests, _of_staying(own_K, other_K)))


def _of_growing(apart_K: Floats, excess_s: float) -> float:
    """By Student's t, of a thread that loses much of what its device is late by; else its lateness is not its pace."""
    mean_s, error_s = float(apart_K.mean()), sqrt(max(blocks(apart_K).variance, 0.0))
    if mean_s < MIN_OWN_WAIT * excess_s or error_s <= 0:
        return 1.0
    return 1 - NormalDist().cdf(mean_s / error_s)


def _of_returning(apart_K: Floats, is_near_K: Floats) -> float:
    """By Dickey and Fuller's test: the distance comes back to where it was, as between two looks at the loss."""
    distance_K = np.cumsum(apart_K)[:-1][is_near_K[1:]]
    change_K = apart_K[1:][is_near_K[1:]]
    distance_K = distance_K - distance_K.mean()
    power = float((distance_K**2).sum())
    if power <= 0 or change_K.size < BLOCK_STEPS:
        return 1.0
    slope = float((distance_K * change_K).sum()) / power
    rest_K = change_K - change_K.mean() - slope * distance_K
    error = sqrt(float((rest_K**2).sum()) / (change_K.size - 2) / power)
    if slope >= 0 or error <= 0:
        return 1.0
    return float(min(1.0, 10 ** (-2 - (-slope / error - UNIT_ROOT_T) / UNIT_ROOT_DECADE)))


def _of_staying(own_K: Floats, other_K: Floats) -> float:
    """By how little the distance moves within blocks of steps, beside what their own scatter makes of a walk.

    A thread that waits for room does as the one it waits for, some steps later: these are laid beside each other.
    """
    num_blocks = (own_K.size - MAX_LEAD_STEPS) // BLOCK_STEPS
    if num_blocks < 1:
        return 1.0

    def in_blocks(lead: int) -> Floats:
        apart_K = own_K[: own_K.size - MAX_LEAD_STEPS] - other_K[lead : own_K.size - MAX_LEAD_STEPS + lead]
        far_s, middle_s = NUM_STALL_SIGMAS * float(apart_K.std()), float(apart_K.mean())
        clipped_K = np.clip(apart_K, middle_s - far_s, middle_s + far_s)
        return np.asarray(clipped_K[-num_blocks * BLOCK_STEPS :].reshape(num_blocks, BLOCK_STEPS))

    by_lead = [in_blocks(lead) for lead in range(MAX_LEAD_STEPS + 1)]
    nearest = min(by_lead, key=lambda block: float(np.median(block.var(axis=1))))
    low, high = np.percentile(np.cumsum(nearest, axis=1), [5, 95], axis=1)
    walk_s = by_lead[0].std(axis=1, ddof=1) * sqrt(BLOCK_STEPS)
    range_B = (high - low) / np.maximum(walk_s, np.finfo(np.float64).tiny)
    least = -float(np.log(MIN_CHANCE_OF_BLOCK))
    told = float(np.minimum(RANGE / np.maximum(range_B, 1e-3) ** 2, least).sum())
    # Fisher: the sum of logarithms of so many chances, twice it is chi-squared with twice as many degrees.
    return exp(-told) * sum(told**number / factorial(number) for number in range(num_blocks))
