"""`import kineto DIR`: PyTorch Profiler traces, one file a rank, or Nsight Systems' exports, into event columns.

In: a folder of .json, plain or packed, of .sqlite, or of rocprofv3's files.  Out: one RankTrace a readable file, and a
line for every file that is not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers import rocpd, rocprof
from tuiadvisor.importers.files import files_below, listed, name_within, opened, rank_in_name
from tuiadvisor.importers.hostwork import HostWork
from tuiadvisor.importers.nsys import MAGIC, PROCESS_OF, NsysProcess, is_nsys, processes
from tuiadvisor.importers.partread import FilePart, PartRead
from tuiadvisor.importers.trace_columns import TraceColumns
from tuiadvisor.importers.trace_header import about
from tuiadvisor.importers.traceevents import TraceFile
from tuiadvisor.metrics.series.plausible import PLAUSIBLE_NS, long_time
from tuiadvisor.paused_gc import collector_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tuiadvisor.importers.imported import Progress
    from tuiadvisor.importers.rank_trace import RankTrace

    Told = Callable[[FilePart], None]

MAX_EVENTS: Final = 50_000_000
ENDS: Final = (".json", ".sqlite")
ROCPROF_ENDS: Final = ("_trace.csv", ".db")
HEAD_BYTES: Final = 1 << 16  # in which a database names its tables


@dataclass(frozen=True, slots=True)
class TraceFolder:
    """Everything readable, and what was not."""

    traces: tuple[RankTrace, ...]
    losses: tuple[str, ...]


def read_kineto(
    folder: Path,
    measure: Callable[[RankTrace], RankTrace] = lambda trace: trace,
    progress: Progress | None = None,
    *,
    with_work: bool = False,
) -> TraceFolder:
    """All traces of a folder, by rank. TuiadvisorError when not one file is readable.

    measure: takes each as it is read, and may give it back without its events, so that one file's are held at a time.
    """
    traces: list[RankTrace] = []
    losses = []
    paths = _paths(folder)
    part = None if progress is None else PartRead(folder, paths, progress)
    for path in paths:
        told = None if part is None else part.begin(path)
        name = name_within(path, folder)
        if path.parent.parent not in {folder, folder.parent} and folder.is_dir():
            name = str(path.relative_to(folder))  # a folder between them may be named after the rank
        try:
            if rocprofs := of_rocprof(path):
                traces.append(measure(_read(rocprofs, name, told, with_work=with_work)))
            elif is_nsys(path):
                traces += [measure(trace) for trace in read_nsys(path, told, name, with_work=with_work)]
            else:
                traces.append(measure(_read(TraceFile(path), name, told, with_work=with_work)))
        except TuiadvisorError as error:
            losses.append(str(error).replace(f"{folder}/", ""))
    if not traces and folder.is_file():
        raise TuiadvisorError(losses[0])
    if not traces:
        more = f" (and {len(losses) - 1} more files)" if len(losses) > 1 else ""
        raise TuiadvisorError(f"no readable trace in {folder}: {losses[0]}{more}")
    traces = _as_named(_numbered_in_one_export(_without_copies(traces, losses)))
    traces.sort(key=lambda trace: (trace.rank is None, trace.rank, trace.file))
    return TraceFolder(tuple(traces), tuple(losses))


def demand_any(folder: Path, is_wanted: Callable[[Path], object], what: str) -> None:
    """TuiadvisorError where no file of a folder is what its kind says: another reader's words would be said of it."""
    if not any(is_wanted(path) for path in _paths(folder)):
        raise TuiadvisorError(f"{folder}: {what} is not in it; tuiadvisor open {folder} says what it is")


def _paths(folder: Path) -> list[Path]:
    """The files of a folder; of rocprofv3's one a process, where nothing else is in it."""
    try:
        return listed(folder, ENDS)
    except TuiadvisorError:
        if not folder.is_dir():
            raise
        found = rocprof.processes_of(files_below(folder, ROCPROF_ENDS))
        if not found:
            raise
        return found


def of_rocprof(path: Path) -> rocprof.RocprofProcess | None:
    """The process of a file of rocprofv3; None for any other."""
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(MAGIC):
        return rocpd.process(path) if rocpd.is_rocpd(head) else None
    return rocprof.process(path) if rocprof.is_rocprof(head) else None


def read_trace(path: Path, told: Told | None = None, *, with_work: bool = False) -> RankTrace:
    """One file; with_work: also what its training thread did. TuiadvisorError when it is damaged or no trace.

    told: called now and then while it is read, with what was read of it.
    """
    return _read(TraceFile(path), path.name, told, with_work=with_work)


