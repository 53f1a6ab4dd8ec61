"""Whether a job's hosts have more threads ready to run than cores to run them on.

In: HOST payloads' run queue by host.  Out: ready threads a core over the latest part of a run. What all ranks lose
to a crowded host looks like slow input or slow communication, whoever crowds it.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import Payload, integer
from tuiadvisor.causes.facts import Crowd
from tuiadvisor.metrics.lateness.off_core import least_throttled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.advisor.cluster.off_core import Outside
    from tuiadvisor.metrics.diagnosis import Diagnosis

MAX_ASKED: Final = 256  # ranks whose waiting for cores is looked at
# Chosen: others' work comes and goes within seconds, and what is said of the hosts should not go with it.
LEAST_CROWD_S: Final = 15.0
LAST_SAMPLE_NS: Final = 1_000_000_000  # one a second: the one after the last step still tells of it
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


def typical_share(shares: Sequence[float | None]) -> float | None:
    """Median over ranks; None unless most of them are known."""
    known = [share for share in shares if share is not None]
    return median(known) if known and 2 * len(known) >= len(shares) else None


def crowd(diagnosis: Diagnosis, queues: RunQueues, outside: Outside) -> Crowd:
    """How crowded the hosts of these ranks were over the window, or the last seconds where that is shorter.

    A window begins anew wherever the job changes its pace, which others' work makes it do: not to be asked then
    would be to blame loader or network for what the hosts do. What they do once the last step has ended, as while a
    new process starts, is nothing that a step waited for, nor what a rank waited before the first whole one began.
    """
    table = diagnosis.table
    last_s = max(float(diagnosis.steady_barrier.span_K.sum()), LEAST_CROWD_S)
    of_steps_s = min(last_s, table.whole_steps_span_s)
    stride = max(1, table.num_ranks // MAX_ASKED)  # a median needs no more
    ends_ns = table.last_end_ns_R[::stride] + LAST_SAMPLE_NS
    until_ns: dict[str, int] = {}
    for host, end_ns in zip(table.hosts[::stride], ends_ns.tolist(), strict=True):
        until_ns[host] = max(end_ns, until_ns.get(host, 0))
    seen = outside.seen(table.ranks[::stride], of_steps_s, ends_ns.tolist())
    return Crowd(
        queues.ready_per_core(until_ns, last_s),
        typical_share([one.wait for one in seen]),
        # The limit of one rank is its own matter: what is said of all holds for those that feel it least.
        least_throttled(seen),
        min((one.limit_cores for one in seen if one.limit_cores is not None), default=None),
        typical_share([one.run for one in seen]),
    )
