"""Nsight Systems' SQLite export as traces: kernels, copies, launches and NVTX ranges, one trace a process.

In: what `nsys export --type sqlite` writes.  Out: batches of events as PyTorch's profiler names them, which
`importers.kineto` reads. Tables and columns: Nsight Systems' user guide, "SQLite Schema Reference"; a GlobalId holds
the process in the bits from 24 on, the thread in those below. Tables are made as they are needed, so each may be
missing, and a later layout of one has a suffix. A CUDA graph is one event unless its nodes were traced. Steps are NVTX
ranges that are called a step or an iteration; ranges of emit_nvtx are operators. The file is another's: only tables are
read, no views, no functions, and every value is checked.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import opened, unpacked_file
from tuiadvisor.importers.profiled import Ranges, batched, event, is_span, timeless
from tuiadvisor.unpacking import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC: Final = b"SQLite format 3\0"
MAX_ROWS: Final = 50_000_000
MAX_STRINGS: Final = 2_000_000
MAX_CELL_BYTES: Final = 1 << 20
MAX_PROCESSES: Final = 64
KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
COPIES: Final = {"CUPTI_ACTIVITY_KIND_MEMCPY": "Memcpy", "CUPTI_ACTIVITY_KIND_MEMSET": "Memset"}
CATEGORIES: Final = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX: Final = "NVTX_EVENTS"
STRINGS: Final = "StringIds"
LAYOUT: Final = re.compile(r"\w{1,60}_V\d{1,3}")  # of a table, where it is not the first
PROCESS_OF: Final = 1 << 24
MIXED: Final = "another file than an export of Nsight Systems: nsys export --type sqlite REPORT"


@dataclass(slots=True)
class NsysProcess:
    """One process of the file, to be read as a trace file is."""

    path: Path
    process: int
    devices: tuple[int, ...]
    rest: dict[str, Any] = field(default_factory=dict)
    num_bytes: int = 0
    is_open: bool = False  # a database has an end

    def position(self) -> int:
        """How much was read is not known of a database."""
        return 0

    def batches(self) -> Iterator[list[Any]]:
        """Launches and ranges first, then what ran. TuiadvisorError for what is damaged."""
        with opened_database(self.path) as database:
            names = _strings(database)
            yield from batched(_launches(database, self.process))
            yield from batched(_ranges(database, self.process, names))
            yield from batched(_device(database, self.process, names))


def is_nsys(path: Path) -> bool:
    """By its first bytes; packed files are told where they are read."""
    with opened(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def processes(path: Path) -> list[NsysProcess]:
    """Those that ran something on a device, by device."""
    with opened_database(path) as database:
        found: dict[int, set[int]] = {}
        for table in (KERNELS, GRAPHS, *COPIES):
            for process, device in _rows(database, table, ("globalPid", "deviceId")):
                if type(process) is int and process >= 0 and len(found) <= MAX_PROCESSES:
                    found.setdefault(process // PROCESS_OF, set()).add(device if type(device) is int else 0)
        if not found:
            has = _columns(database, KERNELS) or _columns(database, NVTX) or _columns(database, STRINGS)
            raise TuiadvisorError(
                f"{path}: no kernel of any process: profile with --trace=cuda,nvtx"
                if has
                else f"{path}: {MIXED}"
            )
    if len(found) > MAX_PROCESSES:
        raise TuiadvisorError(f"{path}: more than {MAX_PROCESSES} processes: export one node's report")
    num_bytes = path.stat().st_size
    ordered = sorted(found.items(), key=lambda item: (min(item[1]), item[0]))
    return [NsysProcess(path, process, tuple(sorted(devices)), {}, num_bytes) for process, devices in ordered]


def has_whole_graphs(path: Path) -> bool:
    """Whether CUDA graphs were traced as a whole, so that nobody saw what ran in them."""
    with opened_database(path) as database:
        return next(iter(_rows(database, GRAPHS, ("start",))), None) is not None


@contextmanager
def opened_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Read only; nothing that the file defines is run."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise TuiadvisorError(f"{path} is above {MAX_FILE_BYTES >> 30} GiB: profile fewer steps")
    try:
        with (
            unpacked_file(path) as plain,
            closing(sqlite3.connect(f"{plain.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database,
        ):
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)
            for pragma in (
                "trusted_schema = OFF",
                "cell_size_check = ON",
                "query_only = ON",
                "mmap_size = 0",
            ):
                database.execute(f"PRAGMA {pragma}")
            yield database
    # The words for a damaged schema quote it, and may not be UTF-8.
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise TuiadvisorError(f"{path}: damaged SQLite ({str(error)[:120]}); export it again") from None


def _named(database: sqlite3.Connection, table: str) -> str:
    """As this export calls the table: TABLE_V3, the latest that holds a row; "" where there is none, or a view."""
    kinds = database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND (name = ? OR name GLOB ?)",
        (table, f"{table}_V[0-9]*"),
    ).fetchall()
    names = [name for (name,) in kinds if name == table or LAYOUT.fullmatch(str(name))]
    names.sort(key=lambda name: int(str(name)[len(table) + 2 :] or 0), reverse=True)
    # A later layout may be made and stay empty.
    held = (name for name in names if database.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone())  # noqa: S608
    return str(next(held, names[0] if names else ""))


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Of a table, not of a view; empty where there is none."""
    if not (name := _named(database, table)):
        return set()
    # Computed columns would run what the file says; table_info does not list them.
    return {str(row[1]) for row in database.execute(f'PRAGMA table_info("{name}")')}


