"""Pauses that come once or at no fixed distance, mostly of one rank: stopped by a signal, a slow read, other work.

In: StepTable, Barrier, the columns that could be steady.  Out: Interruption per pause and the columns it spoils. A
pause is a step longer than everything ordinary in this run; a rank is named only where it alone arrives so late.
What comes often belongs to the noise or to a straggler, and what stays is a new level: neither is a pause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import StepFlag
from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.lateness.stalls import MIN_STALL_LOSS, MIN_STALLS, STALL_CHANCE, chance_by_lot
from tuiadvisor.metrics.steps.arrays import column_max, median, row_median
from tuiadvisor.metrics.steps.barrier import least_wait_K, records_before
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable

MIN_STEPS: Final = 12  # below this nothing is ordinary yet
MIN_LENGTH_S: Final = 0.1  # shorter is what schedulers do to any process
MIN_STEPS_LONG: Final = 1.0  # of the median step
BEYOND_ORDINARY: Final = 3.0  # times the largest ordinary excess
MAX_SHARE: Final = 0.02  # of the steps may be pauses ...
MIN_ALLOWED, MAX_ALLOWED = 4, 12  # ... and so many columns at least and at most
MAX_SHARE_OF_HABITS: Final = 0.05  # where one rank has most of them
MAX_RUN: Final = 3  # columns on end: a longer run of long steps is a level, not a pause
NAMED_SHARE: Final = 0.6  # of the excess: so much later than the others arrives who is named


@dataclass(frozen=True, slots=True)
class Interruption:
    """One pause. column: of the step in which it passed; columns: all whose barriers it delayed."""

    column: int
    columns: tuple[int, ...]
    length_s: float  # time it adds to the job
    rows: tuple[int, ...]  # who made the others wait; empty: all alike, or it was not seen
    phase: str | None  # where the time passes on them; comm_exposed: within the exchange itself
    cause: str  # "garbage collection", "compilation" or "" where nothing observed tells


@dataclass(frozen=True, slots=True)
class Interruptions:
    """All of a table. spoiled_K: columns of their records, whose phases hold a part of a pause.

    habitual: rows that pause again and again, more than lots would have it.
    """

    found: tuple[Interruption, ...]
    spoiled_K: Bools
    habitual: frozenset[int] = frozenset()


def _limit_s(excess: Floats, median_s: float, *, with_habits: bool) -> float:
    """Seconds beyond the median step from which on a step is a pause: nothing ordinary comes near."""
    share = MAX_SHARE_OF_HABITS if with_habits else MAX_SHARE
    num_allowed = int(np.clip(share * excess.size, MIN_ALLOWED, MAX_ALLOWED * share / MAX_SHARE))
    ordinary = float(np.partition(excess, excess.size - num_allowed - 1)[excess.size - num_allowed - 1])
    return max(MIN_STEPS_LONG * median_s, MIN_LENGTH_S, BEYOND_ORDINARY * ordinary)


def _runs(at: Ints) -> list[Ints]:
    """Neighbouring columns together."""
    return np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if at.size else []


def _is_long(run: Ints, barrier: Barrier, excess_K: Floats, limit_s: float) -> bool:
    if float(excess_K[run].max()) >= limit_s:
        return True
    return float(excess_K[run].sum()) >= limit_s and any(
        late_rows(barrier, at, limit_s) for at in run.tolist()
    )


def tail_s(table: StepTable) -> Floats:
    """Seconds of each record after its barrier, R x K; NaN where no barrier was seen."""
    return np.asarray(table.end_s_RK - table.release_s_RK)


def after_barrier_RK(table: StepTable, rows: slice | Ints, at_least_s: float) -> Bools:
    """Records that are so much longer than usual after their barrier: the next step's arrival pays for it."""
    tail = tail_s(table)[rows]
    known = np.isfinite(tail)
    result = np.zeros(tail.shape, dtype=np.bool_)
    # Where none is so much longer than the shortest, none is longer than usual.
    most = np.where(known, tail, -np.inf).max(axis=1, initial=-np.inf)
    least = np.where(known, tail, np.inf).min(axis=1, initial=np.inf)
    may = np.flatnonzero(most - least >= at_least_s)
    if may.size:
        usual = row_median(np.where(known[may], tail[may], np.nan))
        result[may] = known[may] & (np.where(known[may], tail[may], 0.0) - usual[:, None] >= at_least_s)
    return result


