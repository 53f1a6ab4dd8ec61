"""Pauses of one kind: their period, length, cost and the rank that starts them.

In: StepTable, Barrier, the columns that they make longer.  Out: Pause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor import phases
from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.pauses.first_rank import starter_row
from tuiadvisor.metrics.pauses.irregular import BEYOND_ORDINARY, in_exchange_s
from tuiadvisor.metrics.pauses.periodic import ROUGH
from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints, column_max, column_median, median, row_mean
from tuiadvisor.metrics.steps.barrier import records_before
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from tuiadvisor.metrics.pauses.irregular import Interruption
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable

COLLECTING_HALF: Final = 0.5  # of a pause spent collecting: the rank takes part in it
MAX_MISSED: Final = 2.5  # periods without a pause: it had not begun, or is over
# On each side of a pause, of steady steps: what a step takes there. Chosen: as many as tell a late rank of long steps
# (MIN_CLEAR_STEPS); with more of them a stretch that begins nearby would tell the same pause with another length.
NEAR_STEPS: Final = 8
MIN_AGREEING: Final = 0.5  # of the distances; chosen: the middle one of three always agrees with itself
MIN_GAPS: Final = 3  # distances: of fewer it is not asked whether they agree
MIN_WAITED: Final = 0.5  # of what a rank does alone the others wait: else they do something, too
MAX_GROUPS: Final = 4  # of ranks that pause now and then, each a finding of its own


@dataclass(frozen=True, slots=True)
class Pause:
    """All pauses of one kind within the window."""

    kind: str  # "checkpoint", "eval", "saving", "periodic" or "irregular"
    steps: tuple[int, ...]  # job steps at which they began
    period_steps: float | None  # None with fewer than two
    length_s: float  # mean time a pause adds; of kind periodic the median
    lengths_s: tuple[float, ...]  # of each of them
    loss_s_per_step: float
    starter_row: int | None  # the rank the others wait for; None when all pause together
    phase: str | None  # where most of the time passes on that rank; None: in no phase alone
    loss_K: Floats  # over all columns of the table
    gc_share: float | None = None  # of the pauses: Python collecting garbage, beyond the usual step
    rows: tuple[int, ...] = ()  # ranks the others wait for; empty when all pause together
    events: tuple[Interruption, ...] = ()  # the pauses one by one, where they have no common distance
    first_column: int = 0  # from which on they come: their cost is spread over the steps since then
    busy_ranks: tuple[
        int, ...
    ] = ()  # that go on making steps in them: they have more batches than those that pause
    is_over: bool = False  # they came at a fixed distance, and have not for several of these
    longest: str | None = None  # phase that takes more of it than any other, be it not most
    is_longer: bool = False  # all ranks make them; this is by how much longer those of `rows` are

    @property
    def is_collecting(self) -> bool:
        """Whether garbage collection explains most of them."""
        return self.kind == "periodic" and (self.gc_share or 0.0) >= MIN_COVER

    @property
    def is_own_work(self) -> bool:
        """Whether one rank alone is late within the phases of its step."""
        return self.starter_row is not None and self.longest in phases.HOOKED


def collecting_RK(table: StepTable, barrier: Barrier, affected_K: Bools, median_s: float) -> Bools:
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


def with_next(columns_K: Bools) -> Bools:
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


def _keeps_distance(starts: list[int]) -> bool:
    """Whether half of the distances agree, as where some pauses are too short to be told from the rest of a step."""
    gaps = np.diff(starts)
    if gaps.size < MIN_GAPS:
        return True
    period = float(np.median(gaps))
    return float(np.mean(np.abs(gaps - period) <= max(1.0, ROUGH * period))) >= MIN_AGREEING


def make_pause(
    kind: str,
    table: StepTable,
    barrier: Barrier,
    *,
    marked_RK: Bools,
    affected_K: Bools,
    median_s: float,
    before_K: Bools | None = None,
    added_K: Floats | None = None,
    besides: tuple[str, ...] = (),
    replaced: bool = False,
    replaces: bool = False,
) -> Pause | None:
    """The pauses that make these columns longer; None where there is none, or they add nothing to what was seen.

    marked_RK: what a rank did is marked as the pause's kind. median_s: steady step. before_K: steps in which a pause
    passes that delays the step after them. added_K: what it adds to each, where that is not all of the excess.
    besides: phases that are pauses of their own. replaced: pauses of another length come in their place now. replaces:
    or these came in the place of others, and cost what they cost since.
    """
    cycle = barrier.cycle_K
    affected_K = affected_K & np.isfinite(cycle)  # what a pause added to a step not seen whole is not known
    loss_K = np.where(affected_K, np.maximum(cycle - median_s, 0.0), 0.0)
    loss_K = loss_K if added_K is None else np.where(affected_K, np.minimum(added_K, loss_K), 0.0)
    starts = _starts(affected_K if before_K is None else affected_K | before_K)
    total = float(loss_K.sum())
    if not starts or total <= 0:
        return None
    starter = starter_row(barrier, marked_RK, affected_K)
    if (
        starter is not None
        and kind in phases.PAUSES
        and not _others_wait(table, marked_RK, barrier.until_met_K(affected_K), total)
    ):
        starter = None
    period = _period(starts)
    if kind == "periodic" and besides and not _keeps_distance(starts):  # nobody has asked yet of what is left
        period = None
    first, is_over = 0, False
    if kind == "periodic" or replaces:
        first, ended = _come_between(starts, period, cycle.size)
        is_over = ended and kind == "periodic"
    phase, longest = _pause_phase(table, barrier, affected_K, starter, besides=besides, total_s=total)
    phase = kind if kind in PHASE_INDEX else phase
    return Pause(
        kind=kind,
        steps=tuple(table.step_of(start) for start in starts),
        period_steps=period,
        length_s=total / len(starts),
        lengths_s=(),
        loss_s_per_step=total / max(int(np.isfinite(cycle[first:]).sum()), 1),
        starter_row=starter,
        phase=phase,
        loss_K=loss_K,
        gc_share=_gc_share(table, affected_K, starter, total),
        rows=() if starter is None else (starter,),
        first_column=first,
        is_over=is_over or replaced,
        longest=longest,
    )


def _others_wait(table: StepTable, marked_RK: Bools, affected_K: Bools, total_s: float) -> bool:
    """Whether those who are not marked wait for the others meanwhile, as far as that was seen.

    A hook may miss on some ranks what it sees on others: an evaluation that passes by the wrapper. Those do the same.
    """
    others = np.flatnonzero(~marked_RK.any(axis=1))
    waits_RK = table.phase_s_PRK[PHASE_INDEX["comm_exposed"]][others]
    # Who waits at a barrier after the step does so in the record of that step, whoever pauses in that of the next.
    near_K = affected_K | np.append(affected_K[1:], False)
    usual_R = row_mean(np.where(near_K, np.nan, waits_RK))
    beyond_RK = (waits_RK - usual_R[:, None])[:, near_K]
    waited_R = np.where(np.isfinite(beyond_RK), beyond_RK, 0.0).sum(axis=1)
    seen_R = np.isfinite(beyond_RK).any(axis=1)
    return not seen_R.any() or median(waited_R[seen_R]) >= MIN_WAITED * total_s


def _come_between(starts: list[int], period: float | None, num_steps: int) -> tuple[int, bool]:
    """(column from which on pauses come, whether they have stopped coming), where several should have come outside."""
    if period is None:
        return 0, False
    began = starts[0] > MAX_MISSED * period
    return int(starts[0] - period / 2) if began else 0, num_steps - 1 - starts[-1] > MAX_MISSED * period


def irregular_pauses(
    table: StepTable, cycle_K: Floats, events: tuple[Interruption, ...], steady_K: Bools
) -> list[Pause]:
    """One Pause for the same ranks, costliest first; of very many ranks the rest together. events: by column.

    One that is far longer than the others of its ranks is told by itself: their mean length would be nobody's.
    """
    median_s = median(cycle_K[steady_K])
    by_rows: dict[tuple[int, ...], list[Interruption]] = {}
    for event in events:
        by_rows.setdefault(event.rows, []).append(event)
    parts = (part for group in by_rows.values() for part in _by_length(group))
    groups = sorted(parts, key=lambda group: -sum(event.length_s for event in group))
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
                lengths_s=(),
                loss_s_per_step=float(loss_K.sum()) / max(int(np.isfinite(cycle_K).sum()), 1),
                starter_row=rows[0] if len(rows) == 1 else None,
                phase=phases.pop() if len(phases) == 1 else None,
                loss_K=loss_K,
                rows=rows,
                events=tuple(group),
            )
        )
    return [with_lengths(pause, table, cycle_K, steady_K) for pause in result]


def _by_length(group: list[Interruption]) -> list[list[Interruption]]:
    longest, *others = sorted(group, key=lambda event: -event.length_s)
    if not others or longest.length_s < BEYOND_ORDINARY * others[0].length_s:
        return [group]
    return [[longest], [event for event in group if event is not longest]]


def with_lengths(pause: Pause, table: StepTable, cycle_K: Floats, steady_K: Bools) -> Pause:
    """How long each pause is: by how much its steps are longer than the steady ones next to it, whatever else was seen.

    By the median of all that is looked at, the same pause had another length in each stretch that was chosen. What the
    pauses cost, `loss_K`, goes by that median: so the parts of a step sum to it.
    """
    steady, median_s = np.flatnonzero(steady_K & np.isfinite(cycle_K)), median(cycle_K[steady_K])
    columns = np.flatnonzero(pause.loss_K > 0)
    share = pause.loss_K[columns] / np.maximum(cycle_K[columns] - median_s, 1e-12)
    near_s = np.array([_near_s(cycle_K, steady, column) for column in columns.tolist()])
    added_s = np.minimum(share, 1.0) * np.maximum(cycle_K[columns] - near_s, 0.0)
    begins = np.array([table.column_of(step) for step in pause.steps])
    of = np.maximum(np.searchsorted(begins, columns, side="right") - 1, 0)
    lengths_s = tuple(np.bincount(of, weights=added_s, minlength=begins.size).tolist())
    return replace(
        pause,
        lengths_s=lengths_s,
        # Of what comes at a distance and is named by it, the typical one: what is told of it is to come again.
        length_s=median(np.array(lengths_s)) if pause.kind == "periodic" else sum(lengths_s) / len(lengths_s),
        events=tuple(
            replace(event, length_s=length_s)
            for event, length_s in zip(pause.events, lengths_s, strict=False)
        ),
    )


def _near_s(cycle_K: Floats, steady: Ints, column: int) -> float:
    """The median of the steady steps next to this one."""
    at = int(np.searchsorted(steady, column))
    return median(cycle_K[steady[max(at - NEAR_STEPS, 0) : at + NEAR_STEPS]])


def _gc_share(table: StepTable, affected_K: Bools, starter_row: int | None, total_s: float) -> float | None:
    """Share of the pauses that the rank they wait for collects garbage, beyond a usual step; None if not observed.

    Of pauses that no rank begins each may be another one's: whoever collects longest is waited for.
    """
    rows = slice(None) if starter_row is None else slice(starter_row, starter_row + 1)
    usual_K = column_median(table.gc_s_RK[rows])
    gc_K = np.where(np.isnan(table.gc_s_RK[rows]), -np.inf, table.gc_s_RK[rows]).max(axis=0)
    near_K = affected_K.copy()
    near_K[:-1] |= affected_K[1:]  # what follows a barrier delays the next one
    usual, here = usual_K[~near_K & np.isfinite(gc_K)], gc_K[near_K & np.isfinite(gc_K)]
    if not usual.size or not here.size or total_s <= 0:
        return None
    return max(float((here - median(usual)).sum()), 0.0) / total_s


def _pause_phase(
    table: StepTable,
    barrier: Barrier,
    affected_K: Bools,
    starter_row: int | None,
    *,
    besides: tuple[str, ...],
    total_s: float,
) -> tuple[str | None, str | None]:
    """(phase in which most of the pauses passes, phase that is longest beyond its usual length in them).

    Of pauses that no rank begins each may be another one's: whoever takes longest is waited for, where others wait.
    """
    rows = slice(None) if starter_row is None else slice(starter_row, starter_row + 1)
    columns = np.flatnonzero(affected_K)
    grown_s: dict[str, float] = {}
    for name, index in PHASE_INDEX.items():
        if name in besides:
            continue
        if name == "comm_exposed":  # the others wait there, for whoever begins it
            waited_s = in_exchange_s(table, barrier, columns, ~affected_K) if starter_row is None else 0.0
            grown_s |= {name: waited_s} if waited_s > 0 else {}
            continue
        values = table.phase_s_PRK[index][rows]
        values = column_median(values) if barrier.evidence == "none" else column_max(values)
        usual = values[~affected_K & np.isfinite(values)]
        back = records_before(table, barrier, name, is_of_some=starter_row is not None)
        found = [values[(columns - num)[columns >= num]] for num in back]
        grown = [float(np.nansum(here - median(usual))) for here in found if np.isfinite(here).any()]
        if usual.size and grown:
            grown_s[name] = max(grown)
    largest = max(grown_s, key=lambda name: (grown_s[name], name), default=None)
    if largest is None or grown_s[largest] <= 0:
        return None, None
    return largest if grown_s[largest] >= MIN_COVER * total_s else None, largest
