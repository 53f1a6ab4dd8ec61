"""all_reduce_perf of nccl-tests: what this machine's links give an all-reduce, message by message.

In: the text it printed, with whatever a launcher or a collector of logs put before each line.  Out: the document with
the ceiling. The columns are found by their header, whose names and number differ between versions; times are held
against size / algbw, which also shows the old versions' milliseconds. Of several runs in one file the last counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import read_whole
from tuiadvisor.metrics.traces.op_table import counted

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 16 << 20
MAX_ROWS: Final = 10_000
MAX_RANKS: Final = 1 << 20
BINARY: Final = re.compile(
    r"\b(all_reduce|all_gather|alltoall|broadcast|gather|hypercube|reduce|reduce_scatter|scatter|sendrecv)_perf\b"
)
ALL_REDUCE: Final = "all_reduce"
ROW: Final = re.compile(
    r"(?:^|[\s:\]>])([0-9]{1,20})\s+[0-9]{1,20}\s+[a-z][a-z0-9_]{2,15}\s"
)  # float, f8e4m3
GPUS: Final = re.compile(r"#\s*nThread\s+(\d{1,6})\s+nGpus\s+(\d{1,6})\b")
# The list of sizes goes up to maxBytes, each the one before times or plus the step.
SIZES: Final = re.compile(r"\bmaxBytes\s+(\d{1,18})\s+step:\s*(\d{1,18})\s*\((factor|bytes)\)")
RANK: Final = re.compile(r"#\s*Rank\s+(\d{1,7})\b.*?\bon\s+(\S{1,255})\s+device\b")
NUMBER: Final = re.compile(r"\d{1,20}(\.\d{1,6})?")
WRONG: Final = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)")
SMALL_BYTES: Final = 8 << 10  # up to here an all-reduce is latency alone
TOLERANCE: Final = 0.1  # printed figures are rounded
UNITS: Final = ((1e-6, "us"), (1e-3, "ms"))


@dataclass(slots=True)
class _Run:
    ranks: dict[int, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[float, float, float, float]] = field(default_factory=list)  # bytes, time, algbw, busbw
    num_wrong: int = 0
    others: set[tuple[str, str]] = field(default_factory=set)  # (redop, root) of the rows
    binaries: set[str] = field(default_factory=set)  # names of tests in the text
    counts_cpu: bool = False  # -C 1: the time is the CPU's, not the message's
    ranks_per_process: int | None = None
    max_bytes: int | None = None  # asked for
    step: tuple[int, str] = (0, "")  # to the next size: its number, factor or bytes

    @property
    def ends_early_at(self) -> int | None:
        """The last size of a table that was to go further; None where it did not, or nobody says how far."""
        if self.max_bytes is None or not self.rows:
            return None
        last, (by, how) = int(max(size for size, *_ in self.rows)), self.step
        following = last * by if how == "factor" else last + by
        return last if last < following <= self.max_bytes else None

    @property
    def num_ranks(self) -> int | None:
        """By the list of ranks. Of each process it holds what fits into 2 KiB, so whole processes are counted."""
        if not self.ranks:
            return None
        last = max(self.ranks)
        if self.ranks_per_process is not None:
            return (last // self.ranks_per_process + 1) * self.ranks_per_process
        return last + 1 if last + 1 == len(self.ranks) else None

    @property
    def num_hosts(self) -> int | None:
        """Where no rank is left out of the list."""
        return len(set(self.ranks.values())) if self.ranks and self.num_ranks == len(self.ranks) else None


def nccl_document(path: Path) -> dict[str, Any]:
    """The ceiling in a file. TuiadvisorError: why it holds none."""
    text = read_whole(path, MAX_BYTES).decode(errors="replace")
    run = _parse(text)
    if run.counts_cpu and not run.rows:
        raise TuiadvisorError(f"{path}: its times are the CPU's (-C 1); run it without -C")
    if not run.rows:
        raise TuiadvisorError(
            f"{path}: no table of nccl-tests in it; keep what all_reduce_perf -b 8 -e 1G -f 2 prints"
        )
    if run.num_wrong:
        raise TuiadvisorError(
            f"{path}: the test counted {run.num_wrong} wrong results: its times mean nothing"
        )
    num_ranks = run.num_ranks
    if num_ranks == 1:
        raise TuiadvisorError(
            f"{path}: the test ran on one rank, which moves nothing between devices; with mpirun build nccl-tests with "
            "MPI=1, on one node add -g for its devices"
        )
    _check_all_reduce(path, run, num_ranks)
    seconds = _seconds_per_unit(path, run)
    rows = [
        {"bytes": int(size), "time_s": time * seconds, "bus_bytes_s": bus * 1e9}
        for size, time, _, bus in run.rows
    ]
    small = [row["time_s"] for row in rows if row["bytes"] <= SMALL_BYTES]
    return {
        "schema": 1,
        "kind": "nccl-tests",
        "path": str(path),
        "num_ranks": num_ranks,
        "num_hosts": run.num_hosts,
        "rows": rows,
        "latency_s": median(small) if small else None,
        "bus_bytes_s": max(row["bus_bytes_s"] for row in rows),
        "losses": _losses(run),
    }


def _losses(run: _Run) -> list[str]:
    """Of a test that was cut short the best bandwidth may be less than the link's."""
    last = run.ends_early_at
    if last is None:
        return []
    return [
        f"the table ends at {last:,} of the {run.max_bytes:,} bytes asked for: larger messages may reach more bandwidth"
    ]


