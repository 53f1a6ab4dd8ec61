"""Bytes a second are bounded, and a debt is never paid for longer than a few seconds."""

from __future__ import annotations

import pytest

from tuiadvisor.tui.terminal.frame_writer import (
    LONGEST_DEBT_S,
    LONGEST_WAIT_S,
    SAVED_S,
    SMALL_BYTES_PER_S,
    Budget,
)


def written(frame_bytes: int, seconds: float, num_cells: int = 80 * 24) -> tuple[int, int]:
    """Return bytes and frames of a screen that wants a frame of this size twice a second."""
    budget = Budget()
    budget.resize(num_cells)
    num_bytes = num_frames = 0
    for tick in range(int(seconds * 2)):
        if budget.allows(tick / 2):
            budget.spend(frame_bytes, tick / 2)
            num_bytes += frame_bytes
            num_frames += 1
    return num_bytes, num_frames


def test_a_cheap_screen_is_drawn_at_every_tick() -> None:
    """Two frames a second, as long as they are small."""
    assert 120 == written(300, 60)[1]


@pytest.mark.parametrize("frame_bytes", [600, 1200, 2400])
def test_a_busy_screen_keeps_to_the_budget(frame_bytes: int) -> None:
    """Over a minute no more than a kilobyte a second on 80x24."""
    assert written(frame_bytes, 60)[0] <= 1000 * 60


def test_a_large_screen_may_write_more() -> None:
    """Under three kilobytes a second on 200x50."""
    num_bytes, num_frames = written(6000, 60, 200 * 50)
    assert num_bytes <= 3000 * 60
    assert num_frames >= 20


def test_however_dear_a_frame_is_the_next_one_comes() -> None:
    """A frame of a whole minute's bytes delays the next by a few seconds only."""
    assert written(60_000, 60)[1] >= 60 / (LONGEST_WAIT_S + 0.5)


def test_a_single_dear_frame_delays_the_next_by_little() -> None:
    """The first whole screens of a run, and later another page among frames of 400 bytes."""
    budget = Budget()
    budget.resize(80 * 24)
    for tick in range(3):
        budget.spend(5000, tick / 10)
    assert budget.allows(0.2 + LONGEST_DEBT_S)
    for tick in range(4, 60):
        assert budget.allows(tick / 2)
        budget.spend(400, tick / 2)
    budget.spend(5000, 30.0)
    assert not budget.allows(30.0 + LONGEST_DEBT_S / 2)
    assert budget.allows(30.0 + LONGEST_DEBT_S)


def test_credit_is_bounded() -> None:
    """An idle hour does not pay for a flood."""
    budget = Budget()
    budget.allows(3600.0)
    assert SMALL_BYTES_PER_S * SAVED_S == budget.left
