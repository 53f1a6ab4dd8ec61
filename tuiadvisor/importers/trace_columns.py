"""Events of a trace into columns while it is read, and its columns into a RankTrace; events are strangers' JSON.

In: batches of events.  Out: RankTrace. What has no usable time is counted, what is too much is not kept.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.importers.beginends import BeginEnds
from tuiadvisor.importers.dropped import LAUNCHES_KERNEL, said_dropped, without_kernel
from tuiadvisor.importers.hostops import HOST_CATEGORIES, host_kind
from tuiadvisor.importers.hostwork import CATEGORIES, HostWork
from tuiadvisor.importers.kernelnames import (
    GPU_CATEGORIES,
    LAUNCH_CATEGORIES,
    all_wait,
    collective_of,
    is_to_device,
    kind_of,
    moved_bytes,
    short_name,
    told_apart,
)
from tuiadvisor.importers.opflops import OpShapes
from tuiadvisor.importers.processes import Processes
from tuiadvisor.importers.rank_trace import CommCalls, RankTrace
from tuiadvisor.importers.stepmarks import NUMBER, without_stub
from tuiadvisor.importers.trace_header import (
    about,
    device_name,
    num_multiprocessors,
    num_threads,
    printable,
    software,
    wall_of,
)
from tuiadvisor.importers.trace_values import LARGEST_NS, arguments_of, integer, members_of, nanoseconds
from tuiadvisor.metrics.series.intervals import cover
from tuiadvisor.metrics.traces.gpu_timeline import COMM, COMM_GUESSED, COMPUTE, GpuEvents

if TYPE_CHECKING:
    from tuiadvisor.importers.nsys import NsysProcess
    from tuiadvisor.importers.rocprof import RocprofProcess
    from tuiadvisor.importers.traceevents import TraceFile
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

MAX_STEPS: Final = 100_000
MAX_KERNEL_NAMES: Final = 20_000  # of different names; those beyond are one
MAX_NAME: Final = 160
LONGEST_NAME: Final = 4096  # of a kernel's, what is looked at: one of 60 MB took its reader a minute
OTHER_NAMES: Final = "(other names)"
MAX_THREADS: Final = 10_000
MAX_CALLED: Final = 100
SMALL_US: Final = 1 << 51  # as nanoseconds half of LARGEST_NS at most
HALVES: Final = ("B", "E")
DOUBLED: Final = (
    "holds events of the device again, with the same times, as when a trace was merged with a copy of itself: export "
    "it anew, or leave one of the two out"
)


def _wide() -> array[int]:
    return array("q")


def _narrow() -> array[int]:
    return array("b")


@dataclass(slots=True)
class TraceColumns:
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
    moved: array[int] = field(default_factory=_wide)  # bytes of each collective, those alone
    launched: array[int] = field(
        default_factory=_wide
    )  # correlation of each launch, in the order of the file
    launch_begin: array[int] = field(default_factory=_wide)
    is_kernel: bytearray = field(
        default_factory=bytearray
    )  # of each launch: 1 of a kernel, which a device then runs
    names: dict[str, int] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)  # of communication, by the training's threads
    kernel_names: dict[str, int] = field(default_factory=dict)
    kernel_name: array[int] = field(default_factory=lambda: array("i"))  # of each device event
    members: dict[int, tuple[int, ...]] = field(default_factory=dict)
    guessed: dict[str, int] = field(default_factory=dict)
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    categories: dict[str, str] = field(default_factory=dict)
    num_events: int = 0
    num_dropped: int = 0
    num_marks_dropped: int = 0
    shapes: OpShapes = field(default_factory=OpShapes)
    processes: Processes = field(default_factory=Processes)
    work: HostWork | None = None
    halves: BeginEnds = field(default_factory=BeginEnds)

    def close(self) -> None:
        """All batches were taken: what was begun and ended in two events is whole now."""
        if whole := self.halves.complete():
            self.take(whole)

    def take(self, batch: list[Any]) -> None:
        """Keep what these events say; those that are no complete events say nothing."""
        known = self.categories
        for event in batch:
            if not isinstance(event, dict) or event.get("ph") != "X":
                self._half(event)
                continue
            self.num_events += 1
            category = event.get("cat")
            if not isinstance(category, str):
                continue
            category = known.get(category) or self._lower(category)
            if category in LAUNCH_CATEGORIES:
                self._launch(event)
                continue
            begin, dur = event.get("ts"), event.get("dur", 0)
            # Whole microseconds as most write them; a call for each of them is a tenth of the reader's time.
            begin = begin * 1000 if type(begin) is int and 0 <= begin < SMALL_US else nanoseconds(begin)
            dur = dur * 1000 if type(dur) is int and 0 <= dur < SMALL_US else nanoseconds(dur)
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

    def _half(self, event: Any) -> None:
        """Keep it if it is a begin or an end."""
        if isinstance(event, dict) and event.get("ph") in HALVES:
            self.halves.take(event, nanoseconds(event.get("ts")))

    def _operator(self, event: dict[str, Any], category: str, begin: int | None, dur: int | None) -> None:
        """What it computes, and what the training thread does meanwhile."""
        name = event.get("name")
        if isinstance(name, str) and name.startswith("c10d::") and len(self.called) < MAX_CALLED:
            self.called.add(name)
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
        name, arguments = str(event.get("name", ""))[:LONGEST_NAME], arguments_of(event)
        kind = kind_of(name, category, arguments)
        collective = -1
        if kind in (COMM, COMM_GUESSED):
            collective = self.names.setdefault(collective_of(name, arguments), len(self.names))
            if collective not in self.members:
                self.members[collective] = members_of(arguments.get("Process Group Ranks"))
            self.moved.append(moved_bytes(arguments))
            if kind == COMM_GUESSED:
                short = short_name(name)
                self.guessed[short] = self.guessed.get(short, 0) + 1
        self.processes.ran(event.get("pid"))
        self.begin.append(begin)
        self.end.append(begin + dur)
        self.kind.append(kind)
        self.stream.append(integer(arguments.get("stream"), -1))
        self.correlation.append(integer(arguments.get("correlation"), -1))
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
        arguments = event.get("args")
        correlation = arguments.get("correlation") if isinstance(arguments, dict) else None
        if type(correlation) is not int or correlation > LARGEST_NS:
            correlation = integer(correlation, -1)
        if correlation >= 0:
            begin = nanoseconds(event.get("ts"))
            self.is_on_gpu = True
            self.launched.append(correlation)
            self.launch_begin.append(-1 if begin is None else begin)
            self.is_kernel.append(str(event.get("name")).find(LAUNCHES_KERNEL) >= 0)

    def _step(self, event: dict[str, Any], begin: int | None, dur: int | None) -> None:
        if begin is None or dur is None or dur < 0:
            self.num_marks_dropped += 1
        elif len(self.steps) < MAX_STEPS:
            mark = str(event["name"])[:80], begin, dur
            if self.steps and mark == self.steps[-1]:  # under two categories
                return
            self.steps.append(mark)
            if NUMBER.search(mark[0]):
                self.processes.stepped(mark[0])
            if self.work is not None:
                self.work.mark(event)

    def trace(self, file: str, source: TraceFile | NsysProcess | RocprofProcess) -> RankTrace:
        """All that was taken; source: whose events they were, read to its end."""
        begin, end = _column(self.begin), _column(self.end)
        linked, launch = self._launches()
        events = GpuEvents(begin, end, _column(self.kind), _column(self.stream), launch)
        rank, why_no_rank, world = about(source.rest, file)
        together = np.isin(
            _column(self.collective),
            [index for name, index in self.names.items() if all_wait(told_apart(name, self.called))],
        )
        num_processes = self.processes.count(events, together)
        if num_processes > 1:
            return self._of_several(file, source, events, num_processes, world)
        host = self._host_events() if not len(self.begin) else None
        if self.work is not None:
            self.work.copied_ns = self._copied(launch)
        marks = sorted(self.steps, key=lambda step: step[1])
        steps = without_stub(marks, launch if host is None else host.begin_ns)
        return RankTrace(
            file=file,
            rank=rank,
            why_no_rank=why_no_rank,
            world_size=world or None,
            events=events,
            host=host,
            linked=linked,
            comm=self._calls(begin, end, launch),
            guessed=self.guessed,
            steps=steps,
            num_events=self.num_events,
            num_dropped=self.num_dropped,
            num_marks_dropped=self.num_marks_dropped,
            stubs=tuple(marks[len(steps) :]),
            num_halves_lost=self.halves.num_lost,
            is_open=source.is_open,
            digest=self._digest(),
            num_bytes=source.num_bytes,
            works=self.shapes.works(),
            device_name=device_name(source.rest.get("deviceProperties")),
            num_multiprocessors=num_multiprocessors(source.rest.get("deviceProperties")),
            software=software(source.rest),
            threads=num_threads(source.rest.get("tuiadvisor")),
            work=self.work,
            kernel_names=tuple(self.kernel_names if host is None else self.host_names),
            name_of=_column(self.kernel_name if host is None else self.host_name),
            pid=self.processes.caller(),
            machine=printable(source.rest.get("host_name")),
            num_without_kernel=without_kernel(
                np.frombuffer(self.is_kernel, dtype=np.bool_),
                _column(self.launch_begin),
                np.isin(_column(self.launched), _column(self.correlation)),
            ),
            said_dropped=said_dropped(source.rest.get("WARNING")),
            wall_ns=wall_of(source.rest.get("baseTimeNanoseconds"), self._a_time()),
        )

    def _a_time(self) -> int | None:
        """Any: whether the trace counts from 1970 shows in each."""
        held = [column[0] for column in (self.begin, self.host_begin) if column]
        return next(iter([*held, *(begin for _, begin, _ in self.steps)]), None)

    def _digest(self) -> bytes:
        """Of what tells one trace from another, however its file is packed or called; empty of nothing."""
        if not (self.begin or self.steps or self.host_begin):
            return b""
        seen = blake2b(repr(self.steps).encode(), digest_size=16)
        for column in (self.begin, self.end, self.kind, self.launched, self.host_begin, self.host_end):
            seen.update(column)
        return seen.digest()

    def _of_several(
        self,
        file: str,
        source: TraceFile | NsysProcess | RocprofProcess,
        events: GpuEvents,
        num_processes: int,
        world: int,
    ) -> RankTrace:
        """What is left of a file that several ranks' traces were merged into: how many, and that they are no rank."""
        return RankTrace(
            file=file,
            rank=None,
            why_no_rank=DOUBLED
            if self.processes.is_doubled(events)
            else f"holds the events of {num_processes} or more processes: export one file a rank",
            world_size=world or None,
            events=events,
            host=None,
            linked=np.ones(events.begin_ns.size, dtype=bool),
            comm={},
            guessed={},
            steps=(),
            num_events=self.num_events,
            num_dropped=self.num_dropped,
            num_marks_dropped=self.num_marks_dropped,
            num_halves_lost=self.halves.num_lost,
            is_open=source.is_open,
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

    def _copied(self, launch_ns: Ints) -> Ints:
        """When copies to the device were launched, as far as that is known."""
        to_device = [index for name, index in self.kernel_names.items() if is_to_device(name)]
        return launch_ns[np.isin(_column(self.kernel_name), to_device) & (launch_ns >= 0)]

    def _host_events(self) -> GpuEvents | None:
        """None where this was no training on the CPU, or where the trace does not say so."""
        if self.is_on_gpu:
            return None
        kind = _column(self.host_kind)
        none = np.full(kind.size, -1, dtype=np.int64)
        thread = _column(self.host_thread)
        events = GpuEvents(_column(self.host_begin), _column(self.host_end), kind, thread, none)
        return events if (kind == COMM).any() else None

    def _calls(self, begin: Ints, end: Ints, launch: Ints) -> dict[str, CommCalls]:
        collective = _column(self.collective)
        computes = _column(self.kind) == COMPUTE
        computed = cover(begin[computes], end[computes])
        moved = np.full(collective.size, -1, dtype=np.int64)
        moved[collective >= 0] = _column(self.moved)
        calls = {}
        for name, index in self.names.items():
            rows = np.flatnonzero(collective == index)
            rows = rows[np.argsort(begin[rows], kind="stable")]
            first, last = begin[rows], end[rows]
            hidden = computed.until(last) - computed.until(first)
            members = self.members.get(index, ())
            calls[told_apart(name, self.called)] = CommCalls(
                first, last, members, hidden, launch[rows], moved[rows]
            )
        return calls


def _numbered(name: str, names: dict[str, int]) -> int:
    short = name[:MAX_NAME]
    if short not in names and len(names) >= MAX_KERNEL_NAMES:
        short = OTHER_NAMES
    return names.setdefault(short, len(names))


def _column(values: array[int]) -> Ints:
    """As it is held, one, four or eight bytes a value."""
    return np.frombuffer(values, dtype=values.typecode) if len(values) else np.empty(0, dtype=np.int64)
