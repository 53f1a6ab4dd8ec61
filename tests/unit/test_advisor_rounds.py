"""Ranks that meet every few steps only (local SGD): who is late is told by how long each waits at a meeting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view, folded, frames
from thinned import crossed

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


@pytest.mark.parametrize(("seed", "meets_every"), crossed(range(4), [3, 8, 16]))
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


@pytest.mark.parametrize("meets_every", [4, 8])
def test_who_leaves_before_the_last_has_come_does_not_wait_there(meets_every: int) -> None:
    """Post-local SGD, gradients stay within each rank: "the mean step would take 1.69 ms instead of 169 ms"."""
    job = replace(ROUNDS, meets_every=meets_every, barrier_seen=True).with_faults(Fault("data", (1,), 5 * MS))
    view = final_view(job)
    (late,) = view.stragglers
    assert (1, "data_wait") == (late.rank, late.cause)
    assert 3.5 * MS < late.loss_s_per_step < 5.5 * MS
    unseen = tuple(name for name in job.observed if name != "comm_exposed")
    assert () == final_view(replace(job, observed=unseen)).stragglers  # nor is it known whom they wait for
    assert "arrival" == evidence(replace(job, meets_every=1))


def test_a_slow_data_set_is_told_where_nothing_says_who_arrives_when() -> None:
    """Ranks that meet in code which no hook sees: that one of them waits for its batches is seen."""
    unseen = tuple(name for name in ROUNDS.observed if name != "comm_exposed")
    job = replace(ROUNDS, meets_every=1, num_steps=800, observed=unseen).with_faults(
        Fault("data", (1,), 15 * MS)
    )
    view = final_view(job)
    assert ("held_rank", (1,)) in [(one.id, one.ranks) for one in view.findings]
    assert "rank 1 waits for its next batch" in view.verdict.sentence
    assert "held_rank" not in {one.id for one in final_view(job.with_faults()).findings}
    both = job.with_faults(Fault("data", None, 15 * MS))
    assert "held_rank" not in {one.id for one in final_view(both).findings}


def evidence(job: Job) -> str:
    """What the order of arrival rests on."""
    found = folded(frames(job)).store.table()
    assert found is not None
    return find_barrier(found[0], np.ones(job.num_ranks, dtype=np.bool_)).evidence


@pytest.mark.parametrize("ranks_per_host", [1, 2])
def test_late_ranks_of_one_host_or_several_leave_together(ranks_per_host: int) -> None:
    """Clocks of two hosts are seconds apart: who left before whom is asked within one."""
    job = Job(
        num_ranks=4,
        ranks_per_host=ranks_per_host,
        host_clock_s={1: 3.0},
        faults=(Fault("data", (1,), 9 * MS),),
    )
    assert "arrival" == evidence(job)
