"""Whether a rank's trace and a recording saw the same training, and which recorded steps the trace is of.

In: step marks of the trace and recorded steps of the rank, both on the wall clock.  Out: which steps, or why none.
Two trainings on one machine may overlap in time and be of one size: then they make different numbers of steps in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

ALIKE: Final = (
    0.1  # of the number of steps, at least one: each end cuts one, the recording may have lost some
)


@dataclass(frozen=True, slots=True)
class RankSteps:
    """One rank's recorded steps in order: the job's number, the wall clock, backward passes within (-1: unknown)."""

    number: Ints
    begin_ns: Ints
    end_ns: Ints
    micro_steps: Ints


def steps_within(steps: RankSteps, begin_ns: int, end_ns: int, *, is_marked: bool) -> Bools:
    """Steps of which some part lies in between; half of it where marks are the ends, whose borders are not a step's.

    Half of a usual one is enough: behind its mark the last traced step is long, for in it the trace is written.
    """
    both = np.minimum(steps.end_ns, end_ns) - np.maximum(steps.begin_ns, begin_ns)
    if not is_marked or not both.size:
        return np.asarray(both > 0)
    length = steps.end_ns - steps.begin_ns
    return np.asarray((both > 0) & (2 * both >= np.minimum(length, np.median(length))))


def counts_apart(marks: list[tuple[int, int]], steps: RankSteps) -> tuple[int, int] | None:
    """(marks, recorded steps) in the time that both saw, where they cannot be of one training; None where they may.

    A mark may be an optimizer step or one of the backward passes that make one.
    """
    first, last = int(steps.begin_ns.min()), int(steps.end_ns.max())
    both = [(begin, end) for begin, end in marks if begin >= first and end <= last]
    if not both:
        return None
    begin, end = both[0][0], both[-1][1]
    within = (steps.begin_ns >= begin) & (steps.begin_ns < end)
    num_steps = int(within.sum())
    num_passes = int(np.maximum(steps.micro_steps[within], 1).sum())
    if any(_alike(len(both), num) for num in (num_steps, num_passes)):
        return None
    return len(both), num_steps


def _alike(one: int, other: int) -> bool:
    return abs(one - other) <= max(1, ALIKE * max(one, other))
