"""When somebody asked ranks for every step in detail: those bursts are news, the probe's own are not.

In: entries of STATUS frames, from strangers.  Out: (asked, until) of a rank, nanoseconds on its host's clock.
"""

from __future__ import annotations

from typing import Final

from tuiadvisor.advisor.cluster.payload_fields import MAX_WATCHED_RANKS, Payload

MAX_BURSTS: Final = 64  # of a rank: the first go first
NUM_ENDS: Final = 2


class Bursts:
    """Mutable: feed it entries."""

    def __init__(self) -> None:
        self._of: dict[int, dict[int, int]] = {}  # by rank and when it was asked: until when

    def take(self, entry: Payload, rank: int) -> None:
        """One rank's entry; whose rank it is has been checked."""
        told = entry.get("burst_ns")
        if not isinstance(told, list) or len(told) != NUM_ENDS:
            return
        asked_ns, until_ns = told
        if type(asked_ns) is not int or type(until_ns) is not int or asked_ns > until_ns:
            return
        if rank not in self._of and len(self._of) >= MAX_WATCHED_RANKS:
            return
        known = self._of.setdefault(rank, {})
        known[asked_ns] = max(until_ns, known.get(asked_ns, until_ns))
        while len(known) > MAX_BURSTS:
            del known[next(iter(known))]

    def of(self, rank: int) -> tuple[tuple[int, int], ...]:
        """The bursts that a rank was asked for, in the order they were heard of."""
        return tuple(self._of.get(rank, {}).items())
