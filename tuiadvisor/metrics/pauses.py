"""Steps that are not steady: partial, warm-up, checkpoint, evaluation and other pauses, periodic or not.

In: StepTable and Barrier.  Out: which steps are steady, how many were left out and why, and each pause's
period, length, cost and the rank that starts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import StepFlag
from tuiadvisor.metrics.arrays import Bools, Floats, column_median, median
from tuiadvisor.metrics.interruptions import (
    Interruption,
    Interruptions,
    after_barrier_RK,
    find_interruptions,
)
from tuiadvisor.metrics.pausestarter import starter_row
from tuiadvisor.metrics.periods import periodic_columns
from tuiadvisor.metrics.steptable import AFTER_BARRIER, PHASE_INDEX
from tuiadvisor.metrics.warmup import Warmup, find_warmup

if TYPE_CHECKING:
    from tuiadvisor.metrics.barrier import Barrier
    from tuiadvisor.metrics.steptable import StepTable

COLLECTING_SHARE: Final = 0.8  # TraceML: a cause covers 80 %
COLLECTING_HALF: Final = 0.5  # of a pause spent collecting: the rank takes part in it
MARKED_SHARE: Final = 0.01  # of a step: less checkpoint time than this is no pause
MAX_GROUPS: Final = 4  # of ranks that pause now and then, each a finding of its own


@dataclass(frozen=True, slots=True)
class Pause:
    """All pauses of one kind within the window."""

    kind: str  # "checkpoint", "eval", "periodic" or "irregular"
    steps: tuple[int, ...]  # job steps at which they began
    period_steps: float | None  # None with fewer than two
    length_s: float  # mean time a pause adds
    loss_s_per_step: float
    starter_row: int | None  # the rank the others wait for; None when all pause together
    phase: str | None  # where the time passes on that rank
    loss_K: Floats  # over all columns of the table
    gc_share: float | None = None  # of the pauses: Python collecting garbage, beyond the usual step
    rows: tuple[int, ...] = ()  # ranks the others wait for; empty when all pause together
    events: tuple[Interruption, ...] = ()  # the pauses one by one, where they have no common distance

    @property
    def is_collecting(self) -> bool:
        """Whether garbage collection explains most of them."""
        return self.kind == "periodic" and (self.gc_share or 0.0) >= COLLECTING_SHARE

    @property
    def is_own_work(self) -> bool:
        """Whether one rank alone is late within the phases of its step."""
        return self.starter_row is not None and self.phase in {
            "data_wait",
            "forward",
            "backward",
            "optimizer",
        }


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Which columns serve steady-state statistics, and what the others are."""

    steady_K: Bools
    elapsed_K: Bools  # columns whose time the job spends: the steady ones and their pauses
    excluded: dict[str, int]
    warmup: Warmup | None
    pauses: tuple[Pause, ...]


def _marked(table: StepTable, phase: str, flag: StepFlag) -> Bools:
    spent = table.phase_s_PRK[PHASE_INDEX[phase]]
    long = np.where(np.isnan(spent), 0.0, spent) > MARKED_SHARE * np.where(
        np.isnan(table.step_s_RK), np.inf, table.step_s_RK
    )
    flagged = table.flagged_RK(flag) & (np.isnan(spent) | (spent > 0))
    return np.asarray(long | flagged)


def _collecting(table: StepTable, barrier: Barrier, affected_K: Bools, median_s: float) -> Bools:
    """Ranks whose Python collected garbage for half of the pause or more, in its step or right before it.

    Where all ranks collect at the same step, one of them is always the last to finish: it did not begin anything.
    """
    gc_RK = np.nan_to_num(table.gc_s_RK)
    before_RK = np.concatenate((np.zeros_like(gc_RK[:, :1]), gc_RK[:, :-1]), axis=1)
    excess_K = np.where(affected_K & np.isfinite(barrier.cycle_K), barrier.cycle_K - median_s, np.inf)
    found_RK = np.maximum(gc_RK, before_RK) >= COLLECTING_HALF * np.maximum(excess_K, 1e-9)
    # Once in many pauses is chance: it says nothing of the others.
    usual_R = found_RK.sum(axis=1) >= COLLECTING_HALF * len(_starts(affected_K))
    return np.asarray(found_RK & usual_R[:, None])


def _any_rank(marks_RK: Bools) -> Bools:
    return np.asarray(marks_RK.any(axis=0))


def _with_next(columns_K: Bools) -> Bools:
    """A pause after the optimizer delays the arrival of the NEXT step: both belong to it."""
    result = columns_K.copy()
    result[1:] |= columns_K[:-1]
    return result


