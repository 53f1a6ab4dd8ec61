"""Profiler traces of a job as one JSON document and as a table for people.

In: a folder's path.  Out: the document with the keys of `diagnose --json` where they apply, and its text.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.importers.devicework import device_work, one_rank_says, work_lines
from tuiadvisor.importers.kernelnames import POINT_TO_POINT, all_wait
from tuiadvisor.importers.kineto import TraceFolder, read_kineto
from tuiadvisor.importers.stepmarks import numbered, side_by_side
from tuiadvisor.importers.tracework import efficiency_lines, trace_efficiency
from tuiadvisor.metrics.series.plausible import apart
from tuiadvisor.metrics.traces.collective_arrival import Arrivals, RankArrival, arrivals
from tuiadvisor.metrics.traces.collective_clock import Calls
from tuiadvisor.metrics.traces.gpu_timeline import NO_EVENTS, GpuTime, StreamIdle, gpu_time, stream_idle
from tuiadvisor.metrics.traces.op_table import counted, named

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tuiadvisor.events import MeasuredPeak
    from tuiadvisor.importers.imported import Progress
    from tuiadvisor.importers.rank_trace import RankTrace

NS: Final = 1e9
MAX_KINDS: Final = 4  # of devices, in a sentence
MAX_NUMBERS: Final = 1000  # of steps in a row without a mark
NO_TIME: Final = 0.1  # of a step: as the waterfall's
LEAST_DROPPED: Final = 0.01  # of the launches: in public traces it is none
IN_PAIRS: Final = (
    "ranks only send to and receive from one another, as stages of a pipeline do: nothing tells who is late"
)


def kineto_document(
    path: Path, measured: tuple[MeasuredPeak, ...] = (), progress: Progress | None = None
) -> dict[str, Any]:
    """Read all traces, split every rank's time, and say who arrives last. measured: peaks of a CPU at hand."""
    return look_at(path, measured, progress=progress).document


@dataclass(frozen=True, slots=True)
class Looked:
    """A folder's traces without their events, and what follows from them."""

    folder: TraceFolder
    document: dict[str, Any]
    arrivals: Arrivals | None
    missing: list[int]
    of_jobs: str = ""  # why they are not of one job; "": they may be
    one_each: frozenset[str] = frozenset()  # files that stand for their ranks
    steps_tell: bool = False  # who is late: of CPUs, whose threads' phases are comparable where steps are


def look_at(
    path: Path,
    measured: tuple[MeasuredPeak, ...] = (),
    keep: Callable[[RankTrace], None] | None = None,
    progress: Progress | None = None,
) -> Looked:
    """The document, and what it rests on. keep: is shown each trace with its events and its host's work."""
    times: dict[str, _Times] = {}
    spans: dict[str, tuple[int, int]] = {}
    own_spans: dict[str, tuple[int, int]] = {}

    def measure(trace: RankTrace) -> RankTrace:
        if keep is not None:
            keep(trace)
        if trace.span_ns is not None:
            own_spans[trace.file] = trace.span_ns
        if trace.wall_ns is not None and trace.span_ns is not None:
            spans[trace.file] = trace.span_ns[0] + trace.wall_ns, trace.span_ns[1] + trace.wall_ns
        return replace(_measured(trace, times), work=None, name_of=None, kernel_names=())

    folder = read_kineto(path, measure, progress, with_work=True)
    worlds = sorted({trace.world_size for trace in folder.traces if trace.world_size})
    world = worlds[0] if len(worlds) == 1 else None
    counts = Counter(trace.rank for trace in folder.traces)
    of_jobs = _of_jobs(worlds) if len(worlds) > 1 else apart(spans, "traces")
    missing = _missing(folder, world) if not of_jobs else []
    one_each = _one_each(folder, own_spans)
    found = _arrivals(folder, one_each, world, missing) if not of_jobs else None
    if found is not None and not found.num_collectives and not between_neighbours(folder.traces):
        of_rank = {
            t.rank or 0: spans[t.file] for t in folder.traces if t.file in one_each and t.file in spans
        }
        found = replace(found, because=found.because + _one_after_another(of_rank))
    rows = [
        _row(trace, times[trace.file], found if trace.file in one_each else None, world)
        for trace in folder.traces
    ]
    with_steps = [trace for trace in folder.traces if trace.file in one_each and trace.steps]
    on_device = any(times[trace.file].num_events for trace in with_steps)
    steps_tell = not on_device and side_by_side(with_steps)
    document = {
        "schema": 1,
        "source": {"kind": "kineto", "path": str(path), "files": len(folder.traces)},
        "run": {"world_size": world, "missing_ranks": missing},
        "per_rank": rows,
        "stragglers": _stragglers(found, folder, missing, of_jobs),
        "says": one_rank_says(rows, is_compared=found is not None, steps_tell=steps_tell),
        "efficiency": trace_efficiency(folder.traces, world, measured, of_jobs),
        "unknown": [
            *([{"metric": "late rank", "why": of_jobs}] if of_jobs else []),
            *_unknown(folder, times, world, found, missing),
        ],
        "notes": _unlike_devices(folder.traces),
        "losses": [*folder.losses, *_losses(folder, counts, found, one_each)],
    }
    return Looked(folder, document, found, missing, of_jobs, one_each, steps_tell)


