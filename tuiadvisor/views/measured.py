"""Questions that hosts and devices answer themselves: what of them was measured speaks for and against changes.

In: what was seen of hosts and of a step.  Out: answers with what they rest on. Between two thresholds a measurement
decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tuiadvisor.views.run_view import Finding, HostRow

EXPOSED: Final = 0.1  # of the step: the kineto plugin's "deserves a look"
CPUS_FULL, CPUS_FREE = 0.9, 0.8  # shares of all processors of the busiest host
MEMORY_FULL, MEMORY_FREE = 0.9, 0.8  # 0.9: the kineto plugin's threshold
DEVICE_BUSY, DEVICE_IDLE = 0.8, 0.5
DISK_BUSY: Final = 0.9  # of the time: below it says nothing, for data may come over the network
# In a finding's evidence: the line of code that sampled stacks named, in words, and the share of its loss spent there.
NAMED_LINE, NAMED_LINE_SHARE = "named_line", "named_line_share"
# No request to a file server is in it: a host whose readers all wait for NFS or FUSE has 0 %.
IOWAIT: Final = "of local disks alone"


class Watched(Protocol):
    """Of a run, what its hosts and devices were seen to do. None: not observed."""

    @property
    def host_busy(self) -> float | None:
        """Of the busiest host: share of all its processors, mean."""

    @property
    def iowait(self) -> float | None:
        """Of the time, on the host with most of it."""

    @property
    def disk_busy(self) -> float | None:
        """Of the busiest disk of any host."""

    @property
    def disk_reads_s(self) -> float | None:
        """Operations a second, of the host that reads most."""

    @property
    def device_busy(self) -> float | None:
        """Mean over devices."""

    @property
    def device_memory(self) -> float | None:
        """Highest share of a device's memory."""

    @property
    def alloc_retries(self) -> int | None:
        """Allocations that were tried again."""

    @property
    def shares(self) -> Mapping[str, float | None]:
        """Of the step, by phase."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The same, as it is when a picture of the run is made."""

    host_busy: float | None
    iowait: float | None
    disk_busy: float | None
    disk_reads_s: float | None
    device_busy: float | None
    device_memory: float | None
    alloc_retries: int | None
    shares: Mapping[str, float | None]


def watched(hosts: Iterable[HostRow], alloc_retries: int | None, shares: Mapping[str, float | None]) -> Hosts:
    """What was seen of hosts and devices."""
    rows = tuple(hosts)
    return Hosts(
        host_busy=most_known(host.cpu_mean for host in rows),
        iowait=most_known(host.iowait_mean for host in rows),
        disk_busy=most_known(host.disk_busy_mean for host in rows),
        disk_reads_s=most_known(host.disk_reads_s_mean for host in rows),
        device_busy=mean_known(host.device_busy_mean for host in rows),
        device_memory=most_known(host.device_memory_most for host in rows),
        alloc_retries=alloc_retries,
        shares=shares,
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """An answer, and the figures behind it."""

    answer: str
    because: str


def of_hosts(run: Watched) -> dict[str, Measured]:
    """By the question's id."""
    found = {
        "host_cpus_full": _host_cpus(run),
        "storage_at_ceiling": _storage(run),
        "memory_nearly_full": _memory(run),
        "spins_in_collective": _spins(run),
    }
    return {name: answer for name, answer in found.items() if answer is not None}


def is_looked_into(finding: Finding) -> bool:
    """Whether looks at its processes found what it is: a late rank's cause, or what those do who read for all."""
    return any(finding.evidence.get(name) is not None for name in ("seen_cause", "readers_storage_share"))


def line_of(finding: Finding) -> tuple[str, float]:
    """What stacks saw the rank do that its peer does not, in words, and its share of the loss; "" and 0 for none."""
    words, share = (finding.evidence.get(name) for name in (NAMED_LINE, NAMED_LINE_SHARE))
    return (words, float(share)) if isinstance(words, str) and isinstance(share, int | float) else ("", 0.0)


def without_line(finding: Finding) -> Finding:
    """The finding as it was before stacks named a line, but for what is to be done."""
    kept = {
        name: value for name, value in finding.evidence.items() if name not in {NAMED_LINE, NAMED_LINE_SHARE}
    }
    return replace(finding, evidence=kept)


def _host_cpus(run: Watched) -> Measured | None:
    busy = run.host_busy
    if busy is None or CPUS_FREE <= busy < CPUS_FULL:
        return None
    waits = "" if run.iowait is None else f", {100 * run.iowait:.0f} % of the time in iowait ({IOWAIT})"
    because = f"processors of the busiest host {100 * busy:.0f} % busy in the mean{waits}"
    return Measured("yes" if busy >= CPUS_FULL else "no", because)


def _storage(run: Watched) -> Measured | None:
    """A disk that always has a request under way is at its limit; one that has not proves nothing."""
    if run.disk_busy is None or run.disk_busy < DISK_BUSY:
        return None
    reads = "" if run.disk_reads_s is None else f", {run.disk_reads_s:.3g} reads a second"
    return Measured(
        "yes", f"the busiest disk had a request under way {100 * run.disk_busy:.0f} % of the time{reads}"
    )


def _memory(run: Watched) -> Measured | None:
    share, retries = run.device_memory, run.alloc_retries
    if share is None or retries is None:
        return None
    because = f"at most {100 * share:.0f} % of a device's memory in use, {retries} allocations tried again"
    if share >= MEMORY_FULL and retries:
        return Measured("yes", because)
    return Measured("no", because) if share < MEMORY_FREE and not retries else None


def _spins(run: Watched) -> Measured | None:
    busy, exposed = run.device_busy, run.shares.get("comm_exposed")
    if busy is None or exposed is None or exposed < EXPOSED:
        return None
    because = f"devices {100 * busy:.0f} % busy in the mean, {100 * exposed:.0f} % of the step in exposed communication"
    if busy >= DEVICE_BUSY:
        return Measured("yes", because)
    return Measured("no", because) if busy < DEVICE_IDLE else None


def most_known(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    return max((value for value in values if value is not None), default=None)


def mean_known(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
