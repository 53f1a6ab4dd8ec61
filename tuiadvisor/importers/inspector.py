"""`import nccl-inspector PATH`: collectives of each rank as NCCL's Inspector plugin logs them.

In: its files, one JSON object a call (NCCL, ext-profiler/inspector/README.md: header, metadata, coll_perf or p2p_perf).
Out: the document: calls by operation and size, each rank's time and wait, who comes last. A communicator counts ranks
of its own; a process is called by its rank in the largest one it is in, where none other is then called the same.
Durations alone are logged, and no steps.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import listed, opened
from tuiadvisor.importers.jsontext import Records
from tuiadvisor.metrics.traces.duration_arrival import duration_arrivals
from tuiadvisor.metrics.traces.op_table import counted, named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_CALLS: Final = 2_000_000
MAX_RANKS: Final = 1 << 20
MAX_NUMBER: Final = 1 << 62
LARGEST_GB_S: Final = 1e6
LONGEST_US: Final = 86_400 * 1e6
SHOWN: Final = 12
ALL_WAIT: Final = frozenset({"AllReduce", "AllGather", "ReduceScatter"})
SUFFIXES: Final = (".log", ".json", ".jsonl", ".txt")
NO_FILE: Final = (
    "no call of NCCL's Inspector in it: run with NCCL_PROFILER_PLUGIN and NCCL_INSPECTOR_ENABLE=1"
)
Process = tuple[str, int]
Key = tuple[str, str, int]  # communicator, operation, number of a call


@dataclass(slots=True)
class _Log:
    """Calls by communicator, operation and number, each with the time on every rank of the communicator."""

    durations: dict[Key, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    by_size: dict[tuple[str, int], list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    sizes: dict[str, int] = field(default_factory=dict)  # communicator -> ranks
    process: dict[tuple[str, int], Process] = field(default_factory=dict)  # communicator, rank in it
    span_us: dict[Process, tuple[int, int]] = field(default_factory=dict)  # of its lines, by the wall clock
    num_calls: int = 0
    num_bad: int = 0
    sources: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Whom the processes are, and who of them comes last."""

    world_size: int | None = None
    missing: tuple[int, ...] = ()
    rows: tuple[dict[str, Any], ...] = ()
    culprit: int | None = None
    share: float | None = None  # of all waits
    because: str = ""
    why_unknown: str = ""  # that nobody can be named


def inspector_document(path: Path) -> dict[str, Any]:
    """Read all files, and say who is waited for. TuiadvisorError where there is no call."""
    log = _read(path)
    whole = [key for key, each in log.durations.items() if len(each) == log.sizes[key[0]] > 1]
    num_apart = sum(log.sizes[key[0]] > 1 for key in log.durations) - len(whole)
    ranks = _compared(log, whole)
    return {
        "schema": 1,
        "source": {"kind": "nccl-inspector", "path": str(path)},
        "run": {
            "world_size": ranks.world_size,
            "missing_ranks": list(ranks.missing),
            "communicators": len(log.sizes),
        },
        "per_rank": list(ranks.rows),
        "collectives": _by_size(log),
        "calls": log.num_calls,
        "matched": len(whole),
        "stragglers": {
            "ranks": [] if ranks.culprit is None else [{"rank": ranks.culprit, "score": ranks.share}],
            "because": ranks.because,
        },
        "unknown": [
            {"metric": "steps", "why": "the Inspector logs calls, not steps"},
            {"metric": "overlap", "why": "when a call began is not logged"},
            *([{"metric": "late rank", "why": ranks.why_unknown}] if ranks.why_unknown else []),
        ],
        "losses": _losses(log, num_apart),
    }


def _read(path: Path) -> _Log:
    log = _Log()
    for file in listed(path, SUFFIXES):
        for record in _records(file, log):
            if log.num_calls >= MAX_CALLS:
                raise TuiadvisorError(f"{path} has more than {MAX_CALLS} calls: log fewer steps")
            _take(record, log)
    if not log.num_calls:
        raise TuiadvisorError(f"{path}: {NO_FILE}")
    return log


