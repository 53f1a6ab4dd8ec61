"""The steps of one traced rank as rows of a recording: what its thread and its device did from mark to mark.

In: a RankTrace that was read with its host's work.  Out: rows of STEP_COLUMNS and EVENT_COLUMNS on the trace's own
clock. A border between two phases passes on the device when that has done all that was launched before, as an event of
CUDA's would tell it; what communication nothing hides is taken out of the phase in which it falls. Nothing is filled
in: a phase that the trace does not show is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS, UNKNOWN, EventKind, StepFlag
from tuiadvisor.importers.stepmarks import numbered
from tuiadvisor.metrics.series.intervals import cover
from tuiadvisor.metrics.traces.gpu_timeline import COMM, COMM_GUESSED, COMPUTE
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from tuiadvisor.importers.hostwork import Runs
    from tuiadvisor.importers.rank_trace import RankTrace
    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.metrics.traces.gpu_timeline import GpuEvents

Row = tuple[int, ...]
CALLS_A_STEP: Final = 1 << 16  # a call's number within its step is the lower part of its sequence number
MAX_CALLS: Final = 20_000  # of a rank, one by one; the sums of steps count all
KINDS: Final = {
    "allreduce": EventKind.ALL_REDUCE,
    "allgather": EventKind.ALL_GATHER,
    "reducescatter": EventKind.REDUCE_SCATTER,
    "alltoall": EventKind.ALL_TO_ALL,
    "broadcast": EventKind.BROADCAST,
    "reduce": EventKind.REDUCE,
}


@dataclass(frozen=True, slots=True)
class RankRows:
    """steps: of STEP_COLUMNS; events: kind before EVENT_COLUMNS. Both on the clock of the trace."""

    steps: tuple[Row, ...]
    events: tuple[Row, ...]
    num_left_out: int = 0  # collectives beyond MAX_CALLS
    unseen: tuple[int, ...] = ()  # steps in which nothing of the device is there, beside others with its work


def rank_rows(trace: RankTrace, runs: Runs) -> RankRows:
    """runs: what its training thread did. Empty where the trace has no step."""
    steps = numbered(trace.steps)
    if not steps:
        return RankRows((), ())
    on_device = trace.host is None and bool(trace.events.begin_ns.size)
    events = trace.events if trace.host is None else trace.host
    is_comm = (events.kind == COMM) | (events.kind == COMM_GUESSED)
    comm = cover(events.begin_ns[is_comm], events.end_ns[is_comm])
    compute = events.kind == COMPUTE
    hiding = cover(events.begin_ns[compute], events.end_ns[compute])
    either = cover(events.begin_ns[compute | is_comm], events.end_ns[compute | is_comm])
    passed = _Borders(events) if on_device else None
    shown = runs.seen | (frozenset({"comm_exposed"}) if is_comm.any() else frozenset())
    begins = np.sort(events.begin_ns)
    unseen: list[int] = []
    step_rows: list[Row] = []
    event_rows: list[Row] = []
    for number, begin, end in steps:
        borders, names = _borders(runs, begin, end)
        device = borders if passed is None else passed.of(borders)
        exposed = np.diff(either.until(device)) - np.diff(hiding.until(device))
        host = np.diff(borders) if on_device else np.diff(device) - exposed
        row = _step((number, begin, end), host, names, shown - {"comm_exposed"})
        if "comm_exposed" in shown:
            row["comm_total_ns"] = int(np.diff(comm.until(device[[0, -1]]))[0])
        row["micro_steps"] = names.count("backward") or UNKNOWN
        if not on_device and "comm_exposed" in shown:
            row["comm_exposed_ns"] = int(exposed.sum())
            row["observed"] |= 1 << PHASES.index("comm_exposed")
        row["flags"] = int(StepFlag.DETAIL) | (0 if on_device else int(StepFlag.NO_SYNC))
        if on_device and not _has_work(begins, device):
            unseen.append(number)
            continue
        step_rows.append(tuple(row.get(name, UNKNOWN) for name in STEP_COLUMNS))
        if on_device:
            event_rows += _spans(number, _Parts(borders, device, names, exposed), shown)
    calls = _collectives(trace, steps)
    num_beyond = max(len(calls) - MAX_CALLS, 0)
    return RankRows(tuple(step_rows), (*event_rows, *calls[:MAX_CALLS]), num_beyond, tuple(unseen))


def _has_work(begins: Ints, device: Ints) -> bool:
    """Whether anything began on the device within a step, by its own clock. begins: of all its events, in order."""
    first, last = np.searchsorted(begins, device[[0, -1]])
    return bool(last > first)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a step between borders, on the host's clock and on the device's; exposed communication of each."""

    host: Ints
    device: Ints
    names: list[str]
    exposed: Ints


