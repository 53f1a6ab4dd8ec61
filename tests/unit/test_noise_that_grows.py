"""A rank that is late all the time, and noise that grows on all ranks beside it: its loss has two levels, not noise."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view, simulate

from tuiadvisor.metrics.series.what_if import gain, levels_of_loss, surely_lost

LATE = Fault("forward", (1,), 4 * MS)


@pytest.mark.parametrize("num_ranks", [4, 8])
@pytest.mark.parametrize("noise", [0.25, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_a_late_rank_is_named_through_the_noise(num_ranks: int, noise: float, seed: int) -> None:
    """More noise on the others hides a part of its lateness from the job: less is lost, not nothing."""
    healthy = Job(num_ranks=num_ranks, num_steps=400, louder=(200, noise), seed=seed)
    assert [("straggler", (1,), "forward")] == above_info(final_view(healthy.with_faults(LATE)))
    assert [] == above_info(final_view(healthy))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_is_promised_is_what_the_same_steps_would_have_saved(seed: int) -> None:
    """Within its interval: the twin without the fault tells."""
    job = Job(num_ranks=4, num_steps=400, louder=(200, 0.25), seed=seed)
    faulty = job.with_faults(LATE)
    (found,) = (finding for finding in final_view(faulty).findings if finding.id == "straggler")
    lost_s = float((simulate(faulty).cycle_s - simulate(job).cycle_s).mean())
    low_s, high_s = (float(found.evidence[name] or 0) for name in ("loss_low_s", "loss_high_s"))
    assert 0 < low_s < lost_s < high_s


def test_two_levels_of_a_loss_are_two_and_a_walk_is_none() -> None:
    """And what is lost in one half alone is no loss of two levels."""
    random = np.random.default_rng(3)
    fell = np.where(np.arange(400) < 200, 3.0, 1.5) + random.normal(0, 0.5, 400)
    assert 2 == len(levels_of_loss(fell))
    assert surely_lost(fell)
    found = gain(np.full(400, 20.0), fell)
    assert 0 < found.loss_low_s < fell.mean() < found.loss_high_s
    assert 1 < found.speedup_low < found.speedup < found.speedup_high
    once = np.where(np.arange(400) < 200, 3.0, 0.0) + random.normal(0, 0.5, 400)
    assert 1 == len(levels_of_loss(once))
    assert not surely_lost(once)
    walk = np.cumsum(random.normal(0, 0.3, 400))
    assert 1 == len(levels_of_loss(walk - walk.mean()))
    assert 1 == len(levels_of_loss(np.full(7, 3.0)))