def _one_after_another(spans: dict[int, tuple[int, int]]) -> str:
    """What may be why traces cannot be compared: by the wall clock no two of them overlap; "" where some do."""
    order = sorted(spans, key=lambda rank: spans[rank])
    gaps_ns = [spans[other][0] - spans[one][1] for one, other in pairwise(order)]
    if not gaps_ns or min(gaps_ns) <= 0:
        return ""
    one, other = order[:2]
    return (
        f"; by the wall clock rank {one}'s trace ends {gaps_ns[0] / NS:.3g} s before rank {other}'s begins: if their "
        "clocks agree, they are of different steps; start profiling on all ranks at the same step"
    )


def _unlike_devices(traces: tuple[RankTrace, ...]) -> list[str]:
    """That ranks have devices of different sizes, as parts of one or other models; one sentence, or none."""
    ranks_of: dict[tuple[str, int], list[int]] = {}
    for trace in traces:
        if trace.rank is not None and trace.num_multiprocessors is not None:
            key = (trace.device_name or "a device of unknown name", trace.num_multiprocessors)
            ranks_of.setdefault(key, []).append(trace.rank)
    if len(ranks_of) < 2:
        return []
    said = [
        f"{name} with {number} multiprocessors on rank{'s' * (len(ranks) > 1)} {named(ranks)}"
        for (name, number), ranks in sorted(ranks_of.items(), key=lambda item: item[1])
    ]
    return [f"devices differ: {', '.join(said[:MAX_KINDS])}"]


def _one_each(folder: TraceFolder, spans: dict[str, tuple[int, int]]) -> frozenset[str]:
    """Files that are their rank's only one; or its last, where each rank has as many, one after the other.

    So a profiler leaves them whose schedule repeats.
    """
    of: dict[int, list[str]] = {}
    for trace in folder.traces:
        if trace.rank is not None:
            of.setdefault(trace.rank, []).append(trace.file)
    numbers = {len(files) for files in of.values()}
    if len(of) > 1 and len(numbers) == 1 and all(_follow(files, spans) for files in of.values()):
        return frozenset(max(files, key=lambda file: spans[file]) for files in of.values())
    return frozenset(files[0] for files in of.values() if len(files) == 1)


def _follow(files: list[str], spans: dict[str, tuple[int, int]]) -> bool:
    """Whether these files of one rank have times, each behind the one before."""
    known = sorted(spans[file] for file in files if file in spans)
    return len(known) == len(files) and all(one[1] <= other[0] for one, other in pairwise(known))