def _rows(database: sqlite3.Connection, table: str, wanted: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Rows of the wanted columns, None for a column that is missing."""
    there = _columns(database, table)
    if not there & set(wanted):
        return
    chosen = ", ".join(f'"{name}"' if name in there else "NULL" for name in wanted)
    # The names are constants of this file, but for a digit.
    cursor = database.execute(f'SELECT {chosen} FROM "{_named(database, table)}"')  # noqa: S608
    for number, row in enumerate(cursor):
        if number >= MAX_ROWS:
            raise TuiadvisorError(f"{table} has more than {MAX_ROWS} rows: profile fewer steps")
        yield row


def _strings(database: sqlite3.Connection) -> dict[int, str]:
    names: dict[int, str] = {}
    for key, value in _rows(database, STRINGS, ("id", "value")):
        if type(key) is int and isinstance(value, str) and len(names) < MAX_STRINGS:
            names[key] = value[:400]
    return names


def _launches(database: sqlite3.Connection, process: int) -> Iterator[dict[str, Any]]:
    for start, end, thread, correlation in _rows(
        database, RUNTIME, ("start", "end", "globalTid", "correlationId")
    ):
        if _of(thread, process) and is_span(start, end):
            yield event("cuda_runtime", "launch", (start, end), thread, {"correlation": correlation})


def _device(database: sqlite3.Connection, process: int, names: dict[int, str]) -> Iterator[dict[str, Any]]:
    wanted = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId")
    for *row, short, full in _rows(database, KERNELS, (*wanted, "shortName", "demangledName")):
        yield from _ran(row, process, "kernel", names.get(full) or names.get(short) or "kernel")
    for *row, graph in _rows(database, GRAPHS, (*wanted, "graphId")):
        number = f" {graph}" if type(graph) is int else ""
        yield from _ran(row, process, "kernel", f"CUDA graph{number}, as a whole")
    for table, name in COPIES.items():
        for row in _rows(database, table, wanted):  # type: ignore[assignment]
            yield from _ran(row, process, CATEGORIES[name], name)


def _ran(row: Any, process: int, category: str, name: str) -> Iterator[dict[str, Any]]:
    start, end, of, device, stream, correlation = row
    if not _of(of, process):
        return
    place = device if type(device) is int else 0
    if is_span(start, end):
        arguments = {"stream": stream, "correlation": correlation}
        yield event(category, name, (start, end), place, arguments)
    else:
        yield timeless(category, name, place)


def _ranges(database: sqlite3.Connection, process: int, names: dict[int, str]) -> Iterator[dict[str, Any]]:
    ranges = Ranges()
    for start, end, thread, text, key in _rows(
        database, NVTX, ("start", "end", "globalTid", "text", "textId")
    ):
        name = text if isinstance(text, str) else names.get(key)
        if name and _of(thread, process) and is_span(start, end):
            yield ranges.event(name, (start, end), thread)


def _of(key: Any, process: int) -> bool:
    return type(key) is int and key // PROCESS_OF == process
