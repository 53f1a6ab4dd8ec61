"""Steps of seconds: a clear straggler is said after a few of them, and how long a verdict takes otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import Fault, Job, final_view, folded, frames
from test_advisor_oddities import host_frames
from thinned import crossed

from tuiadvisor.causes.facts import DOMINANT_WAIT
from tuiadvisor_rules.loader import load_catalog


def job(num_steps: int, *faults: Fault, seed: int = 0, num_ranks: int = 2, noise: float = 0.08) -> Job:
    """Steps of 1.6 s."""
    return Job(
        num_ranks=num_ranks, num_steps=num_steps, data_s=0.01, forward_s=0.6, backward_s=0.9, optimizer_s=0.1,
        other_s=0.02, spike_s=0.3, faults=faults, seed=seed, noise=noise,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("num_ranks", "seed"), crossed([2, 4, 16], range(3)))
def test_a_rank_that_is_late_in_long_steps_is_named_early(num_ranks: int, seed: int) -> None:
    """767 ms in each step: nobody has to wait for 20 of them, and never is another one named."""
    decided = []
    for num_steps in (9, 11, 13, 15):
        view = final_view(job(num_steps, Fault("forward", (1,), 0.767), seed=seed, num_ranks=num_ranks))
        if view.verdict.decision is not None:
            decided.append(num_steps)
            assert "straggler" == view.verdict.finding
            assert [(1, "forward")] == [(late.rank, late.cause) for late in view.stragglers]
            assert 0.4 < view.stragglers[0].loss_s_per_step < 0.85  # beyond its peers' last, late by chance
    assert decided


@pytest.mark.slow
@pytest.mark.parametrize(("num_steps", "noise"), crossed([8, 10, 13, 17], [0.03, 0.08, 0.15]))
@pytest.mark.parametrize(
    "seeds", [range(16), pytest.param(range(16, 60), marks=pytest.mark.extended)], ids=["few", "rest"]
)
def test_noise_names_nobody_early(num_steps: int, noise: float, seeds: range) -> None:
    """Two ranks, where one of them is the last in all of 8 steps by chance now and then."""
    for seed in seeds:
        view = final_view(job(num_steps, seed=seed, noise=noise))
        assert view.verdict.decision is None
        assert not view.stragglers or not view.window.enough


def crowded(num_steps: int, share: float, *faults: Fault, shorter: int = 1) -> tuple[str | None, str | None]:
    """What is decided of two ranks that wait for a core for this share of their time. shorter: times."""
    steps = job(num_steps, *faults)
    timed = {name: getattr(steps, name) / shorter for name in ("forward_s", "backward_s", "optimizer_s")}
    steps = replace(steps, spike_chance=0.0, **timed)
    samples = host_frames(replace(steps, num_steps=100 * num_steps // shorter), {0: share, 1: share})
    verdict = folded([*frames(steps), *samples]).view().verdict
    return verdict.decision, verdict.finding


def test_what_the_kernel_counts_of_long_steps_waits_for_no_twenty_of_them() -> None:
    """An actor-critic of 0.9 s a step, 82 % of it without a core: told after 19.4 s, though the count was there."""
    assert ("tune", "crowded_host") == crowded(9, 0.5)
    assert (None, None) == crowded(9, DOMINANT_WAIT - 0.02)  # it may yet be nothing
    assert (None, None) == crowded(7, 0.5)
    assert (None, None) == crowded(15, 0.5, shorter=8)  # twenty of these are worth waiting for


def test_data_that_all_ranks_wait_for_in_long_steps_are_told_early() -> None:
    """Half of each step of some seconds."""
    slow = final_view(job(10, Fault("data_wait", None, 1.5))).verdict
    assert ("tune", "input_bound") == (slow.decision, slow.finding)
    assert final_view(job(10, Fault("data_wait", None, 0.05))).verdict.decision is None


def test_cores_decide_early_only_where_the_rule_asks_for_something() -> None:
    """With less the finding is a remark, and few steps would be kept as they are."""
    (rule,) = [one for one in load_catalog() if one.id == "crowded_host"]
    assert rule.thresholds["dominant"].value == DOMINANT_WAIT


def test_an_unclear_run_says_how_long_it_takes() -> None:
    """Steps, and minutes by the steps seen so far."""
    view = final_view(job(10))
    missing = view.window.num_missing_steps
    assert view.window.missing_s == pytest.approx(1.7 * missing, rel=0.1)
    assert f"{missing} more steady steps, about {view.window.missing_s:.0f} s" in view.verdict.sentence
    assert "about" not in final_view(Job(num_steps=10)).verdict.sentence
