"""The CPU limit of the control group a rank runs in, and in how many periods it was throttled, as the kernel counts.

In: /proc/PID/cgroup and the mounted hierarchies of cgroup versions 1 and 2.  Out: periods so far and cores; nothing
where the kernel does not say. A pod's limit may lie above its container's: of a group and those above it the one that
was throttled most. Its throttled time is summed over cores, so it is no share of a thread's time: that is the run
delay. Source: the kernel's documents on cgroup-v2 (cpu.stat, cpu.max) and CFS bandwidth control (cpu.cfs_quota_us).
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

from tuiadvisor.agent import procfs

MAX_DEPTH: Final = 16
MAX_BYTES: Final = 4096
_VERSION_2: Final = "cgroup2"


@cache
def _mounts() -> dict[str, tuple[str, str]]:
    """Of each version with a CPU controller its mount point and the group that is mounted there. Read once."""
    found: dict[str, tuple[str, str]] = {}
    lines = (procfs.read(os.getpid(), "mountinfo") or b"").decode("utf-8", "replace").splitlines()
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind, *rest = before.split(), *after.split()
        if len(fields) < 5 or kind not in ("cgroup", _VERSION_2):
            continue
        options = rest[-1].split(",") if rest else []
        if kind == _VERSION_2 or "cpu" in options:
            found.setdefault(kind, (fields[4], fields[3]))
    return found


def folders(pid: int) -> list[Path]:
    """The rank's group and those above it, the innermost first; of the version whose CPU controller counts."""
    mounts = _mounts()
    result: list[Path] = []
    for line in (procfs.read(pid, "cgroup") or b"").decode("utf-8", "replace").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version = _VERSION_2 if not controllers else "cgroup" if "cpu" in controllers.split(",") else ""
        if version not in mounts or ".." in path.split("/"):
            continue
        point, root = mounts[version]
        inside = path.removeprefix(root) if root != "/" and path.startswith(root) else path
        parts = [part for part in inside.split("/") if part][:MAX_DEPTH]
        chain = [Path(point, *parts[:depth]) for depth in range(len(parts), -1, -1)]
        result += [folder for folder in chain if (folder / "cpu.stat").is_file()]
    return result


def counters(pid: int) -> dict[str, float]:
    """cpu_limit_cores, and cpu_periods and throttled_periods so far, of the limit that holds back most; or nothing."""
    found = [counted for folder in folders(pid) if (counted := _counted(folder))]
    return max(found, key=lambda counted: counted["throttled_periods"], default={})


def _counted(folder: Path) -> dict[str, float]:
    """Of one group; empty where it has no limit."""
    if (cores := _limit(folder)) is None:
        return {}
    lines = (line.partition(" ") for line in _text(folder / "cpu.stat").splitlines())
    stat = {name: int(value) for name, _, value in lines if value.isdecimal()}
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


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("ascii", "replace")
    except OSError:
        return ""
