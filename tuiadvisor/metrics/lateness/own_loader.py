"""Lateness that queues of data loaders vouch for: a rank finds its own empty, while the others' hold batches.

In: work between barriers, waits for data and what the loaders were seen at, of each row.  Out: of each row the share of
its lateness that is surely its loader's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.lateness.off_core import CHANCE_WAIT_S, MIN_HELD, HeldRank, surely_late
from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS
from tuiadvisor.metrics.steps.arrays import lower_quartile
from tuiadvisor.metrics.steps.barrier import MIN_KNOWN_SHARE, has_stages
from tuiadvisor.metrics.steps.loader_stage import AT_ITS_LIMIT, MOST
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.arrays import Floats, Ints
    from tuiadvisor.metrics.steps.step_table import StepTable

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


def held_unseen(table: StepTable, columns: Ints, held: tuple[HeldRank, ...]) -> tuple[HeldRank, ...]:
    """Of them those for whom the others wait where no hook sees it: they meet in each step, too, by means of their own.

    As long as one waits for data the others are longer in what no hook sees, and all steps are as long. Ranks that meet
    now and then alone would do something else, or be late.
    """
    unseen_R = np.nanmean(table.phase_s_PRK[PHASE_INDEX["other"]][:, columns], axis=1)
    step_R = np.nanmean(table.step_s_RK[:, columns], axis=1)
    rows = [one.row for one in held]
    longer_R = np.median(np.delete(unseen_R, rows)) - unseen_R
    return tuple(one for one in held if longer_R[one.row] >= MIN_COVER * one.surely * step_R[one.row])


def held_by_data(
    table: StepTable, columns: Ints, span_s: float, at_limit: Callable[[int], Floats] | None
) -> tuple[HeldRank, ...]:
    """Who waits for its data much longer than the typical other, where nobody's arrival is seen; mostly nobody.

    Empty where that holds for half of the ranks, where it is not known of each, or where the others' loaders are as
    slow: who waits for the slowest of them has a batch ahead. Among stages the others have to be idle for it: a last
    stage that reads its targets while the first micro-batch is on its way delays nobody. columns: of the table, steps
    of span_s seconds in all.
    """
    data_RK = table.phase_s_PRK[PHASE_INDEX["data_wait"]]
    known = columns[np.isfinite(data_RK[:, columns] + table.step_s_RK[:, columns]).all(axis=0)]
    if table.num_ranks < 2 or known.size < MIN_KNOWN_SHARE * columns.size or known.size < MIN_SEGMENT_STEPS:
        return ()
    step_R = np.mean(table.step_s_RK[:, known], axis=1)
    share_R = np.mean(data_RK[:, known], axis=1) / step_R
    # Of few rows only the others' middle is asked: for all of 4,096 that takes longer than a view may.
    rows = np.flatnonzero(share_R - lower_quartile(share_R) >= MIN_HELD)
    if not rows.size or 2 * rows.size > table.num_ranks:
        return ()
    usual_R = share_R.copy()
    usual_R[rows] = [np.median(np.delete(share_R, row)) for row in rows.tolist()]
    surely_R = share_R - usual_R - CHANCE_WAIT_S / max(span_s, CHANCE_WAIT_S)
    is_held_R = surely_R >= MIN_HELD
    # Of ranks alike the rest of the step is as long as the held one's: what it is longer on the others they wait.
    gained_R = surely_R
    if has_stages(table):
        idle_R = np.mean(table.phase_s_PRK[PHASE_INDEX["pipeline_idle"]][:, known], axis=1)
        idle_longer_R = np.median(np.delete(idle_R, rows)) - idle_R
        is_held_R &= idle_longer_R >= MIN_COVER * (share_R - usual_R) * step_R
        gained_R = np.minimum(surely_R, idle_longer_R / step_R)
    if not is_held_R.any():
        return ()
    if at_limit is not None:
        others = at_limit(table.step_of(int(columns[0])))[~is_held_R]
        if np.mean(others >= AT_ITS_LIMIT) > 1 - MIN_IN_RESERVE:
            return ()
    return tuple(
        HeldRank(
            row,
            "data",
            float(share_R[row]),
            float(usual_R[row]),
            float(surely_R[row]),
            gained=float(gained_R[row]),
        )
        for row in np.flatnonzero(is_held_R).tolist()
    )
