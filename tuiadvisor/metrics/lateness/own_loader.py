"""Lateness that queues of data loaders vouch for: a rank finds its own empty, while the others' hold batches.

In: work between barriers, waits for data and what the loaders were seen at, of each row.  Out: of each row the share of
its lateness that is surely its loader's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.off_core import CHANCE_WAIT_S, MIN_HELD, surely_late
from tuiadvisor.metrics.steps.loader_stage import AT_ITS_LIMIT, MOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.arrays import Floats

MIN_IN_RESERVE: Final = 0.5  # of the ranks: by fewer of them nobody knows how fast a loader could be


def waits_for_its_loader(
    work_RK: Floats, cycle_K: Floats, span_s: float, data_s_RK: Floats, at_limit: Callable[[], Floats]
) -> Floats:
    """Of each row the share of its lateness that is surely a wait for its own loader; 0 of whom that is not known.

    A rank that waits for its loader now 50 ms, now 300 has steps of any length, as one that is run now and then. What
    lay in the queues is no sample: behind a loader that is faster than the step all batches are there when it is asked.
    Workers want cores too, so what ranks alike may wait for one by chance is taken off. span_s: seconds that these
    steps stand for. at_limit: of each row `share_at_limit` of its loader, asked where somebody waits for data.
    """
    share_R = np.mean(data_s_RK, axis=1) / float(np.mean(cycle_K)) if cycle_K.size else np.zeros(len(work_RK))
    chance_R = np.full(share_R.size, CHANCE_WAIT_S / max(span_s, CHANCE_WAIT_S))
    surely_R = surely_late(work_RK, cycle_K, share_R, MIN_HELD, chance_R)
    if not surely_R.any():
        return surely_R
    at_limit_R = at_limit()
    if np.mean(at_limit_R < AT_ITS_LIMIT) < MIN_IN_RESERVE:
        return np.zeros(share_R.size)
    return np.where(at_limit_R >= MOST, surely_R, 0.0)
