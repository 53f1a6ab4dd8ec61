"""The stretch of steps that the figures are of: zoomed and moved, never longer than what a view is made of.

In: the steps of the run, how many a view is made of.  Out: the next stretch, (first, last) step, both included;
None: the newest steps, as without one.
"""

from __future__ import annotations

from typing import Final

Steps = tuple[int, int]
LEAST_STEPS: Final = 20  # as many as a verdict wants: of fewer nothing could be said


def zoomed(current: Steps | None, by: int, whole: Steps, most: int) -> Steps | None:
    """Half or twice as long around the same middle; at the end of the run it stays there."""
    length = whole[1] - whole[0] + 1
    if current is None:
        size = min(length // 2, most)
        return (whole[1] - size + 1, whole[1]) if by > 0 and size >= LEAST_STEPS else None
    own = current[1] - current[0] + 1
    size = max(own // 2, LEAST_STEPS) if by > 0 else own * 2
    if size >= length or (by < 0 and size > most):
        return None
    at_end = current[1] >= whole[1]
    first = whole[1] - size + 1 if at_end else (current[0] + current[1] + 1 - size) // 2
    return _within(first, size, whole)


def chosen(first: int, last: int, whole: Steps, most: int) -> Steps:
    """These steps, in either order: as many as a verdict wants, as few as a view is made of."""
    low, high = sorted((first, last))
    size = min(max(high - low + 1, LEAST_STEPS), most)
    return _within(low if size >= high - low + 1 else high - size + 1, size, whole)


def moved(current: Steps, by: int, whole: Steps) -> Steps:
    """On or back by half of its length."""
    size = current[1] - current[0] + 1
    return _within(current[0] + by * max(size // 2, 1), size, whole)


def _within(first: int, size: int, whole: Steps) -> Steps:
    start = min(max(first, whole[0]), max(whole[1] - size + 1, whole[0]))
    return start, min(start + size - 1, whole[1])