def find_interruptions(
    table: StepTable, barrier: Barrier, candidate_K: Bools, *, with_habits: bool = False
) -> Interruptions:
    """Pauses among the candidate columns; with_habits: those of habitual rows too, which may be stragglers."""
    num_steps = table.num_steps
    nothing = Interruptions((), np.zeros(num_steps, dtype=np.bool_))
    cycle = barrier.cycle_K
    columns = np.flatnonzero(candidate_K & np.isfinite(cycle))
    if columns.size < MIN_STEPS:
        return nothing
    median_s = median(cycle[columns])
    excess_K = np.where(np.isfinite(cycle), cycle - median_s, 0.0)
    limit_s = _limit_s(excess_K[columns], median_s, with_habits=with_habits)
    # Half of a pause within the exchange itself may lie in the step before: where one of two ranks leaves late,
    # their common release is in the middle.
    long = columns[excess_K[columns] >= limit_s / 2]
    runs = [run for run in _runs(long) if run.size <= MAX_RUN and _is_long(run, barrier, excess_K, limit_s)]
    events = [_event(table, barrier, run, excess_K, candidate_K) for run in runs]
    habitual = _habitual(events, table.num_ranks, float(cycle[columns].sum()))
    if not with_habits:
        events = [event for event in events if not (len(event.rows) == 1 and event.rows[0] in habitual)]
    spoiled_K = nothing.spoiled_K.copy()
    for event in events:
        spoiled_K[[*event.columns, event.column]] = True
    if num_steps:
        # What follows the last barrier seen has delayed nobody yet, but its record is no steady one.
        spoiled_K[-1] |= bool(after_barrier_RK(table, slice(None), limit_s)[:, -1].any())
    return Interruptions(tuple(events), spoiled_K, habitual)


