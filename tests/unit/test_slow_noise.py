"""Noise that resembles itself from step to step makes nobody late, however short the window that it begins."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "accuracy"))

from shapes import shapes
from simulate import fold, judge
from worlds import World


@pytest.mark.parametrize(
    ("num_ranks", "noise", "seed"), [(6, "quiet", 9), (6, "crowded", 4), (3, "quiet", 6)]
)
def test_noise_correlated_by_nine_tenths_names_nobody(num_ranks: int, noise: str, seed: int) -> None:
    """A window of nine to 64 steps, in which a rank was moved by its noise alone."""
    ((scenario, correlation),) = [one for one in shapes(0) if one[0].name == "healthy, noise 0.9"]
    world = World(num_ranks, num_steps=240, noise=noise, seed=seed)
    outcome = judge(scenario, *fold(replace(world, correlation=correlation)))
    assert "straggler" not in outcome.said
