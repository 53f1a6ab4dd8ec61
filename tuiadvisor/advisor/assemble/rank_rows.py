"""One row a rank: what the table and the heat map show.

In: Diagnosis and Roster.  Out: RankRow, by rank; None wherever nothing was observed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor import phases
from tuiadvisor.metrics.steps.accounting import rank_step_seconds, seconds_of_ranks, shares_PR
from tuiadvisor.metrics.steps.arrays import Floats, column_median, finite_or_nones, median_or_none, row_mean
from tuiadvisor.metrics.steps.step_table import COMM, PHASE_INDEX
from tuiadvisor.phases import COMPUTE, PHASES
from tuiadvisor.views.run_view import RankRow
from tuiadvisor.views.step_map import UNKNOWN_LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tuiadvisor.advisor.cluster.rank_facts import RankFacts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.steps.arrays import Bools, Ints
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.views.run_view import DeviceView
    from tuiadvisor.views.shares import Shares

NOT_COMPARED: Final = "not compared with the others"
PASSES: Final = "micro_steps"  # as the probes tell them of each rank's model
MAX_LATENESS_STEPS: Final = 120
WAITS: Final = phases.of_kind("input", "sync", "idle")
# Shares of the median step at which lateness reaches levels 1..7: doubling, so a glance tells the order.
LEVEL_EDGES: Final = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
# A rank stands out whose lateness reached this level, 16 % of a step, in a quarter of the latest steps.
OUTLIER_LEVEL: Final = 4
OUTLIER_STEPS: Final = 40
OUTLIER_SHARE: Final = 0.25
MIN_OUTLIER_STEPS: Final = 8
# States in which a rank stands out, unless most ranks are in the same.
ODD_STATES: Final = frozenset({"waiting_to_attach", "exited", "killed", "refused"})


def lateness_levels(barrier: Barrier, step_s: float | None) -> tuple[int, list[bytes]]:
    """(first column, one byte string a row) of the latest steps: how late each rank arrived."""
    num_steps = barrier.cycle_K.size
    first = max(0, num_steps - MAX_LATENESS_STEPS)
    late = barrier.lateness_RK[:, first:]
    if step_s is None or step_s <= 0:
        return first, [bytes([UNKNOWN_LEVEL]) * late.shape[1] for _ in range(late.shape[0])]
    # After the typical rank: that the first one is early is no news.
    ordered = np.sort(np.where(np.isnan(late), np.inf, late), axis=0)
    known = np.isfinite(ordered).sum(axis=0)
    middle = ordered[np.maximum(known - 1, 0) // 2, np.arange(late.shape[1])]
    levels = np.digitize((late - np.where(np.isfinite(middle), middle, 0.0)) / step_s, LEVEL_EDGES)
    levels = np.where(np.isnan(late), UNKNOWN_LEVEL, levels).astype(np.uint8)
    return first, [row.tobytes() for row in levels]


def phase_levels(seconds_PR: Floats, step_s: float | None, peers_R: Ints) -> list[bytes]:
    """One byte string a row, one byte a phase: how much longer than the median of its peers, share of a step.

    seconds_PR: P phases x R ranks. peers_R: a number a rank; ranks with the same one do the same work.
    """
    levels = np.full(seconds_PR.shape, UNKNOWN_LEVEL, dtype=np.uint8)
    for number in np.unique(peers_R):
        here = peers_R == number
        if not step_s or here.sum() < 2:  # what a single rank takes cannot be long or short
            continue
        mine = seconds_PR[:, here]
        excess = (mine - column_median(mine.T)[:, None]) / step_s
        levels[:, here] = np.where(np.isnan(mine), UNKNOWN_LEVEL, np.digitize(excess, LEVEL_EDGES))
    return [row.tobytes() for row in np.ascontiguousarray(levels.T)]


def stands_out(levels: list[bytes]) -> Bools:
    """Rows that are late again and again, whether or not a rule has named them yet."""
    width = min(map(len, levels), default=0)
    if not width:
        return np.zeros(len(levels), dtype=np.bool_)
    table = np.frombuffer(b"".join(levels), dtype=np.uint8).reshape(len(levels), width)[:, -OUTLIER_STEPS:]
    known = table != UNKNOWN_LEVEL
    late = (known & (table >= OUTLIER_LEVEL)).sum(axis=1)
    num_known = known.sum(axis=1)
    return np.asarray((num_known >= MIN_OUTLIER_STEPS) & (late >= OUTLIER_SHARE * num_known))


def rank_rows(
    diagnosis: Diagnosis | None,
    facts: dict[int, RankFacts],
    last_steps: dict[int, int],
    culprits: frozenset[int] = frozenset(),
    stages: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
    *,
    with_now: bool = True,
) -> tuple[RankRow, ...]:
    """Rows of every rank that was heard of, with steps or without. stages: ranks of one stage do the same work.

    with_now: also what each does at this moment.
    """
    usual = Counter(fact.state for fact in facts.values()).most_common(1)
    odd = ODD_STATES - {state for state, _ in usual}
    measured = (
        {}
        if diagnosis is None
        else _measured(diagnosis, last_steps, facts, culprits, odd, stages, with_now=with_now)
    )
    rows = [
        measured.get(rank) or _row(rank, facts.get(rank), last_steps.get(rank), odd, with_now=with_now)
        for rank in sorted({*facts, *measured, *last_steps})
    ]
    width = max((len(row.lateness_levels) for row in rows), default=0)
    return tuple(row if len(row.lateness_levels) == width else _padded(row, width) for row in rows)


def with_apart(
    rows: tuple[RankRow, ...], apart: Mapping[int, str], facts: Mapping[int, RankFacts]
) -> tuple[RankRow, ...]:
    """The rows of ranks that make steps which could not be compared with the others' say that. apart: why, by rank."""
    return tuple(
        replace(row, why_apart=_why_apart(apart[row.rank], row.rank, facts))
        if row.rank in apart and row.step_s is None
        else row
        for row in rows
    )


