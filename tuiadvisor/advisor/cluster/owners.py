"""Which source each rank belongs to: the first that introduced it, until it leaves, falls silent or says that it ended.

In: claims that the roster has judged.  Out: which rows of a frame are another source's. Several agents may share a key,
so a frame proves who sent it and not which ranks that agent watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.metrics.steps.arrays import Bools, Ints

NOBODY: Final = -1
MIN_CELLS: Final = 64
MAX_NAMED: Final = 4  # ranks in one sentence


class Owners:
    """Mutable: the number of each rank's source, in a table that is copied before it changes under who reads it."""

    def __init__(self) -> None:
        self._table = np.full(
            MIN_CELLS, NOBODY, dtype=np.int64
        )  # the last cell is nobody's: that of all beyond
        self._is_lent = False
        self._contested: dict[int, None] = {}

    def lend(self) -> Ints:
        """The table as it is now; it stays so, and another one is lent after the next change."""
        self._is_lent = True
        return self._table

    def give(self, rank: int, number: int) -> None:
        """From now on the rank belongs to the source of this number."""
        size = self._table.size
        if self._is_lent or rank >= size - 1:
            table = np.full(size if rank < size - 1 else 2 * (rank + 1), NOBODY, dtype=np.int64)
            table[:size] = self._table
            self._table, self._is_lent = table, False
        self._table[rank] = number

    @property
    def is_contested(self) -> bool:
        """Whether anything was ignored."""
        return bool(self._contested)

    def note(self, ranks: Iterable[int]) -> None:
        """Somebody else has sent something of these ranks, which was ignored."""
        self._contested.update(dict.fromkeys(ranks))

    def sentences(self) -> list[str]:
        """What to say of that: one sentence, or none."""
        ranks = sorted(self._contested)
        if not ranks:
            return []
        named, num_more = ", ".join(map(str, ranks[:MAX_NAMED])), len(ranks) - MAX_NAMED
        more = f" and {num_more} more" if num_more > 0 else ""
        return [f"another source also sends rank{'s' if len(ranks) > 1 else ''} {named}{more}: ignored"]

    def own_tables(self, table: Ints, frames: Sequence[tuple[Ints, str, int]]) -> list[tuple[Ints, str]]:
        """Tables of steps, ranks in their first row, with their hosts, without rows that are another source's.

        frames: with the number of each one's source. table: of `lend`, as it was when they came.
        """
        numbers = np.array([number for _, _, number in frames])
        ranks = np.concatenate([steps[0] for steps, _, _ in frames])
        others = foreign(table, ranks, np.repeat(numbers, [steps.shape[1] for steps, _, _ in frames]))
        if not others.any():
            return [(steps, host) for steps, host, _ in frames]
        self.note(np.unique(ranks[others]).tolist())
        return [(steps[:, ~foreign(table, steps[0], number)], host) for steps, host, number in frames]


def foreign(table: Ints, ranks: Ints, number: Ints | int) -> Bools:
    """Rows of ranks that belong to another source than the one that sent them."""
    owner = table.take(ranks, mode="clip")
    return np.asarray((owner != number) & (owner != NOBODY))
