"""Whether a job's hosts have more threads ready to run than cores to run them on.

In: HOST payloads' run queue by host.  Out: ready threads a core over the latest part of a run. What all ranks lose
to a crowded host looks like slow input or slow communication, whoever crowds it.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import Payload, integer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_SAMPLES: Final = 64  # at one a second
MIN_SAMPLES: Final = 3  # a look at one moment is chance
MAX_HOSTS: Final = 1 << 13


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

    def ready_per_core(self, until_ns: Mapping[str, int], last_s: float) -> float | None:
        """Of the typical host over the last so many seconds; None where too little was seen.

        until_ns: by host, on its clock, the end of these seconds; what was seen later is left out.
        """
        found = [
            self._of(self._samples[host], last_s, end)
            for host, end in until_ns.items()
            if host in self._samples
        ]
        known = [value for value in found if value is not None]
        return median(known) if known and 2 * len(known) >= len(until_ns) else None

    @staticmethod
    def _of(samples: deque[tuple[int, float]], last_s: float, until_ns: int) -> float | None:
        end_ns = max((ns for ns, _ in samples if ns <= until_ns), default=0)
        recent = [ready for ns, ready in samples if 0 <= end_ns - ns <= last_s * 1e9]
        return median(recent) if len(recent) >= MIN_SAMPLES else None


def typical_wait(shares: Sequence[float | None]) -> float | None:
    """Median over ranks; None unless most of them are known."""
    known = [share for share in shares if share is not None]
    return median(known) if known and 2 * len(known) >= len(shares) else None
