"""Where every rank stands: one row a rank in columns, so that a frame of thousands of ranks costs a few numpy passes.

In: the ranks of a frame, in any order.  Out: their rows. A row begins a new generation when the rank's probe is
installed anew and counts its steps from the beginning again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

MAX_RANKS: Final = 1 << 17
NONE: Final = int(np.iinfo(np.int64).min)  # no offset; -1 would be a valid one

_COLUMNS: Final = (
    "rank",
    "host",  # index into hosts
    "first_step",  # of this generation of the probe
    "last_step",
    "last_end_ns",
    "num_rows",
    "born_ns",  # when this generation's first step began, on its host's clock
    "born_tick",  # counts ingested batches: when this generation was first heard of
    "former_tick",  # ... and when the one before it was last heard of
    "last_tick",
    "offset",  # job step = local step + offset; NONE while not aligned
    "former_offset",  # of the generation before
    "first_offset",  # of the rank's first generation: numbers the job's axis
    "restarted",
    "next_check",  # rows at which the alignment is estimated again
)


class RankTracks:
    """Mutable columns; every attribute named in _COLUMNS is an int64 array of the rows in use."""

    rank: Ints
    host: Ints
    first_step: Ints
    last_step: Ints
    last_end_ns: Ints
    num_rows: Ints
    born_ns: Ints
    born_tick: Ints
    former_tick: Ints
    last_tick: Ints
    offset: Ints
    former_offset: Ints
    first_offset: Ints
    restarted: Ints
    next_check: Ints

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.num = 0
        self.num_restarts = 0
        self._host_index: dict[str, int] = {}
        self._row_of = np.full(MAX_RANKS, -1, dtype=np.int64)
        self._end_rank = 0  # beyond the highest one
        self._table = np.zeros((len(_COLUMNS), 8), dtype=np.int64)
        # Found again from the columns where they are missing, so that no state has to carry them.
        self._rows_on: dict[int, Ints] | None = None
        self._aligned_row = 0  # one that was aligned when last looked for
        self._expose()

    def __getstate__(self) -> dict[str, object]:
        """Without the columns that are views of the table: a copy of each would be a column of nobody's table."""
        state = {name: value for name, value in self.__dict__.items() if name not in _COLUMNS}
        return state | {"_rows_on": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        """The columns again as views."""
        self.__dict__.update(state)
        self._expose()

    def _expose(self) -> None:
        for index, name in enumerate(_COLUMNS):
            setattr(self, name, self._table[index, : self.num])

    def host_index(self, host: str) -> int:
        """The number of a host, a new one for a new host."""
        found = self._host_index.get(host)
        if found is None:
            found = self._host_index[host] = len(self.hosts)
            self.hosts.append(host)
        return found

    def rows_of(self, ranks: Ints) -> Ints:
        """Row of each rank, -1 where it was never seen. Ranks must lie within 0..MAX_RANKS - 1."""
        return self._row_of[ranks]

    def add(self, ranks: Ints) -> Ints:
        """New rows for these ranks, none of which may have one."""
        start, stop = self.num, self.num + ranks.size
        if stop > self._table.shape[1]:
            larger = np.zeros((len(_COLUMNS), max(stop, 2 * self._table.shape[1])), dtype=np.int64)
            larger[:, :start] = self._table[:, :start]
            self._table = larger
        self.num = stop
        self._expose()
        rows = np.arange(start, stop)
        self.rank[rows], self._row_of[ranks] = ranks, rows
        self._end_rank = max(self._end_rank, int(ranks.max(initial=-1)) + 1)
        self.offset[rows] = self.first_offset[rows] = NONE
        return rows

    def begin(self, rows: Ints, host: int, first_steps: Ints, born_ns: Ints, tick: int) -> None:
        """A generation of these rows' probes begins: nothing is known of it yet but its first step."""
        self._settle(rows, host)
        self.former_tick[rows], self.former_offset[rows] = self.last_tick[rows], self.offset[rows]
        self.host[rows] = host
        self.first_step[rows], self.last_step[rows] = first_steps, first_steps - 1
        self.last_end_ns[rows] = self.num_rows[rows] = self.next_check[rows] = 0
        self.born_ns[rows] = born_ns
        self.born_tick[rows] = self.last_tick[rows] = tick
        self.offset[rows] = NONE

    def restart(self, rows: Ints) -> None:
        """Probes of these rows were installed anew: a generation is about to begin that is not their first."""
        self.num_restarts += int(rows.size)
        self.restarted[rows] = 1

    def _settle(self, rows: Ints, host: int) -> None:
        """Rows, none of them twice, are about to count as this host's."""
        if self._rows_on is None:
            return
        is_new, former = self.born_tick[rows] == 0, self.host[rows]
        moved = rows[is_new | (former != host)]
        for other in np.unique(former[~is_new & (former != host)]).tolist():
            self._rows_on[other] = np.setdiff1d(self._rows_on[other], moved)
        if moved.size:
            here = self._rows_on.get(host)
            self._rows_on[host] = moved if here is None else np.concatenate((here, moved))

    def rows_on(self, host: int) -> Ints:
        """Rows whose present generation began on a host, in any order: no look at all the others."""
        if self._rows_on is None:
            rows = np.flatnonzero(self.born_tick != 0)
            rows = rows[np.argsort(self.host[rows], kind="stable")]
            hosts, starts = np.unique(self.host[rows], return_index=True)
            self._rows_on = dict(zip(hosts.tolist(), np.split(rows, starts[1:]), strict=False))
        found = self._rows_on.get(host)
        return np.zeros(0, dtype=np.int64) if found is None else found

    def any_aligned(self) -> bool:
        """Whether any row has a place on the job's axis."""
        if self._aligned_row < self.num and self.offset[self._aligned_row] != NONE:
            return True
        if not self.is_aligned.any():
            return False
        self._aligned_row = int(np.argmax(self.is_aligned))
        return True

    def lowest_aligned(self, num: int, host: int, row: int | None = None) -> Ints:
        """So many aligned rows of the lowest ranks on other hosts; row: only its contemporaries."""
        found, missing, start, size = [np.zeros(0, dtype=np.int64)], num, 0, 64
        while missing > 0 and start < self._end_rank:
            stop = min(start + size, self._end_rank)
            rows = self._row_of[start:stop]
            rows = rows[rows >= 0]
            rows = rows[(self.offset[rows] != NONE) & (self.host[rows] != host)]
            if row is not None:
                rows = rows[(rows != row) & self.contemporary(row, rows)]
            found.append(rows[:missing])
            missing -= rows.size
            start, size = stop, 4 * size
        return np.concatenate(found)

    @property
    def is_aligned(self) -> Bools:
        """Rows whose place on the job's axis is known."""
        return np.asarray(self.offset != NONE)

    def aligned_rows(self) -> Ints:
        """Rows on the job's axis, by rank."""
        rows = np.flatnonzero(self.is_aligned)
        return rows[np.argsort(self.rank[rows], kind="stable")]

    def contemporary(self, rows: Ints | int, others: Ints | slice | int) -> Bools:
        """Whether each of `others` has records as new as the generation of `rows` (one of the two is single).

        After a restart of the job sequence numbers begin anew, and those of an older generation may match by chance.
        On one host clocks tell; between hosts the order in which frames came: heard since this generation was, or
        begun itself after the one before this fell silent.
        """
        if not self.num_restarts:
            return np.ones(np.broadcast(self.rank[rows], self.rank[others]).shape, dtype=np.bool_)
        heard = self.last_tick[others] >= self.born_tick[rows]
        begun = (self.born_tick[others] > self.former_tick[rows]) & (self.restarted[others] != 0)
        overlap = self.last_end_ns[others] > self.born_ns[rows]
        return np.where(self.host[others] == self.host[rows], overlap, heard | begun)