def _why_apart(why: str, rank: int, facts: Mapping[int, RankFacts]) -> str:
    passes = {other: fact.model.get(PASSES) for other, fact in facts.items() if fact.model.get(PASSES)}
    usual = Counter(number for other, number in passes.items() if other != rank).most_common(1)
    said = f"{NOT_COMPARED}: {why}" if why else NOT_COMPARED
    if usual and rank in passes and passes[rank] != usual[0][0]:
        said += f"; its steps hold {passes[rank]} backward passes, the others' {usual[0][0]}"
    return said


def with_devices(rows: tuple[RankRow, ...], devices: Mapping[int, DeviceView]) -> tuple[RankRow, ...]:
    """The rows with what their devices spent, where that was measured."""
    return tuple(replace(row, device=devices.get(row.rank)) for row in rows) if devices else rows


def _padded(row: RankRow, width: int) -> RankRow:
    return replace(row, lateness_levels=bytes([UNKNOWN_LEVEL]) * width)


def _measured(  # noqa: PLR0917 - one caller, above
    diagnosis: Diagnosis,
    last_steps: dict[int, int],
    facts: dict[int, RankFacts],
    culprits: frozenset[int],
    odd: frozenset[str],
    stages: Mapping[int, tuple[int, ...]],
    *,
    with_now: bool,
) -> dict[int, RankRow]:
    table, barrier, steady = diagnosis.table, diagnosis.steady_barrier, diagnosis.steady
    step_R = rank_step_seconds(steady)
    step_s = median_or_none(diagnosis.barrier.cycle_K)
    _, levels = lateness_levels(diagnosis.barrier, step_s)
    wait_R = row_mean(barrier.wait_RK)
    caused_R, last_R = _caused(barrier)
    behind = finite_or_nones(_behind(barrier))
    late_R = stands_out(levels)
    peers_R = np.array([stages.get(rank, (-1,))[0] for rank in table.ranks], dtype=np.int64)
    phases = phase_levels(diagnosis.seconds_PR, step_s, peers_R)
    overlaps = finite_or_nones(_overlap(steady))
    all_seconds = seconds_of_ranks(diagnosis.seconds_PR)
    share_PR = shares_PR(diagnosis.seconds_PR)
    all_shares, computes = seconds_of_ranks(share_PR), finite_or_nones(_sum_of(share_PR, COMPUTE))
    idle_R = _sum_of(diagnosis.seconds_PR, WAITS) / np.where(step_R > 0, step_R, np.nan)
    idles = finite_or_nones(np.minimum(idle_R, 1.0))
    steps, waits = finite_or_nones(step_R), finite_or_nones(wait_R)
    caused, lasts = finite_or_nones(caused_R), finite_or_nones(last_R)
    each = finite_or_nones(caused_R / max(len(table.ranks) - 1, 1))
    rows = {}
    for row, rank in enumerate(table.ranks):
        rows[rank] = _row(
            rank,
            facts.get(rank),
            last_steps.get(rank),
            odd,
            host=table.hosts[row],
            step_s=steps[row],
            seconds=all_seconds[row],
            share=all_shares[row],
            compute=computes[row],
            idle=idles[row],
            overlap=overlaps[row],
            wait_s=waits[row],
            caused_wait_s=caused[row],
            caused_each_s=each[row],
            last_arrivals=lasts[row],
            behind_s=behind[row],
            is_culprit=rank in culprits,
            is_late=bool(late_R[row]),
            levels=levels[row],
            phases=phases[row],
            with_now=with_now,
        )
    return rows