def _missing(folder: TraceFolder, world: int | None) -> list[int]:
    """Ranks of the job that no file is of; without a world size, the gaps below the highest rank."""
    seen = {trace.rank for trace in folder.traces if trace.rank is not None}
    return sorted(set(range(world or max(seen, default=-1) + 1)) - seen) if seen else []


@dataclass(frozen=True, slots=True)
class _Times:
    """What a trace's events come to: all of them, those with a launch, and the gaps of each stream."""

    every: GpuTime | None
    linked: GpuTime | None
    idle: tuple[StreamIdle, ...]
    num_events: int
    work: dict[str, Any] | None = None  # what it computed, and why it did not


def _measured(trace: RankTrace, times: dict[str, _Times]) -> RankTrace:
    """The trace without its events, which of many files would be most of the memory; what they come to is in times."""
    if trace.num_processes > 1:
        times[trace.file] = _Times(None, None, (), int(trace.events.begin_ns.size))
        return replace(trace, events=NO_EVENTS, linked=trace.linked[:0].copy())
    every = gpu_time(trace.events if trace.host is None else trace.host)
    linked = every if trace.host is None and trace.linked.all() else gpu_time(trace.events.only(trace.linked))
    num_events = int(trace.events.begin_ns.size)
    times[trace.file] = _Times(every, linked, stream_idle(trace.events), num_events, device_work(trace))
    none = trace.linked[:0].copy()
    return replace(trace, events=NO_EVENTS, host=None if trace.host is None else NO_EVENTS, linked=none)


def _row(trace: RankTrace, times: _Times, found: Arrivals | None, world: int | None) -> dict[str, Any]:
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
    wait_s = _waits(mine, found)["wait_s"]
    return {**work, "time_by_cause": {**work["time_by_cause"], "collective_wait_s": wait_s}}


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None


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


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole > 0 else None


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


def _arrivals(
    folder: TraceFolder, one_each: frozenset[str], world: int | None, missing: list[int]
) -> Arrivals | None:
    """None when the files cannot be told apart by rank, or on the CPU, where a call begins when a thread takes it."""
    if any(trace.host is not None for trace in folder.traces):
        return None
    usable = [trace for trace in folder.traces if trace.file in one_each]
    if len(usable) < 2:
        return None
    calls: dict[int, dict[str, Calls]] = {}
    members: dict[str, tuple[int, ...]] = {}
    for trace in usable:
        calls[trace.rank or 0] = {
            name: Calls(c.begin_ns, c.end_ns, c.hidden_ns) for name, c in trace.comm.items() if all_wait(name)
        }
        members |= {name: c.members for name, c in trace.comm.items() if c.members}
    more = len(usable) < len(folder.traces)  # of no known rank, or of one that has several
    complete = not missing if missing or world or more else None
    found = arrivals(calls, members, complete, min(len(trace.steps) for trace in usable), more=more)
    return replace(found, because=IN_PAIRS) if between_neighbours(folder.traces) else found


def between_neighbours(traces: tuple[RankTrace, ...]) -> bool:
    """Whether ranks communicate, and only by sending to and receiving from one another: stages of a pipeline."""
    names = {name.partition("@")[0] for trace in traces for name in trace.comm}
    return bool(names) and names <= POINT_TO_POINT


def _of_jobs(worlds: list[int]) -> str:
    return f"traces of different jobs, of {named(worlds)} ranks: not compared; name the folder of one job"


