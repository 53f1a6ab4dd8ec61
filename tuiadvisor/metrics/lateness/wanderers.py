"""Who has the lateness that goes from rank to rank, in which phase, and the steps as they were without it.

In: Wandering as `window.rotating` finds it.  Out: Wanderers, and tables without what they lose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.lateness.late_phase import phases_before_barrier
from tuiadvisor.metrics.steps.arrays import column_median
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX
from tuiadvisor.metrics.window.rotating import Wandering, phase_shares

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats, Ints
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable


@dataclass(frozen=True, slots=True)
class Wanderers:
    """Lateness that goes from rank to rank, with its onset and phase."""

    found: Wandering
    ranks: tuple[int, ...]
    since_step: int | None  # None: it was there from the start
    phase: str | None
    cover: float  # share of the lateness in that phase


def who_wanders(table: StepTable, found: Wandering | None, rows: Ints, columns: Ints) -> Wanderers | None:
    """Its ranks and their phase. rows, columns: of the table, as `found` was given them."""
    if found is None:
        return None
    late_RK = np.zeros((rows.size, columns.size), dtype=np.bool_)
    late_RK[found.culprits] = found.late_CK
    phases = {name: values[np.ix_(rows, columns)] for name, values in phases_before_barrier(table).items()}
    shares = phase_shares(phases, late_RK)
    phase = max(shares, key=lambda name: shares[name], default=None)
    return Wanderers(
        found=found,
        ranks=tuple(table.ranks[row] for row in rows[found.culprits].tolist()),
        since_step=table.step_of(columns[found.since]) if found.since else None,
        phase=phase,
        cover=shares[phase] if phase is not None else 0.0,
    )


def own_wandering(
    found: Wandering | None, who: Wanderers | None, work_RK: Floats, thread_data_s: float | None
) -> Wandering | None:
    """The same, None where it is only whose device waits for the data that all threads wait for.

    Threads ahead of their devices drift apart: of equally slow loaders one device is idle for some steps, then another.
    Loaders that are slow by turns make a thread wait in its own turns alone, so less in the mean than a late rank is
    late. work_RK: as `find_wandering` had it. thread_data_s: a step, that the typical rank's thread waits for data;
    None where the threads' own clock tells the waits.
    """
    if found is None or who is None or who.phase != "data_wait" or thread_data_s is None:
        return found
    excess_CK = work_RK[found.culprits] - found.healed_CK
    return None if thread_data_s >= float(excess_CK[found.late_CK].mean()) else found


def without(
    found: Wandering | None, steady: StepTable, barrier: Barrier, rows: Ints, start: int
) -> tuple[StepTable, Barrier]:
    """The window as if no lateness wandered: what is left is lost by all alike."""
    if found is None:
        return steady, barrier
    culprits, work_RK = rows[found.culprits], barrier.work_RK.copy()
    work_RK[culprits] = found.healed_CK[:, start:]
    phase_s_PRK = steady.phase_s_PRK.copy()
    wait_RK = phase_s_PRK[PHASE_INDEX["data_wait"]]
    late_RK = np.zeros(wait_RK.shape, dtype=np.bool_)
    late_RK[culprits] = found.late_CK[:, start:]
    usual_RK = np.broadcast_to(column_median(np.where(late_RK, np.nan, wait_RK)), wait_RK.shape)
    phase_s_PRK[PHASE_INDEX["data_wait"]] = np.where(late_RK, np.fmin(wait_RK, usual_RK), wait_RK)
    return replace(steady, phase_s_PRK=phase_s_PRK), replace(barrier, work_RK=work_RK)
