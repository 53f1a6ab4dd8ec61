"""What the others waited, before the window began, for the ranks that are late in it.

In: Barrier, who is late since when.  Out: seconds. Who is late may be so all along while something else changes the
pace of the job, and with it the window. A late rank counts from the step on since which it is late, and by what a step
would have been shorter had it come with the last of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.steps.barrier import Barrier


def waited_before_s(
    barrier: Barrier,
    steady_K: Bools,
    first: int,
    *,
    compared_rows: Ints,
    late: Iterable[tuple[int, int]],
    loss_s: float,
) -> float:
    """In all steady steps before column `first` in which every rank's arrival was seen.

    late: (row, column since which it is late). loss_s: seconds a step that they cost from `first` on.
    """
    since_of = dict(late)
    others = np.setdiff1d(compared_rows, list(since_of))
    seen_K = steady_K & barrier.complete_K
    before, now = np.flatnonzero(seen_K[:first]), np.flatnonzero(seen_K[first:]) + first
    if not since_of or not others.size or not before.size or not now.size:
        return 0.0
    latest_K = np.full(barrier.cycle_K.size, -np.inf)
    for row, since in since_of.items():
        latest_K[since:] = np.maximum(latest_K[since:], barrier.lateness_RK[row, since:])
    rest_K = barrier.lateness_RK[others].max(axis=0)
    waited_K: Floats = np.maximum(np.nan_to_num(latest_K - rest_K, nan=0.0, neginf=0.0), 0.0)
    # What a step would be shorter by may be less than the others wait, as where the late one has more work to share.
    here_s = float(waited_K[now].mean())
    share = min(max(loss_s, 0.0) / here_s, 1.0) if here_s > 0 else 0.0
    return share * float(waited_K[before].sum())
