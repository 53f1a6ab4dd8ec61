"""All metrics of one table in one pass.

In: StepTable, who is alive, how large the job is.  Out: Diagnosis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor import phases
from tuiadvisor.metrics.diagnosis import Diagnosis
from tuiadvisor.metrics.lateness.collections import CollectionLoss, collection_loss
from tuiadvisor.metrics.lateness.equal_launches import are_free, are_waited_for, is_alike, take_no_turns
from tuiadvisor.metrics.lateness.held_clock import with_held_clocks
from tuiadvisor.metrics.lateness.in_window import find_held, find_lateness, thread_data_s
from tuiadvisor.metrics.lateness.job_losses import (
    Sides,
    checkpoint_loss,
    copy_loss,
    input_loss,
    transfer_loss,
    turn_taking_loss,
    turns_of_one,
)
from tuiadvisor.metrics.lateness.late_phase import (
    MAX_PEERS,
    phases_before_barrier,
    with_pace,
)
from tuiadvisor.metrics.lateness.off_core import MIN_HELD, PAST_S, SETTLED_S, HeldRank, held_ranks
from tuiadvisor.metrics.lateness.readers import MIN_WAIT, readers_of_all
from tuiadvisor.metrics.lateness.sequence_lengths import length_loss
from tuiadvisor.metrics.lateness.thread_limits import LAST_STEPS, thread_limits
from tuiadvisor.metrics.lateness.thread_pace import thread_pace
from tuiadvisor.metrics.lateness.wanderers import own_wandering, who_wanders, without
from tuiadvisor.metrics.lateness.witnesses import NO_WITNESS, Witnesses
from tuiadvisor.metrics.pauses.first_evaluation import with_first_evaluation
from tuiadvisor.metrics.pauses.steady_steps import Steadiness, find_steady
from tuiadvisor.metrics.pauses.stopped_process import share_of_stops, with_stops
from tuiadvisor.metrics.pauses.warmup import find_warmup
from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS, NEIGHBOURHOOD_STEPS
from tuiadvisor.metrics.series.drift import find_drift, growth_gain
from tuiadvisor.metrics.series.what_if import Slowdown, gain, slowdown, what_if_stride
from tuiadvisor.metrics.steps.accounting import job_seconds, phase_seconds_PR
from tuiadvisor.metrics.steps.arrays import (
    Bools,
    Floats,
    Ints,
    column_low_median,
    column_median,
    median,
    row_mean,
)
from tuiadvisor.metrics.steps.barrier import Barrier, find_barrier, select_steps, unordered
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX, StepTable, cells, select
from tuiadvisor.metrics.window.level_shift import level_shift
from tuiadvisor.metrics.window.phase_levels import onset
from tuiadvisor.metrics.window.regime import MIN_SHIFT_SHARE, Regime
from tuiadvisor.metrics.window.slow_stretches import slow_stretches
from tuiadvisor.metrics.window.window import find_window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.metrics.lateness.in_window import Lateness
    from tuiadvisor.metrics.lateness.job_losses import CommonLoss
    from tuiadvisor.metrics.lateness.late_phase import Pace
    from tuiadvisor.metrics.lateness.late_ranks import LateRank
    from tuiadvisor.metrics.lateness.off_core import HeldRank
    from tuiadvisor.metrics.lateness.readers import Readers
    from tuiadvisor.metrics.lateness.thread_limits import ThreadLimits
    from tuiadvisor.metrics.window.rotating import Wandering
    from tuiadvisor.metrics.window.window import Window

MOST_OF_MEAN: Final = (
    0.5  # of what its phases take longer in its late steps. Chosen: of two levels the higher ones
)
MOST_STEPS: Final = 0.5  # in which a rank has to be there to speak for the job. Chosen: most
DEVICE_TELLS: Final = phases.of_kind("sync", "idle")


def diagnose_table(
    table: StepTable,
    alive_R: Bools,
    *,
    from_beginning: bool,
    all_ranks_seen: bool,
    all_ranks_heard: bool = True,
    on_accelerator: bool = False,
    is_unordered: bool = False,
    named: tuple[int, ...] | None = None,
    witnesses: Witnesses = NO_WITNESS,
) -> Diagnosis:
    """Every metric of a table.

    from_beginning: column 0 is the first step ever seen. all_ranks_seen: no rank of the job is missing; a late
    rank that was not recorded looks like slow communication, so without it the transfer stays unknown.
    all_ranks_heard: none of them has fallen silent; else the transfer begins no window, for it may be a wait for them.
    is_unordered: as of `find_barrier`. named: the late ranks by a source that has no more steps, None where more may
    come.
    """
    asked = _Asked(
        alive_R, all_ranks_seen, all_ranks_heard, on_accelerator, is_unordered, witnesses, named or ()
    )
    found = replace(_diagnose(table, from_beginning=from_beginning, asked=asked), named=named)
    found = replace(
        found,
        stragglers=with_held_clocks(
            found.stragglers,
            found.steady,
            found.compared_rows,
            found.seconds_PR,
            float(found.steady_barrier.span_K.sum()),
            witnesses=witnesses,
        ),
    )
    if witnesses.paces is not None and found.stragglers:
        found = replace(found, stragglers=_with_paces(found, witnesses.paces))
    # A trace of kernels tells who computes and who waits; its collectives were compared one by one.
    if witnesses.paces is not None and witnesses.thread_launch_s is not None and named is None:
        found = _without_equal_launches(found, witnesses.paces, witnesses.thread_launch_s)
    if witnesses.thread_step_s is not None and named is None:  # of an import no more steps come
        found = _without_threads_alike(found, witnesses.thread_step_s)
    found = _without_open(found)
    found = replace(
        found, held=(*found.held, *_stopped_in_pauses(found, witnesses)), readers=_readers(found, witnesses)
    )
    return replace(found, steadiness=_explained(found, witnesses, from_beginning=from_beginning))


def _readers(found: Diagnosis, witnesses: Witnesses) -> Readers | None:
    """Of ranks that all wait for their batches, late ones apart: what whoever reads for them does."""
    if witnesses.off_core is None or found.input is None or found.input.share < MIN_WAIT:
        return None
    seen = witnesses.off_core(float(found.steady_barrier.span_K.sum()))
    wait = _thread_wait(found, found.input, witnesses)
    return readers_of_all([seen[row] for row in found.input.rows], wait)


def _thread_wait(found: Diagnosis, wait: CommonLoss, witnesses: Witnesses) -> float:
    """Share of its time that the typical rank's thread waits for batches.

    On a device that is more than the device waits: as long as it has work the thread waits beside it.
    """
    if witnesses.thread_data_s is None or not found.steady_steps.size or wait.gain.step_s <= 0:
        return wait.share
    data_s_R = witnesses.thread_data_s(int(found.steady_steps[0]))[list(wait.rows)]
    known = data_s_R[np.isfinite(data_s_R)]
    return min(max(float(np.median(known)) / wait.gain.step_s, wait.share), 1.0) if known.size else wait.share


def _stopped_in_pauses(found: Diagnosis, witnesses: Witnesses) -> tuple[HeldRank, ...]:
    """Who is stopped mostly in steps that are pauses, as where an epoch begins: steady steps do not tell it."""
    off_core, was_stopped = witnesses.off_core, witnesses.was_stopped
    columns = np.flatnonzero(found.steadiness.elapsed_K)
    if off_core is None or was_stopped is None or found.compared_rows.size < 2 or not columns.size:
        return ()
    left_s_K = np.cumsum(found.barrier.span_K[columns][::-1])[::-1]
    columns = columns[left_s_K <= max(float(found.steady_barrier.span_K.sum()), SETTLED_S)]
    span_s = float(found.barrier.span_K[columns].sum())
    if span_s < PAST_S:
        return ()
    told = {entry.late.row for entry in (*found.stragglers, *found.open_late)} | {
        one.row for one in found.held
    }
    return tuple(
        replace(one, in_pauses=True)
        for one in held_ranks(off_core(span_s), span_s)
        if one.reason == "stopped"
        and one.row not in told
        and share_of_stops(found.table, found.barrier, columns, one.row, was_stopped) >= MIN_HELD
    )


def _without_open(found: Diagnosis) -> Diagnosis:
    """Nobody is named whose lateness something else may still explain; what they cost is nobody's either."""
    still_open = tuple(entry for entry in found.stragglers if entry.cause.is_open)
    return replace(_without(found, still_open), open_late=still_open) if still_open else found


