"""Parameters of which some run each time and the others with `make test-all`: another case of the same kind."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable
from typing import Any, Final, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

Value = TypeVar("Value")
# Set by `make test-all` and `make fuzz`: whatever is drawn by lot is drawn as often as its test says.
ALL_EXAMPLES: Final = "ALL_EXAMPLES" in os.environ
EACH_RUN: Final = 4  # a run between two of those draws one in so many


def thinned(values: Iterable[Value], always: Collection[Value], *, is_row: bool = False) -> list[Value]:
    """As parameters, in their order; always: those of every run, all of which have to be there.

    is_row: each value is a row of several parameters.
    """
    found = list(values)
    assert all(value in found for value in always), always
    extended = pytest.mark.extended
    return [
        value if value in always else pytest.param(*(value if is_row else (value,)), marks=extended)  # type: ignore[misc]
        for value in found
    ]


def crossed(*lists: Iterable[Any]) -> list[Any]:
    """Every combination of the lists' values, as parameters; those of every run hold each value at least once.

    None where a list is empty, as where no public data sets are at hand.
    """
    values = [
        [each if isinstance(each, ParameterSet) else pytest.param(each) for each in one] for one in lists
    ]
    num_always = max(map(len, values)) if all(values) else 0
    always = {tuple(place % len(each) for each in values) for place in range(num_always)}
    return [
        _joined(
            [each[place] for each, place in zip(values, places, strict=True)],
            () if places in always else (pytest.mark.extended,),
        )
        for places in itertools.product(*(range(len(each)) for each in values))
    ]


def _joined(parts: list[ParameterSet], marks: tuple[pytest.MarkDecorator, ...]) -> ParameterSet:
    """Named as pytest names them, with the names that parts have of their own."""
    own = "-".join(str(one.id or one.values[0]) for one in parts) if any(one.id for one in parts) else None
    marked = [*itertools.chain.from_iterable(one.marks for one in parts), *marks]
    return pytest.param(*itertools.chain.from_iterable(one.values for one in parts), marks=marked, id=own)


def num_examples(num: int) -> int:
    """How many of so many examples by lot a test draws: all of them with `make test-all` and `make fuzz`."""
    return num if ALL_EXAMPLES else max(num // EACH_RUN, 1)