def nccl_summary(document: dict[str, Any]) -> str:
    """A few lines for people."""
    ranks, hosts = document["num_ranks"], document["num_hosts"]
    where = (
        "an unknown number of ranks"
        if ranks is None
        else f"{counted(ranks, 'rank')} on {'an unknown number of hosts' if hosts is None else counted(hosts, 'host')}"
    )
    latency = document["latency_s"]
    peak = document["bus_bytes_s"]
    half = next((row["bytes"] for row in document["rows"] if row["bus_bytes_s"] >= peak / 2), None)
    lines = [
        f"all-reduce over {where}: {len({row['bytes'] for row in document['rows']})} sizes",
        f"  bus bandwidth  {peak / 1e9:.4g} GB/s at best",
        f"  latency        {'unknown: no small message was sent' if latency is None else f'{1e6 * latency:.4g} us'}",
    ]
    if half is not None:
        lines.append(f"  half of the bandwidth is reached by messages of {counted(half, 'byte')}")
    lines += [f"lost: {loss}" for loss in document["losses"]]
    return "\n".join(lines)


def _parse(text: str) -> _Run:
    run = _Run()
    for raw in text.splitlines():
        whole = raw.strip()[:1000]
        line = whole[max(whole.find("#"), 0) :]  # behind a pod's name, a time, a rank
        names = BINARY.findall(whole)
        if run.rows and (GPUS.match(line) or RANK.match(line)):  # a second test in the same file
            run = _Run()
        run.binaries.update(names)
        if line.startswith("#"):
            _note(run, line)
        elif run.columns and len(run.rows) < MAX_ROWS:
            cells = _cells(whole)
            if row := _row(cells, run.columns):
                run.rows.append(row)
                run.others.add(_operation(cells, run.columns))
    return run


def _note(run: _Run, line: str) -> None:
    """What a line of comment says of the test."""
    if found := GPUS.match(line):
        run.ranks_per_process = max(int(found[1]) * int(found[2]), 1)
        if sizes := SIZES.search(line):
            run.max_bytes, run.step = int(sizes[1]), (int(sizes[2]), sizes[3])
    elif found := RANK.match(line):
        if int(found[1]) < MAX_RANKS:
            run.ranks[int(found[1])] = found[2]
    elif found := WRONG.match(line):
        run.num_wrong = int(found[1])
    elif "algbw" in line:
        run.columns = line.lstrip("# ").split()
        run.counts_cpu = "cputime" in run.columns
        run.rows.clear()
        run.others.clear()


def _cells(line: str) -> list[str]:
    """A row's cells from its size on; no prefix has a size, a number of elements and a data type beside each other."""
    found = ROW.search(line)
    return line[found.start(1) :].split() if found else []


def _row(cells: list[str], columns: list[str]) -> tuple[float, float, float, float] | None:
    """(bytes, time, algbw, busbw) of the out-of-place half; None for any other line."""
    if not cells or len(cells) < len(columns) - 1:
        return None
    try:
        first = columns.index("time")
        chosen = [cells[0], cells[first], cells[columns.index("algbw")], cells[columns.index("busbw")]]
    except (ValueError, IndexError):
        return None
    if not all(NUMBER.fullmatch(cell) for cell in chosen):
        return None
    size, time, algbw, busbw = map(float, chosen)
    return (size, time, algbw, busbw) if size > 0 and time > 0 else None


def _operation(cells: list[str], columns: list[str]) -> tuple[str, str]:
    """(redop, root) of a row; empty where its table has no such column, as of old versions."""
    found = [cells[columns.index(name)] if name in columns else "" for name in ("redop", "root")]
    return found[0], found[1]


def _check_all_reduce(path: Path, run: _Run, num_ranks: int | None) -> None:
    """By the test's name, what its rows reduce to whom, and busbw / algbw: 2(n-1)/n here, less for every other one."""
    advice = "import the output of all_reduce_perf"
    if run.binaries and ALL_REDUCE not in run.binaries:
        raise TuiadvisorError(f"{path}: this is {min(run.binaries)}_perf; {advice}")
    if any(redop == "none" for redop, _ in run.others):
        raise TuiadvisorError(
            f"{path}: its rows reduce nothing (redop none), which is no all-reduce; {advice}"
        )
    if any(root not in {"", "-1"} for _, root in run.others):
        raise TuiadvisorError(f"{path}: its rows have a root rank, which is no all-reduce; {advice}")
    ratios = [bus / alg for _, _, alg, bus in run.rows if alg >= 1]
    if not ratios:
        return
    found = median(ratios)
    if num_ranks is None:
        if found < 1 - TOLERANCE or (found < 1 + TOLERANCE and not run.binaries):
            raise TuiadvisorError(
                f"{path}: busbw is {found:.2f} x algbw and the list of ranks is missing, so it cannot be told from "
                f"another collective; keep the whole output of all_reduce_perf"
            )
        return
    if num_ranks == 2 and not run.binaries:
        raise TuiadvisorError(
            f"{path}: over 2 ranks sendrecv_perf prints the same table and nothing names the test; put the command "
            f"all_reduce_perf into the file"
        )
    expected = 2 * (num_ranks - 1) / num_ranks
    if abs(found - expected) > TOLERANCE * expected:
        raise TuiadvisorError(
            f"{path}: busbw is {found:.2f} x algbw, which is no all-reduce over {num_ranks} ranks ({expected:.2f}); "
            f"{advice}"
        )


def _seconds_per_unit(path: Path, run: _Run) -> float:
    """Of the time column, by size / algbw where that has digits."""
    large = [(size, time, alg) for size, time, alg, _ in run.rows if alg >= 1]
    if not large:
        return UNITS[0][0]
    for seconds, _ in UNITS:
        if all(abs(time * seconds * alg * 1e9 / size - 1) <= TOLERANCE for size, time, alg in large):
            return seconds
    raise TuiadvisorError(
        f"{path}: its times do not fit its bandwidths (size / algbw): is the table complete?"
    )