def _without(found: Diagnosis, late: Sequence[LateRank]) -> Diagnosis:
    """The same without these late ranks and what they cost."""
    rows = {entry.late.row for entry in late}
    loss_K = found.straggler_loss_K - np.sum([entry.late.loss_K for entry in late], axis=0)
    return replace(
        found,
        stragglers=tuple(entry for entry in found.stragglers if entry.late.row not in rows),
        straggler_loss_K=np.maximum(loss_K, 0.0),
    )


def _without_equal_launches(
    found: Diagnosis,
    paces_in: Callable[[Ints], Sequence[Pace | None]],
    launch_s_since: Callable[[int], Floats],
) -> Diagnosis:
    """Nobody is named, and nobody takes turns, where devices wait for threads that launch for equally long.

    What a thread takes to launch limits what the cure of others brings.
    """
    launching = [entry for entry in found.stragglers if entry.cause.is_launching and not entry.late.is_rare]
    limits = found.thread_limits if found.stragglers else None
    turns = found.wandering and gain(
        found.steady_barrier.cycle_K, found.wandering.found.loss_K[-found.steady_barrier.cycle_K.size :]
    )
    if not launching and not turns and limits is None:
        return found
    paces = paces_in(found.steady_steps)
    free_R, waited_for_R = are_free(paces), are_waited_for(paces)
    launch_s_RK = launch_s_since(int(found.steady_steps[0]))
    if limits is not None:
        found = replace(found, thread_limits=limits.with_launches(free_R, row_mean(launch_s_RK)))
    others = np.setdiff1d(found.compared_rows, [entry.late.row for entry in found.stragglers])
    alike = [
        entry
        for entry in launching
        if waited_for_R[entry.late.row]
        and is_alike(entry.late.row, others, free_R, launch_s_RK, entry.late.mean_excess_s)
    ]
    in_launches = found.wandering is not None and found.wandering.phase in {None, *phases.COMPUTE}
    if turns and in_launches and take_no_turns(found.compared_rows, free_R, launch_s_RK, turns.loss_s):
        found = replace(found, wandering=None)
    return replace(_without(found, alike), slowdown=None) if alike else found


