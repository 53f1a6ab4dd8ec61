"""AMD's rocprofv3: kernels, copies, HIP and RCCL calls and ROCTx ranges of a process, from its CSV files.

In: PREFIX_kernel_trace.csv, with the other traces of the same prefix where they lie beside it.  Out: batches of events
as PyTorch's profiler names them, which `importers.kineto` reads. Columns: the documentation of rocprofiler-sdk, "Using
rocprofv3"; their set differs between releases, so each is found by its name, and one that is missing is unknown. Which
rank a process is of stands in no file: in the name alone (-o rank%env{RANK}%).
RCCL calls many of its kernels Generic: which collective one is of is told by the call that launched it, if --rccl-trace
and --hip-trace were on, and else unknown.
"""

from __future__ import annotations

import csv
import io
import os
import re
from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import is_regular, opened, plain_name, separator
from tuiadvisor.importers.kernelnames import is_generic
from tuiadvisor.importers.profiled import MAX_NAME, Ranges, batched, event, is_span, timeless
from tuiadvisor.unpacking import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    Span = tuple[int, int]

MAX_LINE: Final = 1 << 17
MAX_CALLS: Final = 2_000_000  # of RCCL's that are held
KERNELS: Final = "kernel"
COPIES: Final = "memory_copy"
FILE: Final = re.compile(
    r"(?P<prefix>.*?)_?(?P<what>kernel|memory_copy|hip(?:_runtime)?(?:_api)?|marker(?:_api)?|rccl(?:_api)?)_trace\.csv"
)
HEADERS: Final = (
    {"kernel_name", "start_timestamp", "end_timestamp"},
    {"domain", "function", "correlation_id", "start_timestamp", "end_timestamp"},
    {"direction", "correlation_id", "start_timestamp", "end_timestamp"},
)
GENERIC_COPIES: Final = {  # kernels with which the runtime copies and fills
    "__amd_rocclr_copyBuffer": "gpu_memcpy",
    "__amd_rocclr_fillBuffer": "gpu_memset",
}
DIRECTIONS: Final = {
    "HOST_TO_DEVICE": "HtoD (Host -> Device)",
    "DEVICE_TO_HOST": "DtoH (Device -> Host)",
    "DEVICE_TO_DEVICE": "DtoD (Device -> Device)",
    "HOST_TO_HOST": "HtoH (Host -> Host)",
}
GROUP: Final = ("ncclGroupStart", "ncclGroupEnd")
QUIET: Final = re.compile(r"nccl(?:Get|Comm|Group|Mem|Redop|Debug)")  # calls that move nothing
DIGITS: Final = re.compile(r"\d{1,9}")
SEVERAL: Final = "rows of several processes (Guid): convert each database alone"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One dispatch. stream: of HIP; None where it was not recorded."""

    name: str
    device: int
    queue: int | None
    stream: int | None
    correlation: int | None
    span: tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Copy:
    """direction: as rocprofv3 names it."""

    direction: str
    device: int
    stream: int | None
    correlation: int | None
    span: tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """Of HIP or RCCL; or a range, whose name is what the user wrote."""

    name: str
    thread: int
    correlation: int | None
    span: tuple[Any, Any]


class Source(Protocol):
    """What one process recorded, in whatever order."""

    def hip(self) -> Iterable[Call]:
        """Calls that launch."""

    def rccl(self) -> Iterable[Call]:
        """Calls that communicate."""

    def ranges(self) -> Iterable[Call]:
        """What the user named."""

    def kernels(self) -> Generator[Kernel]:
        """What ran."""

    def copies(self) -> Iterable[Copy]:
        """What was moved."""


@dataclass(slots=True)
class RocprofProcess:
    """One process, to be read as a trace file is."""

    path: Path
    source: Source
    rest: dict[str, Any] = field(default_factory=dict)
    num_bytes: int = 0
    is_open: bool = False

    def position(self) -> int:
        """How much was read is not known."""
        return 0

    def batches(self) -> Iterator[list[Any]]:
        """Launches and ranges first, then what ran. TuiadvisorError for what is damaged."""
        calls = _Collectives(self.source.rccl())
        by_correlation: dict[int, str] = {}
        yield from batched(_launches(self.source.hip(), calls, by_correlation))
        yield from batched(_ranges(self.source.ranges()))
        with closing(self.source.kernels()) as kernels:
            streams = any(kernel.stream for kernel in kernels)
        yield from batched(_kernels(self.source.kernels(), by_correlation, by_stream=streams))
        yield from batched(_copies(self.source.copies()))


def _launches(
    calls: Iterable[Call], collectives: _Collectives, by_correlation: dict[int, str]
) -> Iterator[dict[str, Any]]:
    for call in calls:
        if is_span(*call.span):
            yield event("cuda_runtime", call.name, call.span, call.thread, {"correlation": call.correlation})
            of = collectives.of(call.thread, call.span[0])
            if of and call.correlation is not None:
                by_correlation[call.correlation] = of


def _ranges(calls: Iterable[Call]) -> Iterator[dict[str, Any]]:
    ranges = Ranges()
    for call in sorted((one for one in calls if is_span(*one.span)), key=lambda one: one.span[0]):
        if call.span[1] > call.span[0]:  # a mark is a moment and no range
            yield ranges.event(call.name, call.span, call.thread)


def _kernels(
    kernels: Iterable[Kernel], by_correlation: dict[int, str], *, by_stream: bool
) -> Iterator[dict[str, Any]]:
    """by_stream: HIP's streams were recorded, else hardware queues stand for them."""
    for kernel in kernels:
        name = kernel.name[:MAX_NAME].removesuffix(".kd") or "kernel"
        category = next((of for begin, of in GENERIC_COPIES.items() if name.startswith(begin)), "kernel")
        arguments: dict[str, Any] = {
            "stream": kernel.stream if by_stream else kernel.queue,
            "correlation": kernel.correlation,
        }
        if is_generic(name) and kernel.correlation in by_correlation:
            arguments["Collective name"] = by_correlation[kernel.correlation]
        if is_span(*kernel.span):
            yield event(category, name, kernel.span, kernel.device, arguments)
        else:
            yield timeless(category, name, kernel.device)


