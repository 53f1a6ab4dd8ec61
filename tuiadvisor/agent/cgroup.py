"""The limits of the control group a rank runs in, as the kernel counts: of cores, how often throttled; of memory.

In: /proc/PID/cgroup and the mounted hierarchies of cgroup versions 1 and 2.  Out: periods so far and cores, bytes that
are left; nothing where the kernel does not say. A pod's limit may lie above its container's: of a group and those above
it the one that was throttled most, and all that limit memory. Throttled time is summed over cores, so it is no share of
a thread's time: that is the run delay. Source: the kernel's documents on cgroup-v2 (cpu.stat, cpu.max, memory.max,
memory.high, memory.stat), CFS bandwidth control (cpu.cfs_quota_us) and cgroup-v1's memory (memory.limit_in_bytes).
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tuiadvisor.agent import procfs

MAX_DEPTH: Final = 16
MAX_BYTES: Final = 1 << 14  # memory.stat has 80 lines
_VERSION_2: Final = "cgroup2"
# (limit, use). Above memory.high a group is not ended but slowed down. Memory and swap together are version 1's alone:
# swap that is free is no room, since what goes there is the training's.
_MEMORY: Final = (
    ("memory.max", "memory.current"),
    ("memory.high", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ("memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"),
)
_NO_LIMIT: Final = 1 << 62  # version 1 writes the largest whole number of pages below 2^63
# Pages of files on disk, and what the kernel keeps of files it has looked at: given back before anybody is ended for
# it. Of tmpfs, as of /dev/shm, no page is. The sums with all groups below are version 1's.
_GIVEN_BACK: Final = ("inactive_file", "active_file", "slab_reclaimable")


class MemoryLimit(NamedTuple):
    """What a group may use, and what of that is left with all pages given back that can be."""

    folder: Path
    limit: int
    free: int


@cache
def _mounts(controller: str) -> dict[str, tuple[str, str]]:
    """Of each version with this controller its mount point and the group that is mounted there. Read once."""
    found: dict[str, tuple[str, str]] = {}
    lines = (procfs.read(os.getpid(), "mountinfo") or b"").decode("utf-8", "replace").splitlines()
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind, *rest = before.split(), *after.split()
        if len(fields) < 5 or kind not in ("cgroup", _VERSION_2):
            continue
        options = rest[-1].split(",") if rest else []
        if kind == _VERSION_2 or controller in options:
            found.setdefault(kind, (fields[4], fields[3]))
    return found


def folders(pid: int, controller: str) -> list[Path]:
    """The rank's group and those above it, the innermost first; of the version whose controller counts."""
    mounts = _mounts(controller)
    result: list[Path] = []
    for line in (procfs.read(pid, "cgroup") or b"").decode("utf-8", "replace").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version = _VERSION_2 if not controllers else "cgroup" if controller in controllers.split(",") else ""
        if version not in mounts or ".." in path.split("/"):
            continue
        point, root = mounts[version]
        inside = path.removeprefix(root) if root != "/" and path.startswith(root) else path
        parts = [part for part in inside.split("/") if part][:MAX_DEPTH]
        chain = [Path(point, *parts[:depth]) for depth in range(len(parts), -1, -1)]
        result += [folder for folder in chain if (folder / f"{controller}.stat").is_file()]
    return result


def counters(pid: int) -> dict[str, float]:
    """cpu_limit_cores, and cpu_periods and throttled_periods so far, of the limit that holds back most; or nothing."""
    found = [counted for folder in folders(pid, "cpu") if (counted := _counted(folder))]
    return max(found, key=lambda counted: counted["throttled_periods"], default={})


def memory_limits(pid: int) -> list[MemoryLimit]:
    """Of the rank's group and those above it, the innermost first; without those that have none or do not say."""
    groups = folders(pid, "memory")
    # A group of version 1 may leave those below it out of its account.
    above = [folder for folder in groups[1:] if _text(folder / "memory.use_hierarchy").strip() != "0"]
    return [limit for folder in (*groups[:1], *above) if (limit := _memory(folder))]


def processes(folder: Path) -> list[int]:
    """Of a group and of those below it, as far as this process can see them."""
    found: list[int] = []
    for file in folder.rglob("cgroup.procs"):
        with suppress(OSError, ValueError):
            found += [pid for pid in map(int, file.read_text().split()) if pid]  # 0: of another namespace
    return found


def _memory(folder: Path) -> MemoryLimit | None:
    stat = _stat(folder / "memory.stat")
    given_back = sum(stat.get(f"total_{name}", stat.get(name, 0)) for name in _GIVEN_BACK)
    found = []
    for names in _MEMORY:
        limit, used = (_text(folder / name).strip() for name in names)
        if limit.isdecimal() and used.isdecimal() and int(limit) < _NO_LIMIT:  # "max": none
            left = int(limit) - int(used) + given_back
            found.append(MemoryLimit(folder, int(limit), max(0, min(left, int(limit)))))
    return min(found, key=lambda limit: limit.free, default=None)


def _counted(folder: Path) -> dict[str, float]:
    """Of one group; empty where it has no limit."""
    if (cores := _limit(folder)) is None:
        return {}
    stat = _stat(folder / "cpu.stat")
    if not {"nr_periods", "nr_throttled"} <= stat.keys():
        return {}
    return {
        "cpu_limit_cores": cores,
        "cpu_periods": stat["nr_periods"],
        "throttled_periods": stat["nr_throttled"],
    }


def _limit(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
    if not quota:
        quota, period = (_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    if not (quota.isdecimal() and period.isdecimal() and int(period)):  # "max" or -1: none
        return None
    return int(quota) / int(period)


def _stat(path: Path) -> dict[str, int]:
    lines = (line.partition(" ") for line in _text(path).splitlines())
    return {name: int(value) for name, _, value in lines if value.isdecimal()}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("ascii", "replace")
    except OSError:
        return ""
