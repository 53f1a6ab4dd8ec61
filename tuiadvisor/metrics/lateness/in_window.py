"""Who is late in a window, who is kept from running, and whose wait for data is all ranks' own.

In: a table's window, its barriers, the witnesses.  Out: Lateness: stragglers with their causes and what they cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.lateness.late_ranks import (
    LateRank,
    with_causes,
    with_work_spread,
    without_common_waits,
    without_loaders_alike,
)
from tuiadvisor.metrics.lateness.off_core import (
    MOSTLY_LATE,
    PAST_S,
    SETTLED_S,
    HeldRank,
    held_ranks,
    is_stopped,
    lacks_core,
    seen_in_steps,
    with_time_off_core,
)
from tuiadvisor.metrics.lateness.own_loader import held_by_data, held_unseen, waits_for_its_loader
from tuiadvisor.metrics.lateness.storage_wait import held_with_storage, with_storage
from tuiadvisor.metrics.lateness.stragglers import find_stragglers
from tuiadvisor.metrics.steps.barrier import Barrier, keeps_pace
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX, cells
from tuiadvisor.metrics.window.phase_levels import SETTLED_STEPS

if TYPE_CHECKING:
    from tuiadvisor.metrics.lateness.off_core import OffCoreOf
    from tuiadvisor.metrics.lateness.witnesses import Witnesses
    from tuiadvisor.metrics.steps.arrays import Bools, Floats
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.metrics.window.window import Window


@dataclass(frozen=True, slots=True)
class Lateness:
    """Who is late in a window."""

    stragglers: tuple[LateRank, ...]
    loss_K: Floats  # what these cost together
    waits_alike: tuple[LateRank, ...]  # late in data, but for loaders no slower than the others'
    lacking: tuple[int, ...]  # rows, as `lacks_core`
    stopped: tuple[int, ...]  # rows, as `is_stopped`


def find_lateness(
    table: StepTable,
    found: Window,
    barrier: Barrier,
    witnesses: Witnesses,
    *,
    on_accelerator: bool,
    is_named_R: Bools,
) -> Lateness:
    """Who is late and why, without those whose lateness is all ranks' wait for data.

    barrier: of the window's steps. is_named_R: of the rows that are compared, as of `find_stragglers`.
    """
    rows, regime = found.rows, found.regime
    off_core = _in_steps(table, found, witnesses)
    lacking_R, stopped_R = _kept_waiting(found, off_core) or (np.zeros(rows.size),) * 2
    lacking, stopped = tuple(rows[lacking_R > 0].tolist()), tuple(rows[stopped_R > 0].tolist())
    surely_R = np.maximum(np.maximum(lacking_R, stopped_R), _waits_for_data(table, found, witnesses))
    late, loss_K = find_stragglers(
        found.work_RK,
        found.beyond_RK,
        found.cycle_K,
        regime,
        surely_R,
        is_named_R=is_named_R,
        as_was_RK=found.as_was_RK,
    )
    stragglers = with_causes(table, late, rows, found.columns, regime, on_accelerator=on_accelerator)
    stragglers, less_K = with_work_spread(stragglers, rows.size, found.cycle_K[regime.start :])
    past = found.work_RK, found.cycle_K, found.span_K
    stragglers = with_time_off_core(stragglers, rows, barrier, off_core, past)
    stragglers = with_storage(stragglers, rows, barrier, off_core)
    kept = stragglers
    waits_alike: tuple[LateRank, ...] = ()
    thread_data_s_R = thread_data_s(table, found, witnesses)
    if thread_data_s_R is not None:
        kept = without_common_waits(stragglers, rows, thread_data_s_R)
    if witnesses.loaders_at_limit is not None:
        kept, waits_alike = without_loaders_alike(kept, rows, found.cycle_K, witnesses.loaders_at_limit)
    if len(kept) == len(stragglers):
        return Lateness(stragglers, loss_K - less_K, waits_alike, lacking, stopped)
    loss_K = np.sum([entry.late.loss_K for entry in kept], axis=0) if kept else np.zeros_like(loss_K)
    return Lateness(kept, loss_K, waits_alike, lacking, stopped)


def _in_steps(table: StepTable, found: Window, witnesses: Witnesses) -> OffCoreOf | None:
    """What keeps ranks off their cores in the steps that are compared; as it was seen where nobody told when."""
    if witnesses.off_core is None or witnesses.stopped_at is None:
        return witnesses.off_core
    return seen_in_steps(witnesses.off_core, witnesses.stopped_at, table, found.columns)


def thread_data_s(table: StepTable, found: Window, witnesses: Witnesses) -> Floats | None:
    """Of the window's steps alone: before its loader fell behind a rank's thread waited as little as the others'."""
    if witnesses.thread_data_s is None or not found.present.size:
        return None
    return witnesses.thread_data_s(int(table.step_of(found.present[0])))


