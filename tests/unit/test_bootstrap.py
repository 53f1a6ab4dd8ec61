"""The interval of a ratio of means: deterministic, invertible, honest under heavy and correlated noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import num_examples, thinned

from tuiadvisor.metrics.series.bootstrap import blocks, difference_of_means, ratio_of_means

FLOOR = 1.02


def heavy(rng: np.random.Generator, size: int) -> np.ndarray:
    """Mean 1, with a tail whose fourth moment does not exist."""
    return 0.9 * rng.lognormal(-0.005, 0.1, size) + 0.1 * 1.2 * rng.pareto(2.2, size)


def drifting(rng: np.random.Generator, size: int) -> np.ndarray:
    """Mean 1; neighbours within about 40 steps are alike."""
    noise, values = rng.normal(0, 0.05, size), np.zeros(size)
    for step in range(1, size):
        values[step] = 0.95 * values[step - 1] + noise[step]
    return np.maximum(1 + values, 0.3)


@pytest.mark.slow
@settings(max_examples=num_examples(60), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(20, 400), st.integers(20, 400), st.floats(0.5, 2.0))
def test_swapping_inverts(seed: int, num_before: int, num_after: int, factor: float) -> None:
    """After / before and before / after are each other's inverse, interval included; the same call gives the same."""
    rng = np.random.default_rng(seed)
    before, after = heavy(rng, num_before), factor * heavy(rng, num_after)
    there, back = ratio_of_means(before, after), ratio_of_means(after, before)
    assert there is not None
    assert back is not None
    assert (1 / there.expected, 1 / there.high, 1 / there.low) == pytest.approx(
        (back.expected, back.low, back.high), rel=1e-9
    )
    assert there.low <= there.expected <= there.high
    assert there == ratio_of_means(before, after)


@settings(max_examples=num_examples(40), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(20, 400))
def test_a_series_against_itself_is_one(seed: int, size: int) -> None:
    """No interval around nothing: the same steps are the same steps."""
    values = heavy(np.random.default_rng(seed), size)
    found = ratio_of_means(values, values.copy())
    assert found is not None
    assert 1.0 == pytest.approx(found.expected, rel=1e-12)
    assert found.low <= 1.0 <= found.high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "size"),
    thinned(
        [(heavy, 60), (heavy, 400), (drifting, 400), (drifting, 2000)],
        [(heavy, 60), (drifting, 400)],
        is_row=True,
    ),
)
def test_the_truth_lies_in_the_interval(draw: object, size: int) -> None:
    """Of 120 pairs with equal means at least 90 % of the intervals hold 1, and at most 5 % claim over 2 % change."""
    rng = np.random.default_rng(11)
    pairs = [ratio_of_means(draw(rng, size), draw(rng, size)) for _ in range(120)]  # type: ignore[operator]
    found = [pair for pair in pairs if pair is not None]
    assert 120 == len(found)
    assert 0.9 <= np.mean([pair.low <= 1 <= pair.high for pair in found])
    assert 0.05 >= np.mean([pair.low > FLOOR or pair.high < 1 / FLOOR for pair in found])


def test_a_ten_percent_change_is_seen_in_ordinary_noise() -> None:
    """200 steps with 10 % noise suffice to see 10 % in every one of 50 pairs."""
    rng = np.random.default_rng(5)
    found = [ratio_of_means(rng.lognormal(0, 0.1, 200), 1.1 * rng.lognormal(0, 0.1, 200)) for _ in range(50)]
    assert all(pair is not None and pair.low > FLOOR for pair in found)


def test_blocks_grow_with_slow_changes() -> None:
    """Independent steps stand for themselves; a load that lasts 50 steps makes the mean uncertain."""
    rng = np.random.default_rng(3)
    noise = rng.lognormal(0, 0.05, 800)
    levels = noise * np.repeat(rng.choice([1.0, 1.5], 16), 50)
    assert blocks(levels).variance > 20 * levels.var() / levels.size > 0
    assert blocks(noise).variance < 4 * noise.var() / noise.size


def test_difference_matches_the_means() -> None:
    """Seconds, with an interval around the true difference of 3 ms."""
    rng = np.random.default_rng(8)
    found = difference_of_means(0.02 * rng.lognormal(0, 0.1, 300), 0.003 + 0.02 * rng.lognormal(0, 0.1, 300))
    assert found is not None
    middle, low, high = found
    assert low <= 0.003 <= high
    assert middle == pytest.approx(0.003, abs=0.0008)


def test_too_little_gives_nothing() -> None:
    """Fifteen steps, or steps of no time, are no evidence."""
    assert ratio_of_means(np.ones(15), np.ones(100)) is None
    assert ratio_of_means(np.zeros(100), np.ones(100)) is None
    assert math.isclose(1.0, ratio_of_means(np.ones(16), np.ones(16)).expected)  # type: ignore[union-attr]
