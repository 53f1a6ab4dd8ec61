"""Whether a job's hosts have more threads ready to run than cores to run them on.

In: HOST payloads' run queue by host.  Out: ready threads a core over the latest part of a run, and Crowd: what the
rules are told. What all ranks lose to a crowded host looks like slow input or a slow exchange, whoever crowds it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import Payload, integer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

MAX_SAMPLES: Final = 64  # at one a second
MIN_SAMPLES: Final = 3  # a look at one moment is chance
MAX_HOSTS: Final = 1 << 13
CROWDED_READY: Final = 2.0  # threads a core: each gets half of one
PACKED_READY: Final = 5.0  # a rank of a pair that shares its core with nobody else reaches 3 to 4
CROWDED_WAIT: Final = 0.1  # of its time a typical rank waits for a core


@dataclass(frozen=True, slots=True)
class Crowd:
    """Over the window; None where it was not observed."""

    ready_per_core: (
        float | None
    )  # threads that run or wait for a core, median of the samples, of the typical host
    core_wait_share: float | None  # of its time the typical rank's training thread was ready and had no core

    @property
    def is_crowded(self) -> bool:
        """Whether it was seen that ranks have to wait for cores."""
        return (self.ready_per_core or 0.0) >= CROWDED_READY or (self.core_wait_share or 0.0) >= CROWDED_WAIT

    @property
    def is_packed(self) -> bool:
        """Whether so many others want the cores that a slow exchange or a small lateness is more likely theirs."""
        return (self.ready_per_core or 0.0) >= PACKED_READY

    @property
    def words(self) -> str:
        """What follows from that for a loss of all ranks; empty where nothing does."""
        if not self.is_crowded:
            return ""
        seen = []
        if self.ready_per_core is not None:
            seen.append(f"{self.ready_per_core:.1f} threads are ready for each core")
        if self.core_wait_share is not None:
            seen.append(f"ranks wait for one in {self.core_wait_share:.0%} of their time".replace("%", " %"))
        return f"; but the host is crowded ({', '.join(seen)}), so this may be waiting for a core"


class RunQueues:
    """Mutable: feed it HOST payloads."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[int, float]]] = {}

    def take(self, host: str, payload: Payload) -> None:
        """Fold one sample; what is not a number says nothing."""
        now_ns, num_ready, num_cpus = (
            integer(payload, name) for name in ("mono_ns", "run_queue", "num_cpus")
        )
        if now_ns is None or num_ready is None or not num_cpus or num_cpus < 0:
            return
        if host not in self._samples and len(self._samples) >= MAX_HOSTS:
            return
        samples = self._samples.setdefault(host, deque(maxlen=MAX_SAMPLES))
        if samples and now_ns <= samples[-1][0]:
            samples.clear()  # another machine, or another agent on it
        samples.append((now_ns, max(num_ready - 1, 0) / num_cpus))  # the agent itself runs while it looks

    def ready_per_core(self, hosts: Collection[str], last_s: float) -> float | None:
        """Of the typical host over the last so many seconds; None where too little was seen."""
        found = [self._of(self._samples[host], last_s) for host in hosts if host in self._samples]
        known = [value for value in found if value is not None]
        return median(known) if known and 2 * len(known) >= len(hosts) else None

    @staticmethod
    def _of(samples: deque[tuple[int, float]], last_s: float) -> float | None:
        end_ns = samples[-1][0]
        recent = [ready for ns, ready in samples if end_ns - ns <= last_s * 1e9]
        return median(recent) if len(recent) >= MIN_SAMPLES else None


def typical_wait(shares: Sequence[float | None]) -> float | None:
    """Median over ranks; None unless most of them are known."""
    known = [share for share in shares if share is not None]
    return median(known) if known and 2 * len(known) >= len(shares) else None
