"""Ranks that meet every few steps only (local SGD): who is late is told by how long each waits at a meeting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view, folded, frames

from tuiadvisor.metrics.steps.barrier import find_barrier

ROUNDS = Job(num_ranks=2, meets_every=8, barrier_seen=False, num_steps=240, transfer_s=4 * MS)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("attach", [0, 13])
def test_a_rank_that_is_late_in_each_step_is_named_with_its_size(num_ranks: int, attach: int) -> None:
    """Attached at another moment than the others, too: what they count rises in every eighth step only."""
    attached = (*(0,) * (num_ranks - 1), attach)
    job = replace(ROUNDS, num_ranks=num_ranks, attach=attached).with_faults(Fault("forward", (1,), 5 * MS))
    view = final_view(job)
    assert "straggler" == view.verdict.finding, view.verdict
    (late,) = view.stragglers
    assert (1, "forward") == (late.rank, late.cause)
    # Never more than it is; step by step some other rank is last now and then, which a round would even out.
    assert 3.5 * MS < late.loss_s_per_step < 5.5 * MS


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("meets_every", [3, 8, 16])
def test_in_a_healthy_run_nobody_is_named(seed: int, meets_every: int) -> None:
    """Nor is the meeting a pause: what it takes is communication."""
    assert [] == above_info(final_view(replace(ROUNDS, seed=seed, meets_every=meets_every)))


def test_stretches_that_differ_between_ranks_are_not_bounded_by_meetings() -> None:
    """Two ranks that wait at the same steps, but not for each other."""
    found = folded(frames(ROUNDS)).store.table()
    assert found is not None
    table, alive = found[0], np.ones(2, dtype=np.bool_)
    assert "wait" == find_barrier(table, alive).evidence
    table.step_s_RK[1] *= 1.3
    assert "none" == find_barrier(table, alive).evidence