def _starts(columns_K: Bools) -> list[int]:
    return [int(i) for i in np.flatnonzero(columns_K & ~np.concatenate(([False], columns_K[:-1])))]


def _period(starts: list[int]) -> float | None:
    if len(starts) < 2:
        return None
    return float(np.median(np.diff(starts)))


def _pause(
    kind: str,
    table: StepTable,
    barrier: Barrier,
    *,
    marked_RK: Bools,
    affected_K: Bools,
    median_s: float,
    before_K: Bools | None = None,
) -> Pause | None:
    """before_K: steps in which a pause passes that delays the step after them."""
    cycle = barrier.cycle_K
    loss_K = np.where(affected_K & np.isfinite(cycle), np.maximum(cycle - median_s, 0.0), 0.0)
    starts = _starts(affected_K if before_K is None else affected_K | before_K)
    if not starts:
        return None
    total = float(loss_K.sum())
    starter = starter_row(barrier, marked_RK, affected_K)
    return Pause(
        kind=kind,
        steps=tuple(table.step_of(start) for start in starts),
        period_steps=_period(starts),
        length_s=total / len(starts),
        loss_s_per_step=total / max(int(np.isfinite(cycle).sum()), 1),
        starter_row=starter,
        phase=kind if kind != "periodic" else _pause_phase(table, affected_K, starter),
        loss_K=loss_K,
        gc_share=_gc_share(table, affected_K, starter, total),
        rows=() if starter is None else (starter,),
    )


def irregular_pauses(
    table: StepTable, cycle_K: Floats, events: tuple[Interruption, ...], median_s: float
) -> list[Pause]:
    """One Pause for the same ranks, costliest first; of very many ranks the rest together. median_s: steady step."""
    by_rows: dict[tuple[int, ...], list[Interruption]] = {}
    for event in events:
        by_rows.setdefault(event.rows, []).append(event)
    groups = sorted(by_rows.values(), key=lambda group: -sum(event.length_s for event in group))
    if len(groups) > MAX_GROUPS:
        rest = sorted((e for group in groups[MAX_GROUPS - 1 :] for e in group), key=lambda e: e.column)
        groups = [*groups[: MAX_GROUPS - 1], rest]
    result = []
    for group in groups:
        columns = [column for event in group for column in event.columns]
        loss_K = np.zeros_like(cycle_K)
        loss_K[columns] = np.maximum(cycle_K[columns] - median_s, 0.0)
        rows = tuple(sorted({row for event in group for row in event.rows}))
        phases = {event.phase for event in group}
        result.append(
            Pause(
                kind="irregular",
                steps=tuple(table.step_of(event.column) for event in group),
                period_steps=None,
                length_s=float(loss_K.sum()) / len(group),
                loss_s_per_step=float(loss_K.sum()) / max(int(np.isfinite(cycle_K).sum()), 1),
                starter_row=rows[0] if len(rows) == 1 else None,
                phase=phases.pop() if len(phases) == 1 else None,
                loss_K=loss_K,
                rows=rows,
                events=tuple(group),
            )
        )
    return result


def _gc_share(table: StepTable, affected_K: Bools, starter_row: int | None, total_s: float) -> float | None:
    """Share of the pauses that the rank they wait for collects garbage, beyond a usual step; None if not observed."""
    rows = slice(None) if starter_row is None else slice(starter_row, starter_row + 1)
    gc_K = column_median(table.gc_s_RK[rows])
    near_K = affected_K.copy()
    near_K[:-1] |= affected_K[1:]  # what follows a barrier delays the next one
    usual, here = gc_K[~near_K & np.isfinite(gc_K)], gc_K[near_K & np.isfinite(gc_K)]
    if not usual.size or not here.size or total_s <= 0:
        return None
    return max(float((here - median(usual)).sum()), 0.0) / total_s


def _pause_phase(table: StepTable, affected_K: Bools, starter_row: int | None) -> str | None:
    """The phase that is longest beyond its usual length in the pauses (and the step before: what follows a
    barrier delays the next one).
    """
    rows = slice(None) if starter_row is None else slice(starter_row, starter_row + 1)
    before_K = np.zeros_like(affected_K)
    before_K[:-1] = affected_K[1:]
    growth: dict[str, float] = {}
    for name, index in PHASE_INDEX.items():
        if name == "comm_exposed":
            continue
        values = column_median(table.phase_s_PRK[index][rows])
        usual, here = values[~affected_K], values[before_K if name in AFTER_BARRIER else affected_K]
        usual, here = usual[np.isfinite(usual)], here[np.isfinite(here)]
        if usual.size and here.size:
            growth[name] = float(median(here) - median(usual))
    largest = max(growth, key=lambda name: (growth[name], name), default=None)
    return largest if largest is not None and growth[largest] > 0 else None


