"""How much of its time each rank was ready to run and got no core, as the kernel counts it.

In: HOST payloads' cumulative run delay by rank.  Out: seconds of waiting a second, over the latest part of a run.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import MAX_WATCHED_RANKS, Payload, integer, number, objects

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SAMPLES: Final = 64  # at one a second
MAX_NS: Final = 1 << 62
MIN_SPAN_S: Final = 3.0  # a share from less is chance
MIN_BOUND_S: Final = 1.5  # of less the newest sample, up to a second old, has seen next to nothing


class CoreWait:
    """Mutable: feed it HOST payloads."""

    def __init__(self) -> None:
        # Numbers, not objects: a tuple a sample takes seven times the memory. Up to twice MAX_SAMPLES lie here.
        self._samples: dict[int, tuple[array[int], array[float]]] = {}  # (mono ns, seconds waited so far)
        self._before_s: dict[int, float] = {}  # what the rank's former processes had waited, to be added

    def take(self, payload: Payload) -> None:
        """Fold one sample of a host; what is not a number is left out, a clock that runs backwards begins anew.

        Where another process has the rank, its count goes on from the former one's: the steps held are still of that.
        """
        now_ns = integer(payload, "mono_ns")
        if now_ns is None:
            return
        for entry in objects(payload, "ranks"):
            rank, delay_s = integer(entry, "rank"), number(entry, "run_delay_s")
            if rank is None or delay_s is None or not 0 <= rank < MAX_WATCHED_RANKS:
                continue
            samples = self._samples.get(rank)
            if samples is None:
                samples = self._samples[rank] = (array("q"), array("d"))
            times, delays = samples
            if times and now_ns <= times[-1]:  # another host's clock
                del times[:], delays[:]
                self._before_s.pop(rank, None)
            before_s = self._before_s.get(rank, 0.0)
            if delays and before_s + delay_s < delays[-1]:  # another process
                before_s = self._before_s[rank] = delays[-1]
            times.append(now_ns)
            delays.append(before_s + delay_s)
            if len(times) >= 2 * MAX_SAMPLES:
                del times[:MAX_SAMPLES], delays[:MAX_SAMPLES]

    def shares(
        self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None = None
    ) -> list[float | None]:
        """Seconds of waiting a second over the last so many seconds of each rank; None where too little was seen.

        until_ns: of each rank, on its host's clock; None: until its newest sample.
        """
        ends = [MAX_NS] * len(ranks) if until_ns is None else until_ns
        return [
            self._share(self._samples.get(rank), last_s, end) for rank, end in zip(ranks, ends, strict=True)
        ]

    def counted(self, rank: int) -> bool:
        """Whether the kernel's count of a rank is read at all."""
        return rank in self._samples

    def most_share(self, rank: int, last_s: float, until_ns: int = MAX_NS) -> float | None:
        """What `shares` can be at most, of a span that is too short for it; None where even that is not known."""
        samples = self._samples.get(rank)
        if samples is None or not last_s >= MIN_BOUND_S:
            return None
        times, delays = samples
        last = bisect_right(times, until_ns) - 1
        if last < 0:
            return None
        begin = bisect_right(times, times[last] - last_s * 1e9) - 1  # the newest sample before it began
        return (delays[last] - delays[begin]) / last_s if begin >= 0 else None

    @staticmethod
    def _share(samples: tuple[array[int], array[float]] | None, last_s: float, until_ns: int) -> float | None:
        if samples is None or not last_s >= 0:  # nor of a span that is no number
            return None
        times, delays = samples
        last = bisect_right(times, until_ns) - 1
        oldest = max(len(times) - MAX_SAMPLES, 0)
        if last <= oldest:
            return None
        begin = bisect_left(times, times[last] - last_s * 1e9, oldest, last)
        span_s = (times[last] - times[begin]) / 1e9
        return (delays[last] - delays[begin]) / span_s if span_s >= MIN_SPAN_S else None
