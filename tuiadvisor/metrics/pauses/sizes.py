"""Pauses that keep their distance and have changed their length: those of before are over, those of now another thing.

In: columns of pauses at one distance, by how much each is too long.  Out: the columns of each length, in order. One
length for both was neither: a checkpoint that grew from 40 ms to 1.4 s was told as 40 ms.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

MIN_CHANGE: Final = 2.0  # times: between all pauses of one length and all of the other
MIN_OF_LENGTH: Final = 2  # pauses: one alone may be chance
MAX_LENGTHS: Final = 4  # one after the other; with more they come in turns


def by_length(columns_K: Bools, excess_K: Floats) -> list[Bools]:
    """Columns of the pauses of one length each, the present ones last; all together where they never changed."""
    whole = [columns_K]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], columns_K, [False])).astype(np.int8)))
    start, stop = edges[::2], edges[1::2]
    if start.size < 2 * MIN_OF_LENGTH:
        return whole
    sums = np.concatenate(([0.0], np.cumsum(np.where(columns_K, excess_K, 0.0))))
    length_s = sums[stop] - sums[start]
    turns = _turns(length_s)
    bounds = [0, *turns.tolist(), start.size]
    if len(bounds) - 1 > MAX_LENGTHS or min(np.diff(bounds)) < MIN_OF_LENGTH:
        return whole
    result = []
    for first, last in pairwise(bounds):
        part_K = np.zeros_like(columns_K)
        part_K[start[first] : stop[last - 1]] = True
        result.append(part_K & columns_K)
    return result


def _turns(length_s: Floats) -> Ints:
    """Indices of the pauses from which on they have another length; empty where the lengths fall into no two kinds."""
    ordered = np.sort(length_s)
    ratios = ordered[1:] / np.maximum(ordered[:-1], 1e-12)
    widest = int(np.argmax(ratios))
    if ratios[widest] < MIN_CHANGE or ordered[widest] <= 0:
        return np.zeros(0, dtype=np.int64)
    is_long = length_s > ordered[widest]
    return np.flatnonzero(is_long[1:] != is_long[:-1]) + 1
