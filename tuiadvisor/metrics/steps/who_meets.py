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

# Of what a rank comes later it leaves later: half-way between a meeting and none. Measured: 0 to 0.2 in DDP of as many
# ranks as cores and twice as many, step by step; 1 where each is for itself.
LEAVES_AS_COME: Final = 0.5
# Stretches that the steps are cut into. A pause at the border of two lengthens one and shortens the other, so it takes
# several; the longer they are, the less often ranks may meet to be seen to.
STRETCHES: Final = (8, 4)
MIN_STRETCHES: Final = 3  # in which ranks come apart: of one or two the middle is any
MIN_STRETCH_STEPS: Final = 8  # what counts at the ends alone is an eighth then of what counts in each step
CLOCKS_APART: Final = (
    1e-3  # of a stretch: five times as far as two clocks come apart that are right to 100 ppm
)
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
        slope_S = left_as_come(*stretches, CLOCKS_APART)
        if slope_S.size >= MIN_STRETCHES:
            slopes.append(median(slope_S))
    return min(slopes) < LEAVES_AS_COME if slopes else None


def have_mates(step_RK: Floats, wait_RK: Floats, columns: Ints) -> bool:
    """Whether each rank meets another one, of ranks that do not all meet: then they do so in groups."""
    stretches = _stretches(step_RK, wait_RK, columns, STRETCHES[0])
    if stretches is None:
        return True
    took_RS, worked_RS = stretches
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


def left_as_come(took_RS: Floats, worked_RS: Floats, least: float) -> Floats:
    """By how much longer a rank takes, of what it works longer, in each column in which ranks come apart.

    least: of what a column takes; where ranks differ by no more nothing tells.
    """
    is_apart_S = np.ptp(worked_RS, axis=0) > least * took_RS.mean(axis=0)
    longer_RS, more_RS = (
        values[:, is_apart_S] - values[:, is_apart_S].mean(axis=0) for values in (took_RS, worked_RS)
    )
    return np.asarray((longer_RS * more_RS).sum(axis=0) / (more_RS * more_RS).sum(axis=0))


def _stretches(step_RK: Floats, wait_RK: Floats, columns: Ints, num: int) -> tuple[Floats, Floats] | None:
    """(seconds that each of the newest stretches took, and of work in it), R x S; None of fewer steps than tell."""
    length = columns.size // num
    if length < MIN_STRETCH_STEPS or step_RK.shape[0] < 2:
        return None
    newest = columns[columns.size - num * length :]
    took_RS, waited_RS = (
        values[:, newest].reshape(-1, num, length).sum(axis=2) for values in (step_RK, wait_RK)
    )
    return took_RS, took_RS - waited_RS
