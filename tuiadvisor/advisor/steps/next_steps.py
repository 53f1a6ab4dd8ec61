"""Which frames of a batch hold nothing but the next steps of ranks that are known: those are stored in one go.

In: the rows of many frames, and where every rank stands.  Out: a Batch, which says of each frame whether it is plain
(the next steps, nothing else), due (plain, but a rank's alignment is looked at again after it) or odd (anything that
needs the careful way: new ranks, restarts, damage, steps that came twice). Folding a batch gives what folding its
frames one by one gives; nothing here depends on where batches are cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.steps.tracks import MAX_RANKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.steps.tracks import RankTracks
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

MAX_LEAP_STEPS: Final = 1 << 20  # a gap beyond this is a damaged number, not a loss


class Batch:
    """Rows of several frames, in their order, within a frame by rank and begin; runs are the rows of one rank there."""

    def __init__(self, tables: Sequence[Ints], keys: tuple[int, int, int, int]) -> None:
        """tables: columns x rows, one a frame. keys: where rank, step, begin and end are among the columns."""
        num_rows = np.array([table.shape[1] for table in tables])
        self.num_frames = len(tables)
        self.first_row = np.concatenate(([0], np.cumsum(num_rows)))  # of each frame, and the end
        table = tables[0] if len(tables) == 1 else np.concatenate(tables, axis=1)
        frame = np.repeat(np.arange(self.num_frames), num_rows)
        rank, begin = table[keys[0]], table[keys[2]]
        same_frame = frame[1:] == frame[:-1]
        falls = (rank[1:] < rank[:-1]) | ((rank[1:] == rank[:-1]) & (begin[1:] < begin[:-1]))
        if (same_frame & falls).any():
            table = table[:, np.lexsort((begin, rank, frame))]
        self.table = table
        self.rank, self.step, self.begin, self.end = (table[key] for key in keys)
        self._frame = frame
        self._is_same = same_frame & (self.rank[1:] == self.rank[:-1])

    def judge(self, plausible: Bools, tracks: RankTracks, hosts: Ints, capacity: int) -> None:
        """Sets is_odd and is_due of each frame, and the runs. hosts: of each frame, as the tracks count them."""
        odd = np.zeros(self.num_frames, dtype=np.bool_)
        odd[self._frame[~plausible]] = True
        odd[np.diff(self.first_row) == 0] = True
        goes_on = (self.step[1:] > self.step[:-1]) & (self.end[1:] > self.end[:-1])
        odd[self._frame[1:][self._is_same & ~goes_on]] = True
        self.is_odd, self.is_due = odd, np.zeros_like(odd)
        start = np.flatnonzero(np.concatenate(([True], ~self._is_same)))[: self.rank.size]
        last = np.append(start[1:], self.rank.size)[: start.size] - 1
        self.run_size = last - start + 1
        self.run_frame = self._frame[start]
        self.first_run = np.searchsorted(self.run_frame, np.arange(self.num_frames + 1))
        self.run_rank = self.rank[start]
        self.run_last_step, self.run_last_end = self.step[last], self.end[last]
        known = (self.run_rank >= 0) & (self.run_rank < MAX_RANKS)
        self.run_row = np.where(known, tracks.rows_of(np.where(known, self.run_rank, 0)), -1)
        if not tracks.num or not start.size:
            odd[:] = True
            return
        order = np.argsort(self.run_row, kind="stable")
        row = self.run_row[order]
        size, frame, host = self.run_size[order], self.run_frame[order], hosts[self.run_frame[order]]
        step, end = self.step[start[order]], self.end[start[order]]
        last_step, last_end = self.run_last_step[order], self.run_last_end[order]
        again = row[1:] == row[:-1]
        before_step, before_end = tracks.last_step[row], tracks.last_end_ns[row]
        before_step[1:][again], before_end[1:][again] = last_step[:-1][again], last_end[:-1][again]
        head = np.maximum.accumulate(np.where(np.concatenate(([True], ~again)), np.arange(row.size), 0))
        total = np.cumsum(size)
        num_rows = tracks.num_rows[row] + total - (total - size)[head]
        plain = (row >= 0) & (tracks.host[row] == host) & (tracks.num_rows[row] > 0)
        plain &= (step > before_step) & (end > before_end) & (last_step - before_step <= MAX_LEAP_STEPS)
        # Beyond the capacity the batch's own rows would overwrite each other.
        plain &= last_step - step[head] < capacity
        odd[frame[~plain]] = True
        self.is_due[frame[num_rows >= tracks.next_check[row]]] = True

    def runs(self, first: int, stop: int) -> slice:
        """The runs of frames first..stop - 1."""
        return slice(int(self.first_run[first]), int(self.first_run[stop]))

    def rows(self, first: int, stop: int) -> slice:
        """Their rows."""
        return slice(int(self.first_row[first]), int(self.first_row[stop]))