def _stragglers(
    found: Arrivals | None, folder: TraceFolder, missing: list[int], of_jobs: str
) -> dict[str, Any]:
    if of_jobs:
        return {"ranks": [], "late_rank_not_recorded": None, "because": of_jobs}
    if found is None and any(trace.host is not None for trace in folder.traces):
        because = "on the CPU: compute is operators, communication is calls from when their thread takes them"
        return {"ranks": [], "late_rank_not_recorded": None, "because": because}
    if found is None:
        return {
            "ranks": [],
            "late_rank_not_recorded": None,
            "because": "fewer than two ranks: nothing to compare",
        }
    caused = {row.rank: row.caused_wait_ns for row in found.ranks}
    ranks = [
        {"rank": rank, "score": found.culprit_share, "caused_wait_s": caused[rank] / NS}
        for rank in found.culprits
    ]
    is_elsewhere = found.late_rank_not_recorded and missing
    # A file of several processes, or of no known rank, may be one of them.
    is_known = all(trace.rank is not None for trace in folder.traces)
    who = f"{'no trace' if is_known else 'no trace is known to be'} of rank{'s' * (len(missing) > 1)} {named(missing)}"
    return {
        "ranks": ranks,
        "collectives": found.num_collectives,
        "late_rank_not_recorded": found.late_rank_not_recorded,
        "because": found.because + (f" ({who})" if is_elsewhere else ""),
    }


def _unknown(
    folder: TraceFolder,
    times: dict[str, _Times],
    world: int | None,
    found: Arrivals | None,
    missing: list[int],
) -> list[dict[str, str]]:
    unknown = []
    for trace in folder.traces:
        who = trace.file if trace.rank is None else f"rank {trace.rank}"
        if trace.host is not None or trace.num_processes > 1:
            pass
        elif not times[trace.file].num_events:
            why = f"{who}: no GPU events in its trace: a training on a CPU, or only the CPU was profiled"
            unknown.append({"metric": "time on the device", "why": why})
        elif not trace.comm and (world or 1) > 1:
            why = f"{who}: {counted(world or 0, 'rank')} in the job but no communication kernel recognised by name"
            unknown.append({"metric": "overlap", "why": why})
        elif not trace.comm:
            unknown.append({"metric": "overlap", "why": f"{who}: no communication in its trace"})
        if trace.guessed:
            why = f"{who}: counted as communication by their look only: {named(sorted(trace.guessed))}"
            unknown.append({"metric": "communication kernels", "why": why})
        if trace.rank is None:
            unknown.append({"metric": "rank", "why": f"{trace.file} {trace.why_no_rank}"})
    if missing:
        # Without a world size the ranks here are all that is known of it.
        highest = max(trace.rank for trace in folder.traces if trace.rank is not None)
        total = world or f"at least {highest + 1}"
        have = "has" if len(missing) == 1 else "have"
        why = f"{len(missing)} of {total} ranks {have} no trace here: {named(missing)}"
        unknown.append({"metric": "late rank", "why": why})
    is_known = found is None or between_neighbours(folder.traces)  # why, which is said once
    clocks = [] if found is None or is_known else [row for row in found.ranks if row.why_not]
    return unknown + [{"metric": "clock", "why": f"rank {row.rank}: {row.why_not}"} for row in clocks]


# Counts of a trace: field, what the count is of, and what became of those.
LEFT_OUT: Final = (
    ("num_dropped", "device event", "device events", "without a usable time, dropped"),
    ("num_marks_dropped", "mark of a step", "marks of steps", "without a usable time, dropped"),
    ("num_halves_lost", "event", "events", "with a begin or an end alone, left out"),
)


