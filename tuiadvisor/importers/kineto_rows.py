"""One rank's trace as a row of the document: how its device's time is split, and what it waits for.

In: a trace with its events.  Out: what they come to, without them, and the row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.importers.devicework import device_work
from tuiadvisor.metrics.traces.gpu_timeline import NO_EVENTS, GpuTime, StreamIdle, gpu_time, stream_idle

if TYPE_CHECKING:
    from tuiadvisor.importers.rank_trace import RankTrace
    from tuiadvisor.metrics.traces.collective_arrival import Arrivals, RankArrival

NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Measured:
    """What a trace's events come to: all of them, those with a launch, and the gaps of each stream."""

    every: GpuTime | None
    linked: GpuTime | None
    idle: tuple[StreamIdle, ...]
    num_events: int
    work: dict[str, Any] | None = None  # what it computed, and why it did not


def measured_trace(trace: RankTrace, times: dict[str, Measured]) -> RankTrace:
    """The trace without its events, which of many files would be most of the memory; what they come to is in times."""
    if trace.num_processes > 1:
        times[trace.file] = Measured(None, None, (), int(trace.events.begin_ns.size))
        return replace(trace, events=NO_EVENTS, linked=trace.linked[:0].copy())
    every = gpu_time(trace.events if trace.host is None else trace.host)
    linked = every if trace.host is None and trace.linked.all() else gpu_time(trace.events.only(trace.linked))
    num_events = int(trace.events.begin_ns.size)
    times[trace.file] = Measured(every, linked, stream_idle(trace.events), num_events, device_work(trace))
    none = trace.linked[:0].copy()
    return replace(trace, events=NO_EVENTS, host=None if trace.host is None else NO_EVENTS, linked=none)


def row_of(trace: RankTrace, times: Measured, found: Arrivals | None, world: int | None) -> dict[str, Any]:
    """The document's row of a trace. found: None where its rank is not compared."""
    every, linked = times.every, times.linked
    mine = next((r for r in found.ranks if r.rank == trace.rank), None) if found else None
    # Several ranks and not one call we know: its communication was not seen, which is not none.
    seen = bool(trace.comm) or trace.host is not None or (world or 1) == 1
    return {
        "rank": trace.rank,
        "file": trace.file,
        "device": "gpu" if times.num_events else "cpu" if trace.host is not None else None,
        "idle": every and _ratio(every.idle_ns, every.window_ns),
        "compute": every and _ratio(every.compute_ns, every.window_ns),
        "overlap": every and _ratio(every.overlap_ns, every.comm_ns),
        "comm_total_s": every.comm_ns / NS if every and seen else None,
        "comm_exposed_s": every.exposed_ns / NS if every and seen else None,
        **_waits(mine, found),
        "all": _times(every, seen),
        "linked": _times(linked, seen),
        "idle_by_stream": _idle(times.idle),
        **with_waits(times.work, mine, found),
        "steps": [{"name": name, "duration_s": dur / NS} for name, _, dur in trace.steps],
        "marks_cut_off": [{"name": name, "duration_s": dur / NS} for name, _, dur in trace.stubs],
        "gpu_events": times.num_events,
        "events": trace.num_events,
        "processes": trace.num_processes,
        "why_no_rank": trace.why_no_rank or None,
        "guessed_communication": trace.guessed,
    }


def _waits(mine: RankArrival | None, found: Arrivals | None) -> dict[str, float | None]:
    """None where the rank's clock could not be put on the others' clock."""
    if mine is None or found is None or mine.clock_offset_ns is None or not found.num_collectives:
        return dict.fromkeys(("wait_s", "caused_wait_s", "clock_offset_s", "clock_uncertainty_s"))
    return {
        "wait_s": mine.wait_ns / NS,
        "caused_wait_s": mine.caused_wait_ns / NS,
        "clock_offset_s": mine.clock_offset_ns / NS,
        "clock_uncertainty_s": (mine.clock_uncertainty_ns or 0) / NS,
    }


def with_waits(
    work: dict[str, Any] | None, mine: RankArrival | None, found: Arrivals | None
) -> dict[str, Any]:
    """What the device did, with how long it waited in collectives for ranks that came later; null: not compared."""
    if work is None:
        return {
            "time_by_cause": None,
            "steps_beside_window_s": None,
            "pageable_s": None,
            "kernels_by_kind": [],
            "top_kernels": [],
        }
    # Ranks that all wait for one that was not recorded hardly wait for each other: that is not what they wait.
    is_elsewhere = found is not None and bool(found.late_rank_not_recorded)
    wait_s = None if is_elsewhere else _waits(mine, found)["wait_s"]
    return {**work, "time_by_cause": {**work["time_by_cause"], "collective_wait_s": wait_s}}


def _times(time: GpuTime | None, seen: bool) -> dict[str, Any] | None:
    if time is None:
        return None
    comm = {
        "comm_s": time.comm_ns / NS,
        "overlap_s": time.overlap_ns / NS,
        "exposed_comm_s": time.exposed_ns / NS,
        "exposed_comm_beside_memory_s": time.exposed_beside_memory_ns / NS,
        "comm_kernels": time.num_comm,
    }
    return {
        **(comm if seen else dict.fromkeys(comm)),
        "window_s": time.window_ns / NS,
        "busy_s": time.busy_ns / NS,
        "idle_s": time.idle_ns / NS,
        "compute_s": time.compute_ns / NS,
        "memory_s": time.memory_ns / NS,
        "overlap_pct": _percent(time.overlap_ns, time.comm_ns),
        "idle_pct": _percent(time.idle_ns, time.window_ns),
        "compute_pct": _percent(time.compute_ns, time.window_ns),
        "noncompute_pct": _percent(time.busy_ns - time.compute_ns, time.window_ns),
    }


def _idle(streams: tuple[StreamIdle, ...]) -> list[dict[str, Any]]:
    return [
        {
            "stream": idle.stream,
            "host_wait_s": idle.host_wait_ns / NS,
            "kernel_wait_s": idle.kernel_wait_ns / NS,
            "other_s": idle.other_ns / NS,
        }
        for idle in streams
    ]


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole > 0 else None
