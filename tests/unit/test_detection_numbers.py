"""Every number that detection rests on says what it is, and stands in one place."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "release"))
from detection_numbers import numbers, numbers_in

SOURCE = '''
"""A module."""

PLAIN: Final = 3
BEHIND: Final = -0.5  # of the step
WRAPPED: Final = (
    0.1  # of the loss
)
CHANCE: Final = log(1e-3)  # once in a thousand

# Percentiles of both,
# chosen.
BELOW, LEFT_OUT = 1, 2
PAIR: Final = (5, 95)
# Chosen: as many.
ABOVE: Final = 7
NEXT: Final = 1 << 4

OTHER: Final = 9
TEXT: Final = "no number"
MADE: Final = PLAIN - 1
FLAG: Final = True
'''


def test_words_are_found_behind_and_above() -> None:
    """A comment above a run of lines is about all of them that have none; an empty line ends it."""
    found = {one.name: one.words for one in numbers_in(SOURCE, "a.py")}
    assert {
        "PLAIN": "",
        "BEHIND": "of the step",
        "WRAPPED": "of the loss",
        "CHANCE": "once in a thousand",
        "PAIR": "",
        "ABOVE": "Chosen: as many.",
        "NEXT": "Chosen: as many.",
        "OTHER": "",
    } == found


def test_every_number_of_detection_says_what_it_is() -> None:
    """A share of what, a count of what, and the source where there is one: the page of thresholds shows it."""
    found = numbers()
    assert {"metrics", "causes", "advisor"} == {one.file.partition("/")[0] for one in found}
    assert [] == [f"{one.file}: {one.name}" for one in found if not one.words]


def test_no_number_of_detection_stands_twice() -> None:
    """The same name, value and meaning in two modules is one number: the second imports it."""
    times = Counter((one.name, one.value, one.words) for one in numbers())
    assert [] == [name for (name, _value, _words), num in times.items() if num > 1]
