"""AMD's rocprofv3: the rocpd database that it writes by default, one process a file.

In: an SQLite file.  Out: what `importers.rocprof` reads. Tables: rocprofiler-sdk, share/rocprofiler-sdk-rocpd, schema
3; each has the run's number behind its name. Two layouts are known: with times and places in each row, and with them
in tables of tracks and timestamps. Views are the file's own and are never read; every value is checked.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.nsys import MAX_ROWS, opened_database
from tuiadvisor.importers.rocprof import SEVERAL, Call, Copy, Kernel, RocprofProcess

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Generator, Iterator
    from pathlib import Path

MARK: Final = b"rocpd_"
TABLE: Final = re.compile(r"rocpd_([a-z_]+?)(_[0-9a-f]{8}(?:_[0-9a-f]{4,12}){4})?")
# What a row's place and times are called where it has them itself, and where its track has.
PLACES: Final = ("pid", "tid", "agent_id", "queue_id", "stream_id")
OF_ITSELF: Final = "R.start, R.end"


def is_rocpd(head: bytes) -> bool:
    """By the first bytes of a database: its tables are named there."""
    return MARK in head


def process(path: Path) -> RocprofProcess:
    """TuiadvisorError where it is none, or of several processes."""
    found = _Database(path)
    found.check()
    return RocprofProcess(path, found, {}, path.stat().st_size)


class _Database:
    """Opened for each of what is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """One process with kernels."""
        with opened_database(self._path) as database:
            tables = _tables(database, self._path)
            if "kernel_dispatch" not in tables:
                raise TuiadvisorError(f"{self._path}: no table of kernels: rocprofv3 --kernel-trace")
            rows = database.execute(f'SELECT DISTINCT pid FROM "{tables["info_process"]}" LIMIT 2')  # noqa: S608 - matched
            if len(rows.fetchall()) > 1:
                raise TuiadvisorError(f"{self._path}: {SEVERAL}")

    def hip(self) -> Iterator[Call]:
        return self._regions("HIP_")

    def rccl(self) -> Iterator[Call]:
        return self._regions("RCCL_")

    def ranges(self) -> Iterator[Call]:
        return self._regions("MARKER_CORE")

    def _regions(self, category: str) -> Iterator[Call]:
        joined = (
            ("S.string", "string", "S", "R.name_id"),
            ("E.stack_id", "event", "E", "R.event_id"),
            ("C.string", "string", "C", "E.category_id"),
            ("E.extdata", "", "", ""),
        )
        for start, end, _, thread, *_, name, stack, of, more in self._rows("region", joined):
            if isinstance(of, str) and of.startswith(category):
                said = _message(more) if category == "MARKER_CORE" else ""
                yield Call(said or str(name), _integer(thread) or 0, _integer(stack), (start, end))

    def kernels(self) -> Generator[Kernel]:
        joined = (
            ("S.display_name", "info_kernel_symbol", "S", "R.kernel_id"),
            ("E.stack_id", "event", "E", "R.event_id"),
        )
        for start, end, _, _, agent, queue, stream, name, stack in self._rows("kernel_dispatch", joined):
            span = (start, end)
            yield Kernel(
                str(name or ""),
                _integer(agent) or 0,
                _integer(queue),
                _integer(stream),
                _integer(stack),
                span,
            )

    def copies(self) -> Iterator[Copy]:
        joined = (
            ("S.string", "string", "S", "R.name_id"),
            ("E.stack_id", "event", "E", "R.event_id"),
            ("R.dst_agent_id", "", "", ""),
            ("R.src_agent_id", "", "", ""),
        )
        for start, end, *_, stream, name, stack, to, of in self._rows("memory_copy", joined):
            direction = str(name or "")
            device = of if direction.endswith("DEVICE_TO_HOST") else to
            yield Copy(direction, _integer(device) or 0, _integer(stream), _integer(stack), (start, end))

    def _rows(self, table: str, joined: tuple[tuple[str, str, str, str], ...]) -> Iterator[tuple[Any, ...]]:
        """(start, end, process, thread, agent, queue, stream, then the columns joined) of each row."""
        with opened_database(self._path) as database:
            tables = _tables(database, self._path)
            if table not in tables:
                return
            columns = {str(row[1]) for row in database.execute(f'PRAGMA table_info("{tables[table]}")')}
            joins = [(tables.get(of), alias, key) for _, of, alias, key in joined if of]
            if any(of is None for of, _, _ in joins):
                raise TuiadvisorError(
                    f"{self._path}: a table that rocpd describes is missing; write it again"
                )
            if "start" in columns:
                chosen = [OF_ITSELF, *(f"R.{name}" if name in columns else "NULL" for name in PLACES)]
            elif {"track_id", "start_id", "end_id"} <= columns and {"track", "timestamp"} <= set(tables):
                chosen = ["B.value, F.value", *(f"T.{name}" for name in PLACES)]
                joins += [
                    (tables["timestamp"], "B", "R.start_id"),
                    (tables["timestamp"], "F", "R.end_id"),
                    (tables["track"], "T", "R.track_id"),
                ]
            else:
                raise TuiadvisorError(f"{self._path}: a layout of rocpd that is not known here")
            chosen += [column for column, *_ in joined]
            # All names are constants of this file, or were matched as rocpd's.
            how = " ".join(f'LEFT JOIN "{of}" {alias} ON {alias}.id = {key}' for of, alias, key in joins)
            query = f'SELECT {", ".join(chosen)} FROM "{tables[table]}" R {how}'  # noqa: S608
            for number, row in enumerate(database.execute(query)):
                if number >= MAX_ROWS:
                    raise TuiadvisorError(f"{self._path}: more than {MAX_ROWS} rows: profile fewer steps")
                yield row


def _tables(database: sqlite3.Connection, path: Path) -> dict[str, str]:
    """Our name of each table -> its name in the file; TuiadvisorError where several runs are in it."""
    found: dict[str, str] = {}
    runs = set()
    for (name,) in database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'rocpd_*'"
    ):
        match = TABLE.fullmatch(str(name))
        if match:
            runs.add(match[2])
            found[match[1]] = str(name)
    if len(runs) > 1:
        raise TuiadvisorError(f"{path}: {SEVERAL}")
    return found


def _message(more: Any) -> str:
    """What the user called a range."""
    try:
        held = json.loads(more) if isinstance(more, str) else None
    except (ValueError, RecursionError):
        return ""
    said = held.get("message") if isinstance(held, dict) else None
    return said if isinstance(said, str) else ""


def _integer(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
