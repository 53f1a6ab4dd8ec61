"""`import kineto DIR`: PyTorch Profiler traces, one file a rank, or Nsight Systems' exports, into event columns.

In: a folder of .json, plain, .gz or .zst, or of .sqlite.  Out: one RankTrace a readable file, and a line for every
file that is not.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import listed, rank_in_name
from tuiadvisor.importers.hostops import HOST_CATEGORIES, host_kind
from tuiadvisor.importers.hostwork import CATEGORIES, HostWork
from tuiadvisor.importers.kernelnames import (
    GPU_CATEGORIES,
    LAUNCH_CATEGORIES,
    all_wait,
    collective_of,
    kind_of,
)
from tuiadvisor.importers.nsys import PROCESS_OF, NsysProcess, is_nsys, processes
from tuiadvisor.importers.opflops import OpShapes
from tuiadvisor.importers.partread import FilePart, PartRead
from tuiadvisor.importers.processes import Processes
from tuiadvisor.importers.traceevents import TraceFile
from tuiadvisor.metrics.traces.gpu_timeline import COMM, COMM_GUESSED, GpuEvents
from tuiadvisor.paused_gc import collector_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tuiadvisor.efficiency.roofline import OpWork
    from tuiadvisor.importers.imported import Progress
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

    Told = Callable[[FilePart], None]

MAX_EVENTS: Final = 50_000_000
MAX_RANK: Final = 1 << 20  # ten times the largest job there was; ranks without a trace are listed
MAX_STEPS: Final = 100_000
MAX_KERNEL_NAMES: Final = 20_000  # of different names; those beyond are one
MAX_NAME: Final = 160
OTHER_NAMES: Final = "(other names)"
MAX_THREADS: Final = 10_000
LARGEST_NS: Final = (1 << 62) - 1
# Chosen: what one trace holds, or the traces of one job, lies within; clocks of two hosts were seen an hour apart.
PLAUSIBLE_NS: Final = 12 * 3600 * 10**9
EPOCH_NS: Final = 10**18  # 2001: an earlier time counts from elsewhere


@dataclass(frozen=True, slots=True)
class CommCalls:
    """A rank's communication kernels of one collective and process group, in order of their begin."""

    begin_ns: Ints
    end_ns: Ints
    members: tuple[int, ...]  # ranks of the process group, empty when the trace does not say


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One file. rank and world_size None when the trace does not say, or not the same twice."""

    file: str
    rank: int | None
    world_size: int | None
    events: GpuEvents
    host: (
        GpuEvents | None
    )  # operators and calls on the CPU, where nothing ran on a GPU and communication was there
    linked: Bools  # events whose launch is in the file
    comm: dict[str, CommCalls]
    guessed: dict[str, int]  # names that only look like communication -> count
    steps: tuple[tuple[str, int, int], ...]  # name, begin and duration in nanoseconds
    num_events: int
    num_dropped: int  # events without a usable time
    num_bytes: int
    works: tuple[OpWork, ...] = ()  # operators with their shapes, where it was recorded with them
    device_name: str | None = None
    threads: int | None = None  # of the rank, where our own capture wrote it
    why_no_rank: str = ""
    num_processes: int = 1  # whose events are in the file: of more than one its times are nobody's
    work: HostWork | None = None  # where it was asked for: what the training thread did
    kernel_names: tuple[str, ...] = ()  # of operators, where it is of a CPU
    name_of: Ints | None = None  # of each of worked: an index into kernel_names
    pid: int | None = None  # of the process that wrote it, as that sees itself
    export: str = ""  # whose process it is, where its rank is the number of its device there
    wall_ns: int | None = None  # added to its times it gives the wall clock; None: the trace does not say

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """First and last moment of its device's, or its operators', events and its steps; None without any."""
        begins = [begin for _, begin, _ in self.steps]
        ends = [begin + dur for _, begin, dur in self.steps]
        if self.worked.begin_ns.size:
            begins.append(int(self.worked.begin_ns.min()))
            ends.append(int(self.worked.end_ns.max()))
        return (min(begins), max(ends)) if begins else None

    @property
    def worked(self) -> GpuEvents:
        """What computed: a device's events, or the operators where the training was on a CPU."""
        return self.events if self.host is None else self.host


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
    paths = listed(folder, (".json", ".sqlite"))
    part = None if progress is None else PartRead(folder, paths, progress)
    for path in paths:
        told = None if part is None else part.begin(path)
        try:
            if is_nsys(path):
                traces += [measure(trace) for trace in read_nsys(path, told, with_work=with_work)]
            else:
                traces.append(measure(read_trace(path, told, with_work=with_work)))
        except TuiadvisorError as error:
            losses.append(str(error).replace(f"{folder}/", ""))
    if not traces:
        more = f" (and {len(losses) - 1} more files)" if len(losses) > 1 else ""
        raise TuiadvisorError(f"no readable trace in {folder}: {losses[0]}{more}")
    traces = _as_named(_numbered_in_one_export(traces))
    traces.sort(key=lambda trace: (trace.rank is None, trace.rank, trace.file))
    return TraceFolder(tuple(traces), tuple(losses))