def read_nsys(
    path: Path, told: Told | None = None, name: str = "", *, with_work: bool = False
) -> list[RankTrace]:
    """Each process of an export of Nsight Systems. TuiadvisorError when it is damaged or holds no kernel."""
    found, file = processes(path), name or path.name
    if len(found) == 1:
        return [_read(found[0], file, told, with_work=with_work)]
    # A file of several processes is one node's: where each has a device of its own, that is its rank there.
    devices = [one.devices for one in found]
    apart = all(len(each) == 1 for each in devices) and len(set(devices)) == len(devices)
    traces = []
    for one in found:
        name = f"{file} process {one.process % PROCESS_OF}, device {min(one.devices)}"
        trace = _read(one, name, told, with_work=with_work)
        why = "" if apart else "shares its device, and Nsight Systems does not say which rank it is"
        traces.append(replace(trace, rank=min(one.devices) if apart else None, why_no_rank=why, export=file))
    return traces


def _read(
    source: TraceFile | NsysProcess | rocprof.RocprofProcess, name: str, told: Told | None, *, with_work: bool
) -> RankTrace:
    columns = TraceColumns(work=HostWork() if with_work else None)
    batches = source.batches()
    while _take_next(batches, columns):
        if told is not None:
            told(_part(source, name, columns))
        if columns.num_events > MAX_EVENTS:
            raise TuiadvisorError(f"{source.path} has more than {MAX_EVENTS} events: trace fewer steps")
    columns.close()
    if not columns.num_events and not source.rest:
        raise TuiadvisorError(f"{source.path}: no event of a profiler is in it")
    if _is_ours(source.rest):
        raise TuiadvisorError(f"{source.path}: what tuiadvisor export wrote, no trace of a profiler")
    trace = columns.trace(name, source)
    span = trace.span_ns
    if span is not None and span[1] - span[0] > PLAUSIBLE_NS:
        length = long_time(span[1] - span[0])
        raise TuiadvisorError(
            f"{source.path}: its events span {length}, which no trace holds: times in it are wrong"
        )
    return trace


def _is_ours(rest: dict[str, Any]) -> bool:
    other = rest.get("otherData")
    return isinstance(other, dict) and str(other.get("source")).startswith("tuiadvisor export")


def _take_next(batches: Iterator[list[Any]], columns: TraceColumns) -> bool:
    """The next batch, if there is one; what was parsed is let go before the collector is on again."""
    with collector_off():
        batch = next(batches, None)
        if batch is None:
            return False
        columns.take(batch)
        del batch
    return True


def _part(
    source: TraceFile | NsysProcess | rocprof.RocprofProcess, name: str, columns: TraceColumns
) -> FilePart:
    """What was read of a file so far; its rank is what stands before its events, or in its name."""
    rank, _, world = about(source.rest, name)
    return FilePart(rank, world or None, columns.steps, columns.num_events, source.position())


def _without_copies(traces: list[RankTrace], losses: list[str]) -> list[RankTrace]:
    """One of those that hold the same events of the same rank, as a copy beside its file does."""
    first: dict[tuple[int | None, bytes], RankTrace] = {}
    kept = []
    for trace in traces:
        same = first.setdefault((trace.rank, trace.digest), trace)
        if same is trace or not trace.digest or same.num_events != trace.num_events:
            kept.append(trace)
        else:
            losses.append(f"{trace.file}: holds the same events as {same.file}, left out")
    return kept


def _numbered_in_one_export(traces: list[RankTrace]) -> list[RankTrace]:
    """A device's number tells the processes of one export apart; of several exports it says nothing."""
    if len({trace.export for trace in traces if trace.export}) < 2:
        return traces
    why = "has a device's number and no rank in one of several exports, which need not be of one job"
    return [replace(trace, rank=None, why_no_rank=why) if trace.export else trace for trace in traces]


def _as_named(traces: list[RankTrace]) -> list[RankTrace]:
    """Where the names of most files are their ranks, one that disagrees with its content may be either: it is none."""
    names = [rank_in_name(trace.file) for trace in traces]
    both = [
        (trace.rank, name)
        for trace, name in zip(traces, names, strict=True)
        if None not in (trace.rank, name)
    ]
    if 2 * sum(rank == name for rank, name in both) <= len(both):
        return traces
    return [
        replace(
            trace, rank=None, why_no_rank=f"says that it is of rank {trace.rank}, its name says rank {name}"
        )
        if trace.rank is not None and name is not None and trace.rank != name
        else trace
        for trace, name in zip(traces, names, strict=True)
    ]
