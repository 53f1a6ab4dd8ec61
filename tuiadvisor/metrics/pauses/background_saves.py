"""Checkpoints written beside the training: the steps that they make longer, as pauses of their own.

In: StepTable, Barrier, the columns of ordinary steps.  Out: which columns to leave out, and one Pause. A save that
slows nothing leaves its steps where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import StepFlag
from tuiadvisor.metrics.pauses.pause import Pause, make_pause, with_next
from tuiadvisor.metrics.steps.arrays import median

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable

KIND: Final = "saving"
MIN_SHIFT: Final = 0.1  # Greyhound: act only on a verified shift of the mean of more than a tenth
MIN_BESIDE: Final = 5  # steps beside saves, and without: the mean of fewer says nothing (chosen)


def slowed_by_saves(table: StepTable, barrier: Barrier, free_K: Bools) -> tuple[Bools, Bools]:
    """(R x K: beside a save of that rank, K: those columns), nowhere where steps are as long as without.

    Longer on the mean, the longest step aside: that one may be a pause of another kind.
    """
    saving_RK = table.flagged_RK(StepFlag.SAVING)
    beside_K = with_next(np.asarray(saving_RK.any(axis=0)))
    nowhere = np.zeros_like(saving_RK), np.zeros_like(beside_K)
    slow, usual = barrier.cycle_K[free_K & beside_K], barrier.cycle_K[free_K & ~beside_K]
    if slow.size < MIN_BESIDE or usual.size < MIN_BESIDE:
        return nowhere
    base_s = float(median(usual))
    is_slower = float(np.sort(slow)[:-1].mean()) > (1 + MIN_SHIFT) * base_s
    return (saving_RK, beside_K) if is_slower else nowhere


def saving_pause(
    table: StepTable, barrier: Barrier, saving_RK: Bools, affected_K: Bools, median_s: float
) -> Pause | None:
    """What saves add to the steps beside them; shorter ones than usual among them count against it."""
    excess_K = np.where(affected_K & np.isfinite(barrier.cycle_K), barrier.cycle_K - median_s, 0.0)
    longer_s = float(np.maximum(excess_K, 0.0).sum())
    if longer_s <= 0:
        return None
    kept = max(float(excess_K.sum()), 0.0) / longer_s
    return make_pause(
        KIND,
        table,
        barrier,
        marked_RK=saving_RK,
        affected_K=affected_K,
        median_s=median_s,
        added_K=np.maximum(excess_K, 0.0) * kept,
    )
