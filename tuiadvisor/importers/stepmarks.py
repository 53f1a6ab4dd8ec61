"""Marks of steps as a profiler writes them, in order and with their numbers.

In: name, begin and duration of each.  Out: number, begin and end; whether several ranks' are of one moment.
"""

from __future__ import annotations

import re
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.steps.step_alignment import MIN_MATCHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.importers.rank_trace import RankTrace
    from tuiadvisor.metrics.steps.arrays import Ints

NUMBER: Final = re.compile(r"#(\d{1,9})\b")
STUB: Final = 0.1  # of the median of the others: a shorter last mark, in which nothing began, is none


def numbered(marked: Iterable[tuple[str, int, int]]) -> list[tuple[int, int, int]]:
    """(number, begin, end) of each step, as the marks count them; in their order where they do not rise."""
    marks = [(name, begin, begin + dur) for name, begin, dur in marked if dur > 0]
    found = [NUMBER.search(name) for name, _, _ in marks]
    numbers = [int(one[1]) for one in found if one]
    if len(numbers) < len(marks) or any(a >= b for a, b in pairwise(numbers)):
        numbers = list(range(len(marks)))
    steps: list[tuple[int, int, int]] = []
    for number, (_, begin, end) in zip(numbers, marks, strict=True):
        last = steps[-1][2] if steps else begin
        # A mark within another one is of no step of its own; rounded times of one behind another overlap a little.
        if 2 * last <= begin + end:
            steps.append((number, max(begin, last), end))
    return steps


def without_stub(steps: Sequence[tuple[str, int, int]], begun_ns: Ints) -> tuple[tuple[str, int, int], ...]:
    """Marks in their order, without a last one that the end of the trace cut off before anything began in it.

    prof.step() after the last step begins another one, which lasts until the profiler stops. begun_ns: when the work
    of a device was launched, or operators began; where nothing is known of it, all marks stay.
    """
    if len(steps) < 2 or not (begun_ns >= 0).any():
        return tuple(steps)
    _, begin, dur = steps[-1]
    is_short = dur < STUB * median(dur for _, _, dur in steps[:-1])
    is_empty = not ((begun_ns >= begin) & (begun_ns < begin + dur)).any()
    return tuple(steps[:-1] if is_short and is_empty else steps)


def side_by_side(traces: Sequence[RankTrace]) -> bool:
    """Whether steps of one number are of one moment on all ranks: by the wall clock they begin within one step.

    Ranks that wait for each other in every step cannot be further apart; a trace that was begun elsewhere is.
    """
    spans = [
        {number: (begin + trace.wall_ns, end - begin) for number, begin, end in numbered(trace.steps)}
        for trace in traces
        if trace.wall_ns is not None
    ]
    if len(spans) < 2 or len(spans) < len(traces):
        return False
    first, *others = spans
    for other in others:
        common = first.keys() & other.keys()
        if len(common) < MIN_MATCHES:
            return False
        apart_ns = median(abs(other[number][0] - first[number][0]) for number in common)
        if apart_ns >= median(first[number][1] for number in common):
            return False
    return True
