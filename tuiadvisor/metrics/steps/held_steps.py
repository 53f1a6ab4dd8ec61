"""In which steps devices held their clocks back, by their own telling.

In: StepTable, whom to ask.  Out: Throttled of a rank, or of the typical one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import column_median, median

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.arrays import Floats, Ints
    from tuiadvisor.metrics.steps.step_table import StepTable

    # (row, begin and end of spans, ns of its host's clock) -> whether its device was held back then; None: never, or
    # always, or not known.
    HeldBackOf = Callable[[int, Ints, Ints], "Throttled | None"]

MAX_RANKS: Final = 16  # whose devices are asked: the typical one of more is the same
ALIKE_SHARE: Final = 0.75  # of these ranks: what so many devices do the job does, as in window/phase_levels
MAX_REASONS: Final = 3  # named of why devices are held back


@dataclass(frozen=True, slots=True)
class Throttled:
    """A device that holds its clock back for some of the time."""

    share_K: Floats  # of each span that was asked about; NaN where nobody looked
    mhz: float  # while it is held back
    free_mhz: float
    reasons: tuple[str, ...]  # most frequent first


def spans_ns(table: StepTable, row: int, columns: Ints) -> tuple[Ints, Ints]:
    """(begin, end) of these steps of a rank, ns of its host's clock; 0 where not known."""
    origin_ns = int(table.origin_ns_R[row])
    begin_s, end_s = table.begin_s_RK[row, columns], table.end_s_RK[row, columns]
    known = np.isfinite(begin_s) & np.isfinite(end_s)
    begin_ns, end_ns = (
        np.where(known, origin_ns + (np.where(known, at_s, 0.0) * 1e9).astype(np.int64), 0)
        for at_s in (begin_s, end_s)
    )
    return begin_ns, end_ns


class HeldSteps:
    """In which steps devices held their clocks back, asked for where something depends on it.

    rows, columns: of the table, what is compared.
    """

    def __init__(self, held_back: HeldBackOf | None, table: StepTable, rows: Ints, columns: Ints) -> None:
        self._held_back, self._table, self._columns = held_back, table, columns
        self._rows = rows if rows.size else np.arange(table.num_ranks)
        self._common: tuple[Throttled | None, ...] = ()  # once it was asked for

    def of(self, place: int) -> Throttled | None:
        """By step, of the rank at this place of `rows`; None where it was never held back, or always."""
        if self._held_back is None:
            return None
        row = int(self._rows[place])
        return self._held_back(row, *spans_ns(self._table, row, self._columns))

    def common(self) -> Throttled | None:
        """Of the typical rank, where most ranks tell; None where they do not, or are not held back for some time."""
        if not self._common:
            self._common = (self._of_most(),)
        return self._common[0]

    def _of_most(self) -> Throttled | None:
        if self._held_back is None:
            return None
        places = range(0, self._rows.size, max(1, -(-self._rows.size // MAX_RANKS)))
        told = [found for place in places if (found := self.of(place)) is not None]
        if len(told) < ALIKE_SHARE * len(places):
            return None
        reasons = Counter(word for found in told for word in found.reasons)
        return Throttled(
            column_median(np.array([found.share_K for found in told])),
            mhz=median(np.array([found.mhz for found in told])),
            free_mhz=median(np.array([found.free_mhz for found in told])),
            reasons=tuple(sorted(reasons, key=lambda word: (-reasons[word], word))[:MAX_REASONS]),
        )
