"""A rank that is late now and then is named after few steps, and through a window that another rank's trouble began."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view, simulate

from tuiadvisor.metrics.lateness.habits import habits, late_more_often

EVERY_FIFTH = Fault("forward", (3,), 15 * MS, every=5)
EVERY_SEVENTH = Fault("forward", (3,), 15 * MS, every=7)
NAMED = ("straggler", (3,), "forward")


@pytest.mark.parametrize("num_ranks", [4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_ten_late_steps_name_their_rank(num_ranks: int, seed: int) -> None:
    """Small hiccups of the others, as many as its own late steps, say nothing of its long ones."""
    job = Job(num_ranks=num_ranks, num_steps=60, seed=seed)
    assert [NAMED] == above_info(final_view(job.with_faults(EVERY_FIFTH)))
    assert [] == above_info(final_view(job))


@pytest.mark.parametrize("num_ranks", [4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_another_trouble_that_ended_hides_no_habit(num_ranks: int, seed: int) -> None:
    """Fifty steps are judged since it ended."""
    job = Job(num_ranks=num_ranks, num_steps=400, seed=seed)
    view = final_view(job.with_faults(Fault("forward", (1,), 10 * MS, until=350), EVERY_FIFTH))
    assert [NAMED] == above_info(view)
    (found,) = (finding for finding in view.findings if finding.ranks == (3,))
    healthy = simulate(job).cycle_s[350:].mean()
    late = simulate(job.with_faults(EVERY_FIFTH)).cycle_s[350:].mean()
    assert (found.loss_s_per_step or 0) == pytest.approx(late - healthy, rel=0.2)


@pytest.mark.parametrize("seed", range(3))
def test_a_trouble_that_grows_hides_no_habit(seed: int) -> None:
    """Of one that grows only the latest part is judged: seven late steps, and those before it."""
    growing = Fault("decay", (1,), 10 * MS)
    view = final_view(Job(num_ranks=8, num_steps=400, seed=seed).with_faults(growing, EVERY_SEVENTH))
    assert {(1,), (3,)} == {ranks for name, ranks, _ in above_info(view) if name == "straggler"}


@pytest.mark.parametrize("seed", range(3))
def test_a_habit_that_ended_before_the_window_is_none(seed: int) -> None:
    """However often it was late before."""
    growing = Fault("decay", (1,), 10 * MS)
    over = Fault("forward", (3,), 15 * MS, every=7, until=340)
    view = final_view(Job(num_ranks=8, num_steps=400, seed=seed).with_faults(growing, over))
    assert {(1,)} == {ranks for name, ranks, _ in above_info(view) if name == "straggler"}


def test_a_habit_is_counted_before_the_window_and_in_it() -> None:
    """Each rank from its own usual step."""
    random = np.random.default_rng(5)
    late = np.abs(random.normal(0, 0.3, (4, 240))) + np.array([0, 8, 0, 0])[:, None]
    late[3, ::6] += 10
    nobody = np.zeros(4, dtype=np.bool_)
    assert {3: 40} == habits(late[:, :200], late[:, 200:], 2.0, nobody)
    assert {} == habits(late[:, :200], late[:, 200:], 2.0, np.array([False, False, False, True]))
    assert {} == habits(late[:, :0], late, 2.0, nobody)
    late[3, 200:] = late[2, 200:]
    assert {} == habits(late[:, :200], late[:, 200:], 2.0, nobody)


def test_late_steps_that_fall_by_lot_name_nobody() -> None:
    """In fewer than one of a hundred jobs."""
    random = np.random.default_rng(6)
    named = 0
    for _ in range(300):
        late = np.where(random.random((4, 60)) < 0.1, random.exponential(5, (4, 60)), 0.1)
        named += bool(late_more_often(late, late > 2.0, np.zeros(4, dtype=np.bool_)).any())
    assert named <= 3


@pytest.mark.parametrize("num_ranks", [4, 8])
@pytest.mark.parametrize(("before", "after"), [(30, 80), (50, 80), (80, 50)])
def test_a_trouble_that_ended_is_no_noise_of_its_rank(num_ranks: int, before: int, after: int) -> None:
    """It hid who was late all along, for it had lasted too short a time to be a level."""
    job = Job(num_ranks=num_ranks, num_steps=before + after)
    late, over = Fault("forward", (1,), 6 * MS), Fault("forward", (2,), 20 * MS, until=before)
    for seed in range(3):
        view = final_view(replace(job, seed=seed).with_faults(late, over))
        assert [("straggler", (1,), "forward")] == above_info(view)


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 5])
@pytest.mark.parametrize("num_steps", [120, 400])
def test_whose_work_changed_is_whose_own_did(num_ranks: int, num_steps: int) -> None:
    """Of few ranks one that recovers moves the middle of all: another, late all along, was said to work longer then."""
    recovers = num_steps // 2
    faults = (Fault("forward", (0,), 6 * MS), Fault("other", (1,), 6 * MS, until=recovers - 1))
    view = final_view(Job(num_ranks=num_ranks, num_steps=num_steps).with_faults(*faults))
    assert [("straggler", (0,), "forward")] == above_info(view)
    told = re.fullmatch(r"since step (\d+) rank 1 works ([\d.]+) ms less a step", view.window.change)
    assert told is not None, view.window.change
    assert abs(int(told[1]) - recovers) <= 1
    assert 6.0 == pytest.approx(float(told[2]), rel=0.15)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_late_steps_that_come_in_handfuls_are_events(num_ranks: int) -> None:
    """Of 18 late steps of 120 blocks of steps said that it may be anything."""
    late = Fault("data", (1,), 60 * MS, chance=0.2)
    job = Job(num_ranks=num_ranks, num_steps=120, noise=0.03, spike_chance=0.0, seed=870214)
    (found,) = (one for one in final_view(job.with_faults(late)).findings if one.id == "straggler")
    lost = float((simulate(job.with_faults(late)).cycle_s - simulate(job).cycle_s).mean())
    low, high = (float(found.evidence[name] or 0) for name in ("loss_low_s", "loss_high_s"))
    assert 0 < low < lost < high
