"""Rows of events that were found plausible, column by column, the latest of them in bounded memory.

In: columns of EVENTS frames, with the rows to keep and their host.  Out: one table of int64, rows in the order of their
coming; its last row is the index of the host in `hosts`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.steps.step_store import MAX_CLOCK_NS, MAX_STEP
from tuiadvisor.advisor.steps.tracks import MAX_RANKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.metrics.steps.arrays import Bools, Ints

MAX_EVENT_NS: Final = 3600 * 10**9


def have_a_place(columns: Mapping[str, Ints]) -> Bools:
    """Whose rank, step and times can be: what rests on their other columns is judged apart."""
    begin, end = columns["begin_ns"], columns["end_ns"]
    good = (columns["rank"] >= 0) & (columns["rank"] < MAX_RANKS)
    good &= (columns["step"] >= 0) & (columns["step"] < MAX_STEP)
    good &= (begin > 0) & (end >= begin) & (end < MAX_CLOCK_NS)
    good &= end - np.maximum(begin, 0) < MAX_EVENT_NS
    return np.asarray(good)


class EventBlocks:
    """Mutable: `add` rows, read `table`. The oldest frames go first, however often the table was read."""

    def __init__(self, names: Sequence[str], max_rows: int) -> None:
        """names: the columns to keep. max_rows: at most one frame's rows more are told; twice as many lie here."""
        self.hosts: list[str] = []
        self.num_rows = 0  # that `table` tells
        self._names = tuple(names)
        self._max_rows = max_rows
        self._frame_rows: deque[int] = deque()  # of each frame that is told
        self._blocks: deque[Ints] = deque()
        self._num_gone = (
            0  # rows of the first block whose frames have gone: a read joins all frames into one block
        )

    def __bool__(self) -> bool:
        """Whether any are held."""
        return self.num_rows > 0

    def add(self, columns: Mapping[str, Ints], good: Bools, host: str) -> None:
        """Keep the good rows of one frame."""
        num = int(good.sum())
        if not num:
            return
        if host not in self.hosts:
            self.hosts.append(host)
        block = np.empty((len(self._names) + 1, num), dtype=np.int64)
        for index, name in enumerate(self._names):
            block[index] = columns[name][good]
        block[-1] = self.hosts.index(host)
        self._blocks.append(block)
        self._frame_rows.append(num)
        self.num_rows += num
        while self.num_rows - self._frame_rows[0] >= self._max_rows:
            self._drop(self._frame_rows.popleft())

    def _drop(self, num: int) -> None:
        """The rows of the oldest frame."""
        self.num_rows -= num
        self._num_gone += num
        while self._num_gone >= self._blocks[0].shape[1]:
            self._num_gone -= self._blocks.popleft().shape[1]

    def table(self) -> Ints:
        """All held rows, columns and the host's index x rows. ValueError where there are none."""
        if len(self._blocks) != 1 or self._num_gone:
            joined = np.concatenate(self._blocks, axis=1)
            self._blocks = deque([joined[:, self._num_gone :].copy() if self._num_gone else joined])
            self._num_gone = 0
        return self._blocks[0]
