"""Profiler traces of a job that has a recording: what each rank's trace holds, on the wall clock.

In: a folder of traces, or one.  Out: the import's document, and a TracedRank for each trace of a known rank.
A trace needs no step marks here: the recording has the steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.devicework import recorded_work
from tuiadvisor.importers.kinetoreport import look_at
from tuiadvisor.importers.slices import MAX_ALL, MAX_SLICES, DeviceSlices, device_slices, joined
from tuiadvisor.importers.stepmarks import numbered

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.events import MeasuredPeak
    from tuiadvisor.importers.imported import Progress
    from tuiadvisor.importers.kinetoreport import Looked
    from tuiadvisor.importers.rank_trace import RankTrace


@dataclass(frozen=True, slots=True)
class TracedRank:
    """rank None: the trace does not say. begin and end on the wall clock; slices on the trace's, wall_ns earlier."""

    rank: int | None
    file: str
    wall_ns: int
    begin_ns: int
    end_ns: int
    marks: list[tuple[int, int]]  # steps as the profiler was told of them, on the wall clock
    slices: DeviceSlices
    machine: str = ""  # the name of its host; "": the trace does not say
    pid: int | None = None  # as the traced process sees itself; None: the trace does not say


@dataclass(frozen=True, slots=True)
class TracedJob:
    """All traces. names: of the slices' kernels."""

    document: dict[str, Any]
    ranks: tuple[TracedRank, ...]
    world_size: int | None
    late_ranks: tuple[int, ...] | None  # whom the traces name; None where they could not be compared
    names: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def work(self, ranks: dict[str, int]) -> dict[str, Any] | None:
        """What these files' devices did, by file and rank."""
        return recorded_work(self.document, ranks)


def traced_job(
    path: Path, measured: tuple[MeasuredPeak, ...] = (), progress: Progress | None = None
) -> TracedJob:
    """TuiadvisorError where no trace can be read, is of one process, or says the wall clock."""
    held: dict[str, TracedRank] = {}
    names: dict[str, int] = {}

    def keep(trace: RankTrace) -> None:
        found = _held(trace, names)
        if found is not None:
            held[trace.file] = found

    looked = look_at(path, measured, keep, progress)
    held = {trace.file: held[trace.file] for trace in looked.folder.traces if trace.file in held}
    counts = Counter(one.rank for one in held.values())
    ranks = tuple(one for one in held.values() if counts[one.rank] == 1)
    if not held:
        raise TuiadvisorError(
            f"{path}: no trace says the wall clock (baseTimeNanoseconds), so nothing tells which steps it is of"
        )
    if not ranks:
        raise TuiadvisorError(
            f"{path}: several traces of one rank, or of none: name each by its rank, as rank0.json"
        )
    limit = max(MAX_ALL // len(ranks), 1)
    ranks = tuple(
        replace(one, slices=joined(one.slices.rows, limit, one.slices.resolution_ns)) for one in ranks
    )
    left = [trace.file for trace in looked.folder.traces if trace.file not in {one.file for one in ranks}]
    notes = [f"trace left out, of no known rank or time: {file}" for file in left[:3]]
    notes += [f"lost of the trace: {loss}" for loss in looked.document["losses"]]
    return TracedJob(
        looked.document, ranks, looked.document["run"]["world_size"], _late(looked), names, tuple(notes)
    )


def _late(looked: Looked) -> tuple[int, ...] | None:
    if looked.arrivals is None or not looked.arrivals.num_collectives:
        return None
    return tuple(row["rank"] for row in looked.document["stragglers"]["ranks"])


def _held(trace: RankTrace, names: dict[str, int]) -> TracedRank | None:
    """None where it is of several processes, says no wall clock, or holds nothing."""
    events = trace.events if trace.host is None else trace.host
    steps = numbered(trace.steps)
    if trace.num_processes > 1 or trace.wall_ns is None or not (events.begin_ns.size or steps):
        return None
    if steps:
        begin, end = steps[0][1], steps[-1][2]
    else:
        begin, end = int(events.begin_ns.min()), int(np.max(events.end_ns))
    return TracedRank(
        rank=trace.rank,
        file=trace.file,
        wall_ns=trace.wall_ns,
        begin_ns=begin + trace.wall_ns,
        end_ns=end + trace.wall_ns,
        marks=[(one + trace.wall_ns, other + trace.wall_ns) for _, one, other in steps],
        slices=device_slices(trace, [(0, begin, end)], names, MAX_SLICES),
        machine=trace.machine,
        pid=trace.pid,
    )
