"""Requests within their objectives, of which each histogram knows its own alone.

In: counts within each objective, as Bounded.  Out: the count within all of them, as Bounded. Which requests are within
one objective and which within another no page tells: their product would assume that slow starts and slow tokens have
nothing to do with each other, so only what holds for every possible joining is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuiadvisor.metrics.serving.histogram import Bounded

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Kept:
    """One objective: requests within it, of so many that were counted."""

    within: Bounded
    num: int


def jointly(kept: Sequence[Kept], num_begun_before: float | None) -> Bounded:
    """Requests within all objectives (Fréchet's bounds); of a single one its own count.

    num_begun_before: requests that were under way as counting began, so that one histogram may hold a request of which
    the other holds nothing; None: not known, then the lower end is 0.
    """
    if len(kept) == 1:
        return kept[0].within
    high = min(one.within.high if one.within.high is not None else float(one.num) for one in kept)
    if num_begun_before is None:
        return Bounded(None, 0.0, high)
    # At most so many different requests are in any of the histograms.
    among = max(one.num for one in kept) + num_begun_before
    missed = sum(among - one.within.low for one in kept)
    low = min(max(among - missed, 0.0), high)
    return Bounded(low if low == high else None, low, high)