def _caused(barrier: Barrier) -> tuple[Floats, Floats]:
    """Per row: seconds a step the others together waited for it as the last arriver; how often it was."""
    num_rows, last = barrier.work_RK.shape[0], barrier.last_K
    known = np.isfinite(last)
    if barrier.evidence == "none" or not known.any():
        return np.full(num_rows, np.nan), np.full(num_rows, np.nan)
    rows = last[known].astype(np.int64)
    waits = np.where(np.isnan(barrier.wait_RK), 0.0, barrier.wait_RK)[:, known].sum(axis=0)
    caused = np.bincount(rows, weights=waits, minlength=num_rows) / known.sum()
    return caused, np.bincount(rows, minlength=num_rows) / known.sum()


def _behind(barrier: Barrier) -> Floats:
    """Per row: how much later than the typical rank it is ready, seconds a step.

    All steps speak, not those alone in which it came last: of many noisy ranks a slightly late one seldom does.
    """
    work_RK = barrier.work_RK
    return row_mean(work_RK - column_median(work_RK))


def _sum_of(values_PR: Floats, names: Iterable[str]) -> Floats:
    """Of each rank the sum of these phases, as far as they are known; NaN where none is."""
    some_PR = values_PR[[PHASE_INDEX[name] for name in names]]
    known = np.isfinite(some_PR)
    return np.where(known.any(axis=0), np.where(known, some_PR, 0.0).sum(axis=0), np.nan)


def _overlap(steady: StepTable) -> Floats:
    """Of each rank the share of its communication that compute hides, in steps of which both are known."""
    total = steady.comm_total_s_RK
    known = np.isfinite(total)
    overlap_R = np.full(steady.num_ranks, np.nan)
    if known.any():
        exposed_R = row_mean(np.where(known, np.fmin(steady.phase_s_PRK[COMM], total), np.nan))
        total_R = row_mean(total)
        np.divide(exposed_R, total_R, out=overlap_R, where=total_R > 0)
    return np.asarray(1 - np.minimum(overlap_R, 1.0))


def _row(
    rank: int,
    facts: RankFacts | None,
    last_step: int | None,
    odd: frozenset[str],
    *,
    host: str = "",
    step_s: float | None = None,
    seconds: Shares | None = None,
    share: Shares | None = None,
    compute: float | None = None,
    idle: float | None = None,
    overlap: float | None = None,
    wait_s: float | None = None,
    caused_wait_s: float | None = None,
    caused_each_s: float | None = None,
    last_arrivals: float | None = None,
    behind_s: float | None = None,
    is_culprit: bool = False,
    is_late: bool = False,
    levels: bytes = b"",
    phases: bytes = b"",
    with_now: bool,
) -> RankRow:
    known_seconds: Shares = seconds if seconds is not None else dict.fromkeys(PHASES)
    return RankRow(
        rank=rank,
        host=host or (facts.host if facts else ""),
        local_rank=facts.local_rank if facts else None,
        pid=facts.pid if facts else None,
        state=facts.state if facts else "live",
        state_detail=(facts.told or facts.no_step) if facts else "",
        ended_at=facts.ended_at if facts else 0,
        now=_now(facts) if with_now else "",
        so_far=_so_far(facts) if with_now else (),
        last_step=last_step,
        step_s=step_s,
        shares=share if share is not None else dict.fromkeys(PHASES),
        seconds=known_seconds,
        compute=compute,
        idle=idle,
        overlap=overlap,
        comm_exposed_s=known_seconds["comm_exposed"],
        wait_s=wait_s,
        caused_wait_s=caused_wait_s,
        caused_each_s=caused_each_s,
        last_arrivals=last_arrivals,
        behind_s=behind_s,
        is_culprit=is_culprit,
        lateness_levels=levels,
        phase_levels=phases,
        is_outlier=is_culprit or is_late or (facts is not None and facts.state in odd),
    )


def _so_far(facts: RankFacts | None) -> tuple[tuple[str, float], ...]:
    if facts is None or facts.state != "live":
        return ()
    return tuple(sorted(facts.so_far_s.items(), key=lambda one: (-one[1], one[0])))


def _now(facts: RankFacts | None) -> str:
    if facts is None or facts.phase is None:
        return ""
    return facts.phase if facts.phase_for_s is None else f"{facts.phase} {facts.phase_for_s:.1f} s"
