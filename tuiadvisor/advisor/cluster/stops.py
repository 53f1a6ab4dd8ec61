"""When each rank's process was seen stopped, by a signal or a debugger: what explains a pause nothing else does.

In: HOST and STATUS payloads.  Out: when a rank stood stopped, and whether between two times of its host's clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.cluster.payload_fields import MAX_WATCHED_RANKS, Payload, integer, objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.arrays import Ints

MAX_SEEN: Final = 1024  # of one rank: looks at a tenth of a second's distance, older agents' at a second's
MAX_TOLD: Final = 64  # in one payload
STOPPED: Final = "stopped"


def _times_ns(entry: Payload, now_ns: int) -> list[int]:
    """When looks before this payload found it stopped."""
    told = entry.get("stopped_at_ns")
    times = told[:MAX_TOLD] if isinstance(told, list) else []
    return [ns for ns in times if type(ns) is int and 0 < ns <= now_ns]


class Stops:
    """Mutable: feed it HOST and STATUS payloads."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, deque[int]]] = {}  # rank -> (host, times)

    def take(self, host: str, payload: Payload) -> None:
        """Fold what one host's agent says of its ranks; time is that host's monotonic clock."""
        now_ns = integer(payload, "mono_ns")
        if now_ns is None:
            return
        for entry in objects(payload, "ranks"):
            is_now = entry.get("state") == STOPPED or entry.get("thread") == STOPPED
            times_ns = [*_times_ns(entry, now_ns), *((now_ns,) if is_now else ())]
            rank = integer(entry, "rank")
            if rank is None or not times_ns:
                continue
            known = self._seen.get(rank)
            if known is None or known[0] != host:  # another host, another clock
                if known is None and len(self._seen) >= MAX_WATCHED_RANKS:
                    continue
                known = self._seen[rank] = (host, deque(maxlen=MAX_SEEN))
            known[1].extend(times_ns)

    def has_seen(self, hosts: dict[int, str]) -> bool:
        """Whether any rank on these hosts was ever seen stopped."""
        return any(rank in hosts for rank in self._seen)

    def within(self, hosts: dict[int, str]) -> Callable[[int, int, int], bool]:
        """A function (rank, begin_ns, end_ns) for ranks on these hosts."""

        def was_stopped(rank: int, begin_ns: int, end_ns: int) -> bool:
            host, times = self._seen.get(rank, ("", deque[int]()))
            return host == hosts.get(rank) and any(begin_ns <= ns <= end_ns for ns in times)

        return was_stopped

    def times(self, hosts: dict[int, str]) -> Callable[[int], Ints]:
        """A function of a rank on one of these hosts: when it was seen stopped, ns of its host's clock."""

        def stopped_at(rank: int) -> Ints:
            host, times = self._seen.get(rank, ("", deque[int]()))
            return np.array(times if host == hosts.get(rank) else (), dtype=np.int64)

        return stopped_at
