"""Which processors and which memory a rank's training thread may use: what it is allowed, not where it ran last.

In: /proc/PID/task/TID/status and numa_maps.  Out: fields of a rank in a HOST payload. Asked twice a minute, and of a
process that is new to us at twice the age each time: programs bind themselves once, at their start.
"""

# ruff: noqa: PTH123  # one short read of a /proc file

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs
from tuiadvisor.agent.topology import cores_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.agent.topology import Topology

EVERY_S: Final = 30.0
FIRST_S: Final = 1.0  # after the first look, the second
MAX_LIST_CHARS: Final = 300  # of a list of processors; a longer one is cut by nobody, but not said
POLICY_BYTES: Final = 96  # the first line of numa_maps; the kernel goes through no further mapping for so few
_POLICY: Final = re.compile(
    r"[0-9a-f]+ (default|local|bind|interleave|prefer \(many\)|prefer|weighted interleave)"
    r"(?:[=|][a-z|]+)?(?::([0-9,-]+))?(?: |$)"
)
_NOWHERE_ELSE: Final = frozenset({"bind", "interleave", "weighted interleave"})


class Affinities:
    """Mutable: remembers what was read of each process."""

    def __init__(self, topology: Topology, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._topology = topology
        self._clock_s = clock_s
        # of each process: when first and last, which thread, what was said
        self._read: dict[int, tuple[float, float, int, dict[str, object]]] = {}

    def of(self, pid: int, thread: int | None) -> dict[str, object]:
        """Of the training thread, the main one where that is None; nothing where it may not be read."""
        task, now_s = pid if thread is None else thread, self._clock_s()
        first_s, read_s, known, fields = self._read.get(pid, (now_s, now_s, -1, {}))
        if known != task or now_s - read_s >= min(EVERY_S, max(read_s - first_s, FIRST_S)):
            fields = affinity(self._topology, pid, task)
            self._read[pid] = first_s, now_s, task, fields
        return fields

    def keep(self, pids: Sequence[int]) -> None:
        """Forget all others: their numbers may come again."""
        self._read = {pid: self._read[pid] for pid in pids if pid in self._read}


def affinity(topology: Topology, pid: int, thread: int) -> dict[str, object]:
    """cpus_allowed, the NUMA nodes of these, memory_policy, the nodes that its memory may come from.

    memory_nodes: of the policy where that allows no other, else those of its control group.
    """
    status = (procfs.read(pid, f"task/{thread}/status") or b"").decode(errors="replace")
    lists = dict(line.split(":", 1) for line in status.splitlines() if "_allowed_list:" in line)
    cpus = lists.get("Cpus_allowed_list", "").strip()
    if not cpus:
        return {}
    policy, policy_nodes = _policy(pid, thread)
    allowed = policy_nodes if policy in _NOWHERE_ELSE else lists.get("Mems_allowed_list", "").strip()
    return {
        "cpus_allowed": cpus if len(cpus) <= MAX_LIST_CHARS else None,
        "cpu_nodes": topology.nodes_of(cpus),
        "memory_policy": policy,
        "memory_nodes": (cores_of(allowed) or None) if allowed else None,
    }


def _policy(pid: int, thread: int) -> tuple[str | None, str]:
    """(the thread's policy, its nodes), as the first mapping shows it: a program's own file has none of its own."""
    try:
        with open(f"/proc/{pid}/task/{thread}/numa_maps", "rb", buffering=0) as file:
            line = file.read(POLICY_BYTES).partition(b"\n")[0].decode(errors="replace")
    except OSError:  # a kernel without NUMA, or not ours to see
        return None, ""
    found = _POLICY.match(line)
    return (found[1], found[2] or "") if found else (None, "")
