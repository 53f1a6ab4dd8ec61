"""Marks of steps as a profiler writes them, in order and with their numbers.

In: name, begin and duration of each.  Out: number, begin and end.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBER: Final = re.compile(r"#(\d{1,9})\b")


def numbered(marked: Iterable[tuple[str, int, int]]) -> list[tuple[int, int, int]]:
    """(number, begin, end) of each step, as the marks count them; in their order where they do not rise."""
    marks = [(name, begin, begin + dur) for name, begin, dur in marked if dur > 0]
    found = [NUMBER.search(name) for name, _, _ in marks]
    numbers = [int(one[1]) for one in found if one]
    if len(numbers) < len(marks) or any(a >= b for a, b in pairwise(numbers)):
        numbers = list(range(len(marks)))
    steps = [(number, begin, end) for number, (_, begin, end) in zip(numbers, marks, strict=True)]
    # A mark within another one is of no step of its own.
    return [step for at, step in enumerate(steps) if at == 0 or step[1] >= steps[at - 1][2]]