def _copies(copies: Iterable[Copy]) -> Iterator[dict[str, Any]]:
    for copy in copies:
        direction = copy.direction.removeprefix("MEMORY_COPY_")
        name = f"Memcpy {DIRECTIONS.get(direction, direction[:MAX_NAME])}"
        if is_span(*copy.span):
            arguments = {"stream": copy.stream, "correlation": copy.correlation}
            yield event("gpu_memcpy", name, copy.span, copy.device, arguments)
        else:
            yield timeless("gpu_memcpy", name, copy.device)


class _Collectives:
    """Which collective a launch is of, by the RCCL call of its thread that it lies in.

    Calls of a group launch at its end: they are known where all of the group are the same.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        by_thread: dict[int, list[Call]] = {}
        for number, call in enumerate(calls):
            if number >= MAX_CALLS:
                raise TuiadvisorError(f"more than {MAX_CALLS} calls of RCCL: trace fewer steps")
            if is_span(*call.span):
                by_thread.setdefault(call.thread, []).append(call)
        self._found = {thread: _named(held) for thread, held in by_thread.items()}
        self._begins = {thread: [begin for begin, _, _ in held] for thread, held in self._found.items()}

    def of(self, thread: int, at_ns: int) -> str:
        """Empty where it lies in none, or in a group of several."""
        at = bisect_right(self._begins.get(thread, ()), at_ns) - 1
        if at < 0:
            return ""
        _, end, name = self._found[thread][at]
        return name if at_ns <= end else ""


def _named(calls: list[Call]) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    depth, inside = 0, set[str]()
    for call in sorted(calls, key=lambda one: one.span):
        if call.name == GROUP[0]:
            depth += 1
        elif call.name == GROUP[1]:
            depth = max(depth - 1, 0)
            if not depth:
                found.append((*call.span, next(iter(inside)) if len(inside) == 1 else ""))
                inside.clear()
        elif not QUIET.match(call.name):
            if depth:
                inside.add(call.name)
            else:
                found.append((*call.span, call.name))
    return found


def is_rocprof(head: bytes) -> bool:
    """Whether a table begins as one of rocprofv3's."""
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    try:
        names = {name.strip().lower() for name in next(csv.reader([line], delimiter=separator(line)), [])}
    except csv.Error:
        return False
    return any(header <= names for header in HEADERS)


