"""Which rank begins the pauses of a kind, if one does.

In: Barrier, marks, the columns of the pauses.  Out: a row or None. Somebody is last in every step, also in a pause that
all ranks make together: only who is so by a good part of the pause has begun it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.pauses.irregular import NAMED_SHARE, late_rows
from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints, median

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.barrier import Barrier

LEAD_SHARE: Final = 0.3  # of a pause: so much later than the next to last came who began it ...
STARTER_SHARE: Final = 0.6  # ... in so much of the pauses' time
MIN_ALONE: Final = 2  # pauses to which one rank alone came late, for the rest to be its too
MIN_ALONE_SHARE: Final = 0.3  # ... and so much of all pauses


def starter_row(barrier: Barrier, marked_RK: Bools, affected_K: Bools) -> int | None:
    """The rank that the pauses wait for; None where it is all of them, or not seen.

    marked_RK: what a rank did is marked as the pause's kind. affected_K: columns that a pause makes longer.
    """
    rows = marked_RK.sum(axis=1)
    if rows.max() > 0:
        doing = np.flatnonzero(rows >= 0.5 * rows.max())
        return int(doing[0]) if len(doing) < max(2, marked_RK.shape[0] // 2) else None
    usual = barrier.cycle_K[~affected_K & np.isfinite(barrier.cycle_K)]
    columns = np.flatnonzero(affected_K & np.isfinite(barrier.last_K) & np.isfinite(barrier.cycle_K))
    if not columns.size or not usual.size:
        return None
    leads = _lead(barrier, columns) >= LEAD_SHARE * (barrier.cycle_K[columns] - median(usual))
    weight = np.bincount(barrier.last_K[columns].astype(np.int64), weights=barrier.cycle_K[columns] * leads)
    row = int(np.argmax(weight))
    if weight[row] > STARTER_SHARE * barrier.cycle_K[columns].sum():
        return row
    return _alone_late(barrier, affected_K)


def _lead(barrier: Barrier, columns: Ints) -> Floats:
    """By how much the last rank of each column arrives later than the one before it, seconds."""
    late = np.where(np.isfinite(barrier.lateness_RK[:, columns]), barrier.lateness_RK[:, columns], 0.0)
    if late.shape[0] < 2:
        return np.zeros(columns.size)
    last_two = np.partition(late, -2, axis=0)[-2:]
    return np.asarray(last_two[1] - last_two[0])


def _alone_late(barrier: Barrier, affected_K: Bools) -> int | None:
    """The rank that alone came late to all pauses that anyone came late to, if those are several.

    A rank that pauses within the exchange holds all up alike: those pauses speak neither for nor against it.
    """
    usual = barrier.cycle_K[~affected_K & np.isfinite(barrier.cycle_K)]
    if not usual.size:
        return None
    excess_K = barrier.cycle_K - median(usual)
    late = [
        late_rows(barrier, column, NAMED_SHARE * float(excess_K[column]))
        for column in np.flatnonzero(affected_K).tolist()
    ]
    named = [rows for rows in late if rows]
    is_one = len(set(named)) == 1 and len(named[0]) == 1
    return named[0][0] if is_one and len(named) >= max(MIN_ALONE, MIN_ALONE_SHARE * len(late)) else None
