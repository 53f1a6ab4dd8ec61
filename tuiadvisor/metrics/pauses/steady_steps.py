"""Which steps are steady, and what the others are: partial, warm-up, checkpoint, evaluation, pauses.

In: StepTable and Barrier.  Out: Steadiness: the steady columns, how many were left out and why, and the pauses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import StepFlag
from tuiadvisor.metrics.pauses.background_saves import KIND as SAVING
from tuiadvisor.metrics.pauses.background_saves import saving_pause, slowed_by_saves
from tuiadvisor.metrics.pauses.irregular import Interruptions, after_barrier_RK, find_interruptions
from tuiadvisor.metrics.pauses.marked import marked_pauses
from tuiadvisor.metrics.pauses.pause import (
    Pause,
    collecting_RK,
    irregular_pauses,
    make_pause,
    with_lengths,
    with_next,
)
from tuiadvisor.metrics.pauses.pause_of_some import of_some_alone
from tuiadvisor.metrics.pauses.periodic import PART_OF_STEP, far_longer, periodic_groups
from tuiadvisor.metrics.pauses.sizes import by_length
from tuiadvisor.metrics.pauses.warmup import Warmup, find_warmup
from tuiadvisor.metrics.steps.arrays import Bools, Floats, column_median, median
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable

MARKED_SHARE: Final = 0.01  # of a step: less checkpoint time than this is no pause


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Which columns serve steady-state statistics, and what the others are."""

    steady_K: Bools
    elapsed_K: Bools  # columns whose time the job spends: the steady ones and their pauses
    excluded: dict[str, int]
    warmup: Warmup | None
    pauses: tuple[Pause, ...]
    habitual: frozenset[int] = frozenset()  # rows whose irregular pauses are many: left among the steps


@dataclass(frozen=True, slots=True)
class _Marks:
    """What records say of themselves; each column belongs to one kind at most."""

    present_K: Bools
    first_K: Bools  # a rank's first record begins late
    partial_K: Bools
    capture_K: Bools
    checkpoint_RK: Bools
    eval_RK: Bools
    checkpoint_K: Bools
    eval_K: Bools  # and no checkpoint


@dataclass(frozen=True, slots=True)
class _Periodic:
    """Pauses at one distance that nothing marks."""

    pause_K: Bools  # columns whose barrier they delay
    before_K: Bools  # records in which they pass
    unpaid_K: Bools  # records with one that no barrier has paid for yet
    replaced: bool  # others at the same distance are longer or shorter since

    @property
    def spoiled_K(self) -> Bools:
        return self.pause_K | self.before_K | self.unpaid_K