def read_trace(path: Path, told: Told | None = None, *, with_work: bool = False) -> RankTrace:
    """One file; with_work: also what its training thread did. TuiadvisorError when it is damaged or no trace.

    told: called now and then while it is read, with what was read of it.
    """
    return _read(TraceFile(path), path.name, told, with_work=with_work)


def read_nsys(path: Path, told: Told | None = None, *, with_work: bool = False) -> list[RankTrace]:
    """Each process of an export of Nsight Systems. TuiadvisorError when it is damaged or holds no kernel."""
    found = processes(path)
    if len(found) == 1:
        return [_read(found[0], path.name, told, with_work=with_work)]
    # A file of several processes is one node's: where each has a device of its own, that is its rank there.
    devices = [one.devices for one in found]
    apart = all(len(each) == 1 for each in devices) and len(set(devices)) == len(devices)
    traces = []
    for one in found:
        name = f"{path.name} process {one.process % PROCESS_OF}, device {min(one.devices)}"
        trace = _read(one, name, told, with_work=with_work)
        why = "" if apart else "shares its device, and Nsight Systems does not say which rank it is"
        traces.append(
            replace(trace, rank=min(one.devices) if apart else None, why_no_rank=why, export=path.name)
        )
    return traces


def _read(source: TraceFile | NsysProcess, name: str, told: Told | None, *, with_work: bool) -> RankTrace:
    columns = _Columns(work=HostWork() if with_work else None)
    batches = source.batches()
    while _take_next(batches, columns):
        if told is not None:
            told(_part(source, name, columns))
        if columns.num_events > MAX_EVENTS:
            raise TuiadvisorError(f"{source.path} has more than {MAX_EVENTS} events: trace fewer steps")
    trace = columns.trace(name, source)
    span = trace.span_ns
    if span is not None and span[1] - span[0] > PLAUSIBLE_NS:
        length = long_time(span[1] - span[0])
        raise TuiadvisorError(
            f"{source.path}: its events span {length}, which no trace holds: times in it are wrong"
        )
    return trace


def long_time(duration_ns: int) -> str:
    """A time that is far too long, in the unit that shows it."""
    days = duration_ns / (24 * 3600 * 1e9)
    return f"{days / 365.25:.0f} years" if days > 1000 else f"{days:.1f} days"


def _take_next(batches: Iterator[list[Any]], columns: _Columns) -> bool:
    """The next batch, if there is one; what was parsed is let go before the collector is on again."""
    with collector_off():
        batch = next(batches, None)
        if batch is None:
            return False
        columns.take(batch)
        del batch
    return True


def _part(source: TraceFile | NsysProcess, name: str, columns: _Columns) -> FilePart:
    """What was read of a file so far; its rank is what stands before its events, or in its name."""
    rank, _, world = _about(source.rest, name)
    return FilePart(rank, world or None, columns.steps, columns.num_events, source.position())


def _wide() -> array[int]:
    return array("q")


def _narrow() -> array[int]:
    return array("b")


