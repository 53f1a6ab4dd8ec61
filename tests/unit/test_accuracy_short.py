"""A short subset of `make accuracy`, with each change: findings, delay of detection and what-if in simulated worlds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest
from thinned import num_examples

sys.path.append(str(Path(__file__).parents[1] / "accuracy"))

import devices
import hidden_rank
import latency
import reality
import simulate
from worlds import Fault, World

WANTED = {
    "device": {"healthy", "backward 50%", "onset 20%", "host 20%", "transfer 30%"},
    "quiet": {
        "healthy",
        "data_wait 50%",
    },  # what costs less than a tenth of the step is hidden by others' noise
}


@pytest.mark.slow
@pytest.mark.parametrize("noise", WANTED)
def test_faults_of_a_small_world_are_told_right(noise: str) -> None:
    """Finding, ranks, phase, onset and loss, as simulate.py scores them; a healthy world names nobody."""
    chosen = [one for one in simulate.scenarios(32, 160, 8) if one.name in WANTED[noise]]
    assert len(WANTED[noise]) == len(chosen)
    for scenario in chosen:
        world = World(32, 160, noise=noise, faults=scenario.faults)
        outcome = simulate.judge(scenario, *simulate.fold(world))
        assert outcome.is_right, (scenario.name, outcome)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "share"),
    [
        ("device", 0.1),
        pytest.param("device", 0.5, marks=pytest.mark.extended),
        ("quiet", 0.2),
        pytest.param("quiet", 1.0, marks=pytest.mark.extended),
    ],
)
def test_a_late_rank_is_named_within_ten_steps(noise: str, share: float) -> None:
    """Where the noise allows it, and never sooner than the quickest test there is; nobody is named before."""
    least = latency.least_steps(noise, share, 4)
    for seed in range(num_examples(2)):
        fault = Fault("forward", share, (1,), onset=latency.ONSET)
        world = World(4, latency.ONSET + 16, noise=noise, seed=seed, faults=(fault,))
        found, num_before = latency.latency(latency.simulated(world), latency.ONSET, 1)
        assert found is not None
        assert least - 3 <= found <= latency.WANTED  # the onset may be dated some steps early
        assert num_before == 0


def test_no_test_is_quick_where_noise_is_loud() -> None:
    """A tenth of the step on the crowded machine: even told everything but when, 10 steps are too few."""
    assert latency.least_steps("crowded", 0.1, 4) > latency.WANTED
    assert latency.least_steps("device", 0.1, 4) <= 3


@pytest.mark.slow
def test_the_step_without_the_fault_is_as_predicted() -> None:
    """Against the same steps with the same noise: median within 3 %, nine in ten within 6 %."""
    options = argparse.Namespace(noise=["quiet"], ranks=[4], seeds=1)
    errors = np.abs(reality.simulated_errors(options))
    assert len(errors) >= 12
    assert np.median(errors) <= 0.03
    assert np.percentile(errors, 90) <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize("noise", [pytest.param("quiet", marks=pytest.mark.extended), "crowded"])
def test_a_hidden_rank_leads_the_list_before_it_is_worth_a_name(noise: str) -> None:
    """Late by a twentieth of the step among 64 noisy ranks it seldom comes last, and costs next to nothing."""
    worlds = [
        one for one in hidden_rank.rows(noise, 0) if one.num_ranks == 64 and one.faults[0].share == 0.05
    ]
    assert len(worlds) == len(hidden_rank.PHASES)
    for world in worlds:
        view, _ = simulate.fold(world)
        assert hidden_rank.ours(view).ranks[0] == world.faults[0].ranks[0], world.faults


def test_the_frontier_adds_up_to_the_exposed_time() -> None:
    """StageFrontier's accounting: increments sum to the furthest rank's step, and its stage and rank are told."""
    stages = np.full((3, 4, 30), 0.01)
    stages[1, 2] += 0.005
    found = hidden_rank.frontier(stages, ("data_wait", "forward", "backward"), (0, 1, 2, 3), 0.03)
    assert (found.ranks[0], found.phase, found.alarmed) == (2, "forward", {2})
    even = hidden_rank.frontier(
        np.full((3, 4, 30), 0.01), ("data_wait", "forward", "backward"), (0, 1, 2, 3), 0.03
    )
    assert not even.alarmed


@pytest.mark.slow
def test_nobody_innocent_is_named_on_devices() -> None:
    """Random trainings on devices, a third healthy: no alarm, no innocent, and all that cost a tenth are found."""
    outcomes = devices.score(18, 3)
    assert len(outcomes) == 18
    # What is late on all alike has an expected failure of its own, in test_device_situations.
    outcomes = [one for one in outcomes if one.case.kind != "data on all"]
    worth = [one for one in outcomes if one.case.ranks and one.true_share >= devices.WORTH_FINDING]

    assert not [one.said for one in outcomes if one.wrong_names or one.is_alarm]
    assert len(worth) >= 3
    assert not [one.said for one in worth if not one.is_found]
