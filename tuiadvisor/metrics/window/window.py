"""The steps and ranks that are compared, and since when the job is as it is now.

In: StepTable, Barrier, the steady columns.  Out: Window. Every statistic is made of its columns from `regime.start` on:
a fault that starts at step N is sized from N on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS
from tuiadvisor.metrics.steps.arrays import median
from tuiadvisor.metrics.steps.held_steps import HeldSteps
from tuiadvisor.metrics.steps.step_table import cells
from tuiadvisor.metrics.window.phase_levels import common_changes, settled
from tuiadvisor.metrics.window.rank_changes import deviations
from tuiadvisor.metrics.window.regime import NEW_REGIME_SHARE, WHOLE, Regime, find_regime
from tuiadvisor.metrics.window.rotating import Wandering, find_wandering

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.held_steps import HeldBackOf
    from tuiadvisor.metrics.steps.step_table import StepTable


@dataclass(frozen=True, slots=True)
class Window:
    """work_RK and cycle_K: of these rows and columns, without lateness that wanders."""

    rows: Ints  # whose arrival is compared
    columns: Ints  # steady ones, those before the present level too
    work_RK: Floats
    beyond_RK: Floats  # the same beyond the ranks' common level
    cycle_K: Floats
    span_K: Floats  # seconds that each of them stands for, as `Barrier.span_K`
    wandering: Wandering | None
    regime: Regime
    as_was_RK: Floats  # the work before lateness that wanders was taken out of it
    held: HeldSteps

    @property
    def present(self) -> Ints:
        """Columns of the table since the present level began."""
        return self.columns[self.regime.start :]


def find_window(
    table: StepTable,
    barrier: Barrier,
    steady_K: Bools,
    alive_R: Bools,
    *,
    all_ranks_heard: bool = True,
    held_back: HeldBackOf | None = None,
) -> Window:
    """What can be compared, and where the present level begins.

    all_ranks_heard: else the others may wait for a rank that is no longer seen, which is no change of communication.
    held_back: of `Witnesses`: a level that comes and goes with a device's clock begins nothing new.
    """
    columns = np.flatnonzero(steady_K)
    rows = _comparable_rows(barrier, columns, alive_R)
    if rows.size:
        columns = columns[np.isfinite(cells(barrier.work_RK, rows, columns)).all(axis=0)]
    work, cycle = cells(barrier.work_RK, rows, columns), barrier.cycle_K[columns]
    # What goes from rank to rank has no level of its own; who is late besides it is found without it.
    wandering, as_was = find_wandering(work, cycle), work
    if wandering is not None:
        work, cycle = wandering.heal(work), np.maximum(cycle - wandering.loss_K, 0.0)
    beyond, regime, held = deviations(work), WHOLE, HeldSteps(held_back, table, rows, columns)
    span = cycle if barrier.gap_K is None else cycle * barrier.gap_K[columns]
    if columns.size:
        smallest_s = NEW_REGIME_SHARE * median(cycle)
        transfer = barrier.transfer_K[columns]
        transfer = transfer if all_ranks_heard else np.full_like(transfer, np.nan)
        since = settled(span)
        common = common_changes(table, rows, columns, transfer, smallest_s, held=held, since=since)
        regime = find_regime(
            table, columns, work, beyond, cycle, held=held, since=since, as_was_RK=as_was, common=common
        )
    if wandering is not None and wandering.since > regime.start:
        nobodys = replace(regime, begun_by=None, begun_by_row=None, begun_by_phase=None, is_sliding=False)
        regime = replace(nobodys, start=wandering.since)
    return Window(rows, columns, work, beyond, cycle, span, wandering, regime, as_was, held)


def _comparable_rows(barrier: Barrier, columns: Ints, alive_R: Bools) -> Ints:
    """Ranks whose arrival is known in the latest steps; a rank that died earlier is compared no more.

    Probes leave one after the other, and the slowest rank's record is the first to be missing: of a rank that is
    gone only the last few steps may be.
    """
    if barrier.evidence == "none" or columns.size == 0:
        return np.zeros(0, dtype=np.int64)
    known = np.isfinite(barrier.work_RK[:, columns])
    latest = known[:, -MIN_SEGMENT_STEPS:]
    until_its_end = latest[:, 0] & (latest[:, 1:] <= latest[:, :-1]).all(axis=1)
    candidates = np.where(alive_R, latest.all(axis=1), until_its_end)
    return np.flatnonzero(candidates) if candidates.sum() >= 2 else np.zeros(0, dtype=np.int64)
