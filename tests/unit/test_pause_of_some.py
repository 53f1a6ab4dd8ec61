"""Long steps of some ranks, where nothing tells who waits for whom: what is a pause of the job, and what is none."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, final_view


@pytest.mark.parametrize("kind", ["optimizer", "other"])
def test_the_pause_of_one_of_two_ranks_is_in_the_others_next_record(kind: str) -> None:
    """Nothing tells who waits for whom, and each of the two records was of half of the ranks: "Keep"."""
    unseen = tuple(name for name in Job().observed if name != "comm_exposed")
    job = Job(2, num_steps=240, barrier_seen=False, observed=unseen)
    view = final_view(job.with_faults(Fault(kind, (0,), 60 * MS, every=25)))
    assert [25.0] == [pause.period_steps for pause in view.pauses]
    assert 60 * MS == pytest.approx(view.pauses[0].length_s, rel=0.1)
    assert "a pause of" in view.verdict.sentence


@pytest.mark.parametrize("kind", ["checkpoint", "eval", "data", "optimizer"])
def test_nobody_stands_still_for_a_pause_of_a_rank_that_meets_nobody(kind: str) -> None:
    """It was "a checkpoint every 20 steps stops all ranks for 30.1 ms": the middle of both."""
    job = Job(
        2,
        num_steps=400,
        meets_every=10**5,
        own_exchange=0.3,
        own_numbers=True,
        barrier_seen=False,
        noise=0.02,
        observed=(*Job().observed, "eval"),
    )
    view = final_view(job.with_faults(Fault(kind, (0,), 60 * MS, every=20)))
    assert "stop" not in view.verdict.sentence
    assert not [pause for pause in view.pauses if pause.length_s > 5 * MS]


def test_steps_that_only_one_rank_has_yet_are_no_pause_of_all() -> None:
    """A rank that meets nobody is counted a dozen steps ahead, and stood still in one: "all ranks paused once"."""
    job = Job(
        8,
        num_steps=400,
        meets_every=10**5,
        own_exchange=0.2,
        barrier_seen=False,
        noise=0.003,
        spike_chance=0.0,
        seed=762479,
    )
    view = final_view(job.with_faults(Fault("data", (4,), 250 * MS, chance=0.05)))
    assert not view.pauses
