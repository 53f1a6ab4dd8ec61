"""How much of its time each rank was ready to run and got no core, as the kernel counts it.

In: HOST payloads' cumulative run delay by rank.  Out: seconds of waiting a second, over the latest part of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.cluster.payload_fields import MAX_WATCHED_RANKS, Payload, integer, number, objects
from tuiadvisor.advisor.cluster.rank_samples import MAX_SAMPLES, RankSamples
from tuiadvisor.metrics.steps.arrays import finite_or_nones
from tuiadvisor.metrics.steps.step_table import NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.cluster.rank_samples import Until

MIN_SPAN_S: Final = 3.0  # a share from less is chance
MIN_BOUND_S: Final = 1.5  # of less the newest sample, up to a second old, has seen next to nothing
WAITED_S: Final = 0  # the one number of a sample: seconds waited so far


class CoreWait:
    """Mutable: feed it HOST payloads."""

    def __init__(self) -> None:
        self._samples = RankSamples(1, counts=(WAITED_S,), falls_anew=(WAITED_S,))

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
            self._samples.add(rank, now_ns, (delay_s,))

    def shares(
        self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None = None
    ) -> list[float | None]:
        """Seconds of waiting a second over the last so many seconds of each rank; None where too little was seen.

        until_ns: of each rank, on its host's clock; None: until its newest sample.
        """
        return self.bounds(ranks, last_s, until_ns)[0]

    def bounds(
        self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None = None
    ) -> tuple[list[float | None], list[float | None]]:
        """`shares`, and what they can be at most, of a span too short for them; None where that is not known."""
        nothing: list[float | None] = [None] * len(ranks)
        seen = (
            self._samples.until(ranks, until_ns) if last_s >= 0 else None
        )  # nor of a span that is no number
        if seen is None:
            return nothing, nothing
        return _shares(seen, last_s), _most_shares(seen, last_s) if last_s >= MIN_BOUND_S else nothing

    def share_before(self, rank: int, time_ns: int) -> float | None:
        """Seconds of waiting a second of a rank from its first sample until then; None where too little was seen.

        The count goes on for as long as the run. Where that of then is no longer held, it is taken back from the oldest
        that is, as it grew since.
        """
        seen = self._samples.since_first(rank, WAITED_S, time_ns)
        if seen is None:
            return None
        first_ns, at_ns, waited_s = seen
        later_s = max(at_ns - time_ns, 0) * NS
        share = self.shares([rank], float(MAX_SAMPLES))[0] if later_s else 0.0
        span_s = (at_ns - first_ns) * NS - later_s
        if span_s < MIN_SPAN_S or share is None:
            return None
        return min(max((waited_s - share * later_s) / span_s, 0.0), 1.0)

    def counted(self, rank: int) -> bool:
        """Whether the kernel's count of a rank is read at all."""
        return rank in self._samples

    def is_gone(self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None) -> list[bool]:
        """Of each rank whether its count of these seconds was read, and is no longer held."""
        return self._samples.is_gone(ranks, last_s, until_ns)


def _shares(seen: Until, last_s: float) -> list[float | None]:
    oldest = np.maximum(seen.last + 1 - MAX_SAMPLES, 0)  # of the past too as many as of now
    begin = np.clip(seen.num_before(last_s), oldest, np.maximum(seen.last, oldest))
    span_s = seen.times_s(begin)
    is_known = (seen.last > oldest) & (span_s >= MIN_SPAN_S)
    waited_s = seen.at(WAITED_S, seen.last) - seen.at(WAITED_S, begin)
    return finite_or_nones(np.where(is_known, waited_s / np.where(is_known, span_s, 1.0), np.nan))


def _most_shares(seen: Until, last_s: float) -> list[float | None]:
    begin = seen.num_before(last_s, or_at=True) - 1  # the newest sample before it began
    oldest = np.maximum(begin, np.maximum(seen.last + 1 - MAX_SAMPLES, 0))
    is_known = (seen.last >= 0) & ((begin >= 0) | (seen.times_s(oldest) >= MIN_BOUND_S))
    waited_s = seen.at(WAITED_S, seen.last) - seen.at(WAITED_S, oldest)
    # Ranks are counted from the attach on: of what lies before the first sample it may have waited all the time.
    unseen_s = np.where(begin >= 0, 0.0, np.maximum(last_s - seen.times_s(oldest), 0.0))
    return finite_or_nones(np.where(is_known, np.minimum((waited_s + unseen_s) / last_s, 1.0), np.nan))
