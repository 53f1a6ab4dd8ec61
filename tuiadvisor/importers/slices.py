"""A traced device's work as slices for a timeline: so many that it can be zoomed, no more than a recording may hold.

In: a RankTrace with its events.  Out: rows of EVENT_COLUMNS behind their kind, and how long what is joined may be.
Neighbours of one stream and kind that are shorter, and closer, than the resolution are one slice. The resolution is
as fine as the number of slices allows; 0 where all events are there one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.errors import one_line
from tuiadvisor.events import EVENT_COLUMNS, UNKNOWN, EventKind
from tuiadvisor.importers.hostops import outermost

if TYPE_CHECKING:
    from tuiadvisor.importers.imported import ImportedRun
    from tuiadvisor.importers.rank_trace import RankTrace
    from tuiadvisor.metrics.steps.arrays import Bools, Ints
    from tuiadvisor.metrics.traces.gpu_timeline import GpuEvents

MAX_SLICES: Final = 20_000  # of a rank
MAX_ALL: Final = 400_000  # of a recording: beyond them those of each rank are fewer
MAX_STREAMS: Final = 64  # the busiest of a rank
MAX_NAMES: Final = 4_000
NAME_CHARS: Final = 80
FIRST_NS: Final = 1_000


@dataclass(frozen=True, slots=True)
class DeviceSlices:
    """rows: step, begin, end, stream, name, events joined, kind; a row each."""

    rows: Ints
    resolution_ns: int


def device_slices(
    trace: RankTrace, steps: list[tuple[int, int, int]], names: dict[str, int], limit: int
) -> DeviceSlices:
    """names: of all ranks, is added to. steps: (number, begin, end); what lies outside is of the nearest before."""
    events = trace.worked
    if not events.begin_ns.size or not steps or trace.name_of is None:
        return DeviceSlices(np.empty((0, 7), dtype=np.int64), 0)
    number_of = np.array([_numbered(name, names) for name in trace.kernel_names], dtype=np.int64)
    order = _busiest(events)
    if trace.host is not None:
        order = order[outermost(events)[order]]
    order = order[np.lexsort((events.begin_ns[order], events.stream[order]))]
    begin, end = events.begin_ns[order], events.end_ns[order]
    at = np.searchsorted(np.array([one for _, one, _ in steps]), begin, side="right") - 1
    number = np.array([step for step, _, _ in steps])[np.maximum(at, 0)]
    name = number_of[trace.name_of[order]]
    columns = (number, begin, end, events.stream[order], name, np.ones_like(begin), events.kind[order])
    return joined(np.stack([column.astype(np.int64) for column in columns], axis=1), limit)


def joined(rows: Ints, limit: int, resolution_ns: int = 0) -> DeviceSlices:
    """At most so many, or a slice a stream. Sorted by stream and begin."""
    longest = int(rows[:, 2].max() - rows[:, 1].min()) if rows.size else 0
    first = np.ones(len(rows), dtype=bool)
    while int(first.sum()) > limit and resolution_ns <= 2 * longest:
        resolution_ns = max(2 * resolution_ns, FIRST_NS)
        first = _begins(rows, resolution_ns)
    if int(first.sum()) > limit:
        first = np.concatenate(([True], rows[1:, 3] != rows[:-1, 3]))
    at = np.flatnonzero(first)
    kept = rows[at]
    if at.size:
        kept[:, 2] = np.maximum.reduceat(rows[:, 2], at)
        kept[:, 5] = np.add.reduceat(rows[:, 5], at)
    return DeviceSlices(kept, resolution_ns)


def _begins(rows: Ints, resolution_ns: int) -> Bools:
    """Where a slice begins: another stream or kind, a gap, or one that is long enough to be seen alone."""
    is_long = rows[:, 2] - rows[:, 1] > resolution_ns
    apart = (rows[1:, 3] != rows[:-1, 3]) | (rows[1:, 6] != rows[:-1, 6])
    apart |= rows[1:, 1] - rows[:-1, 2] > resolution_ns
    return np.concatenate(([True], apart | is_long[1:] | is_long[:-1]))


def _busiest(events: GpuEvents) -> Ints:
    """Places of the events on the streams that have most to do."""
    streams, at = np.unique(events.stream, return_inverse=True)
    if streams.size <= MAX_STREAMS:
        return np.arange(at.size)
    took = np.bincount(at, (events.end_ns - events.begin_ns).astype(np.float64))
    return np.flatnonzero(np.isin(at, np.argsort(-took, kind="stable")[:MAX_STREAMS]))


def _numbered(name: str, names: dict[str, int]) -> int:
    short = one_line(name[:NAME_CHARS])
    if short not in names and len(names) >= MAX_NAMES:
        return UNKNOWN
    return names.setdefault(short, len(names))


def with_slices(run: ImportedRun, slices: dict[int, DeviceSlices], names: dict[str, int]) -> ImportedRun:
    """The run with these among its ranks' events; finer ones where there are few ranks."""
    limit = max(MAX_ALL // max(len(run.ranks), 1), 1)
    kept = {rank: joined(each.rows, limit, each.resolution_ns) for rank, each in slices.items()}
    if not any(len(each.rows) for each in kept.values()):
        return run
    ranks = tuple(
        replace(rank, slices=slice_rows(kept[rank.rank])) if rank.rank in kept else rank for rank in run.ranks
    )
    told = {"names": list(names), "resolution_ns": max(each.resolution_ns for each in kept.values())}
    return replace(run, ranks=ranks, device={**(run.device or {}), **told})


def slice_rows(slices: DeviceSlices) -> Ints:
    """As events: their kind, then EVENT_COLUMNS."""
    named = ("step", "begin_ns", "end_ns", "group", "seq", "num_bytes", "detail")
    events = slices.rows[:, [named.index(column) for column in EVENT_COLUMNS]]
    return np.insert(events, 0, int(EventKind.DEVICE_SLICE), axis=1)
