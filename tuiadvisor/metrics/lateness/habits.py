"""Ranks that are late now and then: in more of the steps than chance gives to one of them.

In: lateness beyond the peers' level, R ranks x K steps, and which of it is more than noise.  Out: rows. Late steps that
nobody causes fall on the ranks by lot; the window may be young, and a habit older than it.
"""

from __future__ import annotations

from math import comb, log
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.stalls import MAX_LOG_CHANCE_OF_HITS, have_ended
from tuiadvisor.metrics.series.recent_noise import log_chance_of_hits, log_tail, separate_hits
from tuiadvisor.metrics.steps.arrays import median, medians

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

MIN_HIT_EXCESS: Final = 0.05  # an intermittent fault shows in at least so many more steps than its peers'
HIT_ALIKE: Final = 0.5  # of the rank's typical late step: as of stalls
HABIT_STEPS: Final = 256  # before the window, in which a habit may have begun
MAX_TOGETHER: Final = (
    8  # ranks that are late now and then beside others: of more none is compared with the rest
)
MIN_STILL: Final = 0.5  # of the share of late steps: what comes less often than that may be over


def late_more_often(beyond_RK: Floats, hit_RK: Bools, is_late_R: Bools) -> Bools:
    """Rows that are late in more steps than chance gives them beside all others that are not late.

    beyond_RK: lateness, of which hit_RK is more than noise. is_late_R: rows known to be late by their typical step.
    Late in every third step a rank's typical step may be the shortest of all, so each rank is asked, the one that lost
    most first: it is no measure of the others then. Of that one also the steps that are about as late as it mostly is
    are counted: the others' small ones say nothing of its long ones.
    """
    num_ranks, num_steps = hit_RK.shape
    counted = (hit_RK.mean(axis=1), separate_hits(hit_RK))
    found = np.zeros(num_ranks, dtype=np.bool_)

    def stands_out(row: int, share_R: Floats, count_R: Floats, log_chance: float) -> bool:
        is_other_R = ~(found | is_late_R)
        is_other_R[row] = False
        others = np.flatnonzero(is_other_R)
        if not others.size:
            return False
        usual = float(share_R[others].mean())
        margin = MIN_HIT_EXCESS + 3 * np.sqrt(max(usual, 1 / num_steps) / num_steps)
        return bool(share_R[row] - usual > margin and log_chance_of_hits(count_R, row, others) < log_chance)

    lost_R = np.where(hit_RK, beyond_RK, 0.0).sum(axis=1)
    often = np.flatnonzero((counted[0] > MIN_HIT_EXCESS) & ~is_late_R)
    is_first = True
    for row in often[np.argsort(-lost_R[often], kind="stable")].tolist():
        found[row] = stands_out(row, *counted, MAX_LOG_CHANCE_OF_HITS)
        if is_first and not found[row]:
            alike_RK = hit_RK & (beyond_RK > _alike_s(beyond_RK[row], hit_RK[row]))
            alike = (alike_RK.mean(axis=1), separate_hits(alike_RK))
            found[row] = stands_out(row, *alike, MAX_LOG_CHANCE_OF_HITS - log(2))
        is_first = is_first and bool(found[row])
    if found.any() or not often.size:
        return found
    # Of the long ones alone, too, as above.
    first = int(often[np.argmax(lost_R[often])])
    alike_RK = hit_RK & (beyond_RK > _alike_s(beyond_RK[first], hit_RK[first]))
    for kind_RK in (hit_RK, alike_RK):
        found = _several_more_often(kind_RK, is_late_R, MAX_LOG_CHANCE_OF_HITS - log(2))
        if found.any():
            break
    return found


def _several_more_often(hit_RK: Bools, is_late_R: Bools, log_chance: float) -> Bools:
    """Rows of which none stands out beside the others, for several of these are late now and then as well.

    Of three ranks two: the third has fewer late steps than chance leaves to it, and each of the two has more than it.
    """
    share_R, count_R = hit_RK.mean(axis=1), separate_hits(hit_RK)
    found = np.zeros(share_R.size, dtype=np.bool_)
    rows = np.flatnonzero(~is_late_R)
    rows = rows[np.argsort(-count_R[rows], kind="stable")]
    total = float(count_R[rows].sum())
    for size in range(2, min(rows.size, MAX_TOGETHER + 1)):
        several, others = rows[:size], rows[size:]
        by_lot = log_tail(float(count_R[several].sum()), total, size / rows.size)
        usual = float(share_R[others].mean())
        margin = MIN_HIT_EXCESS + 3 * np.sqrt(max(usual, 1 / hit_RK.shape[1]) / hit_RK.shape[1])
        if (
            log(comb(rows.size, size)) + by_lot < log_chance
            and (share_R[several] - usual > margin).all()
            and all(log_chance_of_hits(count_R, row, others) < log_chance for row in several.tolist())
        ):
            found[several] = True
            break
    return found


def habits(past_RK: Floats, beyond_RK: Floats, hit_s: float, is_late_R: Bools) -> dict[int, int]:
    """Rows late now and then since before the window and still, and how many times in both together.

    past_RK: deviations before it. A window that another rank's trouble began is too short to tell a habit by itself.
    Each part is seen from the row's own usual step: between the two the ranks' levels have changed.
    """
    past_RK = past_RK[:, -HABIT_STEPS:]
    num_past = past_RK.shape[1]
    if not num_past or not beyond_RK.shape[1]:
        return {}
    own_RK = np.concatenate([part - medians(part, 1)[:, None] for part in (past_RK, beyond_RK)], axis=1)
    hit_RK = own_RK > hit_s
    found = {}
    for row in np.flatnonzero(late_more_often(own_RK, hit_RK, is_late_R)).tolist():
        late_K = hit_RK[row] & (own_RK[row] > _alike_s(own_RK[row], hit_RK[row]))
        if late_K[num_past:].mean() >= MIN_STILL * late_K.mean():
            found[row] = int(late_K.sum())
    return found


def times_late(beyond_RK: Floats, hit_RK: Bools, rows: Ints) -> dict[int, int]:
    """How many times each of these rows is late, as events that are still to come: what they cost is as sure as those.

    Late steps on end are one time. By the steps alone what comes by lot in a fifth of them may be anything, if it comes
    in handfuls: blocks of steps with many and with none look like noise that moves slowly.
    """
    found = {}
    for row in rows.tolist():
        late_K = hit_RK[row] & (beyond_RK[row] > _alike_s(beyond_RK[row], hit_RK[row]))
        begins = np.flatnonzero(late_K & ~np.append(False, late_K[:-1]))
        if begins.size > 1 and not have_ended(begins, late_K.size):
            found[row] = int(begins.size)
    return found


def _alike_s(beyond_K: Floats, hit_K: Bools) -> float:
    """From how much on a step is about as late as the rank mostly is when it is late."""
    return HIT_ALIKE * median(beyond_K[hit_K])
