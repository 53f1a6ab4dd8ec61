"""What all ranks lose together: waiting for input, moving gradients, and taking turns at being late.

In: StepTable and Barrier of steady steps.  Out: seconds lost a step and its share of the step, None where an
input was not observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.what_if import Gain, gain
from tuiadvisor.metrics.steps.arrays import Floats, Ints, column_median, lower_quartile, row_mean
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable


CHECKPOINT_SHARE: Final = (
    0.01  # of the step: a step with more of it is a pause, unless most are (steady_steps)
)

OWN_SHARE: Final = 0.5  # of the loss, on each device: of two that take turns one has less. Chosen


@dataclass(frozen=True, slots=True)
class CommonLoss:
    """A loss no single rank answers for."""

    share: float  # of the step, on ranks that are not late themselves
    share_low: float  # lower end of its interval
    gain: Gain
    rows: tuple[
        int, ...
    ] = ()  # of the peers, those whose phase was seen: of a pipeline's stages some have no loader
    of_threads: bool = (
        False  # the share is what their threads wait: now one device is idle meanwhile, now another
    )


@dataclass(frozen=True, slots=True)
class Sides:
    """Rows of a table."""

    peers: Ints  # not late themselves, and there in every step
    mates: Ints  # they, and those that were there in most
    late: Ints  # there in every step


def input_loss(
    table: StepTable, barrier: Barrier, sides: Sides, thread_s_R: Floats | None = None
) -> CommonLoss | None:
    """Data wait that all peers (ranks that are not stragglers) share; None without a hook on the loader.

    What mates do not wait for is not shared. thread_s_R: where the table is of device times, what each thread waits for
    data a step. Threads that all wait alike make now this device idle, now that one: then it is the job's loss that
    they share. Devices that are idle for most of the loss each tell by themselves what every rank waits: as long as the
    one that waits least.
    """
    return _phase_loss("data_wait", table, barrier, sides, thread_s_R)


def checkpoint_loss(table: StepTable, barrier: Barrier, sides: Sides) -> CommonLoss | None:
    """Checkpoints that are a part of the steady steps, on all peers; None where they are pauses, or no hook saw one."""
    found = _phase_loss("checkpoint", table, barrier, sides, None)
    return found if found is not None and found.share >= CHECKPOINT_SHARE else None


def copy_loss(table: StepTable, barrier: Barrier, sides: Sides) -> CommonLoss | None:
    """Copies of batches to the devices, on all peers; None where no hook or clock saw one."""
    return _phase_loss("h2d", table, barrier, sides, None)


def _phase_loss(
    phase: str, table: StepTable, barrier: Barrier, sides: Sides, thread_s_R: Floats | None
) -> CommonLoss | None:
    wait_RK = table.phase_s_PRK[PHASE_INDEX[phase]]
    is_seen_R = np.isfinite(wait_RK).any(axis=1)
    rows, mates = (each[is_seen_R[each]] for each in (sides.peers, sides.mates))
    if not rows.size:
        return None
    wait_RK = np.where(np.isnan(wait_RK), 0.0, wait_RK)
    mate_s = row_mean(np.where(table.present_RK, wait_RK, np.nan)[mates])
    cycle_K = barrier.cycle_K if barrier.evidence != "none" else column_median(table.step_s_RK)
    if not cycle_K.size or not np.isfinite(cycle_K).all():
        return None
    work_RK = barrier.work_RK if barrier.evidence != "none" else table.step_s_RK
    if not np.isfinite(work_RK[rows]).all():
        return None
    loss_K = _without(work_RK[rows], wait_RK[rows])
    everybody = np.union1d(rows, sides.late)
    if everybody.size > rows.size and np.isfinite(work_RK[everybody]).all():
        # Who is late for another reason keeps the step as long, though nobody waits any more.
        loss_K = np.minimum(loss_K, _without(work_RK[everybody], wait_RK[everybody]))
    cycle_s = float(cycle_K.mean())
    shared, of_threads = lower_quartile(mate_s), False
    what_if = gain(cycle_K, loss_K)
    takes_turns = shared < OWN_SHARE * what_if.loss_s
    if takes_turns and thread_s_R is not None and np.isfinite(thread_s_R[sides.mates]).all():
        thread_s = min(lower_quartile(thread_s_R[sides.mates]), what_if.loss_s)
        shared, of_threads = max(shared, thread_s), thread_s > shared
    spread = what_if.loss_low_s / what_if.loss_s if what_if.loss_s > 0 else 0.0
    return CommonLoss(
        shared / cycle_s, shared / cycle_s * spread, what_if, tuple(rows.tolist()), of_threads=of_threads
    )


def _without(work_RK: Floats, wait_RK: Floats) -> Floats:
    """Seconds by which whoever works longest in a step would be earlier if nobody waited."""
    return np.asarray(np.maximum(work_RK.max(axis=0) - (work_RK - wait_RK).max(axis=0), 0.0))


def transfer_loss(barrier: Barrier) -> CommonLoss | None:
    """Exposed communication that is left when all ranks arrive together; None without a barrier."""
    if barrier.evidence == "none" or not barrier.cycle_K.size:
        return None
    transfer_K = np.minimum(barrier.transfer_K, barrier.cycle_K)
    what_if = gain(barrier.cycle_K, transfer_K)
    return CommonLoss(what_if.loss_s / what_if.step_s, what_if.loss_low_s / what_if.step_s, what_if)


def hideable_s(transfer_s: float, compute_s: float, hidden_s: float | None) -> float:
    """Upper bound on the exchange that could still be hidden, seconds a step.

    compute_s: forward and backward; gradients can hide behind backward alone, gathered parameters behind both, and the
    optimizer needs them all. What hides there already takes its room; unknown, it leaves the bound looser, never wrong.
    """
    return min(transfer_s, max(compute_s - (hidden_s or 0.0), 0.0))


def turn_taking_loss(barrier: Barrier, peers: Ints) -> Gain | None:
    """What ranks taking turns at being last cost (noise, sequence lengths): the last against the mean of them all."""
    if barrier.evidence == "none" or peers.size < 2 or not barrier.cycle_K.size:
        return None
    work = barrier.work_RK[peers]
    return gain(barrier.cycle_K, work.max(axis=0) - work.mean(axis=0))


def turns_of_one(barrier: Barrier, peers: Ints) -> float:
    """Share of that loss in steps in which one and the same rank is last, the largest; 0 where it is not known."""
    if barrier.evidence == "none" or peers.size < 2 or not barrier.cycle_K.size:
        return 0.0
    work = barrier.work_RK[peers]
    loss_K = work.max(axis=0) - work.mean(axis=0)
    by_row = np.bincount(np.argmax(work, axis=0), weights=loss_K)
    total = float(loss_K.sum())
    return float(by_row.max()) / total if total > 0 else 0.0
