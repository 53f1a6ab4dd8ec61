"""Workers that compute longer than the others of their stage in nearly every step, however little that costs.

In: computing seconds, stage by stage: steps x data-parallel ranks.  Out: who, and by how much.
The slowdown of a step has a threshold of its own; a worker a few per cent slower stays below it and costs every step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats

MIN_STEPS: Final = 8  # in which one of two ranks is the slowest of all by chance once in 128 jobs
SLOWER: Final = 1.02  # chosen: ranks of one stage differ by up to 1 % in the published traces
CHANCE: Final = 0.01  # of naming anybody in a job in which the slowest is random


@dataclass(frozen=True, slots=True)
class SlowWorker:
    """at: its place among the data-parallel ranks. ratio: median over steps of its time to its peers' median."""

    stage: int
    at: int
    ratio: float
    num_slowest: int
    num_steps: int


def slow_workers(seconds_by_stage: dict[int, Floats]) -> tuple[SlowWorker, ...]:
    """Slowest first. Slower in both halves of the steps, and the slowest in more of them than chance allows."""
    num_workers = sum(seconds.shape[1] for seconds in seconds_by_stage.values())
    found = []
    for stage, seconds in seconds_by_stage.items():
        num_steps, num_dp = seconds.shape
        if num_steps < MIN_STEPS or num_dp < 2 or not (seconds > 0).all():
            continue
        slowest = np.bincount(seconds.argmax(axis=1), minlength=num_dp)
        at = int(slowest.argmax())  # two that share this place are neither of them slower than all peers
        ratio = seconds[:, at] / np.median(np.delete(seconds, at, axis=1), axis=1)
        halves = np.array_split(ratio, 2)
        if min(float(np.median(half)) for half in halves) < SLOWER:
            continue
        if tail(int(slowest[at]), num_steps, 1 / num_dp) * num_workers <= CHANCE:
            found.append(SlowWorker(stage, at, float(np.median(ratio)), int(slowest[at]), num_steps))
    return tuple(sorted(found, key=lambda worker: -worker.ratio))


def tail(least: int, num: int, probability: float) -> float:
    """Of a binomial distribution: so many or more of num."""
    return sum(
        math.comb(num, k) * probability**k * (1 - probability) ** (num - k) for k in range(least, num + 1)
    )