def _compared(log: _Log, whole: list[Key]) -> _Ranks:
    """Who is waited for. whole: calls that all ranks of their communicator logged."""
    rank_of = _ranks(log)
    if (alike := _called_alike(log, rank_of)) is not None:  # nor is a communicator as large as the job then
        why = f"several processes are rank {alike} of their largest communicators: none has all ranks of the job"
        return _Ranks(because=f"{why}, so nobody is named", why_unknown=why)
    ranks = sorted(set(rank_of.values()))
    matrix = _matrix(log, whole, rank_of, ranks)
    found = duration_arrivals(matrix)
    is_kernel = all(source.startswith("kernel") for source in log.sources)
    own = np.nansum(matrix, axis=0) if len(matrix) else np.zeros(len(ranks))
    rows = tuple(
        {
            "rank": rank,
            "matched_s": float(own[at]),
            "wait_s": found.wait_R[at] if is_kernel else None,
            "caused_wait_s": found.caused_R[at] if is_kernel else None,
        }
        for at, rank in enumerate(ranks)
    )
    world_size = max(log.sizes.values())
    # Who comes late to a group that is whole may have waited elsewhere for a rank without a log.
    if missing := sorted(set(range(world_size)) - set(ranks)):
        why = f"no log of rank{'s' * (len(missing) > 1)} {named(missing)}"
        because = f"{why}: nobody is named in {'their' if len(missing) > 1 else 'its'} place"
        return _Ranks(world_size, tuple(missing), rows, because=because, why_unknown=why)
    if not is_kernel:
        because = "times are the host's, which begin when a call is made: not compared"
        return _Ranks(world_size, (), rows, because=because)
    if found.culprit is None:
        return _Ranks(world_size, (), rows, because=found.because)
    culprit, share = ranks[found.culprit], found.share or 0.0
    because = f"rank {culprit} comes last: it makes the others wait {100 * share:.0f} % of all their waits"
    return _Ranks(world_size, (), rows, culprit, share, because)


def _losses(log: _Log, num_apart: int) -> list[str]:
    losses = [f"lines left out that are no calls: {log.num_bad}"] if log.num_bad else []
    return losses + (
        [f"calls not compared that were not logged on all of their ranks: {num_apart}"] if num_apart else []
    )


def _records(path: Path, log: _Log) -> Iterator[dict[str, Any]]:
    with opened(path) as file:
        records = Records(file)
        yield from records
        log.num_bad += records.num_bad


@dataclass(frozen=True, slots=True)
class _Call:
    group: str
    rank: int
    size: int
    op: str
    number: int
    num_bytes: int
    seconds: float
    busbw: float


def _call(header: dict[str, Any], call: dict[str, Any]) -> _Call | None:
    """None: a value is missing, or none that it could be."""
    numbers = [
        header.get("rank"),
        header.get("n_ranks"),
        call.get("coll_sn"),
        call.get("coll_msg_size_bytes"),
    ]
    took, busbw = call.get("coll_exec_time_us"), call.get("coll_busbw_gbs")
    if not all(type(each) is int and 0 <= each < MAX_NUMBER for each in numbers):
        return None
    rank, size, number, num_bytes = (int(each or 0) for each in numbers)
    if not isinstance(took, int | float) or not 0 <= took <= LONGEST_US or not rank < size <= MAX_RANKS:
        return None
    rate = float(busbw) if isinstance(busbw, int | float) and 0 <= busbw < LARGEST_GB_S else float("nan")
    op = "".join(char for char in str(call.get("coll"))[:40] if char.isprintable())
    return _Call(str(header.get("id", ""))[:80], rank, size, op, number, num_bytes, took / 1e6, rate)


def _part(record: dict[str, Any], name: str) -> dict[str, Any]:
    """What some collectors write flat is nested in the plugin's own files."""
    part = record.get(name)
    return part if isinstance(part, dict) else record