@dataclass(slots=True)
class _Columns:
    """Columns while they grow; plain arrays of integers: 41 bytes an event of the device, 16 a launch."""

    begin: array[int] = field(default_factory=_wide)
    end: array[int] = field(default_factory=_wide)
    kind: array[int] = field(default_factory=_narrow)
    stream: array[int] = field(default_factory=_wide)
    correlation: array[int] = field(default_factory=_wide)
    host_begin: array[int] = field(default_factory=_wide)
    host_end: array[int] = field(default_factory=_wide)
    host_kind: array[int] = field(default_factory=_narrow)
    host_thread: array[int] = field(default_factory=lambda: array("i"))
    host_name: array[int] = field(default_factory=lambda: array("i"))
    host_names: dict[str, int] = field(default_factory=dict)
    threads: dict[object, int] = field(default_factory=dict)
    is_on_gpu: bool = False  # launched work there, or called a library that communicates between GPUs
    collective: array[int] = field(default_factory=lambda: array("i"))  # index into names, -1 for others
    launched: array[int] = field(
        default_factory=_wide
    )  # correlation of each launch, in the order of the file
    launch_begin: array[int] = field(default_factory=_wide)
    names: dict[str, int] = field(default_factory=dict)
    kernel_names: dict[str, int] = field(default_factory=dict)
    kernel_name: array[int] = field(default_factory=lambda: array("i"))  # of each device event
    members: dict[int, tuple[int, ...]] = field(default_factory=dict)
    guessed: dict[str, int] = field(default_factory=dict)
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    categories: dict[str, str] = field(default_factory=dict)
    num_events: int = 0
    num_dropped: int = 0
    shapes: OpShapes = field(default_factory=OpShapes)
    processes: Processes = field(default_factory=Processes)
    work: HostWork | None = None

    def take(self, batch: list[Any]) -> None:
        for event in batch:
            if not isinstance(event, dict) or event.get("ph") != "X":
                continue
            self.num_events += 1
            category = event.get("cat")
            if not isinstance(category, str):
                continue
            category = self.categories.get(category) or self._lower(category)
            if category in LAUNCH_CATEGORIES:
                self._launch(event)
                continue
            begin, dur = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur", 0))
            if category in CATEGORIES or (category == "kernel" and self.shapes.num_shaped):
                self._operator(event, category, begin, dur)
            if category in GPU_CATEGORIES:
                self._gpu(event, category, begin, dur)
            elif str(event.get("name", "")).startswith("ProfilerStep") and category != "gpu_user_annotation":
                self._step(event, begin, dur)
            elif category in HOST_CATEGORIES and not self.is_on_gpu and not self.begin:
                self._host(event, category, begin, dur)
        if self.is_on_gpu or self.begin:  # what the host did is asked only where it is the device
            self.host_begin, self.host_end, self.host_kind = _wide(), _wide(), _narrow()
            del self.host_thread[:], self.host_name[:]

    def _operator(self, event: dict[str, Any], category: str, begin: int | None, dur: int | None) -> None:
        """What it computes, and what the training thread does meanwhile."""
        if self.work is not None and category != "kernel":
            self.work.take(event, begin, dur)
        if category in {"cpu_op", "kernel"}:
            self._shaped(event, begin, dur, is_kernel=category == "kernel")

    def _lower(self, category: str) -> str:
        lower = category.lower()
        if len(self.categories) < 1000:
            self.categories[category] = lower
        return lower

    def _gpu(self, event: dict[str, Any], category: str, begin: int | None, dur: int | None) -> None:
        if begin is None or dur is None or dur < 0:
            self.num_dropped += 1
            return
        name, arguments = str(event.get("name", "")), _arguments(event)
        kind = kind_of(name, category, arguments)
        collective = -1
        if kind in (COMM, COMM_GUESSED):
            collective = self.names.setdefault(collective_of(name, arguments), len(self.names))
            if collective not in self.members:
                self.members[collective] = _members(arguments.get("Process Group Ranks"))
            if kind == COMM_GUESSED:
                short = name.partition("(")[0][:80]
                self.guessed[short] = self.guessed.get(short, 0) + 1
        self.processes.ran(event.get("pid"))
        self.begin.append(begin)
        self.end.append(begin + dur)
        self.kind.append(kind)
        self.stream.append(_integer(arguments.get("stream"), -1))
        self.correlation.append(_integer(arguments.get("correlation"), -1))
        self.collective.append(collective)
        self.kernel_name.append(_numbered(name, self.kernel_names))

    def _host(self, event: dict[str, Any], category: str, begin: int | None, dur: int | None) -> None:
        name = event.get("name")
        if not isinstance(name, str):
            return
        self.is_on_gpu = self.is_on_gpu or name.startswith("nccl:")
        kind = host_kind(name, category)
        if kind is None:
            return
        if begin is None or dur is None or dur < 0:
            self.num_dropped += 1
            return
        self.host_begin.append(begin)
        self.host_end.append(begin + dur)
        self.host_kind.append(kind)
        thread = event.get("tid")
        key = thread if isinstance(thread, int | str) and len(self.threads) < MAX_THREADS else None
        self.host_thread.append(self.threads.setdefault(key, len(self.threads)))
        self.host_name.append(_numbered(name, self.host_names))

    def _shaped(self, event: dict[str, Any], begin: int | None, dur: int | None, *, is_kernel: bool) -> None:
        if not is_kernel:
            self.processes.called(event.get("pid"))
        if begin is None or dur is None or dur < 0:
            return
        if is_kernel:
            self.shapes.kernel(event, dur)
        else:
            self.shapes.operator(event, begin, dur)

    def _launch(self, event: dict[str, Any]) -> None:
        self.processes.called(event.get("pid"))
        correlation = _integer(_arguments(event).get("correlation"), -1)
        begin = _nanoseconds(event.get("ts"))
        if correlation >= 0:
            self.is_on_gpu = True
            self.launched.append(correlation)
            self.launch_begin.append(-1 if begin is None else begin)

    def _step(self, event: dict[str, Any], begin: int | None, dur: int | None) -> None:
        if begin is not None and dur is not None and len(self.steps) < MAX_STEPS:
            self.steps.append((str(event["name"])[:80], begin, dur))
            self.processes.stepped(self.steps[-1][0])
            if self.work is not None:
                self.work.mark(event)

    def trace(self, file: str, source: TraceFile | NsysProcess) -> RankTrace:
        begin, end = _column(self.begin), _column(self.end)
        linked, launch = self._launches()
        events = GpuEvents(begin, end, _column(self.kind), _column(self.stream), launch)
        rank, why_no_rank, world = _about(source.rest, file)
        together = np.isin(
            _column(self.collective), [index for name, index in self.names.items() if all_wait(name)]
        )
        num_processes = self.processes.count(events, together)
        if num_processes > 1:
            return self._of_several(file, source, events, num_processes, world)
        host = self._host_events() if not len(self.begin) else None
        return RankTrace(
            file=file,
            rank=rank,
            why_no_rank=why_no_rank,
            world_size=world or None,
            events=events,
            host=host,
            linked=linked,
            comm=self._calls(begin, end),
            guessed=self.guessed,
            steps=tuple(sorted(self.steps, key=lambda step: step[1])),
            num_events=self.num_events,
            num_dropped=self.num_dropped,
            num_bytes=source.num_bytes,
            works=self.shapes.works(),
            device_name=_device_name(source.rest.get("deviceProperties")),
            threads=_threads(source.rest.get("tuiadvisor")),
            work=self.work,
            kernel_names=tuple(self.kernel_names if host is None else self.host_names),
            name_of=_column(self.kernel_name if host is None else self.host_name),
            pid=self.processes.caller(),
            wall_ns=_wall(source.rest.get("baseTimeNanoseconds"), self._a_time()),
        )

    def _a_time(self) -> int | None:
        """Any: whether the trace counts from 1970 shows in each."""
        held = [column[0] for column in (self.begin, self.host_begin) if column]
        return next(iter([*held, *(begin for _, begin, _ in self.steps)]), None)

    def _of_several(
        self, file: str, source: TraceFile | NsysProcess, events: GpuEvents, num_processes: int, world: int
    ) -> RankTrace:
        """What is left of a file that several ranks' traces were merged into: how many, and that they are no rank."""
        return RankTrace(
            file=file,
            rank=None,
            why_no_rank=f"holds the events of {num_processes} or more processes: export one file a rank",
            world_size=world or None,
            events=events,
            host=None,
            linked=np.ones(events.begin_ns.size, dtype=bool),
            comm={},
            guessed={},
            steps=(),
            num_events=self.num_events,
            num_dropped=self.num_dropped,
            num_bytes=source.num_bytes,
            num_processes=num_processes,
        )

    def _launches(self) -> tuple[Bools, Ints]:
        """(has the event's launch been recorded, when it began or -1); of launches with one number the last."""
        wanted, launched = _column(self.correlation), _column(self.launched)
        if not launched.size:
            return np.zeros(wanted.size, dtype=bool), np.full(wanted.size, -1, dtype=np.int64)
        order = np.argsort(launched, kind="stable")
        launched = launched[order]
        at = np.maximum(np.searchsorted(launched, wanted, side="right") - 1, 0)
        linked = launched[at] == wanted
        begin = _column(self.launch_begin)[order[at]]
        return linked, np.where(linked, np.maximum(begin, -1), -1)

    def _host_events(self) -> GpuEvents | None:
        """None where this was no training on the CPU, or where the trace does not say so."""
        if self.is_on_gpu:
            return None
        kind = _column(self.host_kind)
        none = np.full(kind.size, -1, dtype=np.int64)
        thread = _column(self.host_thread)
        events = GpuEvents(_column(self.host_begin), _column(self.host_end), kind, thread, none)
        return events if (kind == COMM).any() else None

    def _calls(self, begin: Ints, end: Ints) -> dict[str, CommCalls]:
        collective = _column(self.collective)
        calls = {}
        for name, index in self.names.items():
            rows = np.flatnonzero(collective == index)
            rows = rows[np.argsort(begin[rows], kind="stable")]
            calls[name] = CommCalls(begin[rows], end[rows], self.members.get(index, ()))
        return calls


