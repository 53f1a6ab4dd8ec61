"""Checkpoint intervals and the price of a larger batch, against published and hand-made values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.scaling.choose import choose
from tuiadvisor.scaling.cost_of_batch import (
    batch_factor_to_keep_efficiency,
    samples_factor,
    statistical_efficiency,
)
from tuiadvisor.scaling.young_daly import daly, lost_share


@pytest.mark.parametrize(("failures_h", "expected_min"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_daly_check_values(failures_h: float, expected_min: float) -> None:
    """A checkpoint of 5 minutes at 24 h, 6 h and 15 min between failures. Source: Daly 2006."""
    assert expected_min == pytest.approx(daly(5, failures_h * 60), rel=0.01)


def test_daly_when_checkpoints_outlast_failures() -> None:
    """δ >= 2M: the interval is M."""
    assert 2.0 == daly(4.0, 2.0)


@given(st.floats(1e-3, 10), st.floats(50, 1e5))
def test_daly_loses_no_more_than_young(checkpoint: float, failures: float) -> None:
    """The higher-order interval is never worse in the complete model, and neither beats its neighbours by far."""
    first_order = math.sqrt(2 * checkpoint * failures)  # Young 1974
    best = lost_share(daly(checkpoint, failures), checkpoint, failures)
    assert best <= lost_share(first_order, checkpoint, failures) + 1e-9
    for factor in (0.5, 2.0):
        assert best <= lost_share(daly(checkpoint, failures) * factor, checkpoint, failures)


def test_lost_share_ends() -> None:
    """Half a minute a day is nearly nothing, an interval of many failures nearly everything."""
    assert lost_share(60, 0.5, 1e6) < 0.01
    assert 1.0 == lost_share(1e6, 1, 1)


@pytest.mark.parametrize("bad", [(0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0)])
def test_checkpoint_inputs_must_be_positive(bad: tuple[float, float]) -> None:
    """Unknown is not zero."""
    with pytest.raises(ValueError, match="positive"):
        daly(*bad)


def test_statistical_efficiency_by_hand() -> None:
    """φ = 1000, 256 to 1024 samples: 1256/2024, so 1.61 times the samples."""
    assert 1256 / 2024 == pytest.approx(statistical_efficiency(1000, 256, 1024))
    assert 2024 / 1256 == pytest.approx(samples_factor(1000, 256, 1024))
    with pytest.raises(ValueError, match="noise scale"):
        statistical_efficiency(-1, 256, 512)


def test_batch_that_keeps_efficiency() -> None:
    """Under T = b·B/N + c the batch must grow with the devices: twice the devices, about twice the batch."""
    sizes = np.array([8.0, 16.0, 32.0, 64.0, 128.0, 256.0])
    factor = batch_factor_to_keep_efficiency(choose("strong", sizes, 100 + sizes), 256, 512)
    assert 2.0 == pytest.approx(factor, rel=0.1)


def test_batch_factor_is_unknown_without_overhead() -> None:
    """Perfect scaling keeps its efficiency at any batch: no factor, rather than zero."""
    sizes = np.array([8.0, 16.0])
    assert batch_factor_to_keep_efficiency(choose("strong", sizes, np.array([80.0, 80.0])), 16, 32) is None
