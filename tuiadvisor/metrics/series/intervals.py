"""Sets of time intervals as sorted, disjoint (begin, end) arrays: union, length, intersection.

In and out: integers of one unit.  Vectorized: cost is that of sorting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Ints


@dataclass(frozen=True, slots=True)
class Intervals:
    """Sorted and disjoint: end[i] < begin[i + 1]."""

    begin: Ints
    end: Ints

    @property
    def length(self) -> int:
        """Sum of lengths."""
        return int((self.end - self.begin).sum())


def union(begin: Ints, end: Ints) -> Intervals:
    """What at least one of the given intervals covers; touching ones become one."""
    if begin.size == 0:
        return Intervals(begin, end)
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    fresh = np.ones(begin.size, dtype=bool)
    fresh[1:] = begin[1:] > reach[:-1]
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], begin.size) - 1
    return Intervals(begin[first], reach[last])


def both(one: Intervals, other: Intervals) -> int:
    """Length covered by both."""
    if one.begin.size == 0 or other.begin.size == 0:
        return 0
    together = union(np.concatenate((one.begin, other.begin)), np.concatenate((one.end, other.end)))
    return one.length + other.length - together.length


@dataclass(frozen=True, slots=True)
class Cover:
    """How much of the time before t some intervals cover."""

    intervals: Intervals
    before: Ints

    def until(self, times: Ints) -> Ints:
        """One sum for each time."""
        begin, end = self.intervals.begin, self.intervals.end
        if not begin.size:
            return np.zeros(times.size, dtype=np.int64)
        at = np.searchsorted(begin, times, side="right") - 1
        inside = np.minimum(times, end[np.maximum(at, 0)]) - begin[np.maximum(at, 0)]
        return np.where(at >= 0, self.before[np.maximum(at, 0)] + inside, 0)


def cover(begin: Ints, end: Ints) -> Cover:
    """Of intervals that may overlap."""
    merged = union(begin.astype(np.int64), end.astype(np.int64))
    length = merged.end - merged.begin
    return Cover(merged, np.cumsum(length) - length)
