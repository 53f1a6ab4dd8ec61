"""The machine's ceilings: what its links and its storage gave a benchmark. A small JSON file a project.

In: documents of `tuiadvisor import nccl-tests|fio --save`.  Out: Machine. Outside data: checked value by value.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.events import MeasuredPeak
from tuiadvisor.small_file import read_small

FILE_NAME: Final = ".tuiadvisor-machine.json"
MAX_FILE_BYTES: Final = 16 << 20
MAX_ENTRIES: Final = 100
MAX_ROWS: Final = 10_000
LARGEST: Final = 1e18


@dataclass(frozen=True, slots=True)
class Network:
    """An all-reduce over this many ranks and hosts: (bytes of a message, seconds), by size."""

    num_ranks: int | None
    num_hosts: int | None
    rows: tuple[tuple[float, float], ...]

    def time(self, size: float) -> float:
        """Seconds of one message, linear between measured sizes; beyond them by the nearest bandwidth, or latency."""
        sizes = [row[0] for row in self.rows]
        place = bisect_left(sizes, size)
        if place == 0:
            return self.rows[0][1]
        if place == len(sizes):
            last, time = self.rows[-1]
            return time * size / last
        (low, before), (high, after) = self.rows[place - 1], self.rows[place]
        return before + (after - before) * (size - low) / (high - low)

    def best_rate(self) -> float:
        """Bytes of a message a second, at best."""
        return max(size / time for size, time in self.rows)


@dataclass(frozen=True, slots=True)
class Storage:
    """What reading and writing gave. None: not measured."""

    read_bytes_s: float | None
    write_bytes_s: float | None
    is_direct: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """All ceilings that are known."""

    networks: tuple[Network, ...] = ()
    storage: Storage | None = None
    peaks: tuple[MeasuredPeak, ...] = ()  # of its processors, by precision and threads

    def network_for(self, num_ranks: int | None, num_hosts: int | None) -> Network | None:
        """The one measured like the job: within one host or between hosts, with the nearest number of ranks."""
        if num_ranks is None or num_hosts is None:
            return None
        fitting = [
            one
            for one in self.networks
            if one.num_hosts is not None and (one.num_hosts > 1) == (num_hosts > 1)
        ]
        return min(fitting, key=lambda one: abs((one.num_ranks or 0) - num_ranks), default=None)


def read_machine(path: str | Path = FILE_NAME) -> Machine:
    """The ceilings of a project; an absent file knows none. TuiadvisorError names the file and the remedy."""
    where = Path(path)
    entries = _entries(where)
    networks, storage, peaks = [], None, list[MeasuredPeak]()
    for entry in entries:
        if entry.get("kind") == "nccl-tests":
            networks.append(_network(entry, where))
        elif entry.get("kind") == "peak":
            peaks += _peaks(entry, where)
        elif entry.get("kind") == "fio":
            storage = Storage(
                _positive(entry.get("read_bytes_s")),
                _positive(entry.get("write_bytes_s")),
                entry.get("is_direct") is True,
            )
        else:
            raise TuiadvisorError(f"{where}: an entry is of no known kind; delete the file and import again")
    return Machine(tuple(networks), storage, tuple(peaks))


def save_ceiling(document: dict[str, Any], path: str | Path = FILE_NAME) -> None:
    """Add a benchmark's document; it replaces the one of the same kind, ranks and hosts."""
    where = Path(path)
    mark = _mark(document)
    kept = [entry for entry in _entries(where) if _mark(entry) != mark]
    content = json.dumps({"schema": 1, "ceilings": [*kept, document]}, indent=1)
    beside = where.with_name(where.name + ".part")
    try:
        beside.write_text(content + "\n", encoding="utf-8")
        beside.replace(where)
    except OSError as error:
        raise FailureError(f"{where}: cannot be written: {error.strerror}") from error


def _mark(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry.get(key)) for key in ("kind", "num_ranks", "num_hosts", "threads"))


def _entries(where: Path) -> list[dict[str, Any]]:
    if not where.exists():
        return []
    again = "delete it and import again: tuiadvisor import nccl-tests FILE --save"
    raw = read_small(where, MAX_FILE_BYTES, again)
    try:
        table = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise TuiadvisorError(f"{where}: not JSON; {again}") from error
    entries = table.get("ceilings") if isinstance(table, dict) else None
    if not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
        raise TuiadvisorError(f"{where}: holds no ceilings; {again}")
    if not all(isinstance(entry, dict) for entry in entries):
        raise TuiadvisorError(f"{where}: holds no ceilings; {again}")
    return entries


def _network(entry: dict[str, Any], where: Path) -> Network:
    rows = entry.get("rows")
    found: dict[float, float] = {}
    for row in rows[:MAX_ROWS] if isinstance(rows, list) else []:
        size = _positive(row.get("bytes")) if isinstance(row, dict) else None
        time = _positive(row.get("time_s")) if isinstance(row, dict) else None
        if size is not None and time is not None:
            found[size] = time
    if not found:
        raise TuiadvisorError(f"{where}: a network without sizes and times; delete the file and import again")
    return Network(
        _count(entry.get("num_ranks")), _count(entry.get("num_hosts")), tuple(sorted(found.items()))
    )


def _peaks(entry: dict[str, Any], where: Path) -> list[MeasuredPeak]:
    rates, threads = entry.get("flops_s"), _count(entry.get("threads"))
    found = [
        MeasuredPeak(dtype, threads, rate, _positive(entry.get("bytes_s")))
        for dtype, value in (rates.items() if isinstance(rates, dict) else ())
        if isinstance(dtype, str) and threads and (rate := _positive(value))
    ]
    if not found:
        raise TuiadvisorError(
            f"{where}: a peak without threads and rates; measure again: tuiadvisor doctor --measure"
        )
    return found


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 < number <= LARGEST else None


def _count(value: object) -> int | None:
    number = _positive(value)
    return None if number is None or number != int(number) else int(number)
