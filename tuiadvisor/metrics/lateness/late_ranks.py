"""Who is late, with the cause: a phase, its device, its host or that it waits for a core.

In: StepTable, the late ranks, the columns compared.  Out: LateRank per straggler. Only where a whole host is late and
no other rank, few hosts at that, the host is the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.late_phase import (
    MAX_PEERS,
    Cause,
    find_cause,
    phases_before_barrier,
)
from tuiadvisor.metrics.series.change_points import find_changes
from tuiadvisor.metrics.series.what_if import gain
from tuiadvisor.metrics.steps.arrays import column_median
from tuiadvisor.metrics.steps.loader_stage import AT_ITS_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.lateness.stragglers import Late
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.metrics.window.regime import Regime

MAX_LATE_HOSTS: Final = (
    2  # more of them late alike have something else in common: a stage, a switch, their data
)

MAX_DATED: Final = 8  # late ranks whose reason is looked at over time: a crowd has one in common
MIN_OWN_WAIT: Final = 0.5  # of a lateness: what its own thread waits for data beyond the others'
LOADERS_ALIKE: Final = 0.75  # of the ranks: what all but a quarter do is nobody's own, as in job_losses
LENGTHENED: Final = 1.05  # times: chosen, above the noise of a median, below a loader's worth naming
PHASE_MOVED: Final = 0.5  # of the lateness: so much goes into another phase, and the reason is another one


@dataclass(frozen=True, slots=True)
class LateRank:
    """A straggler with its cause."""

    late: Late
    rank: int
    host: str
    cause: Cause
    since_step: int
    whole_host: bool  # every rank of its host is late and no rank elsewhere


def with_causes(
    table: StepTable,
    late: tuple[Late, ...],
    rows: Ints,
    columns: Ints,
    regime: Regime,
    *,
    on_accelerator: bool,
) -> tuple[LateRank, ...]:
    """Each late rank with its cause and onset, in the order given. rows, columns: of the table, what was compared."""
    if not late:
        return ()
    late_rows = np.array([int(rows[entry.row]) for entry in late])
    calm = np.setdiff1d(rows, late_rows)
    window = columns[regime.start :]
    phases = phases_before_barrier(table)
    hosts = _late_hosts(table, rows, late_rows)
    result = []
    for entry, row in zip(late, late_rows.tolist(), strict=True):
        peers = calm if calm.size else np.setdiff1d(rows, [row])  # where each is late, in its own steps
        # All steps while it is late most of the time: picking the late ones picks slow noise in every phase.
        hit = window if entry.persistent else window[entry.hit_K]
        if entry.persistent and len(late) <= MAX_DATED:
            hit = _as_now(phases, row, peers, window, entry)
        cause = find_cause(
            table, phases, row, peers, hit, on_accelerator=on_accelerator, is_rare=entry.is_rare
        )
        whole_host = table.hosts[row] in hosts and cause.more is None
        if whole_host and cause.name != "unknown":
            cause = replace(cause, name="host")
        result.append(
            LateRank(
                late=replace(entry, row=row),
                rank=table.ranks[row],
                host=table.hosts[row],
                cause=cause,
                since_step=table.step_of(columns[entry.since]),
                whole_host=whole_host,
            )
        )
    return tuple(result)


def _as_now(phases: dict[str, Floats], row: int, peers: Ints, window: Ints, entry: Late) -> Ints:
    """The steps since which a rank is late for its present reason: it may stay as late while the phase changes."""
    some = peers[:: max(1, -(-peers.size // MAX_PEERS))]
    latest = 0
    for values in phases.values():
        beyond_K = values[row, window] - column_median(values[np.ix_(some, window)])
        if np.isfinite(beyond_K).all():
            changes = find_changes(beyond_K, PHASE_MOVED * entry.mean_excess_s)
            latest = max([latest, *(change.index for change in changes)])
    return window[latest:]


def with_work_spread(
    stragglers: tuple[LateRank, ...], num_ranks: int, cycle_K: Floats
) -> tuple[tuple[LateRank, ...], Floats]:
    """(stragglers, seconds a step that are lost less): who has larger batches can but share its surplus with all.

    A step does not become shorter by all of the delay, for the work has to be done by somebody.
    """
    num_loaded = sum(entry.cause.more is not None for entry in stragglers)
    kept, less_K, result = 1 - num_loaded / max(num_ranks, 1), np.zeros(cycle_K.size), []
    for entry in stragglers:
        if entry.cause.more is None:
            result.append(entry)
            continue
        loss_K = kept * entry.late.loss_K
        less_K += entry.late.loss_K - loss_K
        result.append(replace(entry, late=replace(entry.late, loss_K=loss_K, gain=gain(cycle_K, loss_K))))
    return tuple(result), less_K


def without_common_waits(
    stragglers: tuple[LateRank, ...], rows: Ints, thread_data_s_R: Floats
) -> tuple[LateRank, ...]:
    """Without ranks whose device waits for data no more than the others' threads do.

    Threads that launch ahead of their devices drift apart: of equally slow loaders one is behind the others at a time,
    and its device alone is idle. thread_data_s_R: seconds a step that each row's thread waits for data.
    """
    if not stragglers:
        return ()
    late = {entry.late.row for entry in stragglers}
    others = np.array([row for row in rows.tolist() if row not in late] or rows.tolist(), dtype=np.int64)
    usual_s = float(np.median(thread_data_s_R[others]))
    return tuple(
        entry
        for entry in stragglers
        if entry.cause.name != "data_wait"
        or not np.isfinite(thread_data_s_R[entry.late.row] - usual_s)
        or thread_data_s_R[entry.late.row] - usual_s >= MIN_OWN_WAIT * entry.late.mean_excess_s
    )


def without_loaders_alike(
    stragglers: tuple[LateRank, ...], rows: Ints, cycle_K: Floats, at_limit: Callable[[int], Floats]
) -> tuple[tuple[LateRank, ...], tuple[LateRank, ...]]:
    """(who stays named, who waits for a loader no slower than most others').

    Of equally slow loaders one makes all ranks wait: while they do, the others make a batch ahead, and with it they
    never wait themselves. Were it faster, the next one would be waited for. cycle_K: of the steps that were compared.
    at_limit: since a job step, of each row of the table `share_at_limit`.
    """
    in_data = [one for one in stragglers if one.cause.name == "data_wait" and one.cause.off_core is None]
    others = np.setdiff1d(rows, [one.late.row for one in in_data])
    seen: dict[int, Bools] = {}
    alike = []
    for entry in in_data:
        # Beside longer steps the others have time to spare that they had not before; else they only changed places.
        is_new = entry.late.onset_seen and _has_lengthened(cycle_K, entry.late.since)
        first = entry.since_step if is_new else 0
        if first not in seen:
            seen[first] = at_limit(first)[others] >= AT_ITS_LIMIT
        if seen[first].any() and len(in_data) + seen[first].sum() >= LOADERS_ALIKE * rows.size:
            alike.append(entry)
    rows_alike = {one.late.row for one in alike}
    return tuple(one for one in stragglers if one.late.row not in rows_alike), tuple(alike)


def _has_lengthened(cycle_K: Floats, since: int) -> bool:
    """Whether steps take longer from this column on than before it."""
    return 0 < since < cycle_K.size and bool(
        np.median(cycle_K[since:]) > LENGTHENED * np.median(cycle_K[:since])
    )


def _late_hosts(table: StepTable, rows: Ints, late_rows: Ints) -> frozenset[str]:
    """Hosts, few of them, whose ranks are all late while other hosts' are not: at least two ranks on such a host."""
    by_host: dict[str, list[bool]] = {}
    for row in rows.tolist():
        by_host.setdefault(table.hosts[row], []).append(row in late_rows)
    if len(by_host) < 2:
        return frozenset()
    whole = frozenset(host for host, late in by_host.items() if all(late) and len(late) >= 2)
    elsewhere = any(any(late) for host, late in by_host.items() if host not in whole)
    return frozenset() if elsewhere or len(whole) > MAX_LATE_HOSTS else whole
