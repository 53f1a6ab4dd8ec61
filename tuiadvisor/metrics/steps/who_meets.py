"""Who waits for whom, by how long each rank's steps take: ranks that meet end many steps together, whoever was late.

In: seconds of steps and of the waits within them, R x K.  Out: whether the ranks meet. Each rank's times are by its own
clock, so hosts need no common one. Of what a rank works longer than others over many steps it takes longer for them:
nothing where it makes them wait, all of it where each goes on by itself. What is beside it (when a rank leaves an
exchange, what it does between that and the end of its record) counts at both ends of a stretch and not in between.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints, median, row_median

# Of what a rank comes later it leaves later: half-way between a meeting and none. Measured in DDP of as many ranks as
# cores and twice as many: 0 to 0.2 step by step, -0.1 to 0.15 over stretches; 1 where each is for itself.
LEAVES_AS_COME: Final = 0.5
# Stretches that the steps are cut into: the longer they are, the less often ranks may meet to be seen to.
STRETCHES: Final = (8, 4)
MIN_STRETCHES: Final = 3  # in which ranks come apart: of one or two the middle is any
MIN_STRETCH_STEPS: Final = 8  # what counts at the ends alone is an eighth then of what counts in each step
BORDER_PART: Final = 4  # of a stretch: within the last quarter of it the step that ends it is looked for
SURELY_APART: Final = (
    0.75  # half-way from there to ranks that are each for itself; chosen: what lies between tells nothing
)
APART: Final = 0.05  # of the step: as barrier.EARLY_LEAVE, more than records that are late make
CLOCKS_APART: Final = (
    1e-3  # of a stretch: five times as far as two clocks come apart that are right to 100 ppm
)
# Of how far single steps are from each other on all ranks, which is what the ends of a stretch make of ranks that meet;
# of those that do not eight steps are further apart by the root of eight. Of 3,000 drawn jobs that meet, waits half
# unseen and records lost among them, 47 pass for ranks that do not (208 without it); of 2,569 that do not 163 less
# (counted before SURELY_APART was there).
APART_BEYOND_ENDS: Final = 1.5
MAX_BETWEEN: Final = 2  # places from a rank to its mate in the order of what all steps together took


def meet(step_RK: Floats, wait_RK: Floats, columns: Ints) -> bool | None:
    """Whether ranks wait for each other at all, be it only every few steps; None where nothing tells.

    columns: steps known of all of them.
    """
    slopes = []
    for num in STRETCHES:
        stretches = _stretches(step_RK, wait_RK, columns, num)
        if stretches is None:
            continue
        took_RS, worked_RS, ends_S = stretches
        is_apart_S = np.ptp(worked_RS, axis=0) > np.maximum(CLOCKS_APART * took_RS.mean(axis=0), ends_S)
        if np.count_nonzero(is_apart_S) >= MIN_STRETCHES:
            slopes.append(median(_left_as_come(took_RS[:, is_apart_S], worked_RS[:, is_apart_S])))
    if not slopes or LEAVES_AS_COME <= min(slopes) < SURELY_APART:
        return None
    return min(slopes) < LEAVES_AS_COME


def have_mates(step_RK: Floats, wait_RK: Floats, columns: Ints) -> bool:
    """Whether each rank meets another one, of ranks that do not all meet: then they do so in groups."""
    stretches = _stretches(step_RK, wait_RK, columns, STRETCHES[0])
    if stretches is None:
        return True
    took_RS, worked_RS, _ = stretches
    # Who meets takes equally long for all steps together, so mates are neighbours by that, or next to it by chance.
    order = np.argsort(took_RS.sum(axis=1), kind="stable")
    has_mate_R: Bools = np.zeros(order.size, dtype=np.bool_)
    for distance in range(1, min(MAX_BETWEEN + 1, order.size)):
        one, other = order[:-distance], order[distance:]
        longer_PS, more_PS = took_RS[one] - took_RS[other], worked_RS[one] - worked_RS[other]
        is_apart_PS = np.abs(more_PS) > CLOCKS_APART * took_RS.mean(axis=0)
        slope_PS = np.where(is_apart_PS, longer_PS / np.where(is_apart_PS, more_PS, 1.0), np.nan)
        are_mates_P = ~(row_median(slope_PS) >= LEAVES_AS_COME)
        has_mate_R[one[are_mates_P]] = True
        has_mate_R[other[are_mates_P]] = True
    return bool(has_mate_R.all())


def meet_each_step(step_RK: Floats, wait_RK: Floats, columns: Ints, least: float = 0.0) -> bool:
    """Whether ranks that meet do so in each step, or nothing tells. least: of the steps, in which they come apart.

    Who has come apart in a step is together again after the next one: what a rank does between the exchange and the end
    of its record makes this one longer, and the next one on the others.
    """
    columns = columns[:-1][np.diff(columns) == 1]
    if not columns.size or step_RK.shape[0] < 2:
        return True
    took_RK, next_RK = step_RK[:, columns], step_RK[:, columns + 1]
    worked_RK, works_next_RK = took_RK - wait_RK[:, columns], next_RK - wait_RK[:, columns + 1]
    is_apart_K = np.ptp(worked_RK, axis=0) > APART * median(took_RK.mean(axis=0))
    if np.count_nonzero(is_apart_K) < max(least * columns.size, MIN_STRETCHES):
        return True
    slope_K = _left_as_come((took_RK + next_RK)[:, is_apart_K], (worked_RK + works_next_RK)[:, is_apart_K])
    return median(slope_K) < LEAVES_AS_COME


def _left_as_come(took_RS: Floats, worked_RS: Floats) -> Floats:
    """By how much longer a rank takes, of what it works longer, in each column."""
    longer_RS, more_RS = took_RS - took_RS.mean(axis=0), worked_RS - worked_RS.mean(axis=0)
    return np.asarray(
        (longer_RS * more_RS).sum(axis=0) / np.maximum((more_RS * more_RS).sum(axis=0), np.finfo(float).tiny)
    )


def _stretches(
    step_RK: Floats, wait_RK: Floats, columns: Ints, num: int
) -> tuple[Floats, Floats, Floats] | None:
    """(seconds that each of the newest stretches took, and of work in it, R x S, what its ends may make of it, S).

    None of fewer steps than tell. Steps that are not known of all ranks cut a stretch: it has more ends then.

    Each ends, and the first one begins, after a step that was about as long on all ranks: what one does between the
    exchange and the end of such a record is hardly longer than what the others do.
    """
    length = columns.size // num
    if length < MIN_STRETCH_STEPS or step_RK.shape[0] < 2:
        return None
    spread_K = np.ptp(step_RK[:, columns], axis=0)
    width = length // BORDER_PART
    at = [
        end - width + int(np.argmin(spread_K[end - width : end]))
        for end in range(columns.size - (num - 1) * length, columns.size + 1, length)
    ]
    at.insert(0, int(np.argmin(spread_K[:width])))
    within, begins = columns[at[0] + 1 : at[-1] + 1], np.array(at[:-1]) - at[0]
    took_RS, waited_RS = (np.add.reduceat(values[:, within], begins, axis=1) for values in (step_RK, wait_RK))
    cuts_S = np.add.reduceat(
        np.diff(columns, prepend=columns[0] - 1)[at[0] + 1 : at[-1] + 1] != 1, begins, dtype=float
    )
    return took_RS, took_RS - waited_RS, APART_BEYOND_ENDS * median(spread_K) * np.sqrt(1.0 + cuts_S)