def _kept_waiting(found: Window, off_core: OffCoreOf | None) -> tuple[Floats, Floats] | None:
    """`lacks_core` and `is_stopped` of each row that is compared; None where nobody counts."""
    if off_core is None or not found.rows.size or not found.cycle_K.size:
        return None
    begin = _settled(found)
    cycle_K, span_s = found.cycle_K[begin:], float(found.span_K[begin:].sum())
    seen = off_core(span_s)
    work_RK, seen_of_each = found.work_RK[:, begin:], [seen[row] for row in found.rows.tolist()]
    return lacks_core(work_RK, cycle_K, span_s, seen_of_each), is_stopped(work_RK, cycle_K, seen_of_each)


def _settled(found: Window) -> int:
    """The column since which what keeps ranks waiting is asked about.

    Others' work changes a job's pace, so on a crowded host windows are short: who lacks a core does so for longer.
    """
    left_s_K = np.cumsum(found.span_K[::-1])[::-1]
    return min(found.regime.start, max(int(np.count_nonzero(left_s_K >= PAST_S)) - 1, 0))


def _waits_for_data(table: StepTable, found: Window, witnesses: Witnesses) -> Floats:
    """`waits_for_its_loader` of each row that is compared."""
    at_limit, rows = witnesses.loaders_at_limit, found.rows
    if at_limit is None or not rows.size or not found.cycle_K.size:
        return np.zeros(rows.size)
    begin = _settled(found)
    columns = found.columns[begin:]
    first = table.step_of(int(columns[0]))
    return waits_for_its_loader(
        found.work_RK[:, begin:],
        found.cycle_K[begin:],
        float(found.span_K[begin:].sum()),
        cells(table.phase_s_PRK[PHASE_INDEX["data_wait"]], rows, columns),
        lambda: at_limit(first)[rows],
    )


def find_held(
    table: StepTable, found: Window, window: Barrier, late: Lateness, witnesses: Witnesses
) -> tuple[HeldRank, ...]:
    """Who is kept from going on, of whom lateness alone does not tell. window: its steps.

    On a crowded host windows are short: who is held is asked of more than one then. Where arrivals are compared, it is
    whoever is mostly late by the kernel's count, or by looks that find it stopped, and yet not named for its steps; and
    of ranks that are seen to meet now and then whoever the others wait for in between, unseen.
    """
    span_s = max(float(window.span_K.sum()), min(float(found.span_K.sum()), SETTLED_S))
    off_core = witnesses.off_core
    is_kept = off_core is not None and bool(late.lacking or late.stopped)
    meets_unseen = found.rows.size > 1 and not is_kept and not late.stragglers and window.meets_K is not None
    if span_s <= 0 or (found.rows.size > 1 and not (is_kept or meets_unseen)):
        return ()
    held = () if off_core is None else held_ranks(off_core(span_s), span_s)
    if found.rows.size <= 1 or meets_unseen:  # who does not keep pace is not waited for
        left_s_K = np.cumsum(found.span_K[::-1])[::-1]
        columns = found.columns[left_s_K <= span_s]
        of_data = held_by_data(table, columns, span_s, witnesses.loaders_at_limit)
        if of_data and found.rows.size > 1:
            of_data, held = held_unseen(table, columns, of_data), ()
        if of_data and off_core is not None:
            of_data = held_with_storage(of_data, off_core(span_s))
        told = {one.row for one in held}  # a rank that is stopped waits longer in whatever it does
        return tuple(
            one
            for one in (*held, *(each for each in of_data if each.row not in told))
            if keeps_pace(table, columns, one.row)
        )
    named = {entry.late.row for entry in late.stragglers if not entry.cause.is_open}
    kept_waiting = {*late.lacking, *late.stopped} - named
    return tuple(one for one in held if one.row in kept_waiting and _is_still_late(found, one.row))


def _is_still_late(found: Window, row: int) -> bool:
    """Whether a row arrives later than the others in most steps of the window; True where these are too few to tell.

    It was for the last seconds; where the job has changed its pace since, others' work may have gone elsewhere.
    """
    work_RK, own = found.work_RK[:, found.regime.start :], found.rows == row
    if work_RK.shape[1] < SETTLED_STEPS or own.all() or not own.any():
        return True
    return bool(np.mean(work_RK[own][0] > np.median(work_RK[~own], axis=0)) >= MOSTLY_LATE)
