"""A timeline of ranks and streams: what fills each cell of a stretch of time, at any zoom.

In: slices (rank, stream, begin, end, name, kind), nanoseconds on one clock.  Out: for each lane and cell the kind that
takes most of it and the share of the cell that anything takes; for a lane the names that take most of the stretch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.intervals import cover

if TYPE_CHECKING:
    from tuiadvisor.metrics.series.intervals import Cover
    from tuiadvisor.metrics.steps.arrays import Floats, Ints

NOTHING: Final = -1  # no kernel
TOP: Final = 3  # kernels that are named


@dataclass(frozen=True, slots=True)
class Lane:
    """One stream of a rank, ready to be looked at."""

    rank: int
    stream: int
    begin_ns: Ints
    end_ns: Ints
    name: Ints
    kinds: Ints  # that there are
    covers: tuple[Cover, ...]  # of each of kinds
    every: Cover


def lanes_of(rows: Ints) -> tuple[Lane, ...]:
    """rows: rank, stream, begin, end, name, kind; a row each. By rank and stream."""
    rows = rows[rows[:, 3] >= rows[:, 2]]
    order = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
    rows = rows[order]
    if not rows.size:
        return ()
    apart = np.flatnonzero((np.diff(rows[:, :2], axis=0) != 0).any(axis=1)) + 1
    return tuple(_lane(part) for part in np.split(rows, apart))


def _lane(rows: Ints) -> Lane:
    begin, end, kind = rows[:, 2], rows[:, 3], rows[:, 5]
    kinds = np.unique(kind)
    covers = tuple(cover(begin[kind == one], end[kind == one]) for one in kinds)
    return Lane(int(rows[0, 0]), int(rows[0, 1]), begin, end, rows[:, 4], kinds, covers, cover(begin, end))


def cells(lane: Lane, borders: Ints) -> tuple[Ints, Floats]:
    """(kind that takes most of each cell or NOTHING, share of it that is taken)."""
    width = np.maximum(np.diff(borders), 1)
    each = np.stack([np.diff(held.until(borders)) for held in lane.covers])
    taken = np.diff(lane.every.until(borders))
    kind = np.where(taken > 0, lane.kinds[np.argmax(each, axis=0)], NOTHING)
    return kind, taken / width


def longest(lane: Lane, begin_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """(name, nanoseconds within the stretch) of the names that take most of it."""
    took = np.maximum(np.minimum(lane.end_ns, end_ns) - np.maximum(lane.begin_ns, begin_ns), 0)
    names, at = np.unique(lane.name, return_inverse=True)
    sums = np.bincount(at, took.astype(np.float64))
    return [
        (int(names[one]), int(sums[one])) for one in np.argsort(-sums, kind="stable")[:TOP] if sums[one] > 0
    ]
