"""A program's log and a recording are compared over the same seconds, parts of steps included."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "strangers"))
from recorded_steps import mean_step_ms


def test_the_edges_of_the_time_do_not_show() -> None:
    """Steps of 1 s: whatever the moments between which they are looked at."""
    ends = [float(number) for number in range(20)]
    for since, until in ((3.0, 9.0), (3.4, 9.9), (2.9, 7.1)):
        assert mean_step_ms(ends, since, until) == pytest.approx(1000)


def test_it_is_the_steps_between_the_moments() -> None:
    """Slow steps before and after do not count."""
    ends = [0.0, 10.0, 10.5, 11.0, 11.5, 12.0, 22.0]
    assert mean_step_ms(ends, 10.0, 12.0) == pytest.approx(500)


def test_what_was_not_recorded_is_no_time() -> None:
    """A recording that began late, and one with too few steps."""
    assert mean_step_ms([5.0, 6.0, 7.0, 8.0], 0.0, 20.0) == pytest.approx(1000)
    assert mean_step_ms([5.0, 6.0], 0.0, 20.0) is None
