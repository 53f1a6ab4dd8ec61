"""Intervals of a loss and of a speed-up: as often right as they say, whatever neighbouring steps have in common."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from thinned import crossed

from tuiadvisor.metrics.series.what_if import down_to, gain

NUM_WINDOWS = 120
NUM_STEPS = 60_000
LEAST = 0.82  # 90 % less three standard errors of so many windows
Pair = tuple[np.ndarray, np.ndarray]


def smooth(random: np.random.Generator, memory: float) -> np.ndarray:
    """Unit noise whose neighbours are correlated by `memory`."""
    draws = random.normal(0, np.sqrt(1 - memory**2), NUM_STEPS)
    result = np.empty(NUM_STEPS)
    last = 0.0
    for index, draw in enumerate(draws):
        last = memory * last + draw
        result[index] = last
    return result


def independent(random: np.random.Generator) -> Pair:
    """Each step on its own."""
    return 20 + random.normal(0, 1, NUM_STEPS), 5 + random.normal(0, 1, NUM_STEPS)


def correlated(random: np.random.Generator) -> Pair:
    """A busy second makes many steps long."""
    noise = smooth(random, 0.8)
    return 20 + noise + random.normal(0, 0.3, NUM_STEPS), 5 + noise


def two_optimizers(random: np.random.Generator) -> Pair:
    """Short and long steps in turns, on a machine with busy seconds."""
    noise, turn = smooth(random, 0.8), np.arange(NUM_STEPS) % 2 * 8.0
    return 20 + turn + noise, 5 + turn / 4 + noise


def accumulation(random: np.random.Generator) -> Pair:
    """Four records of one optimizer step share what happened to it; only the last exchanges gradients."""
    noise = np.repeat(random.normal(0, 1, NUM_STEPS // 4), 4)
    last = (np.arange(NUM_STEPS) % 4 == 3) * 6.0
    return 20 + last + noise, 4 + last / 2 + noise


def bursts(random: np.random.Generator) -> Pair:
    """Late for ten steps of about forty."""
    begins = random.random(NUM_STEPS) < 1 / 40
    late = np.convolve(begins, np.ones(10))[:NUM_STEPS] > 0
    return 20 + 8 * late + random.normal(0, 1, NUM_STEPS), 8 * late + random.normal(0, 0.5, NUM_STEPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("series", "num_steps"),
    crossed([independent, correlated, two_optimizers, accumulation, bursts], [100, 250]),
)
def test_the_interval_of_a_window_covers_the_truth(
    series: Callable[[np.random.Generator], Pair], num_steps: int
) -> None:
    """Windows of a long run: nine in ten intervals hold the run's own loss and speed-up."""
    random = np.random.default_rng(7)
    step, loss = series(random)
    true_s = loss.mean()
    true_speedup = step.mean() / (step.mean() - true_s)
    starts = random.integers(0, NUM_STEPS - num_steps, NUM_WINDOWS)
    found = [gain(step[at : at + num_steps], loss[at : at + num_steps]) for at in starts]
    least = (
        LEAST if (series, num_steps) != (bursts, 100) else 0.7
    )  # two or three bursts say little of their rate
    assert np.mean([one.loss_low_s <= true_s <= one.loss_high_s for one in found]) >= least
    assert np.mean([one.speedup_low <= true_speedup <= one.speedup_high for one in found]) >= least


@pytest.mark.parametrize("num_steps", [20, 40])
def test_a_short_window_with_a_burst_knows_how_little_it_knows(num_steps: int) -> None:
    """One burst or two tell nothing of how rare they are: the interval is as wide as that, up to many times the truth.

    A window without any cannot know that there are bursts: what it loses is no finding, for its lower bound is not
    above zero.
    """
    random = np.random.default_rng(7)
    step, loss = bursts(random)
    true_s = loss.mean()
    starts = random.integers(0, NUM_STEPS - num_steps, 2 * NUM_WINDOWS)
    found = [
        (loss[at : at + num_steps], gain(step[at : at + num_steps], loss[at : at + num_steps]))
        for at in starts
    ]
    with_burst = [one for seen, one in found if seen.max() > 4]
    without = [one for seen, one in found if seen.max() <= 4]
    assert np.mean([one.loss_low_s <= true_s <= one.loss_high_s for one in with_burst]) >= LEAST
    assert np.mean([one.loss_high_s >= true_s for one in with_burst]) >= 0.9
    assert np.mean([one.loss_low_s <= 0 for one in without]) >= 0.9
    few = [one for seen, one in found if 0 < np.count_nonzero(seen > 4) <= 10]
    assert np.median([one.loss_high_s for one in few]) > 2 * true_s


def test_independent_steps_pay_little_for_it() -> None:
    """The interval of independent steps is at most half as wide again as theory asks for."""
    step, loss = independent(np.random.default_rng(3))
    widths = [
        one.loss_high_s - one.loss_low_s
        for at in range(0, 20_000, 200)
        for one in [gain(step[at : at + 200], loss[at : at + 200])]
    ]
    assert 2 * 1.645 / np.sqrt(200) == pytest.approx(np.mean(widths), rel=0.5)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_few_steps_have_an_interval_around_their_mean(count: int) -> None:
    """Down to a single step: no NaN, and the bounds in order."""
    loss = np.linspace(1, 2, count)
    found = gain(loss + 10, loss)
    assert found.loss_low_s <= found.loss_s <= found.loss_high_s
    assert found.speedup_low <= found.speedup <= found.speedup_high
    assert np.isfinite(found.speedup_high)


def test_a_loss_of_the_whole_step_has_a_bounded_speedup() -> None:
    """At most a hundredfold."""
    found = gain(np.full(50, 1.0), np.full(50, 1.0))
    assert 100 == pytest.approx(found.speedup)
    assert found.speedup_high <= 100


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_above_zero_is_a_speedup_above_one(seed: int) -> None:
    """Of few and very uneven steps, too: what decides must not read one of the two intervals as nothing."""
    random = np.random.default_rng(seed)
    loss = np.where(np.arange(40) % 5 == 0, 140.0, 60.0) + random.normal(0, 20, 40)
    found = gain(45 + loss, loss)
    assert found.loss_low_s > 0
    assert 1 < found.step_s / (found.step_s - found.loss_low_s) <= found.speedup_low * (1 + 1e-12)
    assert found.speedup_low <= found.speedup <= found.speedup_high


def test_no_step_is_promised_shorter_than_what_one_had_beside_its_loss() -> None:
    """Ten steps of 90 ms that lose 63, two of 130 that lose 60: up to 13 times as fast was a step of 7.6 ms."""
    step = np.array([134.3, 128.5, 79.6, 89.2, 90.2, 93.3, 96.1, 95.1, 89.1, 94.7, 96.1, 100.0])
    loss = np.array([61.7, 56.4, 52.5, 62.2, 63.1, 66.2, 62.8, 68.0, 61.9, 67.6, 68.8, 72.6])
    found = gain(step, loss)
    least = float((step - loss).min())
    assert found.speedup < found.speedup_high
    assert found.step_s / found.speedup_high >= least - 1e-9
    assert found.loss_s < found.loss_high_s <= float(loss.max())


def test_a_gain_leaves_what_is_no_part_of_its_loss() -> None:
    """The upper end gives way, never what is expected; of nothing known nothing changes."""
    found = gain(np.array([10.0, 12.0] * 20), np.array([5.0, 8.0] * 20))
    assert 11 / 4.4 == pytest.approx(down_to(found, 4.4).speedup_high)
    assert found.speedup == down_to(found, 9.0).speedup_high
    assert found == down_to(found, 0.0)
