"""The machine and each rank's process, once a second, as the kernel counts them.

In: psutil, /proc.  Out: payload of a HOST frame. Rates are differences between two samples: the first has none.
A rank's run delay, the time its training thread was ready and got no core, tells a crowded host from slow code; the
NUMA nodes it may use beside its device's tell a rank that is far from its device (`agent.affinity`).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from tuiadvisor.agent import cgroup, network_storage, procfs
from tuiadvisor.agent.affinity import Affinities
from tuiadvisor.agent.looks import StateLooks, is_stopped
from tuiadvisor.agent.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tuiadvisor.agent.rank_link import RankLink
    from tuiadvisor.agent.training_thread import TrainingThread

_NS: Final = 10**9
_SWITCHES: Final = {
    "voluntary_switches": b"voluntary_ctxt_switches",
    "involuntary_switches": b"nonvoluntary_ctxt_switches",
}
_BYTES: Final = (
    "disk_read_bytes",
    "disk_write_bytes",
    "net_bytes",
    "server_read_bytes",
    "server_write_bytes",
)


RATES: Final = (
    *("cpu", "cpu_per_core", "iowait"),
    *(f"{name}_s" for name in _BYTES),
    *("disk_reads_s", "disk_writes_s", "disk_busy"),
)


@dataclass(frozen=True, slots=True)
class Counters:
    """What only grows; the difference of two of these is a rate."""

    mono_ns: int
    busy_s: tuple[float, ...]  # a core each
    total_s: tuple[float, ...]
    iowait_s: float
    disk_read_bytes: int | None
    disk_write_bytes: int | None
    net_bytes: int | None
    server_read_bytes: int | None = None  # of network file systems
    server_write_bytes: int | None = None
    disk_reads: int | None = None  # operations
    disk_writes: int | None = None
    disk_busy_s: tuple[tuple[str, float], ...] = ()  # of each disk


def read_counters() -> Counters:
    """The machine's counters now."""
    cores = psutil.cpu_times(percpu=True)
    # guest time is part of user time; iowait is idle time with a reason.
    totals = [sum(core) - getattr(core, "guest", 0.0) - getattr(core, "guest_nice", 0.0) for core in cores]
    idles = [core.idle + getattr(core, "iowait", 0.0) for core in cores]
    server_read_bytes, server_write_bytes = network_storage.bytes_moved()
    disks = _disks()
    return Counters(
        mono_ns=time.monotonic_ns(),
        busy_s=tuple(total - idle for total, idle in zip(totals, idles, strict=True)),
        total_s=tuple(totals),
        iowait_s=sum(getattr(core, "iowait", 0.0) for core in cores),
        disk_read_bytes=_total(disks, "read_bytes"),
        disk_write_bytes=_total(disks, "write_bytes"),
        net_bytes=_net_bytes(),
        server_read_bytes=server_read_bytes,
        server_write_bytes=server_write_bytes,
        disk_reads=_total(disks, "read_count"),
        disk_writes=_total(disks, "write_count"),
        disk_busy_s=tuple(
            (name, found.busy_time / 1000) for name, found in disks.items() if hasattr(found, "busy_time")
        ),
    )


def rates(before: Counters | None, now: Counters) -> dict[str, object]:
    """Shares 0..1 and bytes a second between two readings; None where one is missing or a core came or went."""
    if before is None or len(before.total_s) != len(now.total_s) or now.mono_ns <= before.mono_ns:
        return dict.fromkeys(RATES)
    elapsed_s = (now.mono_ns - before.mono_ns) / _NS
    total_s = [later - sooner for sooner, later in zip(before.total_s, now.total_s, strict=True)]
    busy_s = [later - sooner for sooner, later in zip(before.busy_s, now.busy_s, strict=True)]
    return {
        "cpu": _share(sum(busy_s), sum(total_s)),
        "cpu_per_core": [_share(busy, total) for busy, total in zip(busy_s, total_s, strict=True)],
        "iowait": _share(now.iowait_s - before.iowait_s, sum(total_s)),
        **{f"{name}_s": _rate(getattr(before, name), getattr(now, name), elapsed_s) for name in _BYTES},
        "disk_reads_s": _rate(before.disk_reads, now.disk_reads, elapsed_s),
        "disk_writes_s": _rate(before.disk_writes, now.disk_writes, elapsed_s),
        "disk_busy": _busiest(before.disk_busy_s, now.disk_busy_s, elapsed_s),
    }


