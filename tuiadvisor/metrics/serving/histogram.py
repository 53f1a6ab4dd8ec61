"""A histogram of counts by upper edge (Prometheus): what it tells for certain, and what within a bucket is a guess.

In: cumulative counts of one or several series.  Out: Histogram, and of it quantiles and counts as Bounded. A bucket
without an upper edge gives a lower bound and no figure: nothing beyond the last finite edge is ever invented.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


MOST: Final = 1e15  # observations: beyond it floats no longer tell one from two


class HistogramError(ValueError):
    """Why these counts are no histogram, or two of them cannot be set against each other."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """A figure and the ends between which it surely lies. value None: nothing within them is more likely."""

    value: float | None
    low: float
    high: float | None  # None: no upper end is known

    @property
    def is_exact(self) -> bool:
        """Both ends are one."""
        return self.high is not None and self.high <= self.low

    def scaled(self, factor: float) -> Bounded:
        """In another unit."""
        return Bounded(
            None if self.value is None else self.value * factor,
            self.low * factor,
            None if self.high is None else self.high * factor,
        )


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts up to each edge; the last edge is infinite. total: sum of all values, None where it was not told."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    total: float | None

    @property
    def num(self) -> int:
        """All observations."""
        return self.counts[-1]

    @property
    def mean(self) -> float | None:
        """Of all observations; exact, unlike a quantile."""
        return self.total / self.num if self.total is not None and self.num else None

    def quantile(self, share: float) -> Bounded | None:
        """The value that `share` of the observations do not exceed; None without observations.

        Linear within its bucket, as Prometheus' histogram_quantile, whose figure for the infinite bucket (its lower
        edge) is given as a bound alone here.
        """
        if not self.num:
            return None
        rank = share * self.num
        # The tolerance: 0.07 x 100 is 7.000000000000001 in binary, and must not fall into the next bucket.
        wanted = max(math.ceil(rank - 1e-14 * self.num), 1)
        place = next(index for index, count in enumerate(self.counts) if count >= wanted)
        low, before = self._lower(place)
        if math.isinf(self.edges[place]):
            return Bounded(None, low, None)
        high = min(self.edges[place], self._most(place, wanted))
        within = self.counts[place] - before
        part = min(max((rank - before) / within, 0.0), 1.0)
        return Bounded(min(low + (high - low) * part, high), low, high)  # rounding may pass the end

    def _most(self, place: int, wanted: int) -> float:
        """What the observation of this number cannot exceed, by the sum of all: no wide bucket hides a small mean.

        It and those after it in its bucket are at least as large as it, all others as large as their lower edges.
        """
        if self.total is None or self.edges[0] < 0:
            return math.inf
        lows = [self._lower(index) for index in range(len(self.edges))]
        others = math.fsum(
            low * (count - before) for (low, before), count in zip(lows, self.counts, strict=True)
        )
        at_least = self.counts[place] - wanted + 1
        most = (self.total - others) / at_least + lows[place][0]
        slack = 1e-9 * max(self.total, self.edges[place])  # sums of floats
        # A sum below what the buckets allow was read at another moment than they.
        return most + slack if most + slack > lows[place][0] else math.inf

    def within(self, limit: float) -> Bounded:
        """How many observations do not exceed the limit: exact where it is an edge."""
        place = next(index for index, edge in enumerate(self.edges) if edge >= limit)
        high, count = self.edges[place], self.counts[place]
        if high == limit:
            return Bounded(float(count), count, count)
        low, before = self._lower(place)
        if count == before:
            return Bounded(float(count), count, count)
        if math.isinf(high):
            return Bounded(None, before, count)
        part = (limit - low) / (high - low) if high > low else 1.0
        return Bounded(min(before + (count - before) * max(part, 0.0), count), before, count)

    def _lower(self, place: int) -> tuple[float, int]:
        """(lower edge, observations below it) of a bucket; what is counted is never negative."""
        return (self.edges[place - 1], self.counts[place - 1]) if place else (min(self.edges[0], 0.0), 0)


def histogram(
    buckets: Iterable[tuple[float, float]], count: float | None = None, total: float | None = None
) -> Histogram:
    """From (upper edge, cumulative count). HistogramError: why they are none."""
    found: dict[float, float] = {}
    for edge, number in buckets:
        if math.isnan(edge) or (edge in found and found[edge] != number):
            raise HistogramError("a bucket is there twice or has no edge")
        found[edge] = number
    if math.inf not in found:
        if count is None:
            raise HistogramError("its last bucket (+Inf) is missing")
        found[math.inf] = count
    edges = tuple(sorted(found))
    counts = tuple(_whole(found[edge]) for edge in edges)
    if any(after < before for before, after in pairwise(counts)):
        raise HistogramError("its counts fall from one bucket to the next")
    if len(edges) < 2:
        raise HistogramError("it has no bucket with an upper edge")
    return Histogram(edges, counts, total if total is not None and math.isfinite(total) else None)


def since(before: Histogram, after: Histogram) -> Histogram:
    """What came between two readings of one series. HistogramError if it began anew in between."""
    if before.edges != after.edges:
        raise HistogramError("its buckets changed between the two pages")
    counts = tuple(late - early for early, late in zip(before.counts, after.counts, strict=True))
    # Each bucket by itself never falls in one process.
    if any(late < early for early, late in pairwise((0, *counts))):
        raise HistogramError("its counts fell between the two pages: the server restarted")
    total = None if before.total is None or after.total is None else after.total - before.total
    if total is not None and total < 0:
        raise HistogramError("its sum fell between the two pages: the server restarted")
    return Histogram(after.edges, counts, total)


def together(parts: Sequence[Histogram]) -> Histogram:
    """All observations of several series: counted at the edges that all of them have."""
    shared = set(parts[0].edges).intersection(*(part.edges for part in parts[1:]))
    if len(shared) < 2:
        raise HistogramError("its series share no edge of a bucket")
    edges = tuple(sorted(shared))
    counts = tuple(sum(part.counts[part.edges.index(edge)] for part in parts) for edge in edges)
    if counts[-1] > MOST:
        raise HistogramError("its series together count more than can be")
    totals = [part.total for part in parts]
    total = None if None in totals else math.fsum(value for value in totals if value is not None)
    return Histogram(edges, counts, total)


def _whole(number: float) -> int:
    if not math.isfinite(number) or number < 0 or number != int(number) or number > MOST:
        raise HistogramError("a count of it is no whole number")
    return int(number)
