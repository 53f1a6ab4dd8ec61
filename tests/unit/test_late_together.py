"""Ranks of one host that are late together share one loss: each of them counts, whatever its own steps look like."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.metrics.lateness.stragglers import find_stragglers
from tuiadvisor.metrics.window.rank_changes import deviations
from tuiadvisor.metrics.window.regime import WHOLE

STEP_S, NUM_STEPS = 0.1, 134
NUM_RANKS, NUM_LATE, NUM_OF_TWO_AMOUNTS = 64, 32, 4
LESS_S, MORE_S = 0.03, 0.05


def job(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Half of the ranks are late in every step; four of them by one of two amounts. Work and cycle, seconds."""
    lots = np.random.default_rng(seed)
    work = STEP_S + 0.0005 * lots.standard_normal((NUM_RANKS, NUM_STEPS))
    work[-NUM_LATE:] += MORE_S + 0.003 * lots.standard_normal((NUM_LATE, NUM_STEPS))
    work[-NUM_OF_TWO_AMOUNTS:] -= (MORE_S - LESS_S) * (lots.random((NUM_OF_TWO_AMOUNTS, NUM_STEPS)) < 0.5)
    return work, work.max(axis=0)


@pytest.mark.parametrize("seed", range(5))
def test_who_is_late_by_two_amounts_is_late_with_the_others(seed: int) -> None:
    """Left out, they alone would still hold up everybody: then nobody's delay cost anything and a third was kept."""
    work, cycle = job(seed)
    late, loss = find_stragglers(work, deviations(work), cycle, WHOLE)
    assert set(range(NUM_RANKS - NUM_LATE, NUM_RANKS)) == {entry.row for entry in late}
    assert loss.mean() == pytest.approx(MORE_S, rel=0.2)


@pytest.mark.parametrize("seed", [907534, 1, 2])
def test_one_always_late_beside_one_that_is_late_in_every_third_step(seed: int) -> None:
    """Where noise grows amid it, too: what both cost is no less sure than what one does, and no rank is both.

    It was kept as healthy: the steps alone left the lower end of what they cost together below zero.
    """
    faults = Fault("forward", (5,), 25 * MS, every=3), Fault("forward", (4,), 6 * MS)
    job = Job(num_ranks=8, num_steps=400, noise=0.08, louder=(280, 0.4), seed=seed, faults=faults)
    view = final_view(job)
    (found,) = [one for one in view.findings if one.id == "straggler"]
    assert (4, 5) == found.ranks
    assert view.verdict is not None
    assert "tune" == view.verdict.decision
    evidence = dict(found.evidence)
    # (25 * 133 + 6 * 267) / 400, in all steps: neither 25 ms in all of them nor 6.
    assert evidence["excess_s"] == pytest.approx(12.5 * MS, rel=0.12)
    assert evidence["hit_share"] > 0.9


@pytest.mark.parametrize(
    "faults",
    [
        (Fault("data", (0,), 60 * MS, chance=0.3), Fault("backward", (1,), 60 * MS, chance=0.3)),
        (Fault("backward", (0,), 25 * MS, every=5), Fault("backward", (1,), 25 * MS, every=8)),
    ],
)
def test_two_of_three_ranks_late_now_and_then_are_no_chance(faults: tuple[Fault, ...]) -> None:
    """Neither stands out beside the other and the third; but the third has fewer late steps than lots give to it."""
    view = final_view(Job(num_ranks=3, num_steps=300, noise=0.05, faults=faults, seed=1))
    named = {rank for one in view.findings if one.id == "straggler" for rank in one.ranks}
    assert {0, 1} == named


def test_long_steps_that_fall_on_three_ranks_by_lot_name_nobody() -> None:
    """Their healthy twin: every rank has such steps."""
    faults = tuple(Fault("backward", (rank,), 40 * MS, chance=0.12) for rank in range(3))
    for seed in range(8):
        view = final_view(Job(num_ranks=3, num_steps=300, noise=0.05, faults=faults, seed=seed))
        assert [] == [one.ranks for one in view.findings if one.id == "straggler"], seed