def process(path: Path) -> RocprofProcess:
    """The process of one of its files. TuiadvisorError where its kernels are not there."""
    found = FILE.fullmatch(plain_name(path.name))
    files = {KERNELS: path} if found is None else _beside(path, found["prefix"])
    if KERNELS not in files:
        raise TuiadvisorError(
            f"{path}: no kernel_trace.csv of the same process beside it: rocprofv3 --kernel-trace --output-format csv"
        )
    num_bytes = sum(file.stat().st_size for file in files.values())
    return RocprofProcess(files[KERNELS], _Tables(files), {}, num_bytes)


def processes_of(paths: list[Path]) -> list[Path]:
    """One file of each process: that of its kernels, where it is there."""
    chosen: dict[tuple[Path, str], Path] = {}
    for path in paths:
        found = FILE.fullmatch(plain_name(path.name))
        key = (path.parent, found["prefix"] if found else path.name)
        if key not in chosen or (found and found["what"] == KERNELS):
            chosen[key] = path
    return list(chosen.values())


def _beside(path: Path, prefix: str) -> dict[str, Path]:
    files: dict[str, Path] = {}
    with os.scandir(path.parent) as entries:
        names = sorted(entry.name for entry in entries if is_regular(entry))
    for name in names:
        found = FILE.fullmatch(plain_name(name))
        if found and found["prefix"] == prefix:
            what = found["what"]
            kind = what if what in {KERNELS, COPIES} else what.partition("_")[0]
            files.setdefault(kind, path.parent / name)
    return files


class _Tables:
    """Its CSV files."""

    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files

    def hip(self) -> Iterator[Call]:
        return self._calls("hip")

    def rccl(self) -> Iterator[Call]:
        return self._calls("rccl")

    def ranges(self) -> Iterator[Call]:
        return self._calls("marker")

    def _calls(self, what: str) -> Iterator[Call]:
        for row in self._rows(what):
            thread = row.number("thread_id") or 0
            yield Call(row.text("function"), thread, row.number("correlation_id"), row.span)

    def kernels(self) -> Generator[Kernel]:
        guid = None
        for row in self._rows(KERNELS):
            of = row.text("guid")
            if guid is not None and of != guid:
                raise TuiadvisorError(f"{self._files[KERNELS]}: {SEVERAL}")
            guid = of
            yield Kernel(
                row.text("kernel_name"),
                row.device("agent_id"),
                row.number("queue_id"),
                row.number("stream_id"),
                row.number("correlation_id"),
                row.span,
            )

    def copies(self) -> Iterator[Copy]:
        for row in self._rows(COPIES):
            direction = row.text("direction")
            on_source = direction.endswith("DEVICE_TO_HOST")
            device = row.device("source_agent_id" if on_source else "destination_agent_id")
            yield Copy(direction, device, row.number("stream_id"), row.number("correlation_id"), row.span)

    def _rows(self, what: str) -> Iterator[_Row]:
        path = self._files.get(what)
        if path is None:
            return
        with opened(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
            lines = iter(_bounded(path, text))
            first = next(lines, "")
            try:
                rows = csv.reader(chain([first], lines), delimiter=separator(first))
                places = {name.strip().lower(): at for at, name in enumerate(next(rows, []))}
                for cells in rows:
                    if cells:
                        yield _Row(places, cells)
            except csv.Error as error:
                raise TuiadvisorError(f"{path}: no readable CSV ({error}); write it again") from None


def _bounded(path: Path, lines: io.TextIOWrapper) -> Iterator[str]:
    total = 0
    while line := lines.readline(MAX_LINE):
        total += len(line)
        if len(line) == MAX_LINE or total > MAX_FILE_BYTES:
            raise TuiadvisorError(f"{path}: a line or a file too long for a trace of rocprofv3")
        yield line


class _Row:
    """A line's cells by the names of their columns; None for what is not there, or no number."""

    __slots__ = ("_cells", "_places")

    def __init__(self, places: dict[str, int], cells: list[str]) -> None:
        self._places, self._cells = places, cells

    def text(self, name: str) -> str:
        at = self._places.get(name)
        return self._cells[at].strip() if at is not None and at < len(self._cells) else ""

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    def device(self, name: str) -> int:
        """Agent 7, GPU 3 or 7, by how agents were asked to be numbered."""
        found = DIGITS.search(self.text(name))
        return int(found[0]) if found else 0

    @property
    def span(self) -> tuple[int | None, int | None]:
        return self.number("start_timestamp"), self.number("end_timestamp")
