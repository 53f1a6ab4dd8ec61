"""Changes of a mean: found although the median stays, not found in noise or in bursts that were always there."""

from __future__ import annotations

import numpy as np
import pytest

from tuiadvisor.metrics.series.mean_shift import find_mean_changes


def noise(count: int, seed: int) -> np.ndarray:
    """Unit noise with a spike in fifty."""
    random = np.random.default_rng(seed)
    return random.normal(0, 1, count) + (random.random(count) < 0.02) * random.exponential(6, count)


@pytest.mark.parametrize("seed", range(20))
def test_noise_has_none(seed: int) -> None:
    """400 steps of noise and spikes."""
    assert () == find_mean_changes(noise(400, seed), 0.5)


@pytest.mark.parametrize(
    ("every", "onset"),
    [(2, 60), (3, 60), (2, 200), (3, 200), (5, 200), (2, 340), (3, 340)],
)
def test_a_part_of_the_steps_late_since_a_step_is_dated(every: int, onset: int) -> None:
    """Within five steps of the first that is late; the shift is that of the mean."""
    values = noise(400, every)
    values[onset::every] += 15
    (change,) = find_mean_changes(values, 0.5)
    assert onset == pytest.approx(change.index, abs=5)
    assert 15 / every == pytest.approx(change.shift, rel=0.2)


@pytest.mark.parametrize("seed", range(10))
def test_by_lot_since_a_step(seed: int) -> None:
    """A third of the steps, drawn by lot: dated to the first one, give or take five."""
    random = np.random.default_rng(100 + seed)
    values, late = noise(400, seed), random.random(400) < 1 / 3
    late[:180] = False
    values[late] += 15
    (change,) = find_mean_changes(values, 0.5)
    assert np.flatnonzero(late)[0] == pytest.approx(change.index, abs=5)


@pytest.mark.parametrize("length", [5, 10, 25])
def test_bursts_from_the_first_step_on_are_no_change(length: int) -> None:
    """As many steps late as not, in bursts: the mean is the same throughout."""
    values = noise(400, 3)
    values[np.arange(400) // length % 2 == 0] += 8
    assert () == find_mean_changes(values, 0.5)


def test_a_few_long_stalls_are_no_new_mean() -> None:
    """Three steps of a hundred times the noise within ten."""
    values = noise(400, 5)
    values[[385, 390, 394]] += 300
    assert () == find_mean_changes(values, 0.5)


@pytest.mark.parametrize("count", [0, 1, 31])
def test_short_series_have_none(count: int) -> None:
    """Sixteen steps a side are the least."""
    assert () == find_mean_changes(np.arange(float(count)), 0.0)