def find_steady(
    table: StepTable, barrier: Barrier, *, from_beginning: bool, unmarked_pauses: bool = True
) -> Steadiness:
    """Sort every column of the table.

    from_beginning: column 0 is the first step ever seen of this run. unmarked_pauses: look for long steps at
    a fixed distance that nothing marks.
    """
    num_steps = table.num_steps
    present_K = table.present_RK.any(axis=0)
    step_K = column_median(table.step_s_RK)
    partial_K = _any_rank(table.flagged_RK(StepFlag.FIRST))
    partial_K = partial_K | (present_K & ~barrier.complete_K if barrier.evidence != "none" else False)
    capture_K = _any_rank(table.flagged_RK(StepFlag.CAPTURE))
    checkpoint_RK = _marked(table, "checkpoint", StepFlag.CHECKPOINT)
    eval_RK = _marked(table, "eval", StepFlag.EVAL)
    checkpoint_K = _with_next(_any_rank(checkpoint_RK)) & ~capture_K
    eval_K = _with_next(_any_rank(eval_RK)) & ~checkpoint_K & ~capture_K
    warmup_K = np.zeros(num_steps, dtype=bool)
    warmup = None
    if from_beginning:
        usable = (
            present_K & ~_any_rank(table.flagged_RK(StepFlag.FIRST)) & ~checkpoint_K & ~eval_K & ~capture_K
        )
        # One rank that alone holds up the others once is no warm-up, however early it does.
        usable &= ~_spoiled_by_few(find_interruptions(table, barrier, usable), usable)
        warmup = find_warmup(np.where(usable, step_K, np.nan), _any_rank(table.flagged_RK(StepFlag.COMPILE)))
        if warmup is not None:
            warmup_K[: int(np.flatnonzero(usable)[warmup.num_steps - 1]) + 1] = True
    free_K = present_K & ~partial_K & ~checkpoint_K & ~eval_K & ~warmup_K & ~capture_K
    free_K &= np.isfinite(barrier.cycle_K)
    periodic_K = periodic_columns(barrier, free_K)
    irregular = find_interruptions(table, barrier, free_K & ~periodic_K)
    if not unmarked_pauses:
        periodic_K = np.zeros_like(free_K)
    before_K, unpaid_K = _spoiled_before(table, barrier.cycle_K, periodic_K, free_K)
    irregular_K = irregular.spoiled_K & free_K & ~periodic_K & ~before_K
    steady_K = free_K & ~periodic_K & ~before_K & ~unpaid_K & ~irregular_K
    pauses: list[Pause] = []
    if steady_K.any():
        median_s = median(barrier.cycle_K[steady_K])
        collecting_RK = _collecting(table, barrier, periodic_K, median_s)
        for kind, marked_RK, affected_K in (
            ("checkpoint", checkpoint_RK, checkpoint_K),
            ("eval", eval_RK, eval_K),
            ("periodic", collecting_RK, periodic_K),
        ):
            pause = _pause(
                kind,
                table,
                barrier,
                marked_RK=marked_RK,
                affected_K=affected_K & ~warmup_K,
                median_s=median_s,
                before_K=before_K if kind == "periodic" else None,
            )
            if pause is not None:
                pauses.append(pause)
        pauses += irregular_pauses(table, barrier.cycle_K, irregular.found, median_s)
    counts = {
        "warmup": warmup_K,
        "checkpoint": checkpoint_K & ~warmup_K,
        "eval": eval_K & ~warmup_K,
        "capture": capture_K & ~warmup_K,
        "periodic_pause": periodic_K | ((before_K | unpaid_K) & free_K),
        "irregular_pause": irregular_K,
        "partial": partial_K & ~warmup_K & ~checkpoint_K & ~eval_K & ~capture_K,
    }
    excluded = {name: int(mask.sum()) for name, mask in counts.items() if mask.any()}
    elapsed_K = present_K & np.isfinite(barrier.cycle_K) & ~warmup_K & ~capture_K
    elapsed_K &= ~_any_rank(table.flagged_RK(StepFlag.FIRST))
    return Steadiness(steady_K, elapsed_K, excluded, warmup, tuple(pauses))


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