def find_steady(
    table: StepTable,
    barrier: Barrier,
    *,
    from_beginning: bool,
    own_work_pauses: bool = True,
    with_habits: bool = False,
) -> Steadiness:
    """Sort every column of the table.

    from_beginning: column 0 is the first step ever seen of this run. own_work_pauses: a rank that is late every few
    steps within the phases of its own step pauses. with_habits: so does one that pauses often at no fixed distance.
    """
    marks = _marks(table, barrier)
    warmup, warmup_K = (
        _warmup(table, barrier, marks) if from_beginning else (None, np.zeros_like(marks.eval_K))
    )
    free_K = marks.present_K & ~marks.partial_K & ~marks.checkpoint_K & ~marks.eval_K & ~warmup_K
    free_K &= ~marks.capture_K & np.isfinite(barrier.cycle_K)
    saving_RK, saving_K = slowed_by_saves(table, barrier, free_K)
    saving_K &= free_K
    free_K &= ~saving_K
    # Nothing has a period among samples, and launches do not pause.
    is_even = not table.is_sampled and not table.is_of_launches
    of_some_K = of_some_alone(table, barrier, free_K)
    may_K = free_K & ~of_some_K
    combs = periodic_groups(barrier, may_K) if is_even else []
    in_combs_K = _any_of(combs, free_K)
    combs, replaced = _of_one_length(barrier, combs, free_K & ~in_combs_K)
    far_K = _far_longer(barrier, combs, free_K & ~in_combs_K)
    looked_at_K = np.zeros_like(free_K) if table.is_of_launches else may_K & (~in_combs_K | far_K)
    irregular = find_interruptions(table, barrier, looked_at_K, with_habits=with_habits)
    # What is no pause of its own stays with those whose distance it keeps.
    told_K = far_K & irregular.spoiled_K
    groups = [
        _periodic(table, barrier, pause_K & ~told_K, free_K, replaced=was)
        for pause_K, was in zip(combs, replaced, strict=True)
    ]
    spoiled_K = _any_of([group.spoiled_K for group in groups], free_K)
    if not own_work_pauses:
        base_s = median(barrier.cycle_K[free_K & ~spoiled_K & ~irregular.spoiled_K])
        groups = [group for group in groups if not _is_own_work(table, barrier, group, base_s)]
        spoiled_K = _any_of([group.spoiled_K for group in groups], free_K)
    irregular_K = irregular.spoiled_K & free_K & ~spoiled_K
    steady_K = free_K & ~spoiled_K & ~irregular_K
    pauses: list[Pause] = []
    if steady_K.any():
        median_s = median(barrier.cycle_K[steady_K])
        marked = {"checkpoint": marks.checkpoint_RK, "eval": marks.eval_RK}
        pauses = marked_pauses(table, barrier, marked, ~warmup_K & ~marks.capture_K & ~of_some_K, median_s)
        periodic = [_periodic_pause(table, barrier, group, median_s) for group in groups]
        pauses += [pause for pause in periodic if pause is not None]
        saving = saving_pause(table, barrier, saving_RK, saving_K, median_s)
        pauses += [] if saving is None else [saving]
        pauses = [with_lengths(pause, table, barrier.cycle_K, steady_K) for pause in pauses]
        pauses += irregular_pauses(table, barrier.cycle_K, irregular.found, steady_K)
    excluded = _counts(marks, warmup_K, spoiled_K, irregular_K)
    if saving_K.any():
        excluded[SAVING] = int(saving_K.sum())
    elapsed_K = marks.present_K & np.isfinite(barrier.cycle_K) & ~warmup_K & ~marks.capture_K & ~marks.first_K
    left = frozenset() if with_habits else irregular.habitual
    return Steadiness(steady_K, elapsed_K, excluded, warmup, tuple(pauses), left)


def _marks(table: StepTable, barrier: Barrier) -> _Marks:
    present_K = _any_rank(table.present_RK)
    first_K = _any_rank(table.flagged_RK(StepFlag.FIRST))
    partial_K = first_K.copy()
    if barrier.evidence != "none":
        partial_K[present_K & ~barrier.complete_K] = True
    capture_K = _any_rank(table.flagged_RK(StepFlag.CAPTURE))
    checkpoint_RK = _unless_in_most(_marked(table, "checkpoint", StepFlag.CHECKPOINT), present_K)
    eval_RK = _unless_in_most(_marked(table, "eval", StepFlag.EVAL), present_K)
    checkpoint_K = with_next(_any_rank(checkpoint_RK)) & ~capture_K
    eval_K = with_next(_any_rank(eval_RK)) & ~checkpoint_K & ~capture_K
    return _Marks(present_K, first_K, partial_K, capture_K, checkpoint_RK, eval_RK, checkpoint_K, eval_K)


def _warmup(table: StepTable, barrier: Barrier, marks: _Marks) -> tuple[Warmup | None, Bools]:
    usable = marks.present_K & ~marks.first_K & ~marks.checkpoint_K & ~marks.eval_K & ~marks.capture_K
    # One rank that alone holds up the others once is no warm-up, however early it does.
    usable &= ~_spoiled_by_few(find_interruptions(table, barrier, usable), usable)
    step_K = np.where(usable, column_median(table.step_s_RK), np.nan)
    warmup = find_warmup(step_K, _any_rank(table.flagged_RK(StepFlag.COMPILE)))
    warmup_K = np.zeros(table.num_steps, dtype=bool)
    if warmup is not None:
        warmup_K[: int(np.flatnonzero(usable)[warmup.num_steps - 1]) + 1] = True
    return warmup, warmup_K


def _far_longer(barrier: Barrier, combs: list[Bools], usual_K: Bools) -> Bools:
    """Columns of pauses that keep a distance, and are far longer than all others which do."""
    if not combs or not usual_K.any():
        return np.zeros_like(usual_K)
    base_s = median(barrier.cycle_K[usual_K])
    return _any_of([far_longer(barrier, pause_K, base_s) for pause_K in combs], np.ones_like(usual_K))


