"""What-if: losses, shares and the slowdown, on numbers small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import num_examples

from tuiadvisor.metrics.series.what_if import gain, like_peers, shared_loss, slowdown


def test_one_late_rank_answers_for_the_whole_loss() -> None:
    """Work 10, 10 and 14: cured, the step is 4 shorter."""
    work = np.array([[10.0] * 5, [10.0] * 5, [14.0] * 5])
    loss, parts = shared_loss(work, np.array([2]), np.array([[10.0] * 5]))
    assert [4.0] * 5 == loss.tolist()
    assert [[4.0] * 5] == parts.tolist()


def test_two_late_ranks_share_what_only_both_could_save() -> None:
    """Late by 5 and by 8: the 5 are shared, the 3 beyond are the later one's alone (airport game)."""
    work = np.array([[10.0], [15.0], [18.0]])
    loss, parts = shared_loss(work, np.array([1, 2]), np.array([[10.0], [10.0]]))
    assert [8.0] == loss.tolist()
    assert [[2.5], [5.5]] == parts.tolist()


@settings(max_examples=num_examples(50), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.integers(1, 11))
def test_parts_sum_to_the_loss_and_never_exceed_the_work(seed: int, num_ranks: int, num_late: int) -> None:
    """Any work, any culprits but one innocent at least."""
    random = np.random.default_rng(seed)
    work = random.exponential(1.0, (num_ranks, 30))
    culprits = random.permutation(num_ranks)[: min(num_late, num_ranks - 1)]
    peers = np.delete(work, culprits, axis=0)
    cured = np.stack([like_peers(work[row], peers) for row in culprits])
    loss, parts = shared_loss(work, culprits, cured)
    assert max(loss.sum(), 0.0) == pytest.approx(parts.sum(), abs=1e-9)
    assert (parts >= 0).all()
    assert parts.sum() <= work.max(axis=0).sum() + 1e-9


def test_like_peers_keeps_the_order_and_takes_the_peers_values() -> None:
    """The longest step stays the longest, at the length its peers' longest have."""
    cured = like_peers(np.array([30.0, 10.0, 20.0]), np.array([[1.0, 2.0, 3.0]]))
    assert [3.0, 1.0, 2.0] == cured.tolist()


def test_gain_is_step_now_over_step_without() -> None:
    """24 with 4 of loss: 1.2 times as fast; a constant loss has no interval."""
    found = gain(np.full(50, 24.0), np.full(50, 4.0))
    assert 1.2 == pytest.approx(found.speedup)
    assert (1.2, 1.2) == (pytest.approx(found.speedup_low), pytest.approx(found.speedup_high))


def test_gain_interval_covers_the_truth_and_is_reproducible() -> None:
    """A loss in one step of five: the interval holds its mean, and the same numbers give the same interval."""
    random = np.random.default_rng(3)
    loss = (random.random(400) < 0.2) * 10.0
    step = 20.0 + loss
    found = gain(step, loss)
    assert found.loss_low_s < 2.0 < found.loss_high_s
    assert found == gain(step, loss)
    assert found.speedup_low <= found.speedup <= found.speedup_high


def test_a_loss_can_never_be_the_whole_step() -> None:
    """Hostile numbers: the speed-up stays finite."""
    assert 100 == pytest.approx(gain(np.full(9, 1.0), np.full(9, 50.0)).speedup)


def test_slowdown_is_measured_over_every_rank_at_the_mean() -> None:
    """Work 10 and 20, transfer 5: 25 measured against 15 + 5; all of it forward, all of it rank 1's."""
    work = np.array([[10.0] * 8, [20.0] * 8])
    phases = {"forward": work - 5, "backward": np.full((2, 8), 5.0)}
    found = slowdown(work, np.full(8, 5.0), phases)
    assert found is not None
    assert 1.25 == pytest.approx(found.S)
    assert {"forward": 1.25, "backward": 1.0, "transfer": 1.0} == pytest.approx(found.S_t)
    assert {0: 1.0, 1: 1.25} == pytest.approx(found.S_w)
    assert 1.0 == pytest.approx(found.M_W)


def test_slowdown_of_nothing_is_unknown() -> None:
    """No steps, no S."""
    assert slowdown(np.zeros((2, 0)), np.zeros(0), {}) is None
