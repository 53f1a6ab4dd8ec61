"""Ranks that exchange their gradients apart from others: each with those that hold the same part of the model.

In: StepTable by the devices' clocks, groups of ranks.  Out: whether one group waits longer than another. Within a group
who waits least came last; between groups a longer wait is that of another exchange, as over a rail of the network that
is degraded, and those of the quick one then wait for their neighbours where no hook is: who is late is not told by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import column_median, median, medians
from tuiadvisor.metrics.steps.step_table import COMM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.steps.step_table import StepTable

MIN_APART: Final = 0.05  # of the step: TraceML warns of a late rank from there on
# Steps of the present: as few as name a late rank where the past was quiet, and as many as a verdict takes.
LATEST_STEPS: Final = (8, 20)


def wait_apart(table: StepTable, groups: Sequence[tuple[int, ...]]) -> bool:
    """Whether the least wait of a group is that much longer than another's in the typical step, of all or of late.

    A rail may have been well for most of the run; who is late is told of the steps since it is not.
    """
    rows = {rank: row for row, rank in enumerate(table.ranks)}
    if len(groups) < 2 or not all(rank in rows for group in groups for rank in group):
        return False
    comm_RK = table.phase_s_PRK[COMM]
    known_K = np.isfinite(comm_RK).all(axis=0) & np.isfinite(table.step_s_RK).all(axis=0)
    if not known_K.any():
        return False
    waits_GK = np.stack([comm_RK[[rows[rank] for rank in group]][:, known_K].min(axis=0) for group in groups])
    step_K = column_median(table.step_s_RK[:, known_K])
    lengths = {step_K.size, *(length for length in LATEST_STEPS if length <= step_K.size)}
    return any(
        float(np.ptp(medians(waits_GK[:, -length:], 1))) > MIN_APART * median(step_K[-length:])
        for length in lengths
    )