def _event(
    table: StepTable, barrier: Barrier, run: Ints, excess_K: Floats, candidate_K: Bools
) -> Interruption:
    length_s = float(excess_K[run].sum())
    column = int(run[np.argmax(excess_K[run])])
    rows: tuple[int, ...] = ()
    for at in run.tolist():
        late = late_rows(barrier, at, NAMED_SHARE * length_s)
        if late:
            column, rows = at, late
    rows = rows or _late_in_parts(barrier, run, excess_K, NAMED_SHARE * length_s)
    before = int(run[0]) - 1
    if not rows and before >= 0:
        # Its arrival may not have been seen yet, but what it did after its barrier was.
        busy = np.flatnonzero(after_barrier_RK(table, slice(None), NAMED_SHARE * length_s)[:, before])
        rows = tuple(busy.tolist()) if busy.size <= max(1, table.num_ranks // 2) else ()
    phase, cover = _phase(table, barrier, run, rows, length_s=length_s, candidate_K=candidate_K)
    cause = _cause(table, run, rows, length_s, candidate_K)
    chosen = np.array(rows, dtype=np.int64) if rows else slice(None)
    if before >= 0 and after_barrier_RK(table, chosen, 0.5 * length_s)[:, before].any():
        column = before
    covered = phase if cover >= MIN_COVER else None
    return Interruption(column, tuple(run.tolist()), length_s, rows, covered, cause)


def _late_in_parts(barrier: Barrier, run: Ints, excess_K: Floats, at_least_s: float) -> tuple[int, ...]:
    """Who is late in step after step of a run, each time by most of that step's part: two pauses on end."""
    part_s: dict[tuple[int, ...], float] = {}
    for at in run[excess_K[run] > 0].tolist():
        late = late_rows(barrier, at, NAMED_SHARE * float(excess_K[at]))
        part_s[late] = part_s.get(late, 0.0) + float(excess_K[at])
    part_s.pop((), None)
    return next((late for late, seconds in part_s.items() if seconds >= at_least_s), ())


def late_rows(barrier: Barrier, column: int, at_least_s: float) -> tuple[int, ...]:
    """Ranks that arrive so much later than all others, if they are at most half of them."""
    late = barrier.lateness_RK[:, column]
    known = np.flatnonzero(np.isfinite(late))
    if known.size < 2:
        return ()
    order = known[np.argsort(late[known], kind="stable")]
    gaps = np.diff(late[order])
    widest = int(np.argmax(gaps))
    rows = order[widest + 1 :]
    if gaps[widest] < at_least_s or rows.size > max(1, known.size // 2):
        return ()
    return tuple(sorted(rows.tolist()))


def _phase(
    table: StepTable,
    barrier: Barrier,
    run: Ints,
    rows: tuple[int, ...],
    *,
    length_s: float,
    candidate_K: Bools,
) -> tuple[str | None, float]:
    """(phase that is longest beyond its usual length, what it explains) on the ranks named, else on all.

    That is its share of what all phases grew by, or of the pause, whichever is less: who takes longest is waited for.
    """
    chosen = np.array(rows, dtype=np.int64) if rows else np.arange(table.num_ranks)
    usual_K = candidate_K.copy()
    usual_K[max(int(run[0]) - 1, 0) : int(run[-1]) + 1] = False
    growth, longest_s = dict[str, float](), dict[str, float]()
    for name, index in PHASE_INDEX.items():
        values = table.phase_s_PRK[index][chosen]
        usual = values[:, usual_K]
        if not np.isfinite(usual).any():
            continue
        if name == "comm_exposed":
            growth[name] = (
                _left_late_s(table, chosen, run) if rows else in_exchange_s(table, barrier, run, usual_K)
            )
            longest_s[name] = growth[name]
            continue
        back = records_before(table, barrier, name, is_of_some=bool(rows))
        found = [values[:, (run - num)[run >= num]] - np.nanmedian(usual) for num in back]
        found = [here for here in found if np.isfinite(here).any()]
        if found:
            beyond = max(found, key=lambda here: float(np.nansum(here)))
            growth[name] = float(np.nansum(beyond)) / chosen.size
            longest_s[name] = float(np.nansum(column_max(beyond)))
    largest = max(growth, key=lambda name: (growth[name], name), default=None)
    grown = sum(max(value, 0.0) for value in growth.values())
    if largest is None or growth[largest] <= 0:
        return None, 0.0
    return largest, min(growth[largest] / grown, longest_s[largest] / length_s)


def _left_late_s(table: StepTable, rows: Ints, run: Ints) -> float:
    """By how much these ranks left an exchange later than the others did: stopped in it, they come late to the next."""
    others = np.setdiff1d(np.arange(table.num_ranks), rows)
    near = np.unique(np.maximum(np.append(run - 1, run), 0))
    if not others.size:
        return 0.0
    # Hosts' clocks may be apart: what counts is how long each was in it beyond its usual time there.
    inside = table.release_s_RK[:, near] - table.arrive_s_RK[:, near]
    own, rest = inside[rows].mean(axis=0), inside[others].max(axis=0)
    return float(np.nanmax(np.append(own - rest, 0.0)))


def in_exchange_s(table: StepTable, barrier: Barrier, columns: Ints, usual_K: Bools) -> float:
    """By how much longer than usual, over all columns, whoever waits least was in the exchange."""
    inside_K = least_wait_K(table, barrier)
    usual, here = inside_K[usual_K], inside_K[columns]
    if not np.isfinite(usual).any() or not np.isfinite(here).any():
        return 0.0
    return float(np.nansum(here - np.nanmedian(usual)))


def _cause(table: StepTable, run: Ints, rows: tuple[int, ...], length_s: float, candidate_K: Bools) -> str:
    """What the probe itself saw in these records."""
    chosen = np.array(rows, dtype=np.int64) if rows else np.arange(table.num_ranks)
    near = np.unique(np.concatenate((np.maximum(run - 1, 0), run)))
    gc = table.gc_s_RK[np.ix_(chosen, near)]
    if np.isfinite(gc).any():
        usual = table.gc_s_RK[chosen][:, candidate_K]
        typical = float(np.nanmedian(usual)) if np.isfinite(usual).any() else 0.0
        if float(np.nansum(gc - typical)) / chosen.size >= MIN_COVER * length_s:
            return "garbage collection"
    if table.flagged_RK(StepFlag.COMPILE)[np.ix_(chosen, near)].any():
        return "compilation"
    return ""


def _habitual(events: list[Interruption], num_ranks: int, total_s: float) -> frozenset[int]:
    """Rows that pause again and again, more than lots would have it: such a rank is a straggler, if it can be named."""
    alone = [event for event in events if len(event.rows) == 1]
    habitual = set()
    for row in {event.rows[0] for event in alone}:
        own = [event for event in alone if event.rows[0] == row]
        costly = sum(event.length_s for event in own) > MIN_STALL_LOSS * total_s
        if (
            len(own) >= MIN_STALLS
            and costly
            and chance_by_lot(len(own), len(alone), num_ranks) < STALL_CHANCE
        ):
            habitual.add(row)
    return frozenset(habitual)
