"""Medians and percentiles of our own: equal to numpy's to the last digit, whatever the size."""

from __future__ import annotations

import numpy as np
import pytest

from tuiadvisor.metrics.steps.arrays import (
    SORTED_BELOW,
    column_median,
    median,
    medians,
    percentiles,
    row_percentiles,
)
from tuiadvisor.metrics.window.rotating import WINDOW_STEPS, _running_median

SIZES = (1, 2, 3, 8, 9, 64, SORTED_BELOW - 1, SORTED_BELOW, SORTED_BELOW + 1, 2048)


@pytest.mark.parametrize("size", SIZES)
def test_medians_equal_those_of_numpy(size: int) -> None:
    """Along either axis and of a series, with ties, infinities, and with NaN."""
    random = np.random.default_rng(size)
    for values in (
        random.normal(size=(7, size)),
        random.integers(0, 4, (7, size)) / 3,
        np.full((7, size), np.inf),
    ):
        before = values.copy()
        assert np.array_equal(np.median(values, axis=1), medians(values, 1))
        assert np.array_equal(np.median(values, axis=0), medians(values, 0))
        assert np.array_equal(np.median(values, axis=0), column_median(values))
        assert [float(np.median(row)) for row in values] == [median(row) for row in values]
        assert np.array_equal(before, values)
    unknown = random.normal(size=(7, size))
    unknown[3, size // 2] = np.nan
    assert np.array_equal(np.median(unknown, axis=1), medians(unknown, 1), equal_nan=True)
    assert np.array_equal(np.nanmedian(unknown[[0, 3]], axis=0), column_median(unknown[[0, 3]]))


def test_the_median_of_nothing_is_unknown() -> None:
    """Of an empty series, and of a table without rows or columns."""
    assert np.isnan(median(np.zeros(0)))
    assert np.isnan(medians(np.zeros((0, 3)), 0)).tolist() == [True] * 3
    assert np.isnan(medians(np.zeros((3, 0)), 1)).tolist() == [True] * 3


@pytest.mark.parametrize("size", SIZES)
def test_percentiles_equal_those_of_numpy(size: int) -> None:
    """Between values, on a value, at both ends."""
    values = np.random.default_rng(size).normal(size=(5, size))
    for low, high in ((2, 98), (10, 90), (0, 100), (5.0, 95.0), (25, 50)):
        found = row_percentiles(values, low, high)
        assert all(map(np.array_equal, np.percentile(values, (low, high), axis=1), found))
        assert tuple(np.percentile(values[0], (low, high)).tolist()) == percentiles(values[0], low, high)


def test_the_running_median_is_that_of_each_window() -> None:
    """Every order of the nine values that matters: a thousand draws with ties."""
    random = np.random.default_rng(1)
    for values in (random.normal(size=(3, 1000)), random.integers(0, 5, (3, 1000)).astype(np.float64)):
        num_steps = values.shape[1] - WINDOW_STEPS + 1
        windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW_STEPS, axis=1)
        assert np.array_equal(np.median(windows, axis=2), _running_median(values, num_steps))