def _numbered(name: str, names: dict[str, int]) -> int:
    short = name[:MAX_NAME]
    if short not in names and len(names) >= MAX_KERNEL_NAMES:
        short = OTHER_NAMES
    return names.setdefault(short, len(names))


def _device_name(properties: Any) -> str | None:
    """Of the first device; files of several name the same kind."""
    first = properties[0] if isinstance(properties, list) and properties else None
    name = first.get("name") if isinstance(first, dict) else None
    return name[:80] if isinstance(name, str) and name.isprintable() else None


def _threads(told: Any) -> int | None:
    found = _integer(told.get("threads"), -1) if isinstance(told, dict) else -1
    return found if 0 < found < 1 << 16 else None


def _wall(base: Any, a_time_ns: int | None) -> int | None:
    """What a trace's times lack to be those of the wall clock: nothing, the base that it gives, or unknown."""
    if a_time_ns is None:
        return None
    return next((one for one in (0, _integer(base, 0)) if one + a_time_ns > EPOCH_NS), None)


def _about(rest: dict[str, Any], file: str) -> tuple[int | None, str, int]:
    """(the rank, why there is none, ranks of the job or 0)."""
    info = rest.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    world = _integer(info.get("world_size"), -1)
    world = world if 0 < world <= MAX_RANK else 0
    return *_rank(_integer(info.get("rank"), -1), rank_in_name(file), world), world


