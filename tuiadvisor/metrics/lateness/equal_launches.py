"""Whether threads that keep their devices waiting are as slow as each other, by their own clocks.

In: how far devices are behind, seconds that each thread takes to launch its steps.  Out: whether one takes longer.

Of devices that have computed all that was launched, who is last decides who is waited for, by however little: those
ahead wait in each exchange, the last one in its own phases. A device's phases then say nothing of how slow its
thread is. Threads without a queue to wait for tell that themselves: how long they launch, each by its own clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.late_phase import launched_phases, launched_share
from tuiadvisor.metrics.lateness.late_ranks import MIN_OWN_WAIT
from tuiadvisor.metrics.steps.arrays import row_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.lateness.late_phase import Pace
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

MOST_OF_STEP: Final = 0.5  # as rule host_bound
MOST_OTHERS: Final = 0.5  # whose threads have to tell. Chosen: then their median is one of them


def are_free(paces: Sequence[Pace | None]) -> Bools:
    """Of each row, whether its thread has no full queue to wait for: its device is done with it once a step."""
    return np.array([pace is not None and bool(launched_phases(pace)) for pace in paces], dtype=np.bool_)


def are_waited_for(paces: Sequence[Pace | None]) -> Bools:
    """Of each row, whether its device is done with all that was launched for most of the step."""
    shares = (None if pace is None else launched_share(pace) for pace in paces)
    return np.array([share is not None and share >= MOST_OF_STEP for share in shares], dtype=np.bool_)


def is_alike(row: int, others: Ints, free_R: Bools, launch_s_RK: Floats, excess_s: float) -> bool:
    """Whether a thread takes no longer to launch a step than the typical other one, beside what it is late by."""
    told = others[free_R[others]]
    if not free_R[row] or told.size < max(MOST_OTHERS * others.size, 1):
        return False
    mean_s_R = row_mean(launch_s_RK)
    usual_s = float(np.median(mean_s_R[told]))
    return bool(mean_s_R[row] - usual_s < MIN_OWN_WAIT * excess_s)


def take_no_turns(rows: Ints, free_R: Bools, launch_s_RK: Floats, loss_s: float) -> bool:
    """Whether no thread of these is slower for some steps, then another one, beside what turns seem to cost."""
    told = rows[free_R[rows]]
    if told.size < max(MOST_OTHERS * rows.size, 2):
        return False
    known_RK = launch_s_RK[told][:, np.isfinite(launch_s_RK[told]).all(axis=0)]
    if not known_RK.size:
        return False
    return bool((known_RK.max(axis=0) - known_RK.mean(axis=0)).mean() < MIN_OWN_WAIT * loss_s)
