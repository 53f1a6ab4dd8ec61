"""Collectives seen one by one: what each kind moves, how long it takes, and who comes last to it.

In: rows of EVENTS frames, from the steps that are watched in detail.  Out: CollectiveRow, one an operation, group and
size. Arrival is compared only where every rank of the job took part in the same call and all share one clock (one
host): elsewhere skew, transfer and last arriver stay unknown. Calls that were launched for devices tell what is moved
and how often: when a thread called says neither how long that took nor who came last.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import EventKind
from tuiadvisor.views.run_view import CollectiveRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Ints

NAMES: Final = ("rank", "kind", "step", "begin_ns", "end_ns", "group", "seq", "num_bytes", "detail")
MAX_SORTS: Final = 64  # operations of different size
MAX_CALLS: Final = 32  # latest calls of each
MAX_ROWS: Final = 4096  # of one frame; a burst of many ranks is thinned, never a burden
MAX_CALL_NS: Final = 3600 * 10**9
WAIT: Final = EventKind.WAIT
# These cannot end on any rank before the last one has entered: intervals that do not touch are not the same call.
MEETING: Final = frozenset(
    {
        EventKind.ALL_REDUCE,
        EventKind.ALL_GATHER,
        EventKind.REDUCE_SCATTER,
        EventKind.ALL_TO_ALL,
        EventKind.BARRIER,
    }
)


@dataclass(slots=True)
class _Call:
    """One collective on the ranks it was seen on."""

    step: int
    begin_ns: dict[int, int] = field(default_factory=dict)
    end_ns: dict[int, int] = field(default_factory=dict)
    hidden_ns: dict[int, int] = field(default_factory=dict)  # from the call to the wait for it


@dataclass(slots=True)
class _Sort:
    """One operation, group and size."""

    calls: dict[int, _Call] = field(default_factory=dict)  # sequence number -> call
    steps: Counter[int] = field(default_factory=Counter)  # step -> calls of the first rank seen
    rank: int = -1
    latest: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # rank -> (begin_ns, step) of its last call

    def call(self, rank: int, step: int, begin_ns: int, seq: int) -> _Call | None:
        """The call of this number, a new one for the oldest of many; None if it is older than all of those.

        A frame may hold one rank alone, from its first step on: its old calls must not drive out the others' late ones.
        """
        before_ns, before = self.latest.get(rank, (begin_ns, step))
        if step < before and begin_ns > before_ns:  # started again: its numbers count anew
            self.calls.clear()
            self.steps.clear()
        self.latest[rank] = begin_ns, step
        found = self.calls.get(seq)
        if found is not None:
            return found
        if len(self.calls) >= MAX_CALLS:
            oldest = min(self.calls)
            if seq < oldest:
                return None
            del self.calls[oldest]
        found = self.calls[seq] = _Call(step)
        return found


class Collectives:
    """Mutable: feed it the columns of EVENTS frames."""

    def __init__(self) -> None:
        self._sorts: dict[tuple[int, int, int], _Sort] = {}
        self._cached: tuple[tuple[int | None, int, bool], tuple[CollectiveRow, ...]] | None = None

    def take(self, columns: Mapping[str, Ints]) -> None:
        """Fold the collectives of one frame; rows that contradict themselves are left out."""
        kind, begin, end = columns["kind"], columns["begin_ns"], columns["end_ns"]
        good = (
            (kind >= EventKind.ALL_REDUCE) & (kind < WAIT) & (columns["rank"] >= 0) & (columns["step"] >= 0)
        )
        good &= (begin > 0) & (end >= begin) & (end - np.maximum(begin, 0) <= MAX_CALL_NS)
        good &= (columns["seq"] >= 0) & (columns["group"] >= 0)
        rows = np.flatnonzero(good)[:MAX_ROWS]
        if rows.size:
            self._cached = None
        for row in zip(*(columns[name][rows].tolist() for name in NAMES), strict=True):
            self._take_row(row)

    def _take_row(self, row: tuple[int, ...]) -> None:
        rank, kind, step, begin, end, group, seq, size, hidden = row
        key = (kind, group, size)
        sort = self._sorts.get(key)
        if sort is None:
            if len(self._sorts) >= MAX_SORTS:
                return
            sort = self._sorts[key] = _Sort(rank=rank)
        call = sort.call(rank, step, begin, seq)
        if call is not None:
            call.begin_ns[rank], call.end_ns[rank] = begin, end
            if 0 <= hidden <= end - begin:
                call.hidden_ns[rank] = hidden
        if rank == sort.rank:
            sort.steps[step] += 1
            if len(sort.steps) > MAX_CALLS:
                del sort.steps[min(sort.steps)]

    def rows(
        self, world_size: int | None, num_hosts: int, *, launched: bool = False
    ) -> tuple[CollectiveRow, ...]:
        """What was seen, the costliest first; where they were launched for devices, what moves most.

        num_hosts: of the job; above one its clocks are not compared.
        """
        key = (world_size, num_hosts, launched)
        if self._cached is not None and self._cached[0] == key:
            return self._cached[1]
        comparable = world_size if num_hosts == 1 and world_size is not None and world_size > 1 else None
        rows = [_row(of, sort, None if launched else comparable) for of, sort in self._sorts.items()]
        if launched:
            rows = [replace(row, time_s=None, hidden_s=None) for row in rows]
        ordered = tuple(sorted(rows, key=_least_cost_last))
        self._cached = (key, ordered)
        return ordered


def _least_cost_last(row: CollectiveRow) -> tuple[float, str, int]:
    cost = row.num_bytes or 0 if row.time_s is None else row.time_s
    return -(row.per_step * cost), row.op, row.num_bytes or 0


def _row(key: tuple[int, int, int], sort: _Sort, comparable: int | None) -> CollectiveRow:
    kind, group, size = key
    calls = list(sort.calls.values())
    time_s = (
        median(fmean(call.end_ns[rank] - call.begin_ns[rank] for rank in call.begin_ns) for call in calls)
        / 1e9
    )
    hidden = [call.hidden_ns[rank] for call in calls for rank in call.hidden_ns]
    met = [call for call in calls if comparable is not None and _is_whole(kind, call, comparable)]
    skew_s = transfer_s = share = None
    last = None
    if met:
        skew_s = median(max(call.begin_ns.values()) - min(call.begin_ns.values()) for call in met) / 1e9
        transfer_s = (
            median(max(min(call.end_ns.values()) - max(call.begin_ns.values()), 0) for call in met) / 1e9
        )
        comers = Counter(max(call.begin_ns, key=lambda rank: call.begin_ns[rank]) for call in met)
        last, num_last = comers.most_common(1)[0]
        share = num_last / len(met)
    num_bytes = size if size >= 0 else None
    return CollectiveRow(
        op=EventKind(kind).name.lower(),
        group=group,
        num_bytes=num_bytes,
        per_step=fmean(sort.steps.values()) if sort.steps else 1.0,
        num_seen=len(calls),
        num_ranks=max(len(call.begin_ns) for call in calls),
        time_s=time_s,
        hidden_s=fmean(hidden) / 1e9 if hidden else None,
        skew_s=skew_s,
        transfer_s=transfer_s,
        bytes_s=num_bytes / transfer_s if num_bytes and transfer_s else None,
        last_rank=last,
        last_share=share,
        last_step=max(call.step for call in calls),
    )


def _is_whole(kind: int, call: _Call, world_size: int) -> bool:
    """Whether every rank was seen in it, and in the same call."""
    if len(call.begin_ns) != world_size:
        return False
    return kind not in MEETING or max(call.begin_ns.values()) <= min(call.end_ns.values())
