"""The newest samples of every rank, of whatever the agents count once a second: numbers in columns.

In: a rank, a time and numbers.  Out: of many ranks at once, which of their samples lie in a span of time. Columns, not
objects: twenty thousand of these were most of a state of 512 ranks, and rank by rank a look at them took 6 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.steps.arrays import Floats, Ints

MAX_SAMPLES: Final = 64  # at one a second
ROOM: Final = 2 * MAX_SAMPLES  # the older half goes when it is full
LATER: Final = np.iinfo(np.int64).max  # where no sample lies
MAX_NS: Final = 1 << 62


class RankSamples:
    """Mutable: at least the newest MAX_SAMPLES of each rank, at most twice as many, by time."""

    def __init__(self, num_fields: int) -> None:
        """num_fields: numbers of a sample, beside its time."""
        self._row_of: dict[int, int] = {}
        self._num: list[int] = []  # samples of each row
        self._time_ns = np.empty((0, ROOM), dtype=np.int64)
        self._values = np.empty((num_fields, 0, ROOM))

    def __contains__(self, rank: int) -> bool:
        return rank in self._row_of

    def last(self, rank: int) -> tuple[int, list[float]] | None:
        """(time in ns, numbers) of its newest sample."""
        row = self._row_of.get(rank)
        if row is None or not self._num[row]:
            return None
        newest = self._num[row] - 1
        return int(self._time_ns[row, newest]), self._values[:, row, newest].tolist()

    def forget(self, rank: int) -> None:
        """Nothing is held of it any more."""
        row = self._row_of[rank]
        self._num[row] = 0
        self._time_ns[row] = LATER

    def add(self, rank: int, time_ns: int, sample: Sequence[float]) -> None:
        """Keep a sample that is later than its last one."""
        row = self._row_of.get(rank)
        if row is None:
            row = self._row_of[rank] = len(self._num)
            self._num.append(0)
            self._reserve(row + 1)
        num = self._num[row]
        self._time_ns[row, num], self._values[:, row, num] = time_ns, sample
        self._num[row] = num + 1
        if num + 1 == ROOM:
            self._time_ns[row, :MAX_SAMPLES] = self._time_ns[row, MAX_SAMPLES:]
            self._time_ns[row, MAX_SAMPLES:] = LATER
            self._values[:, row, :MAX_SAMPLES] = self._values[:, row, MAX_SAMPLES:]
            self._num[row] = MAX_SAMPLES

    def _reserve(self, num_rows: int) -> None:
        held = self._time_ns.shape[0]
        if num_rows <= held:
            return
        space = max(8, 2 * held)
        time_ns = np.full((space, ROOM), LATER)
        values = np.zeros((self._values.shape[0], space, ROOM))
        time_ns[:held], values[:, :held] = self._time_ns, self._values
        self._time_ns, self._values = time_ns, values

    def until(self, ranks: Sequence[int], until_ns: Sequence[int] | None) -> Until | None:
        """The samples of these ranks up to a time of each; None: all. Of no rank anything: None."""
        rows = np.array([self._row_of.get(rank, -1) for rank in ranks], dtype=np.int64)
        if not (rows >= 0).any():
            return None
        time_ns = np.where(rows[:, None] >= 0, self._time_ns[rows], LATER)
        end_ns = np.full(rows.size, MAX_NS) if until_ns is None else np.array(until_ns, dtype=np.int64)
        last = np.count_nonzero(time_ns <= end_ns[:, None], axis=1) - 1
        return Until(time_ns, last, np.count_nonzero(time_ns < LATER, axis=1), self._values, rows)


@dataclass(frozen=True, slots=True)
class Until:
    """Of R ranks, up to a time. Places count their samples."""

    time_ns: Ints  # R x ROOM, LATER where there is none
    last: Ints  # place of the last sample up to that time, -1 where there is none
    num: Ints  # samples held, later ones too
    _values: Floats
    _rows: Ints

    def times_s(self, first: Ints) -> Floats:
        """Seconds from the sample at this place to the last one."""
        each = np.arange(self.last.size)
        return np.asarray((self.time_ns[each, self.last] - self.time_ns[each, first]) / 1e9)

    def num_before(self, last_s: float, *, or_at: bool = False) -> Ints:
        """How many samples lie more than so many seconds before the last one; or_at: or just as many."""
        begin_ns = (self.time_ns[np.arange(self.last.size), self.last] - last_s * 1e9)[:, None]
        before = self.time_ns <= begin_ns if or_at else self.time_ns < begin_ns
        return np.asarray(np.count_nonzero(before, axis=1))

    def at(self, field: int, place: Ints) -> Floats:
        """A number of the sample at this place of each."""
        return np.asarray(self._values[field, self._rows, place])

    def total(self, field: int, first: Ints) -> Floats:
        """Its sum from this place to the last sample."""
        place = np.arange(ROOM)
        within = (place >= first[:, None]) & (place <= self.last[:, None])
        return np.asarray(np.where(within, self._values[field, self._rows], 0.0).sum(axis=1))
