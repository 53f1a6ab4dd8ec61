"""Noise that resembles itself from step to step makes nobody late, and does not hide who is."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "accuracy"))

from latency import named
from shapes import NUM_STEPS, remarked, shapes, slow_shapes
from simulate import fold, judge
from worlds import Fault, World

from tuiadvisor.metrics.lateness.beyond_noise import beyond_slow_noise
from tuiadvisor.metrics.series.change_points import Change
from tuiadvisor.metrics.series.slow_noise import memory_steps, peers_of, slow_noise, without_levels

STEP_S, CARRIED = 0.2, 0.9


def noise(num_ranks: int, carried: float, seed: int, num_steps: int = NUM_STEPS) -> np.ndarray:
    """Standard normal, each step with so much of the one before."""
    lots = np.random.default_rng(seed)
    fresh = lots.standard_normal((num_steps, num_ranks)) * np.sqrt(1 - carried**2)
    state, steps = lots.standard_normal(num_ranks), []
    for one in fresh:
        state = carried * state + one
        steps.append(state)
    return np.array(steps).T


@pytest.mark.parametrize(
    ("num_ranks", "noise", "seed"), [(6, "quiet", 9), (6, "crowded", 4), (3, "quiet", 6)]
)
def test_noise_correlated_by_nine_tenths_names_nobody(num_ranks: int, noise: str, seed: int) -> None:
    """A window of nine to 64 steps, in which a rank was moved by its noise alone."""
    ((scenario, correlation),) = [one for one in shapes(0) if one[0].name == "healthy, noise 0.9"]
    world = World(num_ranks, num_steps=240, noise=noise, seed=seed)
    outcome = judge(scenario, *fold(replace(world, correlation=correlation)))
    assert "straggler" not in outcome.said


@pytest.mark.parametrize(
    ("num_ranks", "noise", "seed", "name"),
    [
        (3, "crowded", 0, "healthy"),
        (3, "crowded", 11, "healthy"),
        (4, "crowded", 4, "healthy"),
        (3, "crowded", 0, "every 3, 50%"),
        (3, "crowded", 9, "every 3, 50%"),
        (3, "crowded", 6, "always 10%"),
        (4, "quiet", 2, "since the middle 30%"),
    ],
)
def test_nobody_is_named_beside_a_late_rank_for_slow_noise(
    num_ranks: int, noise: str, seed: int, name: str
) -> None:
    """Each was named, by a finding or by a remark, when a rank's few steps in a window told what its noise is."""
    guilty = num_ranks // 2
    (scenario,) = [one for one in slow_shapes(guilty) if one.name == name]
    world = World(num_ranks, NUM_STEPS, noise=noise, faults=scenario.faults, seed=seed, correlation=CARRIED)
    view, _ = fold(world)
    assert named(view) | remarked(view) <= {guilty} & {
        rank for fault in scenario.faults for rank in fault.ranks
    }


@pytest.mark.parametrize("num_steps", [200, 240, 400])
@pytest.mark.parametrize("num_ranks", [3, 4])
def test_who_was_late_before_hides_nobody_who_is_late_now(num_ranks: int, num_steps: int) -> None:
    """Its lateness of then was its noise: for as many steps again the one that followed was said to be well."""
    moved = (Fault("backward", 0.8, (0,), period=1000, on=120), Fault("backward", 0.8, (1,), onset=120))
    view, _ = fold(World(num_ranks, num_steps, noise="quiet", faults=moved))
    assert view.verdict.decision == "tune"
    assert named(view) == {1}


def test_a_level_that_lasted_is_no_noise() -> None:
    """At the lowest of its levels, whichever came first; a stretch as short as neighbours make them stays."""
    work = np.full((3, 300), STEP_S)
    work[0, :100] += 0.1
    work[1, 200:220] += 0.1
    levels = {
        0: (Change(100, 0.1, 0.0),),
        1: (Change(200, 0.0, 0.1), Change(220, 0.1, 0.0)),
        2: (Change(150, 0.0, 0.001),),
    }
    levelled = without_levels(work, levels, 0.01)
    np.testing.assert_allclose(levelled[0], STEP_S)
    np.testing.assert_array_equal(levelled[1:], work[1:])
    assert work[0, 0] > STEP_S  # the work itself is as it was


def test_the_memory_of_noise_is_seen_beside_a_rank_late_in_every_third_step() -> None:
    """Neighbouring steps of that rank do not resemble each other, blocks of three do; without noise nothing does."""
    work = STEP_S + 0.01 * noise(3, CARRIED, 1)
    work[1, ::3] += 0.1
    found = slow_noise(work, peers_of(3, 2, np.array([2])))
    assert found is not None
    assert 8 <= found.memory_steps <= 40
    assert 0.005 <= found.sigma_s <= 0.03
    assert memory_steps(noise(4, 0.0, 1)) is None


def test_noise_is_told_by_the_ranks_that_are_not_late() -> None:
    """A rank late since the middle resembles itself; nobody else does, so nothing is asked for beyond the usual."""
    work = STEP_S + 0.002 * noise(4, 0.0, 3)
    work[2, 120:] += 0.02
    assert slow_noise(work, peers_of(4, 2, np.array([2]))) is None
    assert beyond_slow_noise(work, np.array([2]), 0).all()


@pytest.mark.parametrize("num_ranks", [3, 4, 8])
def test_slow_noise_makes_a_rank_late_less_often_than_once_in_a_hundred(num_ranks: int) -> None:
    """All rows are asked of every job; without a fault, in windows of any length."""
    rows, wrong = np.arange(num_ranks), 0
    for seed in range(60):
        work = STEP_S + 0.02 * noise(num_ranks, CARRIED, seed)
        wrong += any(beyond_slow_noise(work, rows, start).any() for start in (0, 120, 200))
    assert wrong <= 1


@pytest.mark.parametrize("seed", range(8))
def test_who_is_late_beyond_slow_noise_is_late(seed: int) -> None:
    """By two sigma in all steps, and by four of what is new in a step in every third one."""
    work = STEP_S + 0.02 * noise(8, CARRIED, seed)
    late = work.copy()
    late[3] += 0.06
    assert beyond_slow_noise(late, np.array([3]), 0).all()
    late = work.copy()
    late[3, ::3] += 0.04
    assert beyond_slow_noise(late, np.array([3]), 0).all()


def test_what_moves_by_less_than_a_clock_shows_is_no_noise() -> None:
    """Rounding resembles itself: of three ranks that never vary the second of two late ones was called noise."""
    work = np.array([[0.4], [0.16], [0.03]]).repeat(64, axis=1) + np.linspace(0, 1e-16, 64)
    assert slow_noise(work, np.array([1, 2])) is None
    assert slow_noise(work + 1e-4 * noise(3, CARRIED, 1, 64), np.array([1, 2])) is not None