def _losses(
    folder: TraceFolder, counts: Counter[int | None], found: Arrivals | None, one_each: frozenset[str]
) -> list[str]:
    losses = [
        f"{trace.file}: {counted(num, one, several)} {what}"
        for attribute, one, several, what in LEFT_OUT
        for trace in folder.traces
        if (num := getattr(trace, attribute))
    ]
    losses += [
        f"{trace.file}: {name} is no step: the trace ends {1e-6 * dur:.3g} ms into it, before anything began in it"
        for trace in folder.traces
        for name, _, dur in trace.stubs
    ]
    losses += [f"{trace.file}: {said}" for trace in folder.traces if (said := _dropped(trace))]
    losses += [f"{trace.file}: {said}" for trace in folder.traces if (said := _without_marks(trace))]
    losses += [
        f"{trace.file}: its list of events has no end: what would follow the last one is not known"
        for trace in folder.traces
        if trace.is_open
    ]
    if found is not None and found.num_left_out:
        num_all = found.num_left_out + found.num_collectives
        losses.append(
            f"{found.num_left_out} of {num_all} collectives {'does' if found.num_left_out == 1 else 'do'} not end "
            "together on their ranks: left out of who waits"
        )
    twice = sorted(rank for rank, count in counts.items() if rank is not None and count > 1)
    if twice and {trace.rank for trace in folder.traces if trace.file in one_each} >= set(twice):
        num = counts[twice[0]]
        return [*losses, f"each rank has {num} files, one after the other: the last of each is compared"]
    return losses + [f"rank {rank} has {counts[rank]} files: not compared with other ranks" for rank in twice]


def _without_marks(trace: RankTrace) -> str:
    """Steps that are not there, between others that are, though the time for them is."""
    steps = numbered(trace.steps)
    missing = [
        number
        for (one, _, end), (other, begin, ended) in pairwise(steps)
        if other > one + 1 and begin - end >= NO_TIME * (other - one - 1) * (ended - begin)
        for number in range(one + 1, min(other, one + 1 + MAX_NUMBERS))
    ]
    if not missing:
        return ""
    of = f"{counted(len(missing), 'step')} ({named(missing)})"
    return f"no mark of {of} between others: what was done then is not judged"


def _dropped(trace: RankTrace) -> str:
    """That kernels which ran are not in the trace, by what the profiler says or by launches without any."""
    num, num_all = trace.num_without_kernel
    if trace.said_dropped:
        found = f"the profiler dropped {counted(trace.said_dropped, 'record')} of the device"
    elif num and num >= LEAST_DROPPED * num_all:
        found = f"{num:,} of {num_all:,} launched kernels are not in it: dropped, or captured by a graph"
    else:
        return ""
    return f"{found}; what it shows as idle may have been work, and overlap more or less than it shows"


def kineto_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    world, num = document["run"]["world_size"], document["source"]["files"]
    lines = [
        f"{document['source']['path']}: {num} trace{'s' * (num != 1)}"
        + (f" of {counted(world, 'rank')}" if world else ""),
        f"{'rank':>6} {'window s':>9} {'compute':>8} {'idle':>7} {'comm s':>9} {'exposed s':>9} {'overlap':>8}",
    ]
    rows = document["per_rank"]
    counts = Counter(row["rank"] for row in rows)
    for row in rows:
        times = row["all"]
        name = "?" if row["rank"] is None else str(row["rank"])
        if times is None:
            several = row["processes"] > 1
            why = f"{row['why_no_rank']}; its times are no rank's" if several else "no device events"
            lines.append(f"{name:>6} {why} ({row['file']})")
            continue
        lines.append(
            f"{name:>6} {times['window_s']:9.4f} {_cell(times['compute_pct']):>8} {_cell(times['idle_pct']):>7} "
            f"{_seconds(times['comm_s']):>9} {_seconds(times['exposed_comm_s']):>9} {_cell(times['overlap_pct']):>8}"
            + (f"  {row['file']}" if counts[row["rank"]] > 1 or (name == "?" and num > 1) else "")
        )
    lines += document["says"] or [document["stragglers"]["because"]]
    lines += work_lines(document["per_rank"], [late["rank"] for late in document["stragglers"]["ranks"]])
    lines += efficiency_lines(document["efficiency"])
    lines += document["notes"]
    lines += [f"unknown {item['metric']}: {item['why']}" for item in document["unknown"]]
    lines += [f"lost: {loss}" for loss in document["losses"]]
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _cell(percent: float | None) -> str:
    return "unknown" if percent is None else f"{percent:.1f} %"
