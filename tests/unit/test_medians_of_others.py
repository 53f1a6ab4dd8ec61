"""The median of all values but one, each sorted once: the same as of a list without it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.metrics.lateness.off_core import OffCore, _Without, held_ranks

SHARES = st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=9)


@given(SHARES)
def test_it_is_the_median_of_a_list_without_the_value(values: list[float | None]) -> None:
    """Unknown as soon as one of the others is, or where there are none."""
    without = _Without(values)
    for place, own in enumerate(values):
        others = values[:place] + values[place + 1 :]
        known = [value for value in others if value is not None]
        if len(known) < len(others) or not others:
            assert without.median(own) is None
        else:
            assert without.median(own) == pytest.approx(float(np.median(known)), abs=0)


class Counted(OffCore):
    """Counts how often somebody reads what a rank waited."""

    __slots__ = ()
    num_read: ClassVar = 0

    @property
    def wait(self) -> float | None:  # type: ignore[override]
        """The same share."""
        Counted.num_read += 1
        return self[0]


def test_of_many_ranks_each_is_read_a_few_times_not_once_for_every_other() -> None:
    """With 512 ranks, the lists of all others took 30 ms of a view of 120."""
    Counted.num_read = 0
    ranks: list[OffCore] = [Counted(0.5 + row / 8192, run=0.4, is_counted=True) for row in range(256)]
    assert not held_ranks(ranks, 60.0)
    assert 256 <= Counted.num_read <= 256 * 8
