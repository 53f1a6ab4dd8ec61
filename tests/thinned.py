"""Parameters of which some run each time and the others with `make test-all`: another case of the same kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest

Value = TypeVar("Value")


def thinned(values: Iterable[Value], always: Collection[Value]) -> list[Value]:
    """As parameters, in their order; always: those of every run, all of which have to be there."""
    found = list(values)
    assert all(value in found for value in always), always
    extended = pytest.mark.extended
    return [value if value in always else pytest.param(value, marks=extended) for value in found]  # type: ignore[misc]
