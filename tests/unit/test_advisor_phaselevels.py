"""A phase that changes on all ranks while the step keeps its length: what is said is so now, and since when."""

from __future__ import annotations

import re

import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view
from thinned import crossed

ALL = (0, 1, 2, 3)
SINCE = 200
LOADED = {"noise": 0.15, "spike_chance": 0.05}


def swapped(grown: str, shrunk: str, seed: int = 0, after: int = 60, **noise: float) -> Job:
    """One phase 8 ms longer and another one 8 ms shorter since the same step."""
    faults = (Fault(grown, None, 8 * MS, onset=SINCE), Fault(shrunk, None, -8 * MS, onset=SINCE))
    return Job(
        num_steps=SINCE + after, forward_s=12 * MS, backward_s=12 * MS, seed=seed, faults=faults, **noise
    )


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "after"), crossed([{}, LOADED], [40, 160]))
def test_a_loader_that_slows_while_the_model_speeds_up_is_sized_from_then_on(
    after: int, noise: dict[str, float]
) -> None:
    """8 ms of 26, not the mean over the steps before it too."""
    for seed in range(3):
        view = final_view(swapped("data", "forward", seed, after, **noise))
        assert [("input_bound", ALL, "data_wait")] == above_info(view), seed
        (finding,) = [entry for entry in view.findings if entry.id == "input_bound"]
        assert SINCE == pytest.approx(finding.since_step, abs=2)
        assert SINCE == pytest.approx(view.window.first_step, abs=2)
        assert 8.3 * MS == pytest.approx(finding.loss_s_per_step, rel=0.05)
        assert "critical" == finding.severity
        assert "waiting for data is" in view.window.change


def test_an_exchange_that_takes_longer_while_backward_shortens_is_sized_from_then_on() -> None:
    """The same for the transfer, which is no rank's own phase."""
    view = final_view(swapped("comm", "backward"))
    (finding,) = [entry for entry in view.findings if entry.id == "communication_bound"]
    assert SINCE == pytest.approx(finding.since_step, abs=2)
    assert 8.8 * MS == pytest.approx(finding.loss_s_per_step, rel=0.05)
    assert "exposed communication is" in view.window.change


def test_waiting_that_is_over_is_not_said_any_more() -> None:
    """The loader recovers as forward grows: what is averaged over both would still accuse it."""
    faults = (Fault("data", None, 8 * MS, until=SINCE), Fault("forward", None, 8 * MS, onset=SINCE))
    view = final_view(Job(num_steps=SINCE + 40, faults=faults))
    assert [] == above_info(view)
    assert SINCE == pytest.approx(view.window.first_step, abs=2)


def test_what_one_rank_alone_changes_begins_no_level_of_all() -> None:
    """Rank 1 waits longer and computes less: it is as late as ever, and the others are as they were."""
    faults = (Fault("data", (1,), 8 * MS, onset=SINCE), Fault("forward", (1,), -8 * MS, onset=SINCE))
    for num_ranks in (2, 4):
        job = Job(num_ranks=num_ranks, num_steps=SINCE + 60, forward_s=12 * MS, faults=faults)
        view = final_view(job)
        assert ([], "") == (above_info(view), view.window.change)


@pytest.mark.slow
def test_noise_begins_no_level() -> None:
    """Healthy runs on loaded machines keep all of their steps."""
    for seed in range(12):
        view = final_view(Job(num_ranks=2 + 2 * (seed % 2), num_steps=300, seed=seed, **LOADED))
        assert "on all ranks" not in view.window.change, seed


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_late_rank_is_late_in_the_phase_that_it_is_late_in_now(num_ranks: int) -> None:
    """Rank 1 stays as late, first by its forward, then by its loader."""
    faults = (Fault("forward", (1,), 8 * MS, until=SINCE), Fault("data", (1,), 8 * MS, onset=SINCE))
    assert [("straggler", (1,), "data_wait")] == above_info(
        final_view(Job(num_ranks=num_ranks, num_steps=SINCE + 100, faults=faults))
    )
    assert [("straggler", (1,), "forward")] == above_info(
        final_view(Job(num_ranks=num_ranks, num_steps=SINCE, faults=faults))
    )


def test_input_that_is_late_in_every_third_step_since_a_step_is_sized_from_then_on() -> None:
    """24 ms every third step: no level moves, but the mean does."""
    view = final_view(Job(num_steps=300, faults=(Fault("data", None, 24 * MS, onset=150, every=3),)))
    assert [("input_bound", ALL, "data_wait")] == above_info(view)
    (finding,) = [entry for entry in view.findings if entry.id == "input_bound"]
    assert 150 == pytest.approx(finding.since_step, abs=3)
    assert 8.3 * MS == pytest.approx(finding.loss_s_per_step, rel=0.05)


def test_the_window_is_said_to_be_longer_by_what_it_is_longer() -> None:
    """A burst that began the window and is over by half of it: its own height is more than a step now takes."""
    slow = Fault("forward", None, 0.15, onset=46, until=68)
    view = final_view(Job(num_ranks=4, num_steps=86, noise=0.2, faults=(slow,)))
    told = re.fullmatch(r"since step 46 a step is (\S+) ms longer", view.window.change)
    assert told is not None, view.window
    assert view.step.mean_s is not None
    before_s = final_view(Job(num_ranks=4, num_steps=45, noise=0.2)).step.mean_s
    assert before_s is not None
    assert float(told[1]) == pytest.approx(1e3 * (view.step.mean_s - before_s), rel=0.05)
