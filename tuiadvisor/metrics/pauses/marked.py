"""Pauses that hooks mark: checkpoints and forwards without backward, each with the time it was measured to take.

In: StepTable, Barrier, which records are marked.  Out: one Pause a kind and length. Several may share a step: each has
what it took, and what is left (loader workers that start anew at that step, a collection) is a pause of its own. A kind
that takes next to nothing there is none; nor is one whose step was not seen whole: the next one has but the end of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.metrics.lateness.stalls import MIN_STALLS, STALL_CHANCE, chance_by_lot
from tuiadvisor.metrics.pauses.first_rank import LEAD_SHARE
from tuiadvisor.metrics.pauses.pause import Pause, collecting_RK, make_pause, with_next
from tuiadvisor.metrics.pauses.periodic import PAUSE_FACTOR, far_longer
from tuiadvisor.metrics.pauses.sizes import by_length
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable

PAUSE_SHARE: Final = PAUSE_FACTOR - 1  # of a step: what adds less may be noise
MIN_LEFT: Final = 0.25  # of what was measured: less beyond it is what a pause costs beside its own time
MIN_LEFT_TIMES: Final = 3  # what is left in fewer pauses has no distance


def marked_pauses(
    table: StepTable, barrier: Barrier, marked: dict[str, Bools], counted_K: Bools, median_s: float
) -> list[Pause]:
    """marked: kind -> R x K, whose record is marked. counted_K: columns that are looked at. median_s: steady step."""
    marks_K = {kind: np.asarray(marks_RK.any(axis=0)) for kind, marks_RK in marked.items()}
    any_K = np.logical_or.reduce(list(marks_K.values()))
    shares, left_K = _shares(table, barrier, marks_K, counted_K, median_s)
    cycle_K = barrier.cycle_K
    affected_K = with_next(any_K & np.isfinite(cycle_K)) & counted_K
    excess_K = np.where(np.isfinite(cycle_K), np.maximum(cycle_K - median_s, 0.0), 0.0)
    found = []
    for kind, share_K in shares.items():
        added_K = excess_K * _carried(share_K, any_K)
        parts = by_length(
            affected_K & with_next(marks_K[kind] & np.isfinite(cycle_K) & (share_K > 0)), added_K
        )
        found += [
            pause
            for part_K in parts
            for pause in _of_kind(
                kind,
                table,
                barrier,
                marked_RK=marked[kind],
                affected_K=part_K,
                median_s=median_s,
                added_K=added_K,
                replaced=part_K is not parts[-1],
                replaces=len(parts) > 1,
            )
        ]
    if np.count_nonzero(left_K) >= MIN_LEFT_TIMES:
        added_K = excess_K * _carried(left_K, any_K)
        found += [
            make_pause(
                "periodic",
                table,
                barrier,
                marked_RK=collecting_RK(table, barrier, part_K, median_s),
                affected_K=part_K,
                median_s=median_s,
                added_K=added_K,
                besides=tuple(marked),
                replaced=replaced,
            )
            for part_K, replaced in _of_one_length(
                barrier, affected_K & with_next(left_K > 0), added_K, median_s
            )
        ]
    return [pause for pause in found if pause is not None]


def _of_kind(
    kind: str, table: StepTable, barrier: Barrier, *, marked_RK: Bools, added_K: Floats, **options: Any
) -> list[Pause | None]:
    """The pauses of these columns: what all ranks take, and by how much one takes longer while the others wait for it.

    options: of `make_pause`.
    """
    longer = _who_takes_longer(table, kind, marked_RK & options["affected_K"])
    if longer is not None:
        row, share = longer
        own_RK = np.zeros_like(marked_RK)
        own_RK[row] = marked_RK[row]
        own = make_pause(kind, table, barrier, marked_RK=own_RK, added_K=share * added_K, **options)
        if own is not None and own.starter_row == row:
            common_K = (1 - share) * added_K
            common = make_pause(kind, table, barrier, marked_RK=marked_RK, added_K=common_K, **options)
            return [common, replace(own, is_longer=True)]
    return [make_pause(kind, table, barrier, marked_RK=marked_RK, added_K=added_K, **options)]


def _who_takes_longer(table: StepTable, kind: str, marked_RK: Bools) -> tuple[int, float] | None:
    """(row of the rank that takes far longer in the pauses that all ranks take part in, its lead's share of them).

    None where that is nobody, or some other rank as often as lots would have it. Who writes a checkpoint has more to do
    than the others, and is named for all of it.
    """
    columns = np.flatnonzero(marked_RK.all(axis=0))
    num_ranks = marked_RK.shape[0]
    if kind != "eval" or num_ranks < 2 or not columns.size:
        return None
    spent_RK = table.phase_s_PRK[PHASE_INDEX[kind]][:, columns]
    spent_RK = spent_RK[:, np.isfinite(spent_RK).all(axis=0)]
    if not spent_RK.size:
        return None
    next_K, longest_K = np.partition(spent_RK, -2, axis=0)[-2:]
    leads_K = longest_K - next_K >= LEAD_SHARE * longest_K
    times_R = np.bincount(np.argmax(spent_RK, axis=0)[leads_K], minlength=num_ranks)
    row, num_leads = int(np.argmax(times_R)), int(leads_K.sum())
    if times_R[row] < MIN_STALLS or chance_by_lot(int(times_R[row]), num_leads, num_ranks) >= STALL_CHANCE:
        return None
    share = float(np.maximum(spent_RK[row] - next_K, 0.0).sum() / longest_K.sum())
    return (row, share) if share >= LEAD_SHARE else None


def _of_one_length(
    barrier: Barrier, rest_K: Bools, added_K: Floats, median_s: float
) -> list[tuple[Bools, bool]]:
    """(columns of pauses of one length, whether others came in their place).

    One that is far longer than all others is told by itself, until a second one of its length has come.
    """
    far_K = far_longer(barrier, rest_K, median_s)
    if np.count_nonzero(far_K & ~np.append(False, far_K[:-1])) != 1:
        far_K = np.zeros_like(rest_K)
    parts = by_length(rest_K & ~far_K, added_K)
    result = [(part_K, part_K is not parts[-1]) for part_K in parts]
    return [*result, (far_K, False)] if far_K.any() else result


def _shares(
    table: StepTable, barrier: Barrier, marks_K: dict[str, Bools], counted_K: Bools, median_s: float
) -> tuple[dict[str, Floats], Floats]:
    """(kind -> K: its share of what the marked step and the next one are too long, K: the share that is left)."""
    any_K = np.logical_or.reduce(list(marks_K.values()))
    cycle_K = barrier.cycle_K
    excess_K = np.where(np.isfinite(cycle_K) & counted_K, np.maximum(cycle_K - median_s, 0.0), 0.0)
    next_K = np.append(np.where(any_K[1:], 0.0, excess_K[1:]), 0.0)
    added_K = excess_K + next_K
    spent = {kind: _spent_s(table, kind, on_K) for kind, on_K in marks_K.items()}
    # A mark without a time has what the others leave; a kind whose time is next to nothing is no pause there.
    known = {kind: np.where(np.isfinite(values), values, 0.0) for kind, values in spent.items()}
    least_s = PAUSE_SHARE * median_s
    most_K = np.maximum.reduce(list(known.values()))
    for kind, values in known.items():
        too_little_K = (values < least_s) & ((added_K >= least_s + values) | (values < most_K))
        known[kind] = np.where(too_little_K, 0.0, values)
    total_K = np.add.reduce(list(known.values()))
    left_s_K = added_K - total_K
    is_timeless_K = np.logical_or.reduce([on_K & ~np.isfinite(spent[kind]) for kind, on_K in marks_K.items()])
    is_left_K = any_K & ~is_timeless_K & (left_s_K > np.maximum(least_s, MIN_LEFT * total_K))
    left_K = np.where(is_left_K, left_s_K / np.where(added_K > 0, added_K, 1.0), 0.0)
    shares = {}
    for kind, on_K in marks_K.items():
        part_K = np.where(total_K > 0, known[kind] / np.where(total_K > 0, total_K, 1.0), 0.0)
        only_K = on_K & is_timeless_K & ~np.isfinite(spent[kind]) & (total_K <= 0)
        shares[kind] = np.where(only_K, 1.0, part_K * (1 - left_K)) * on_K
    return shares, left_K


def _spent_s(table: StepTable, kind: str, on_K: Bools) -> Floats:
    """Seconds that the kind took on the rank where it took longest; NaN where it is marked and has no time."""
    values_RK = table.phase_s_PRK[PHASE_INDEX[kind]]
    longest_K = np.where(np.isfinite(values_RK), values_RK, -1.0).max(axis=0)
    return np.where(on_K, np.where(longest_K < 0, np.nan, longest_K), 0.0)


def _carried(share_K: Floats, any_K: Bools) -> Floats:
    """The share of a marked step, in the next one too where that has no mark of its own."""
    result = share_K.copy()
    result[1:] = np.where(any_K[1:], share_K[1:], share_K[:-1])
    return result
