"""Onsets: a verified change of level, dated to the step; nothing in noise."""

from __future__ import annotations

import numpy as np
import pytest

from tuiadvisor.metrics.series.change_points import find_changes


def noise(count: int, seed: int) -> np.ndarray:
    """Unit noise around 10 with a spike in a hundred."""
    random = np.random.default_rng(seed)
    return 10 + random.normal(0, 1, count) + (random.random(count) < 0.01) * 30


@pytest.mark.parametrize("seed", range(20))
def test_noise_has_no_change(seed: int) -> None:
    """400 steps of noise and spikes."""
    assert () == find_changes(noise(400, seed), 0.3)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("onset", "shift"), [(50, 3.0), (200, 5.0), (390, 6.0), (200, -4.0)])
def test_a_shift_is_dated_to_the_step(seed: int, onset: int, shift: float) -> None:
    """Within four steps, even ten steps after it began; its size within a standard deviation."""
    values = noise(400, seed)
    values[onset:] += shift
    (change,) = find_changes(values, 0.3)
    assert onset == pytest.approx(change.index, abs=4)
    assert shift == pytest.approx(change.shift, abs=1)


def test_a_fault_that_ends_gives_two_changes() -> None:
    """Up, then down."""
    values = noise(600, 1)
    values[200:350] += 5
    up, down = find_changes(values, 0.3)
    assert (200, 350) == pytest.approx((up.index, down.index), abs=2)
    assert up.shift > 0 > down.shift


def test_bursts_are_found_although_no_single_split_is() -> None:
    """Six bursts of 25 steps: twelve edges, less those at the ends."""
    values = noise(300, 2)
    for start in range(25, 300, 50):
        values[start : start + 25] += 6
    assert 8 <= len(find_changes(values, 0.3)) <= 12


def test_shifts_below_the_asked_size_are_left_out() -> None:
    """A clear but small change is of no interest."""
    values = np.concatenate((np.full(100, 10.0), np.full(100, 10.2)))
    assert () == find_changes(values, 0.3)
    assert 1 == len(find_changes(values, 0.1))


@pytest.mark.parametrize("count", [0, 1, 7, 15])
def test_short_series_have_none(count: int) -> None:
    """Two levels of eight steps are the least."""
    assert () == find_changes(np.arange(float(count)), 0.0)


@pytest.mark.parametrize("share", [0.4, 0.5, 0.55])
def test_steps_that_are_long_by_lot_have_one_level(share: float) -> None:
    """Late in about half of the steps: a median jumps where chance has put a few more of them (21 of 40 times)."""
    changes = 0
    for seed in range(40):
        stream = np.random.default_rng(seed)
        series = 0.018 + 0.008 * (stream.random(320) < share) + stream.normal(0, 0.0005, 320)
        changes += len(find_changes(series, 0.001))
    assert changes <= 4
