"""What kept each rank's process off its cores from outside: its CPU limit, and stops by a signal or a debugger.

In: HOST payloads, once a second.  Out: shares over the latest part of a run. Beside the run delay (`run_delay.py`)
they say why a rank that is slow in everything was not run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import Payload, integer, number, objects
from tuiadvisor.metrics.lateness.off_core import OffCore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.cluster.run_delay import CoreWait

MAX_SAMPLES: Final = 64  # at one a second
MIN_SAMPLES: Final = 4  # a look at one moment is chance
MAX_RANKS: Final = 1 << 13
MAX_CORES: Final = 1 << 16
STOPPED: Final = "stopped"


def _cores(value: float | None) -> float | None:
    """A limit that can be one."""
    return value if value is not None and 0 < value < MAX_CORES else None


@dataclass(frozen=True, slots=True)
class _Look:
    mono_ns: int
    is_stopped: bool
    periods: int | None  # of its CPU limit, so far; None without one
    throttled: int | None
    limit_cores: float | None
    num_looks: int | None = (
        None  # at its state so far, and those that found it stopped; None from older agents
    )
    num_stopped: int | None = None


class Outside:
    """Mutable: feed it HOST payloads."""

    def __init__(self, core_wait: CoreWait) -> None:
        self._core_wait = core_wait
        self._looks: dict[int, deque[_Look]] = {}

    def take(self, payload: Payload) -> None:
        """Fold one sample of a host; counts that run backwards, or another clock, begin anew."""
        now_ns = integer(payload, "mono_ns")
        if now_ns is None:
            return
        for entry in objects(payload, "ranks"):
            rank = integer(entry, "rank")
            if rank is None or not 0 <= rank < MAX_RANKS or number(entry, "cpu_s") is None:
                continue
            look = _Look(
                now_ns,
                entry.get("state") == STOPPED,
                integer(entry, "cpu_periods"),
                integer(entry, "throttled_periods"),
                _cores(number(entry, "cpu_limit_cores")),
                integer(entry, "looks"),
                integer(entry, "stopped_looks"),
            )
            looks = self._looks.setdefault(rank, deque(maxlen=MAX_SAMPLES))
            if looks and (now_ns <= looks[-1].mono_ns or _runs_backwards(looks[-1], look)):
                looks.clear()
            looks.append(look)

    def seen(self, ranks: Sequence[int], last_s: float) -> list[OffCore]:
        """Of each rank over its last so many seconds."""
        waits = self._core_wait.shares(ranks, last_s)
        return [self._seen(rank, wait, last_s) for rank, wait in zip(ranks, waits, strict=True)]

    def _seen(self, rank: int, wait: float | None, last_s: float) -> OffCore:
        counted, most = self._core_wait.counted(rank), self._core_wait.most_share(rank, last_s)
        recent = _of_last(self._looks.get(rank, deque()), last_s * 1e9)
        if len(recent) < MIN_SAMPLES:
            return OffCore(wait, is_counted=counted, most_wait=most)
        first, last = recent[0], recent[-1]
        num_looks, num_stopped = _looks_between(recent)
        throttled = None
        if None not in (first.periods, first.throttled, last.periods, last.throttled):
            num_periods = (last.periods or 0) - (first.periods or 0)
            num_throttled = (last.throttled or 0) - (first.throttled or 0)
            throttled = min(max(num_throttled / num_periods, 0.0), 1.0) if num_periods > 0 else 0.0
        return OffCore(
            wait,
            num_stopped / num_looks,
            num_stopped,
            throttled,
            last.limit_cores,
            is_counted=counted,
            most_wait=most,
        )


def _of_last(looks: deque[_Look], span_ns: float) -> list[_Look]:
    """Those of the last so many nanoseconds; looks are in order of time."""
    if not looks or not span_ns >= 0:
        return []
    newest_ns = looks[-1].mono_ns
    begin = bisect_left(looks, -span_ns, key=lambda look: look.mono_ns - newest_ns)
    return list(islice(looks, begin, None))


def _runs_backwards(before: _Look, now: _Look) -> bool:
    """Another process has the rank now."""
    return (now.periods or 0) < (before.periods or 0) or (now.num_looks or 0) < (before.num_looks or 0)


def _looks_between(recent: list[_Look]) -> tuple[int, int]:
    """(looks at its state, of them stopped): the agent's many between two samples, else those of the samples."""
    first, last = recent[0], recent[-1]
    if None not in (first.num_looks, first.num_stopped, last.num_looks, last.num_stopped):
        num_looks = (last.num_looks or 0) - (first.num_looks or 0)
        num_stopped = (last.num_stopped or 0) - (first.num_stopped or 0)
        if num_looks >= len(recent) and 0 <= num_stopped <= num_looks:
            return num_looks, num_stopped
    return len(recent), sum(look.is_stopped for look in recent)
