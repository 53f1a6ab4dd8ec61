"""Who comes last to collectives of which only durations are known, matched by their sequence numbers.

In: durations of M calls on R ranks, NaN for ranks that do not take part.  Out: waits, and the culprit or none.
Where nobody leaves before all have come, and all leave together, the rank with the shortest call came last: what the
others' calls are longer by, they waited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.steps.step_alignment import MIN_MATCHES
from tuiadvisor.metrics.traces.arrival_verdict import MATTERS
from tuiadvisor.metrics.traces.collective_arrival import few_words
from tuiadvisor.metrics.traces.waits_for_last import CULPRIT_SHARE, HANDED_ON

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats


@dataclass(frozen=True, slots=True)
class DurationArrivals:
    """Seconds by column; culprit: a column, None with the reason."""

    wait_R: tuple[float, ...]
    caused_R: tuple[float, ...]
    culprit: int | None
    share: float | None  # of all waits
    because: str


def duration_arrivals(duration_MR: Floats) -> DurationArrivals:
    """Of calls that all ranks of their group recorded, in seconds."""
    num_calls, num_ranks = duration_MR.shape
    if num_calls < MIN_MATCHES or num_ranks < 2:
        nothing = (0.0,) * num_ranks
        return DurationArrivals(nothing, nothing, None, None, few_words(num_calls))
    wait_MR = duration_MR - np.nanmin(duration_MR, axis=1, keepdims=True)
    wait_R = np.nansum(wait_MR, axis=0)
    last_M = np.nanargmin(duration_MR, axis=1)
    caused_R = np.bincount(last_M, np.nansum(wait_MR, axis=1), num_ranks)
    total = float(caused_R.sum())
    culprit = int(np.argmax(caused_R))
    share = float(caused_R[culprit]) / total if total else None
    waits, caused = tuple(wait_R.tolist()), tuple(caused_R.tolist())
    if share is None or total < MATTERS * float(np.nansum(duration_MR)):
        return DurationArrivals(waits, caused, None, share, "nobody waits for long in collectives")
    peers = max(int(np.isfinite(duration_MR[:, culprit]).sum()), 1)
    own, delay = float(wait_R[culprit]), float(caused_R[culprit]) / max(num_ranks - 1, 1)
    if share < CULPRIT_SHARE or own > HANDED_ON * delay * num_calls / peers:
        because = "who comes last changes, or waits for others itself: no rank is the one that all wait for"
        return DurationArrivals(waits, caused, None, share, because)
    return DurationArrivals(waits, caused, culprit, share, "")