def _take(record: dict[str, Any], log: _Log) -> None:
    told = record.get("coll_perf")
    if not isinstance(told, dict):
        log.num_bad += not any(isinstance(record.get(name), dict) for name in ("p2p_perf", "p2p"))
        return
    call = _call(_part(record, "header"), told)
    if call is None:
        log.num_bad += 1
        return
    log.num_calls += 1
    log.sizes[call.group] = call.size
    log.sources.add(str(told.get("coll_timing_source", "kernel"))[:40])
    about = _part(record, "metadata")
    host, pid = about.get("hostname"), about.get("pid")
    process = str(host)[:100], pid if type(pid) is int else call.rank
    log.process[call.group, call.rank] = process
    written_us = about.get("dump_timestamp_us")
    begin, end = (written_us, written_us) if type(written_us) is int else (0, MAX_NUMBER)
    first, last = log.span_us.get(process, (begin, end))
    log.span_us[process] = (min(first, begin), max(last, end))
    log.by_size[call.op, call.num_bytes].append((call.seconds, call.busbw))
    if call.op in ALL_WAIT:
        log.durations[call.group, call.op, call.number][call.rank] = call.seconds


def _ranks(log: _Log) -> dict[tuple[str, int], int]:
    """Each communicator's ranks as those of the largest one that the process is in."""
    largest: dict[Process, tuple[int, int]] = {}
    for (group, rank), process in log.process.items():
        largest[process] = max(largest.get(process, (0, 0)), (log.sizes[group], rank), key=lambda one: one[0])
    return {key: largest[process][1] for key, process in log.process.items()}


def _called_alike(log: _Log, rank_of: dict[tuple[str, int], int]) -> int | None:
    """A rank that two processes have at the same time: what follows the end of one is the same rank, restarted."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for process, rank in {process: rank_of[key] for key, process in log.process.items()}.items():
        spans[rank].append(log.span_us[process])
    for rank, each in sorted(spans.items()):
        if any(later[0] <= earlier[1] for earlier, later in pairwise(sorted(each))):
            return rank
    return None


def _matrix(
    log: _Log, whole: list[Key], rank_of: dict[tuple[str, int], int], ranks: list[int]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Durations of the calls, a column a rank."""
    column = {rank: at for at, rank in enumerate(ranks)}
    matrix = np.full((len(whole), len(ranks)), np.nan)
    for at, key in enumerate(whole):
        for rank, took in log.durations[key].items():
            matrix[at, column[rank_of[key[0], rank]]] = took
    return matrix


def _by_size(log: _Log) -> list[dict[str, Any]]:
    rows = []
    for (op, num_bytes), calls in log.by_size.items():
        took, rates = (np.array(column) for column in zip(*calls, strict=True))
        known = rates[np.isfinite(rates)]
        rows.append(
            {
                "op": op,
                "bytes": num_bytes,
                "calls": len(calls),
                "median_s": float(np.median(took)),
                "p95_s": float(np.quantile(took, 0.95)),
                "total_s": float(took.sum()),
                "busbw_gb_s": float(np.median(known)) if known.size else None,
            }
        )
    return sorted(rows, key=lambda row: -row["total_s"])


def inspector_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    size = document["run"]["world_size"]
    ranks = "unknown ranks" if size is None else counted(size, "rank")
    whole = f"{document['matched']:,} logged on all of their ranks"
    lines = [
        f"{document['source']['path']}: {counted(document['calls'], 'call')} of {ranks}, {whole}",
        f"{'operation':>16} {'bytes':>14} {'calls':>9} {'median ms':>10} {'p95 ms':>10} {'bus GB/s':>9}",
    ]
    for row in document["collectives"][:SHOWN]:
        rate = "unknown" if row["busbw_gb_s"] is None else f"{row['busbw_gb_s']:.1f}"
        lines.append(
            f"{row['op']:>16} {row['bytes']:>14,} {row['calls']:>9,} {1e3 * row['median_s']:>10.3f} "
            f"{1e3 * row['p95_s']:>10.3f} {rate:>9}"
        )
    lines.append(document["stragglers"]["because"])
    lines += [f"unknown {item['metric']}: {item['why']}" for item in document["unknown"]]
    return "\n".join([*lines, *(f"lost: {loss}" for loss in document["losses"])])
