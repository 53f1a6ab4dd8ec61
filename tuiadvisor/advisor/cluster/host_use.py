"""How busy hosts and devices were over a recording: what answers questions that would be asked otherwise.

In: payloads of HOST frames, columns of EVENTS.  Out: means and highest values of each host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import number, objects
from tuiadvisor.events import EventKind

if TYPE_CHECKING:
    from tuiadvisor.advisor.cluster.payload_fields import Payload
    from tuiadvisor.metrics.steps.arrays import Ints

MAX_HOSTS: Final = 1 << 14
MAX_OPERATIONS_S: Final = 1e9  # of all disks: beyond it a sample makes no sense


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    num: int = 0

    def take(self, value: float | None, most: float = 1.0) -> None:
        if value is not None and 0 <= value <= most:
            self.total, self.num = self.total + value, self.num + 1

    @property
    def value(self) -> float | None:
        return self.total / self.num if self.num else None


class _Host:
    __slots__ = ("cpu", "device_busy", "device_memory", "disk_busy", "iowait", "reads", "writes")

    def __init__(self) -> None:
        self.disk_busy, self.reads, self.writes = _Mean(), _Mean(), _Mean()
        self.cpu, self.iowait, self.device_busy = _Mean(), _Mean(), _Mean()
        self.device_memory: float | None = None  # highest share of any device


class HostUse:
    """Mutable: feed it payloads."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self.num_alloc_retries = 0

    def take(self, host: str, payload: Payload) -> None:
        """One sample of a host."""
        held = self._hosts.get(host)
        if held is None:
            if len(self._hosts) >= MAX_HOSTS:
                return
            held = self._hosts[host] = _Host()
        held.cpu.take(number(payload, "cpu"))
        held.iowait.take(number(payload, "iowait"))
        held.disk_busy.take(number(payload, "disk_busy"))
        held.reads.take(number(payload, "disk_reads_s"), MAX_OPERATIONS_S)
        held.writes.take(number(payload, "disk_writes_s"), MAX_OPERATIONS_S)
        for entry in objects(payload, "gpus"):
            held.device_busy.take(number(entry, "utilization"))
            used, total = number(entry, "memory_used_bytes"), number(entry, "memory_total_bytes")
            if used is not None and total and 0 <= used <= total:
                held.device_memory = max(held.device_memory or 0.0, used / total)

    def take_events(self, columns: dict[str, Ints]) -> None:
        """Allocations that had to be tried again; detail: how often."""
        is_retry = columns["kind"] == EventKind.ALLOC_RETRY
        if is_retry.any():
            self.num_alloc_retries += int(columns["detail"][is_retry].clip(1, 1 << 20).sum())

    def means(self, host: str) -> tuple[float | None, float | None, float | None, float | None]:
        """(processors busy, waiting for storage, devices busy, highest share of a device's memory)."""
        held = self._hosts.get(host)
        if held is None:
            return None, None, None, None
        return held.cpu.value, held.iowait.value, held.device_busy.value, held.device_memory

    def disks(self, host: str) -> tuple[float | None, float | None, float | None]:
        """(busiest disk busy, reads a second, writes a second), means."""
        held = self._hosts.get(host)
        if held is None:
            return None, None, None
        return held.disk_busy.value, held.reads.value, held.writes.value
