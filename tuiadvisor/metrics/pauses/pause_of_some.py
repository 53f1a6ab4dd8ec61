"""Long steps of some ranks where nothing tells who waits for whom: no pause of the job.

In: StepTable and Barrier.  Out: those columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.pauses.periodic import PAUSE_FACTOR
from tuiadvisor.metrics.steps.arrays import median, row_median

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable

MIN_LONGER: Final = (
    0.5  # of what is too much of the job's step: so much longer is the step of a rank that takes part
)


def of_some_alone(table: StepTable, barrier: Barrier, usual_K: Bools) -> Bools:
    """Columns that only half of the ranks or fewer make long, of steps that are compared by their length alone.

    The middle of two ranks is half as long as a wait of one: a meeting every 50 steps, each rank else at its own pace,
    was a pause of all ranks. usual_K: the columns that a usual step is taken from.
    """
    if barrier.evidence != "none" or table.num_ranks < 2 or not usual_K.any():
        return np.zeros_like(usual_K)
    usual_s = median(barrier.cycle_K[usual_K])
    excess_K = barrier.cycle_K - usual_s
    longer_RK = table.step_s_RK - row_median(np.where(usual_K, table.step_s_RK, np.nan))[:, None]
    known_RK = np.isfinite(longer_RK)
    num_long_K = np.count_nonzero(
        _near(np.where(known_RK, longer_RK, -np.inf)) >= MIN_LONGER * excess_K, axis=0
    )
    is_long_K = excess_K > (PAUSE_FACTOR - 1) * usual_s
    # Of ranks that have no record there nothing tells that they stood still: their steps may be counted otherwise.
    num_there_K = np.maximum.accumulate(table.present_RK, axis=1).sum(axis=0)
    return np.asarray(is_long_K & (2 * num_long_K <= num_there_K))


def _near(values_RK: Floats) -> Floats:
    """The largest of a step, the one before and the next.

    What a rank does after an exchange makes its own record longer, and the next one of those that wait for it there.
    """
    padded_RK = np.pad(values_RK, ((0, 0), (1, 1)), constant_values=-np.inf)
    return np.maximum(np.maximum(padded_RK[:, :-2], padded_RK[:, 2:]), values_RK)