def _rank(written: int, named: int | None, world: int) -> tuple[int | None, str]:
    """(the rank, why there is none): what the trace says, else its name."""
    rank = written if written >= 0 else named
    if rank is None:
        return None, "does not say which rank it is"
    if rank >= (world or MAX_RANK):
        return None, f"says that it is of rank {rank}, of {world or MAX_RANK} ranks"
    return rank, ""


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


def _column(values: array[int]) -> Ints:
    """As it is held, one, four or eight bytes a value."""
    return np.frombuffer(values, dtype=values.typecode) if len(values) else np.empty(0, dtype=np.int64)


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _integer(value: Any, otherwise: int) -> int:
    if type(value) is int:
        return value if -1 <= value <= LARGEST_NS else otherwise
    if not isinstance(value, str):
        return otherwise
    try:
        number = int(value) if len(value) < 20 else otherwise
    except ValueError:
        return otherwise
    return number if -1 <= number <= LARGEST_NS else otherwise


def _nanoseconds(value: Any) -> int | None:
    """Microseconds, number or text, as whole nanoseconds; None for what is no time."""
    if type(value) is int:  # a bool is none
        nanoseconds = value * 1000
    elif type(value) is float:
        if not abs(value) <= LARGEST_NS:  # NaN is not, either; a thousand times 1e308 would be infinite
            return None
        nanoseconds = round(value * 1000)
    elif isinstance(value, str) and len(value) < 40:
        whole, _, fraction = value.partition(".")
        # Digits of other scripts and superscripts are digits, too, and int() reads only some of them.
        if not whole or not value.isascii() or not (whole + fraction).isdigit():
            return None
        nanoseconds = int(whole) * 1000 + int((fraction + "000")[:3])
    else:
        return None
    return nanoseconds if -LARGEST_NS <= nanoseconds <= LARGEST_NS // 2 else None


def _members(value: Any) -> tuple[int, ...]:
    """The list "[0, 1, 2]" as written by the profiler; empty when it is cut ("[0, 1, ...]") or anything else."""
    if not isinstance(value, str) or len(value) > 1 << 16 or not re.fullmatch(r"\[\d+(, ?\d+)*\]", value):
        return ()
    return tuple(sorted({int(part) for part in value[1:-1].split(",") if len(part) < 10}))
