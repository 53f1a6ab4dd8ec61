"""A level that comes and goes: whether what rises and falls does so again and again, or is so many events.

In: verified changes of a series, what its device says of itself.  Out: yes or no, and how many times. A level that
lasts is the present one; where it comes back as it was, or where the device says that it holds its clock back in just
these steps, the whole of it is one thing that goes on, and what it costs is a part of every stretch of time.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS
from tuiadvisor.metrics.steps.arrays import median

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from tuiadvisor.metrics.series.change_points import Change
    from tuiadvisor.metrics.steps.arrays import Bools, Floats
    from tuiadvisor.metrics.steps.held_steps import HeldSteps

MIN_TIMES: Final = 3  # that it was high, begun or ended in sight; two may be two events (chosen)
MIN_TIMES_SEEN: Final = 2  # the same where the device itself tells of it
ALIKE: Final = 0.25  # of the typical rise: so far apart may rises and falls be of what is one thing (chosen)
ALL_BUT_STRAYS: Final = (
    0.9  # of the changes are alike and in turn: of more than ten, noise hides or bends one (chosen)
)
MAX_LONGER: Final = (
    3.0  # times the longest stretch before: then the present one is no part of it any more (chosen)
)
MIN_HELD_MORE: Final = 0.5  # of the time: so much more is a device held back in the steps which that explains


def times_high(changes: tuple[Change, ...]) -> int:
    """How often a series was on its higher level, where that was seen to begin or to end."""
    return sum(change.shift > 0 for change in changes) + int(bool(changes) and changes[0].shift < 0)


def comes_and_goes(changes: tuple[Change, ...], num_steps: int, held_K: Floats | None = None) -> bool:
    """Whether levels that last come back as they were, and may do so again.

    changes: of a series of so many steps. held_K: the share of each step in which the device held its clock back, None
    where it tells of none.
    """
    ups = sum(change.shift > 0 for change in changes)
    if not 0 < ups < len(changes):
        return False
    is_told = held_K is not None and is_held_when_high(changes, held_K)
    if times_high(changes) < (MIN_TIMES_SEEN if is_told else MIN_TIMES):
        return False
    in_row = sum((one.shift > 0) == (other.shift > 0) for one, other in itertools.pairwise(changes))
    if in_row > (1 - ALL_BUT_STRAYS) * len(changes):
        return False
    shifts = np.array([abs(change.shift) for change in changes])
    apart = np.quantile(np.abs(shifts - median(shifts)), ALL_BUT_STRAYS, method="higher")
    if not is_told and float(apart) > ALIKE * median(shifts):
        return False
    lengths = {change.index: later.index - change.index for change, later in itertools.pairwise(changes)}
    alike = [lengths[change.index] for change in changes[:-1] if change.shift * changes[-1].shift > 0]
    return may_go_on(num_steps - changes[-1].index, alike or list(lengths.values()))


def new_levels(changes: tuple[Change, ...], num_steps: int) -> tuple[Change, ...]:
    """Those changes of a series of so many steps that lead to where it has not been again and again.

    The noise of a shared host has levels of all sizes: what passes the same middle the same way a third time is one
    more of them, and no level that begins: until it has lasted MAX_LONGER times as long as any before it, or, of slow
    steps, longer.
    """
    return tuple(change for change in changes if not _is_one_more(change, changes, num_steps))


def _is_one_more(change: Change, changes: tuple[Change, ...], num_steps: int) -> bool:
    middle = (change.before + change.after) / 2
    passing = [one for one in changes if (one.before - middle) * (one.after - middle) < 0]
    ends = [*(one.index for one in passing[1:]), num_steps]
    stays = [
        (one, end - one.index) for one, end in zip(passing, ends, strict=True) if one.shift * change.shift > 0
    ]
    was_there = passing[0].shift * change.shift < 0  # from the first step on: for how long is not seen
    if len(stays) + was_there < MIN_TIMES:
        return False
    own = next(length for one, length in stays if one is change)
    others = [length for one, length in stays if one is not change]
    if change is passing[-1] and change.shift > 0 and own > max(others, default=0):
        return False  # slow until now, for longer than ever: it would be judged by steps that were not
    return may_go_on(own, others)


def may_go_on(length: int, lengths: list[int]) -> bool:
    """Whether the present stretch may be one more of those; else the run has come to rest at its level."""
    return not lengths or length <= MAX_LONGER * max(lengths)


def in_turn(levels: Mapping[int, tuple[Change, ...]], waving: AbstractSet[int]) -> frozenset[int]:
    """Rows that rise where one of those that come and go falls, and fall where one rises: they take over from it.

    levels: of each row. Seen as often as the other, or once less, they come and go by what tells it of the other.
    """

    def answers(change: Change) -> bool:
        return any(
            change.shift * other.shift < 0 and abs(change.index - other.index) <= MIN_SEGMENT_STEPS
            for row in waving
            for other in levels[row]
        )

    return frozenset(
        row
        for row, changes in levels.items()
        if row not in waving and times_high(changes) > 1 and all(map(answers, changes))
    )


def is_held_when_high(changes: tuple[Change, ...], held_K: Floats) -> bool:
    """Whether a device holds its clock back in the steps of the higher level, and not in the others."""
    return held_more(is_high(changes, held_K.size), held_K) is not None


def held_more(late_K: Bools, held_K: Floats) -> float | None:
    """Share of the time of these steps in which the device is held back; None where it is so in the others, too."""
    late, others = (held_K[which & np.isfinite(held_K)] for which in (late_K, ~late_K))
    if not late.size or not others.size:
        return None
    share = float(late.mean())
    return share if share - float(others.mean()) >= MIN_HELD_MORE else None


def is_high(changes: tuple[Change, ...], num_steps: int) -> Bools:
    """Steps after a rise and before the next fall."""
    result = np.zeros(num_steps, dtype=np.bool_)
    edges = [*(change.index for change in changes), num_steps]
    if changes and changes[0].shift < 0:
        result[: edges[0]] = True
    for change, (begin, end) in zip(changes, itertools.pairwise(edges), strict=True):
        result[begin:end] = change.shift > 0
    return result


def job_comes_and_goes(changes: tuple[Change, ...], num_steps: int, held: HeldSteps) -> bool:
    """Whether a level of all ranks does, by itself or by what their devices tell."""
    if comes_and_goes(changes, num_steps):
        return True
    told = held.common() if len(changes) > 1 else None
    return told is not None and comes_and_goes(changes, num_steps, told.share_K)


def rank_comes_and_goes(place: int, changes: tuple[Change, ...], num_steps: int, held: HeldSteps) -> bool:
    """The same of the rank at this place of those that are compared."""
    if comes_and_goes(changes, num_steps):
        return True
    told = held.of(place) if len(changes) > 1 else None
    return told is not None and comes_and_goes(changes, num_steps, told.share_K)
