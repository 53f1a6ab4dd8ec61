"""Ranks of one host that are late together share one loss: each of them counts, whatever its own steps look like."""

from __future__ import annotations

import numpy as np
import pytest

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