def _without_threads_alike(found: Diagnosis, steps_since: Callable[[Ints, int], Floats]) -> Diagnosis:
    """Nobody is named for a thread that is as fast as the others: one of them is behind, by chance or by a stop.

    Where that is not sure either way it stays open. Stops of a thread in a few steps are seen in these.
    """
    late_rows = [entry.late.row for entry in found.stragglers]
    others = np.setdiff1d(found.compared_rows, late_rows)
    if not others.size:
        return found
    others = others[:: -(-others.size // MAX_PEERS)]
    alike, still_open = [], []
    for entry in found.stragglers:
        if entry.late.is_rare or not entry.cause.is_of_thread:
            continue
        rows = np.append(entry.late.row, others)
        step_s_RK = steps_since(rows, entry.since_step if entry.late.onset_seen else 0)
        pace = thread_pace(step_s_RK[0], step_s_RK[1:], entry.late.mean_excess_s, found.compared_rows.size)
        if pace == "alike":
            alike.append(entry)
        elif pace == "open":
            still_open.append(entry.late.row)
    stragglers = tuple(
        replace(entry, cause=replace(entry.cause, is_open=True)) if entry.late.row in still_open else entry
        for entry in found.stragglers
    )
    found = replace(found, stragglers=stragglers)
    return replace(_without(found, alike), slowdown=None) if alike else found


def without_device(found: Diagnosis) -> Diagnosis:
    """What a host's clock can tell of ranks that compute on devices: what it did, and nothing of who waited for whom.

    Its launches run ahead of the device: when they were made says neither when ranks met nor what moving data took,
    and a step that is long on the host may be as long as any other on the device.
    """
    seconds_PR = found.seconds_PR.copy()
    for name in DEVICE_TELLS:
        seconds_PR[PHASE_INDEX[name]] = np.nan
    return replace(
        found,
        steadiness=replace(found.steadiness, pauses=(), warmup=None),
        regime_step=None,
        regime_shift_s=None,
        regime_rank=None,
        regime_phase=None,
        earlier_changes=(),
        steady_barrier=unordered(found.steady_barrier),
        seconds_PR=seconds_PR,
        job_seconds=job_seconds(seconds_PR),
        stragglers=(),
        open_late=(),
        straggler_loss_K=np.zeros_like(found.straggler_loss_K),
        compared_rows=np.zeros(0, dtype=np.int64),
        input=None,
        checkpoint=None,
        copies=None,
        transfer=None,
        turn_taking=None,
        wandering=None,
        lengths=None,
        collections=None,
        slow_stretches=None,
        slowdown=None,
        level_shift=None,
        input_since=None,
        input_drift=None,
        transfer_since=None,
    )


def _with_paces(found: Diagnosis, paces_in: Callable[[Ints], Sequence[Pace | None]]) -> tuple[LateRank, ...]:
    """Late ranks, each with what its device did in the steps in which it was late: the others tell of no reason."""
    late_rows = {entry.late.row for entry in found.stragglers}
    calm = np.setdiff1d(found.compared_rows, list(late_rows))
    result = []
    for entry in found.stragglers:
        row, steps = entry.late.row, found.steady_steps
        longer_K = _longer_on_device(found.steady, row, calm, entry.late.hit_K)
        paces = paces_in(steps if longer_K is None else steps[longer_K])
        if paces[row] is None and longer_K is not None:  # too few of them were measured
            paces = paces_in(steps[entry.late.hit_K])
        peers = [pace for other, pace in enumerate(paces) if pace is not None and other not in late_rows]
        result.append(replace(entry, cause=with_pace(entry.cause, paces[row], peers)))
    return tuple(result)


def _longer_on_device(steady: StepTable, row: int, calm: Ints, hit_K: Bools) -> Bools | None:
    """Of the late steps those in which its device takes longer for its phases; None where late steps are not known.

    A thread that is slow in every third step is late in the next ones, too, in which its device computes as ever.
    """
    if hit_K.size != steady.num_steps:
        return None
    peers = calm[:: max(1, -(-calm.size // MAX_PEERS))]
    compute_RK = np.nansum(
        [steady.phase_s_PRK[PHASE_INDEX[name]][[row, *peers]] for name in phases.COMPUTE], axis=0
    )
    if not peers.size or not hit_K.any():
        return hit_K
    beyond_K = compute_RK[0] - column_median(compute_RK[1:])
    return np.asarray(hit_K & (beyond_K > MOST_OF_MEAN * float(beyond_K[hit_K].mean())))


def _explained(found: Diagnosis, witnesses: Witnesses, *, from_beginning: bool) -> Steadiness:
    """Pauses with the stops that explain them, and the warm-up that has scrolled out of the table."""
    steadiness = found.steadiness
    if witnesses.was_stopped is not None:
        steadiness = with_stops(steadiness, found.table, found.barrier, witnesses.was_stopped)
    early_s = witnesses.early_s
    if from_beginning or steadiness.warmup is not None or early_s is None:
        return steadiness
    warmup = find_warmup(early_s, np.zeros(early_s.size, dtype=np.bool_))
    return steadiness if warmup is None else replace(steadiness, warmup=warmup)


def _diagnose(table: StepTable, *, from_beginning: bool, asked: _Asked) -> Diagnosis:
    table = with_first_evaluation(table)
    barrier = find_barrier(table, asked.alive_R, is_unordered=asked.is_unordered)
    steadiness = find_steady(table, barrier, from_beginning=from_beginning)
    if any(pause.kind == "periodic" and pause.is_own_work for pause in steadiness.pauses):
        # One rank is late every few steps within its own data, forward or backward: a straggler, if it can
        # be named as one; otherwise the pauses stay pauses.
        open_minded = find_steady(table, barrier, from_beginning=from_beginning, own_work_pauses=False)
        whole = _diagnose_steady(table, barrier, open_minded, asked)
        starters = {pause.starter_row for pause in steadiness.pauses if pause.is_own_work}
        if starters <= {entry.late.row for entry in (*whole.stragglers, *whole.waits_alike)}:
            return whole
    diagnosis = _diagnose_steady(table, barrier, steadiness, asked)
    late = (*diagnosis.stragglers, *diagnosis.waits_alike)
    named = {entry.late.row for entry in late if entry.late.gain.loss_low_s > 0}
    if steadiness.habitual <= named and not diagnosis.is_lopsided:
        return diagnosis
    # Many pauses of one rank, but too unevenly spread to tell what a straggler costs: they are pauses.
    steadiness = find_steady(table, barrier, from_beginning=from_beginning, with_habits=True)
    diagnosis = _diagnose_steady(table, barrier, steadiness, asked)
    # Else it has just recovered, which is not believed yet: whatever it cost, ranks took no turns.
    return replace(diagnosis, turn_taking=None) if diagnosis.is_lopsided else diagnosis


@dataclass(frozen=True, slots=True)
class _Asked:
    """What `diagnose_table` was told."""

    alive_R: Bools
    all_ranks_seen: bool
    all_ranks_heard: bool
    on_accelerator: bool
    is_unordered: bool
    witnesses: Witnesses
    named: tuple[int, ...]


def _shift_s(regime: Regime, cycle_K: Floats) -> float | None:
    """By how much the window's steps are longer than those before it. cycle_K: of all steady steps, from the first on.

    Of the whole job's step it is the difference of the means: where the level moved again in a way that begins no
    window of its own, the first jump alone may be longer than a step of the window takes.
    """
    begun, start = regime.begun_by, regime.start
    if begun is None or not 0 < start < cycle_K.size:
        return None
    if regime.begun_by_row is not None or regime.begun_by_phase is not None:
        return begun.shift
    earlier = max((change.index for change in regime.cycle_changes if change.index < start), default=0)
    before_K = cycle_K[max(earlier, start - NEIGHBOURHOOD_STEPS) : start]
    return float(np.nanmean(cycle_K[start:]) - np.nanmean(before_K))


def _diagnose_steady(table: StepTable, barrier: Barrier, steadiness: Steadiness, asked: _Asked) -> Diagnosis:
    found = find_window(
        table,
        barrier,
        steadiness.steady_K,
        asked.alive_R,
        all_ranks_heard=asked.all_ranks_heard,
        held_back=asked.witnesses.held_back,
    )
    rows, columns, regime = found.rows, found.columns, found.regime
    window = found.present
    steady, steady_barrier = select(table, window), select_steps(barrier, window)
    late = find_lateness(
        table,
        found,
        steady_barrier,
        asked.witnesses,
        on_accelerator=asked.on_accelerator,
        is_named_R=np.isin(np.array(table.ranks)[rows], asked.named),
    )
    stragglers, waits_alike = late.stragglers, late.waits_alike
    thread_data_s_R = thread_data_s(table, found, asked.witnesses)
    if waits_alike:
        thread_data_s_R = _waits_of_all(steady, steady_barrier, thread_data_s_R)
    sides = _sides(steady, rows, stragglers)
    peers = sides.peers
    threads = _thread_limits(table, steady, found, thread_data_s_R, asked.witnesses)
    num_not_compared = int(np.delete(asked.alive_R, rows).sum()) if rows.size else 0
    wandering = _own_wandering(table, found, thread_data_s_R)
    settled, settled_barrier = without(wandering, steady, steady_barrier, rows, regime.start)
    has_peers = bool(peers.size and window.size)
    data = input_loss(settled, settled_barrier, sides, thread_data_s_R) if has_peers else None
    steps = table.steps_of(columns)
    wait_K = column_low_median(_phase(table, "data_wait", columns))  # of two ranks one loader alone may decay
    drift = find_drift(wait_K)
    seconds_PR = phase_seconds_PR(steady)
    return Diagnosis(
        table=table,
        barrier=barrier,
        steadiness=steadiness,
        regime_step=int(steps[regime.start]) if regime.start else None,
        regime_shift_s=_shift_s(regime, found.cycle_K),
        is_sliding=regime.is_sliding,
        regime_rank=None if regime.begun_by_row is None else table.ranks[int(rows[regime.begun_by_row])],
        regime_phase=regime.begun_by_phase,
        earlier_changes=tuple(
            (int(steps[change.index]), change.shift, None if row is None else table.ranks[int(rows[row])])
            for change, row in regime.earlier
        ),
        steady=steady,
        steady_barrier=steady_barrier,
        steady_steps=table.steps_of(window),
        num_all_steady=int(columns.size),
        seconds_PR=seconds_PR,
        job_seconds=job_seconds(seconds_PR),
        stragglers=stragglers,
        straggler_loss_K=late.loss_K,
        compared_rows=rows,
        input=data,
        checkpoint=checkpoint_loss(settled, settled_barrier, sides) if has_peers else None,
        copies=copy_loss(settled, settled_barrier, sides) if has_peers else None,
        num_not_compared=num_not_compared,
        transfer=transfer_loss(steady_barrier)
        if window.size and asked.all_ranks_seen and not num_not_compared
        else None,
        turn_taking=turn_taking_loss(settled_barrier, peers) if rows.size and not waits_alike else None,
        turns_of_one=turns_of_one(settled_barrier, peers) if rows.size and not waits_alike else 0.0,
        wandering=who_wanders(table, wandering, rows, columns),
        lengths=length_loss(steady_barrier.work_RK[peers], steady.tokens_RK[peers], steady_barrier.cycle_K)
        if rows.size
        else None,
        collections=_collections(table, barrier, found, rows),
        slow_stretches=slow_stretches(
            table,
            regime,
            columns,
            found.cycle_K,
            found.work_RK,
            held=found.held,
            all_ranks_seen=asked.all_ranks_seen and not num_not_compared,
        ),
        # One rank's loader alone would not make the step shorter, nor would devices whose threads take as long.
        slowdown=None
        if waits_alike
        else _left_by(threads, late, rows, _slowdown(table, barrier, rows, window)),
        level_shift=level_shift(table, regime, columns, found.cycle_K, barrier.transfer_K[columns]),
        input_since=_since(wait_K, steps, found.cycle_K),
        input_drift=drift,
        input_drift_gain=None
        if drift is None or not window.size
        else growth_gain(
            drift, steady_barrier.cycle_K, column_low_median(_phase(table, "data_wait", window))
        ),
        transfer_since=_since(barrier.transfer_K[columns], steps, found.cycle_K),
        waits_alike=waits_alike,
        lacking_ranks=tuple(table.ranks[row] for row in late.lacking),
        held=find_held(table, found, steady_barrier, late, asked.witnesses),
        thread_limits=threads,
    )


def _left_by(
    threads: ThreadLimits | None, late: Lateness, rows: Ints, found: Slowdown | None
) -> Slowdown | None:
    if found is None or threads is None:
        return found
    late_rows = [entry.late.row for entry in late.stragglers]
    return found if threads.leave(rows, late_rows, threads.step_s / found.S) else None


def _thread_limits(
    table: StepTable, steady: StepTable, found: Window, data_s_R: Floats | None, witnesses: Witnesses
) -> ThreadLimits | None:
    """steady: the table's steps since the present level began."""
    if data_s_R is None or witnesses.thread_step_s is None or not found.present.size:
        return None
    first = max(int(table.step_of(found.present[0])), int(table.step_of(table.num_steps - 1)) - LAST_STEPS)
    cycle_K, step_s_RN = found.cycle_K[found.regime.start :], witnesses.thread_step_s(found.rows, first)
    return thread_limits(steady, found.rows, cycle_K, data_s_R, step_s_RN)


def _collections(table: StepTable, barrier: Barrier, found: Window, rows: Ints) -> CollectionLoss | None:
    """Over all steps since the window began whose collections are known, long ones too: collections make them so."""
    if rows.size < 2 or not found.present.size or not (table.gc_s_RK > 0).any():
        return None
    columns = np.arange(int(found.present[0]), table.num_steps)
    work_RK, gc_s_RK = cells(barrier.work_RK, rows, columns), cells(table.gc_s_RK, rows, columns)
    known_K = (np.isfinite(work_RK) & np.isfinite(gc_s_RK)).all(axis=0)
    columns = columns[known_K]
    follows_K = np.diff(table.steps_of(columns), prepend=-1) == 1
    return collection_loss(work_RK[:, known_K], gc_s_RK[:, known_K], barrier.cycle_K[columns], follows_K)


def _waits_of_all(steady: StepTable, barrier: Barrier, seen_s_R: Floats | None) -> Floats:
    """Seconds a step that each rank waits for data, of loaders alike: they take the step, whoever waits for them."""
    step_s = float(barrier.cycle_K.mean()) if barrier.cycle_K.size else 0.0
    return np.full(steady.num_ranks, step_s) if seen_s_R is None else np.maximum(seen_s_R, step_s)


def _own_wandering(table: StepTable, found: Window, thread_data_s_R: Floats | None) -> Wandering | None:
    """The lateness that goes from rank to rank, less what all threads wait for."""
    who = who_wanders(table, found.wandering, found.rows, found.columns)
    known = (
        thread_data_s_R[found.rows][np.isfinite(thread_data_s_R[found.rows])]
        if thread_data_s_R is not None
        else np.zeros(0)
    )
    thread_s = float(np.median(known)) if known.size else None
    return own_wandering(found.wandering, who, found.as_was_RK, thread_s)


def _sides(steady: StepTable, rows: Ints, stragglers: tuple[LateRank, ...]) -> Sides:
    is_late_R = np.zeros(steady.num_ranks, dtype=np.bool_)
    is_late_R[[entry.late.row for entry in stragglers]] = True
    calm = np.setdiff1d(rows, np.flatnonzero(is_late_R)) if rows.size else np.flatnonzero(~is_late_R)
    present_RK = steady.present_RK[calm]
    is_mostly_R = np.count_nonzero(present_RK, axis=1) > MOST_STEPS * steady.num_steps
    is_always_R = present_RK.all(axis=1)
    late = np.flatnonzero(is_late_R & steady.present_RK.all(axis=1))
    return Sides(calm[is_always_R], calm[is_mostly_R | is_always_R], late)


def _phase(table: StepTable, name: str, columns: Ints) -> Floats:
    return np.asarray(table.phase_s_PRK[PHASE_INDEX[name]][:, columns])


def _slowdown(table: StepTable, barrier: Barrier, rows: Ints, window: Ints) -> Slowdown | None:
    if rows.size < 2 or window.size < MIN_SEGMENT_STEPS:
        return None
    window = window[:: what_if_stride(rows.size * window.size)]
    parts = {}
    for name, values in phases_before_barrier(table).items():
        block = cells(values, rows, window)
        if np.isfinite(block).any():
            parts[name] = np.where(np.isnan(block), 0.0, block)
    result = slowdown(cells(barrier.work_RK, rows, window), barrier.transfer_K[window], parts)
    if result is None:
        return None
    return replace(result, S_w={table.ranks[rows[index]]: value for index, value in result.S_w.items()})


def _since(series: Floats, steps: Ints, cycle: Floats) -> int | None:
    """The step since which a job-wide loss has its present level; the first seen step if it always had."""
    if not steps.size or not np.isfinite(series).all():
        return None
    index = onset(series, MIN_SHIFT_SHARE * median(cycle))
    return int(steps[index or 0])
