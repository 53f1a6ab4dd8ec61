"""How much of its time each rank was ready to run and got no core, as the kernel counts it.

In: HOST payloads' cumulative run delay by rank.  Out: seconds of waiting a second, over the latest part of a run.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.payload import Payload, integer, number, objects

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SAMPLES: Final = 64  # at one a second
MIN_SPAN_S: Final = 3.0  # a share from less is chance
MAX_RANKS: Final = 1 << 13  # 50 MB; of the ranks beyond nothing is said


class CoreWait:
    """Mutable: feed it HOST payloads."""

    def __init__(self) -> None:
        self._samples: dict[int, deque[tuple[int, float]]] = {}

    def take(self, payload: Payload) -> None:
        """Fold one sample of a host; what is not a number, or runs backwards, begins anew."""
        now_ns = integer(payload, "mono_ns")
        if now_ns is None:
            return
        for entry in objects(payload, "ranks"):
            rank, delay_s = integer(entry, "rank"), number(entry, "run_delay_s")
            if rank is None or delay_s is None or not 0 <= rank < MAX_RANKS:
                continue
            samples = self._samples.setdefault(rank, deque(maxlen=MAX_SAMPLES))
            if samples and (now_ns <= samples[-1][0] or delay_s < samples[-1][1]):
                samples.clear()  # another process, or another host's clock
            samples.append((now_ns, delay_s))

    def shares(self, ranks: Sequence[int], last_s: float) -> list[float | None]:
        """Seconds of waiting a second over the last so many seconds of each rank; None where too little was seen."""
        return [self._share(self._samples.get(rank), last_s) for rank in ranks]

    @staticmethod
    def _share(samples: deque[tuple[int, float]] | None, last_s: float) -> float | None:
        if not samples:
            return None
        end_ns, end_s = samples[-1]
        begin_ns, begin_s = next(
            ((ns, delay) for ns, delay in samples if end_ns - ns <= last_s * 1e9), (end_ns, end_s)
        )
        span_s = (end_ns - begin_ns) / 1e9
        return (end_s - begin_s) / span_s if span_s >= MIN_SPAN_S else None
