"""The newest samples of every rank, of whatever the agents count once a second: numbers in columns.

In: a rank, a time and numbers.  Out: of many ranks at once, which of their samples lie in a span of time. Columns, not
objects: twenty thousand of these were most of a state of 512 ranks, and rank by rank a look at them took 6 ms. Samples
wait until somebody looks, so that one of each rank is put there at once: one by one they were a fifth of folding.
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
MAX_WAITING: Final = 16  # samples of a rank
SPARE_SHARE: Final = (
    8  # room is made for an eighth more ranks: each takes up to 16 kB of a state that is kept
)


class RankSamples:
    """Mutable: at least the newest MAX_SAMPLES of each rank, at most twice as many, by time.

    A clock that runs backwards is another host's: the rank begins anew. Where another process has the rank, its counts
    go on from the former one's.
    """

    def __init__(
        self, num_fields: int, *, counts: Sequence[int] = (), falls_anew: Sequence[int] = ()
    ) -> None:
        """num_fields: numbers of a sample, beside its time. counts: those that a process counts from its start.

        falls_anew: those of them of which less than before, or that they are no longer told, says another process.
        """
        self._counts, self._falls_anew = list(counts), list(falls_anew)
        self._row_of: dict[int, int] = {}
        self._num = np.zeros(0, dtype=np.int64)  # samples of each row
        self._gone_ns = np.zeros(0, dtype=np.int64)  # of each row the newest sample that went to make room
        # Sample after sample, each of all rows: the newest ones lie beside one another, so that of a state that is kept
        # little differs from the one before.
        self._time_ns = np.empty((ROOM, 0), dtype=np.int64)
        self._values = np.empty((ROOM, num_fields, 0))
        self._first_ns = np.zeros(0, dtype=np.int64)  # of each row its very first sample, long after it went
        self._first = np.zeros((num_fields, 0))
        self._before = np.zeros((num_fields, 0))  # what the rank's former processes had counted, to be added
        # Rows with their samples, the first of each row, the second of each and so on.
        self._waiting: list[list[tuple[int, int, Sequence[float]]]] = []
        self._num_waiting: dict[int, int] = {}

    def __getstate__(self) -> dict[str, object]:
        """With nothing waiting: a state that is kept is made of arrays."""
        self._settle()
        return self.__dict__

    def __contains__(self, rank: int) -> bool:
        return rank in self._row_of

    def add(self, rank: int, time_ns: int, sample: Sequence[float]) -> None:
        """Take one sample of a rank."""
        row = self._row_of.setdefault(rank, len(self._row_of))
        place = self._num_waiting.get(row, 0)
        if place == MAX_WAITING:
            self._settle()
            place = 0
        if place == len(self._waiting):
            self._waiting.append([])
        self._waiting[place].append((row, time_ns, sample))
        self._num_waiting[row] = place + 1

    def _settle(self) -> None:
        waiting, self._waiting, self._num_waiting = self._waiting, [], {}
        self._reserve(len(self._row_of))
        for samples in waiting:
            rows, times_ns, numbers = zip(*samples, strict=True)
            self._put(
                np.array(rows, dtype=np.int64),
                np.array(times_ns, dtype=np.int64),
                np.array(numbers, dtype=np.float64).T,
            )

    def _put(self, rows: Ints, times_ns: Ints, sample: Floats) -> None:
        """One sample of each of these rows; sample: fields x rows."""
        newest = np.maximum(self._num[rows] - 1, 0)
        is_held = self._num[rows] > 0
        is_back = is_held & (times_ns <= self._time_ns[newest, rows])
        self._forget(rows[is_back])
        last = self._values[newest, :, rows].T
        now = self._on_top(rows, sample)
        # Of a count that was above zero it counts as a fall that it is no longer told.
        has_fallen = (last > 0) & ~(now >= last)
        is_new = is_held & ~is_back & has_fallen[self._falls_anew].any(axis=0)
        if is_new.any():
            self._before[:, rows[is_new]] = np.nan_to_num(last[:, is_new], nan=0.0)
            now = self._on_top(rows, sample)
        num = self._num[rows]
        begun = rows[num == 0]
        self._first_ns[begun], self._first[:, begun] = times_ns[num == 0], now[:, num == 0]
        self._time_ns[num, rows], self._values[num, :, rows] = times_ns, now.T
        self._num[rows] = num + 1
        self._halve(rows[num + 1 == ROOM])

    def _on_top(self, rows: Ints, sample: Floats) -> Floats:
        """The samples with their counts on top of those of the processes that had the ranks before."""
        now = sample.copy()
        now[self._counts] += self._before[:, rows][self._counts]
        return now

    def _forget(self, rows: Ints) -> None:
        self._num[rows], self._time_ns[:, rows], self._before[:, rows] = 0, LATER, 0.0
        self._gone_ns[rows] = -MAX_NS

    def _halve(self, rows: Ints) -> None:
        if rows.size:
            self._gone_ns[rows] = self._time_ns[MAX_SAMPLES - 1, rows]
            self._time_ns[:MAX_SAMPLES, rows] = self._time_ns[MAX_SAMPLES:, rows]
            self._time_ns[MAX_SAMPLES:, rows] = LATER
            self._values[:MAX_SAMPLES, :, rows] = self._values[MAX_SAMPLES:, :, rows]
            self._num[rows] = MAX_SAMPLES

    def _reserve(self, num_rows: int) -> None:
        held = self._time_ns.shape[1]
        if num_rows <= held:
            return
        space = max(8, num_rows + num_rows // SPARE_SHARE)
        num_fields = self._values.shape[1]
        num, before = np.zeros(space, dtype=np.int64), np.zeros((num_fields, space))
        time_ns, values = np.full((ROOM, space), LATER), np.zeros((ROOM, num_fields, space))
        gone_ns = np.full(space, -MAX_NS)
        num[:held], before[:, :held], gone_ns[:held] = self._num, self._before, self._gone_ns
        time_ns[:, :held], values[:, :, :held] = self._time_ns, self._values
        first_ns, first = np.zeros(space, dtype=np.int64), np.zeros((num_fields, space))
        first_ns[:held], first[:, :held] = self._first_ns, self._first
        self._first_ns, self._first = first_ns, first
        self._num, self._before, self._gone_ns = num, before, gone_ns
        self._time_ns, self._values = time_ns, values

    def is_gone(self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None) -> list[bool]:
        """Of each rank whether it had samples in its seconds up to then which are no longer held."""
        self._settle()
        if until_ns is None or not self._row_of:
            return [False] * len(ranks)
        rows = np.array([self._row_of.get(rank, -1) for rank in ranks], dtype=np.int64)
        begin_ns = np.array(until_ns, dtype=np.int64) - 1e9 * last_s
        return [bool(one) for one in (rows >= 0) & (self._gone_ns[rows] > begin_ns)]

    def since_first(self, rank: int, field: int, until_ns: int) -> tuple[int, int, float] | None:
        """Times of a rank's first sample and of its last one until then, and by how much a count grew between them.

        Where that one is no longer held it is the oldest that is.
        """
        self._settle()
        row = self._row_of.get(rank)
        if row is None or self._num[row] == 0:
            return None
        last = max(int(np.count_nonzero(self._time_ns[:, row] <= until_ns)) - 1, 0)
        grown = float(self._values[last, field, row] - self._first[field, row])
        return int(self._first_ns[row]), int(self._time_ns[last, row]), grown

    def until(self, ranks: Sequence[int], until_ns: Sequence[int] | None) -> Until | None:
        """The samples of these ranks up to a time of each; None: all. Of no rank anything: None."""
        self._settle()
        rows = np.array([self._row_of.get(rank, -1) for rank in ranks], dtype=np.int64)
        if not (rows >= 0).any():
            return None
        num_used = int(
            self._num.max(initial=0)
        )  # of a young run a few: of 65,536 ranks all places took 0.4 s
        time_ns = np.where(rows >= 0, self._time_ns[:num_used, rows], LATER).T
        end_ns = np.full(rows.size, MAX_NS) if until_ns is None else np.array(until_ns, dtype=np.int64)
        last = np.count_nonzero(time_ns <= end_ns[:, None], axis=1) - 1
        num = np.count_nonzero(time_ns < LATER, axis=1)
        return Until(time_ns, last, num, self._values[:num_used], rows)


@dataclass(frozen=True, slots=True)
class Until:
    """Of R ranks, up to a time. Places count their samples."""

    time_ns: Ints  # R x places in use, LATER where there is none
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
        return np.asarray(self._values[place, field, self._rows])

    def total(self, field: int, first: Ints) -> Floats:
        """Its sum from this place to the last sample."""
        place = np.arange(self.time_ns.shape[1])[:, None]
        within = (place >= first) & (place <= self.last)
        return np.asarray(np.where(within, self._values[:, field, self._rows], 0.0).sum(axis=0))
