"""fio's JSON output: what this machine's storage gives when asked for nothing but data.

In: fio --output-format=json (lines of text before it, as --output leaves them, are skipped).  Out: the document with
bytes and operations a second, reads and writes apart.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import read_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_BYTES: Final = 64 << 20
MAX_JOBS: Final = 10_000
MAX_FAILED: Final = 100  # lines that begin as a document would and are none
BEGIN: Final = re.compile(r"(?m)^\s*\{")
LARGEST: Final = 1e15  # bytes or operations a second: beyond it is no measurement
WAYS: Final = ("read", "write")
ONE_WAY: Final = {"read": "read", "randread": "read", "write": "write", "randwrite": "write"}


def fio_document(path: Path) -> dict[str, Any]:
    """The ceiling in a file. TuiadvisorError: why it holds none."""
    table, jobs = _jobs(path)
    found: dict[str, Any] = {"schema": 1, "kind": "fio", "path": str(path), "num_jobs": len(jobs)}
    for way in WAYS:
        found[f"{way}_bytes_s"] = _together(jobs, lambda job: _bytes_s(job.get(way)))  # noqa: B023 - called at once
        found[f"{way}_operations_s"] = _together(jobs, lambda job: _number(job.get(way), "iops"))  # noqa: B023
    if found["read_bytes_s"] is None and found["write_bytes_s"] is None:
        raise TuiadvisorError(
            f"{path}: no job read or wrote anything; run fio with --rw=randread --time_based"
        )
    every = [_options(table, job) for job in jobs]
    blocks = {options.get("bs") for options in every}
    found["block"] = (
        blocks.pop() if len(blocks) == 1 else None
    )  # phases of several sizes: the fastest one's is not told
    # Without direct=1 a file that fits into memory is read from there. Versions before 2.2 do not tell their options.
    direct = {str(options.get("direct", "0")) for options in every if options}
    found["is_direct"] = direct == {"1"} if direct else None
    return found


def fio_summary(document: dict[str, Any]) -> str:
    """A few lines for people."""
    num_jobs, block = document["num_jobs"], document["block"] or "unknown size"
    lines = [f"storage: {num_jobs} job{'s' * (num_jobs > 1)}, blocks of {block}"]
    for way in WAYS:
        bytes_s, operations_s = document[f"{way}_bytes_s"], document[f"{way}_operations_s"]
        if bytes_s is not None:
            rate = "unknown" if operations_s is None else f"{operations_s:,.0f}/s"
            lines.append(f"  {way:<6} {bytes_s / 1e6:,.4g} MB/s, operations {rate}")
    if document["is_direct"] is None:
        lines.append("  direct or not is unknown: this version of fio does not write its options")
    elif not document["is_direct"]:
        lines.append("  not direct: may be the memory's speed, not the storage's; add --direct=1")
    return "\n".join(lines)


def _together(jobs: list[dict[str, Any]], rate: Callable[[dict[str, Any]], float | None]) -> float | None:
    """The sum over the jobs that ran at the same time; of groups one after another (stonewall) the fastest."""
    groups: dict[str, float] = {}
    for job in jobs:
        # Zero is what fio writes for a way that was not asked for.
        name = str(job.get("groupid"))
        groups[name] = groups.get(name, 0.0) + (rate(job) or 0.0)
    return max(groups.values()) or None


def _bytes_s(table: object) -> float | None:
    """Old versions write KiB a second only."""
    kib_s = _number(table, "bw")
    return _number(table, "bw_bytes") or (None if kib_s is None else 1024 * kib_s)


def _jobs(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(the whole table, its jobs)."""
    table = _last_table(path, read_whole(path, MAX_BYTES))
    jobs = table.get("jobs")
    if not jobs and isinstance(
        table.get("client_stats"), list
    ):  # fio --client: each server's, then their sum
        jobs = [job for job in table["client_stats"] if not _is_sum(job)]
    if not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
        raise TuiadvisorError(f"{path}: no jobs of fio in it; run fio with --output-format=json")
    if len(jobs) > MAX_JOBS:
        raise TuiadvisorError(f"{path}: {len(jobs)} jobs; import a run of at most {MAX_JOBS}")
    failed = [job for job in jobs if job.get("error")]
    if failed:
        raise TuiadvisorError(f"{path}: {len(failed)} of {len(jobs)} jobs failed: their speed means nothing")
    apart = [_apart(table, job) for job in jobs]
    if None in apart:
        raise TuiadvisorError(
            f"{path}: reads and writes are counted together; run fio without --unified_rw_reporting"
        )
    return table, [job for job in apart if job is not None]


def _apart(table: dict[str, Any], job: dict[str, Any]) -> dict[str, Any] | None:
    """The job with reads and writes apart; None: --unified_rw_reporting added up both, and nothing tells them."""
    if not isinstance(job.get("mixed"), dict) or any(isinstance(job.get(way), dict) for way in WAYS):
        return job  # --unified_rw_reporting=both writes the sum beside its parts
    options = _options(table, job)
    way = ONE_WAY.get(options.get("rw") or options.get("readwrite") or "")
    return None if way is None else {**job, way: job["mixed"]}


def _is_sum(job: object) -> bool:
    return isinstance(job, dict) and job.get("jobname") == "All clients"


def _last_table(path: Path, raw: bytes) -> dict[str, Any]:
    """The last whole document: text may stand before it (normal,json), earlier ones too (--status-interval)."""
    text = raw.decode(errors="replace")
    read, at, why, num_failed = json.JSONDecoder(), 0, "", 0
    last: dict[str, Any] | None = None
    for found in BEGIN.finditer(text):
        if found.start() < at:
            continue
        try:
            table, at = read.raw_decode(text, found.end() - 1)
        except (ValueError, RecursionError) as error:
            why, num_failed = str(error)[:120], num_failed + 1
            if num_failed > MAX_FAILED:
                break
            continue
        if isinstance(table, dict):
            last, why = table, ""
    if why:
        raise TuiadvisorError(f"{path}: not JSON ({why}); run fio with --output-format=json")
    if last is None:
        raise TuiadvisorError(f"{path}: no JSON of fio in it; run fio with --output-format=json")
    return last


def _options(table: dict[str, Any], job: dict[str, Any]) -> dict[str, str]:
    """The job's, over those for all."""
    found: dict[str, str] = {}
    for options in (table.get("global options"), job.get("job options")):
        if isinstance(options, dict):
            found |= {key: value[:40] for key, value in options.items() if isinstance(value, str)}
    return found


def _number(table: object, key: str) -> float | None:
    value = table.get(key) if isinstance(table, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 < value <= LARGEST else None
