"""Memory of hosts and devices over the run: which of them fills, and whose process grows meanwhile.

In: HOST payloads.  Out: Filling, the memory that is full first; None where none grows steadily.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from tuiadvisor.advisor.cluster.payload_fields import Payload, integer, number, objects, text
from tuiadvisor.causes.facts import Filling
from tuiadvisor.metrics.series.memory_growth import MIN_GROWTH, Creep, find_creep

MAX_SAMPLES: Final = 128  # over the whole run: when full, every second one goes
MAX_SERIES: Final = 1 << 14
_Key = TypeVar("_Key", tuple[str, str], tuple[str, int])


class Series:
    """Mutable: a quantity over any length of time in bounded memory, ever coarser."""

    def __init__(self) -> None:
        # Numbers, not objects: in a world of thousands of ranks the tuples of their samples took 250 MB.
        self._times = array("q")
        self._values = array("d")
        self._gap_ns = 0

    def add(self, now_ns: int, value: float) -> None:
        """Keep it if it comes long enough after the one before; a clock that runs backwards begins anew."""
        times = self._times
        if times:
            since_ns = now_ns - times[-1]
            if since_ns <= 0:
                self._times, self._values, self._gap_ns = array("q"), array("d"), 0
            elif since_ns < self._gap_ns:
                return
        self._times.append(now_ns)
        self._values.append(value)
        if len(self._times) > MAX_SAMPLES:
            self._times, self._values = self._times[::2], self._values[::2]
            self._gap_ns = (self._times[-1] - self._times[0]) // (len(self._times) - 1) * 9 // 10

    def grown_by(self, span_s: float) -> float:
        """By how much it is more than it was so many seconds ago."""
        since_ns = self._times[-1] - span_s * 1e9
        before = next(
            value for at_ns, value in zip(self._times, self._values, strict=True) if at_ns >= since_ns
        )
        return self._values[-1] - before

    def creep(self) -> Creep | None:
        """Steady growth, if there is any."""
        # Most memory does not grow: a microsecond instead of a fit of 200, for each of thousands of ranks.
        values = self._values
        if not values or values[-1] - values[len(values) // 4] < MIN_GROWTH / 2:
            return None
        return find_creep(np.array(self._times, dtype=np.float64) / 1e9, np.array(values, dtype=np.float64))


class MemoryUse:
    """Mutable: feed it HOST payloads."""

    def __init__(self) -> None:
        self._shares: dict[tuple[str, str], Series] = {}
        self._ranks: dict[tuple[str, int], Series] = {}
        self._used: dict[str, float | None] = {}
        self._together: dict[
            tuple[str, str], Series
        ] = {}  # of all ranks of a host; what each adds may be little

    def take(self, host: str, payload: Payload) -> None:
        """Fold one sample of a host; what is no number says nothing."""
        now_ns = integer(payload, "mono_ns")
        if now_ns is None:
            return
        share = number(payload, "memory")
        if share is not None and share <= 1:
            self._add(self._shares, (host, ""), now_ns, share)
        for entry in objects(payload, "gpus"):
            used, total = number(entry, "memory_used_bytes"), number(entry, "memory_total_bytes")
            index = integer(entry, "index")
            if used is not None and total and used <= total and index is not None and text(entry, "uuid"):
                self._add(self._shares, (host, f"GPU {index}"), now_ns, used / total)
        total = number(payload, "memory_total_bytes")
        if not total:
            return
        told = []
        for entry in objects(payload, "ranks"):
            rank, rss = integer(entry, "rank"), number(entry, "rss_bytes")
            if rank is not None and rss is not None and rss <= total:
                told.append(rss / total)
                self._add(self._ranks, (host, rank), now_ns, rss / total)
                self._used[host] = share if share is not None and share <= 1 else self._used.get(host)
        if told:
            self._add(self._together, (host, ""), now_ns, sum(told))

    @staticmethod
    def _add(found: dict[_Key, Series], key: _Key, now_ns: int, value: float) -> None:
        if key in found or len(found) < MAX_SERIES:
            found.setdefault(key, Series()).add(now_ns, value)

    def filling(self) -> Filling | None:
        """The memory that is full first. What others do on a host hides what one process adds: ranks go first."""
        found = [
            Filling(host, "", replace(creep, share=used, left_s=(1 - used) / creep.per_s), rank)
            for (host, rank), series in self._ranks.items()
            if (used := self._used.get(host)) is not None and (creep := series.creep()) is not None
        ]
        hosts = {entry.host for entry in found}
        found += [
            Filling(host, device, creep, None, None if device else self._ranks_part(host, creep))
            for (host, device), series in self._shares.items()
            if (device or host not in hosts) and (creep := series.creep()) is not None
        ]
        # What the training fills is its own to mend: it goes before what others do.
        return min(
            found,
            key=lambda entry: (not entry.is_ours, entry.creep.left_s, entry.host, entry.device),
            default=None,
        )

    def _ranks_part(self, host: str, creep: Creep) -> float | None:
        """Of the growth of a host's memory, that in its ranks' processes; None where these were not told."""
        together = self._together.get((host, ""))
        return (
            None
            if together is None
            else max(together.grown_by(creep.span_s), 0.0) / (creep.per_s * creep.span_s)
        )
