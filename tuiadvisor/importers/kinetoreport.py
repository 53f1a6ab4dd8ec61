"""Profiler traces of a job as one JSON document and as a table for people.

In: a folder's path.  Out: the document with the keys of `diagnose --json` where they apply, and its text.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.importers.devicework import one_rank_says, work_lines
from tuiadvisor.importers.kernelnames import all_wait
from tuiadvisor.importers.kineto import TraceFolder, read_kineto
from tuiadvisor.importers.kineto_gaps import (
    between_neighbours,
    unlike_devices,
    what_is_unknown,
    what_was_lost,
)
from tuiadvisor.importers.kineto_rows import NS, Measured, measured_trace, row_of
from tuiadvisor.importers.stepmarks import side_by_side
from tuiadvisor.importers.tracework import efficiency_lines, trace_efficiency
from tuiadvisor.metrics.series.plausible import apart
from tuiadvisor.metrics.traces.collective_arrival import Arrivals, arrivals
from tuiadvisor.metrics.traces.collective_clock import Calls
from tuiadvisor.metrics.traces.op_table import counted, named

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tuiadvisor.events import MeasuredPeak
    from tuiadvisor.importers.imported import Progress
    from tuiadvisor.importers.rank_trace import RankTrace

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
    times: dict[str, Measured] = {}
    spans: dict[str, tuple[int, int]] = {}
    own_spans: dict[str, tuple[int, int]] = {}

    def measure(trace: RankTrace) -> RankTrace:
        if keep is not None:
            keep(trace)
        if trace.span_ns is not None:
            own_spans[trace.file] = trace.span_ns
        if trace.wall_ns is not None and trace.span_ns is not None:
            spans[trace.file] = trace.span_ns[0] + trace.wall_ns, trace.span_ns[1] + trace.wall_ns
        return replace(measured_trace(trace, times), work=None, name_of=None, kernel_names=())

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
        row_of(trace, times[trace.file], found if trace.file in one_each else None, world)
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
            *what_is_unknown(folder, times, world, found, missing),
        ],
        "notes": unlike_devices(folder.traces),
        "losses": [*folder.losses, *what_was_lost(folder, counts, found, one_each)],
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