def _of_one_length(barrier: Barrier, combs: list[Bools], usual_K: Bools) -> tuple[list[Bools], list[bool]]:
    """Pauses of one distance and length each, and which of them were replaced by others at the same distance."""
    if not combs or not usual_K.any():
        return combs, [False] * len(combs)
    cycle_K = barrier.cycle_K
    excess_K = np.where(np.isfinite(cycle_K), np.maximum(cycle_K - median(cycle_K[usual_K]), 0.0), 0.0)
    parts = [by_length(pause_K, excess_K) for pause_K in combs]
    return (
        [part_K for each in parts for part_K in each],
        [part_K is not each[-1] for each in parts for part_K in each],
    )


def _periodic(
    table: StepTable, barrier: Barrier, pause_K: Bools, free_K: Bools, *, replaced: bool
) -> _Periodic:
    return _Periodic(pause_K, *_spoiled_before(table, barrier.cycle_K, pause_K, free_K), replaced)


def _periodic_pause(table: StepTable, barrier: Barrier, group: _Periodic, median_s: float) -> Pause | None:
    return make_pause(
        "periodic",
        table,
        barrier,
        marked_RK=collecting_RK(table, barrier, group.pause_K, median_s),
        affected_K=group.pause_K,
        median_s=median_s,
        before_K=group.before_K,
        replaced=group.replaced,
    )


def _is_own_work(table: StepTable, barrier: Barrier, group: _Periodic, median_s: float) -> bool:
    pause = _periodic_pause(table, barrier, group, median_s)
    return pause is not None and pause.is_own_work


def _counts(marks: _Marks, warmup_K: Bools, spoiled_K: Bools, irregular_K: Bools) -> dict[str, int]:
    of_kind = {
        "warmup": warmup_K,
        "checkpoint": marks.checkpoint_K & ~warmup_K,
        "eval": marks.eval_K & ~warmup_K,
        "capture": marks.capture_K & ~warmup_K,
        "periodic_pause": spoiled_K,
        "irregular_pause": irregular_K,
        "partial": marks.partial_K & ~warmup_K & ~marks.checkpoint_K & ~marks.eval_K & ~marks.capture_K,
    }
    return {name: int(mask.sum()) for name, mask in of_kind.items() if mask.any()}


def _marked(table: StepTable, phase: str, flag: StepFlag) -> Bools:
    spent = table.phase_s_PRK[PHASE_INDEX[phase]]
    flagged = table.flagged_RK(flag)
    is_spent = spent > 0
    if flagged.any():
        flagged &= np.isnan(spent) | is_spent
    if not is_spent.any():
        return flagged
    long = np.where(is_spent, spent, 0.0) > MARKED_SHARE * np.where(
        np.isnan(table.step_s_RK), np.inf, table.step_s_RK
    )
    return np.asarray(long | flagged)


def _unless_in_most(marked_RK: Bools, present_K: Bools) -> Bools:
    """None at all where more than PART_OF_STEP of the present columns are marked."""
    in_most = np.count_nonzero(marked_RK.any(axis=0) & present_K) > PART_OF_STEP * np.count_nonzero(present_K)
    return np.zeros_like(marked_RK) if in_most else marked_RK


def _any_rank(marks_RK: Bools) -> Bools:
    return np.asarray(marks_RK.any(axis=0))


def _any_of(masks: list[Bools], within_K: Bools) -> Bools:
    result = np.zeros_like(within_K)
    for mask in masks:
        result |= mask & within_K
    return result


def _spoiled_by_few(found: Interruptions, usable_K: Bools) -> Bools:
    """Columns of pauses that are known to be some ranks' own."""
    result = np.zeros_like(usable_K)
    for event in found.found:
        if event.rows:
            result[[*event.columns, event.column]] = True
    return result


def _spoiled_before(table: StepTable, cycle_K: Floats, pause_K: Bools, usual_K: Bools) -> tuple[Bools, Bools]:
    """Records that end in a pause after their barrier: which the next barrier pays for, and which none has paid yet.

    The second kind is the last record, or one before a gap: its pause is in no step's length.
    """
    paid_K, unpaid_K = np.zeros_like(pause_K), np.zeros_like(pause_K)
    usual = cycle_K[usual_K & ~pause_K]
    if not pause_K.any() or not usual.size:
        return paid_K, unpaid_K
    length_s = float(median(cycle_K[pause_K]) - median(usual))
    late_K = np.asarray(after_barrier_RK(table, slice(None), 0.5 * length_s).any(axis=0))
    paid_K[:-1] = late_K[:-1] & pause_K[1:]
    unpaid_K[:] = late_K & ~np.append(np.isfinite(cycle_K[1:]), False)
    return paid_K, unpaid_K