def _borders(runs: Runs, begin: int, end: int) -> tuple[Ints, list[str]]:
    """(times at which the phase changes within a step, both ends included; the phase of each part)."""
    first, last = (
        np.searchsorted(runs.end_ns, begin, side="right"),
        np.searchsorted(runs.begin_ns, end, side="left"),
    )
    times, names = [begin], []
    for at in range(int(first), int(last)):
        if not runs.phase[at]:
            continue
        starts, stops = max(int(runs.begin_ns[at]), begin), min(int(runs.end_ns[at]), end)
        if starts > times[-1]:
            times.append(starts)
            names.append("other")
        times.append(stops)
        names.append(runs.phase[at])
    if end > times[-1] or not names:
        times.append(end)
        names.append("other")
    return np.array(times, dtype=np.int64), names


class _Borders:
    """When the device is through with all that was launched before a moment."""

    def __init__(self, events: GpuEvents) -> None:
        compute = events.kind == COMPUTE
        streams, count = np.unique(events.stream[compute], return_counts=True)
        mine = (
            events.stream == streams[np.argmax(count)] if streams.size else np.ones(compute.size, dtype=bool)
        )
        launch = np.where(events.launch_ns >= 0, events.launch_ns, events.begin_ns)[mine]
        order = np.argsort(launch, kind="stable")
        self._launch = launch[order]
        self._done = np.maximum.accumulate(events.end_ns[mine][order]) if order.size else order

    def of(self, times: Ints) -> Ints:
        """On the device's clock, which is the host's here; never before the host passed."""
        if not self._launch.size:
            return times
        at = np.searchsorted(self._launch, times, side="left") - 1
        return np.maximum(times, np.where(at >= 0, self._done[np.maximum(at, 0)], 0))


def _step(step: tuple[int, int, int], parts: Ints, names: list[str], shown: frozenset[str]) -> dict[str, int]:
    number, begin, end = step
    # Marks count alike on all ranks, as the sequence numbers of a group do.
    row = {"step": number, "begin_ns": begin, "end_ns": end, "group_seq": number + 1}
    for name in (*sorted(shown), "other"):
        row[f"{name}_ns"] = sum(int(part) for part, of in zip(parts, names, strict=True) if of == name)
    row["observed"] = sum(1 << PHASES.index(name) for name in {*shown, "other"})
    return row


def _spans(number: int, parts: _Parts, shown: frozenset[str]) -> list[Row]:
    """The device's phases of a step, one behind the other; exposed communication at the end of the phase it is in."""
    rows = []
    for at, name in enumerate(parts.names):
        begin, end = int(parts.device[at]), int(parts.device[at + 1])
        bare = end - int(parts.exposed[at])
        rows.append(_span(number, name, begin, bare, behind=end - int(parts.host[at + 1])))
        if "comm_exposed" in shown and end > bare:
            rows.append(_span(number, "comm_exposed", bare, end))
    last = int(parts.device[-1])
    # What the trace shows elsewhere and not in this step took no time in it.
    there = {*parts.names, *(["comm_exposed"] if int(parts.exposed.sum()) else [])}
    return rows + [_span(number, name, last, last) for name in sorted({*shown, "other"} - there)]


def _span(number: int, name: str, begin: int, end: int, behind: int = 0) -> Row:
    fields = {
        "step": number,
        "begin_ns": begin,
        "end_ns": end,
        "group": PHASES.index(name),
        "seq": 0,
        "detail": behind,
    }
    return (int(EventKind.DEVICE_PHASE), *(fields.get(column, UNKNOWN) for column in EVENT_COLUMNS))


def _collectives(trace: RankTrace, steps: list[tuple[int, int, int]]) -> list[Row]:
    """The kernels of each kind of collective and group, numbered within their step, which counts alike on all ranks.

    A kernel belongs to the step that launched it: a thread runs ahead of its device by up to several steps, on each
    rank by others, and what was launched before the first step is in none. Where no launch is known, when it began.
    """
    begins = np.array([begin for _, begin, _ in steps])
    ends = np.array([end for _, _, end in steps])
    groups = sorted({name.partition("@")[2] for name in trace.comm})
    rows = []
    for name, calls in trace.comm.items():
        kind = KINDS.get(name.partition("@")[0])
        if kind is None:
            continue
        called = calls.launch_ns if (calls.launch_ns >= 0).any() else calls.begin_ns
        at = np.searchsorted(begins, called, side="right") - 1
        inside = np.flatnonzero((at >= 0) & (called < ends[np.maximum(at, 0)]))
        good = inside[np.argsort(called[inside], kind="stable")]
        at, begin, end = at[good], calls.begin_ns[good].tolist(), calls.end_ns[good].tolist()
        nth = np.arange(at.size) - np.searchsorted(at, at, side="left")
        moved = calls.num_bytes[good].tolist()
        for step, index, one, other, size in zip(at.tolist(), nth.tolist(), begin, end, moved, strict=True):
            if index < CALLS_A_STEP:
                number = steps[step][0]
                fields = {
                    "step": number,
                    "begin_ns": one,
                    "end_ns": other,
                    "group": groups.index(name.partition("@")[2]),
                    "seq": number * CALLS_A_STEP + index,
                    "num_bytes": size,
                }
                rows.append((int(kind), *(fields.get(column, UNKNOWN) for column in EVENT_COLUMNS)))
    return rows