class HostSampler:
    """Takes HOST payloads; remembers the sample before."""

    def __init__(
        self, host: str, read: Callable[[], Counters] = read_counters, topology: Topology | None = None
    ) -> None:
        self._host = host
        self._read = read
        self.topology = topology or Topology()
        self._affinities = Affinities(self.topology)
        self._before: Counters | None = None
        self._looks = StateLooks()

    def look(self, links: Sequence[RankLink]) -> None:
        """Whether ranks are stopped or wait for storage now; between samples, as often as it suits."""
        known = {link.process.pid: link for link in links if not link.is_over}
        threads = {pid: link.thread for pid, link in known.items()}
        self._looks.look(threads, lambda pid: known[pid].waits_for_data)

    def sample(self, links: Sequence[RankLink], gpus: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """The payload of one HOST frame."""
        now = self._read()
        before, self._before = self._before, now
        memory = psutil.virtual_memory()
        self._looks.keep([link.process.pid for link in links])
        self._affinities.keep([link.process.pid for link in links])
        return {
            "host": self._host,
            "mono_ns": now.mono_ns,
            "wall_ns": time.time_ns(),
            **rates(before, now),
            "memory": 1.0 - memory.available / memory.total if memory.total else None,
            "memory_total_bytes": memory.total or None,
            "load_1m": os.getloadavg()[0],
            "num_cpus": psutil.cpu_count(),
            "run_queue": run_queue(_kernel_stat()),
            "gpus": [dict(gpu) for gpu in gpus],
            "nics": self.topology.traffic(),
            "ranks": [
                rank_counters(link.process.pid, link.rank, link.thread, link.training_thread)
                | self._looks.counts(link.process.pid)
                | self._affinities.of(link.process.pid, link.thread)
                for link in links
                if not link.is_over
            ],
        }


def rank_counters(
    pid: int, rank: int | None, thread: int | None = None, known: TrainingThread | None = None
) -> dict[str, object]:
    """Cumulative counters of a rank's process; time run, run delay, switches and core are its training thread's.

    thread: the main one where that is None. known: what was counted for the threads before it.
    """
    found = procfs.stat(pid)
    if found is None or not found.is_alive:
        return {"rank": rank}
    thread = pid if thread is None else thread
    schedule = (procfs.read(pid, f"task/{thread}/schedstat") or b"").split()
    counted: dict[str, float] = {
        name: value
        for name, key in _SWITCHES.items()
        if (value := _switches(procfs.read(pid, f"task/{thread}/status") or b"").get(key)) is not None
    }
    if len(schedule) == 3:
        counted["run_s"], counted["run_delay_s"] = int(schedule[0]) / _NS, int(schedule[1]) / _NS
    counted = known.going_on(thread, counted) if known is not None else counted
    return {
        "rank": rank,
        **_scheduling(pid, thread),
        "cpu_s": found.cpu_ticks / procfs.TICKS_PER_S,
        "run_s": counted.get("run_s"),
        "run_delay_s": counted.get("run_delay_s"),
        "rss_bytes": found.rss_bytes,
        "num_threads": found.num_threads,
        **{name: counted.get(name) for name in _SWITCHES},
        **cgroup.counters(pid),
        # Said only where it is so: a signal, a debugger or a frozen job explains the pause that all ranks see.
        **({"state": "stopped"} if is_stopped(found) else {}),
    }


def _scheduling(pid: int, thread: int) -> dict[str, object]:
    """Of the thread alone: on Linux a priority is a thread's, not its process's."""
    found = procfs.stat_of_thread(pid, thread)
    return {"last_cpu": None} if found is None else {"last_cpu": found.last_cpu, "nice": found.nice}


def run_queue(stat: str) -> int | None:
    """Threads that have a core or wait for one, this agent's included, from /proc/stat."""
    line = next((line for line in stat.splitlines() if line.startswith("procs_running ")), "")
    number = line.partition(" ")[2]
    return int(number) if number.isdecimal() else None


def _kernel_stat() -> str:
    try:
        return Path("/proc/stat").read_text(encoding="ascii")
    except OSError:
        return ""


def _switches(status: bytes) -> dict[bytes, int]:
    lines = (line.split(b":", 1) for line in status.splitlines() if b"ctxt_switches:" in line)
    return {name: int(value) for name, value in lines}


def _share(part: float, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None


def _rate(before: int | None, now: int | None, elapsed_s: float) -> float | None:
    # A device that went away takes its count along: the difference is then no rate.
    return (now - before) / elapsed_s if before is not None and now is not None and now >= before else None


def _disks() -> dict[str, Any]:
    """Counters of the real disks: a partition, a mapper or a loop device would count everything twice."""
    try:
        disks = psutil.disk_io_counters(perdisk=True) or {}
    except (OSError, RuntimeError, ValueError):  # psutil does not know every kernel's table
        return {}
    return {name: found for name, found in disks.items() if Path(f"/sys/block/{name}/device").exists()}


def _total(disks: dict[str, Any], name: str) -> int | None:
    return sum(getattr(found, name) for found in disks.values()) if disks else None


def _busiest(
    before: tuple[tuple[str, float], ...], now: tuple[tuple[str, float], ...], elapsed_s: float
) -> float | None:
    """Share of the time that the busiest disk had a request under way; of several at once the kernel counts one."""
    former = dict(before)
    spent = [busy_s - former[name] for name, busy_s in now if name in former and busy_s >= former[name]]
    return _share(max(spent), elapsed_s) if spent else None


def _net_bytes() -> int | None:
    """Bytes in and out of the network cards; in a container, of everything but loopback."""
    cards = {name: found for name, found in psutil.net_io_counters(pernic=True).items() if name != "lo"}
    real = [found for name, found in cards.items() if Path(f"/sys/class/net/{name}/device").exists()]
    counted = real or list(cards.values())
    return sum(card.bytes_sent + card.bytes_recv for card in counted) if counted else None
