"""Ranks that exchange their gradients apart from others: each with those that hold the same part of the model.

In: StepTable by the devices' clocks, groups of ranks.  Out: whether one group waits longer than another. Within a group
who waits least came last; between groups a longer wait is that of another exchange, as over a rail of the network that
is degraded, and those of the quick one then wait for their neighbours where no hook is: who is late is not told by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import column_median, median
from tuiadvisor.metrics.steps.step_table import COMM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.steps.step_table import StepTable

MIN_APART: Final = 0.05  # of the step: TraceML warns of a late rank from there on


def wait_apart(table: StepTable, groups: Sequence[tuple[int, ...]]) -> bool:
    """Whether the least wait of a group is that much longer than another's in the typical step."""
    rows = {rank: row for row, rank in enumerate(table.ranks)}
    if len(groups) < 2 or not all(rank in rows for group in groups for rank in group):
        return False
    comm_RK = table.phase_s_PRK[COMM]
    known_K = np.isfinite(comm_RK).all(axis=0) & np.isfinite(table.step_s_RK).all(axis=0)
    if not known_K.any():
        return False
    usual_s = [median(comm_RK[[rows[rank] for rank in group]][:, known_K].min(axis=0)) for group in groups]
    step_s = median(column_median(table.step_s_RK[:, known_K]))
    return max(usual_s) - min(usual_s) > MIN_APART * step_s
