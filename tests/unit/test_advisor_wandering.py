"""Lateness that goes from rank to rank in stretches: one finding, one loss, one verdict; noise is none of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_devices import DeviceJob
from simulated_devices import Fault as DeviceFault
from simulated_devices import simulate as simulate_devices
from simulated_devices import view_of as view_of_devices
from synthetic_run import MS, Fault, Job, above_info, final_view, simulate
from thinned import crossed, thinned

from tuiadvisor.metrics.window.rotating import find_wandering
from tuiadvisor.views.lost_by import lens_share
from tuiadvisor.views.run_view import RunView


def in_turns(
    num_ranks: int, stretch: int, amount_s: float, *, begin: int = 0, end: int = 400, kind: str = "forward"
) -> tuple[Fault, ...]:
    """Rank 0 late, in forward unless told, for so many steps, then rank 1, and so on."""
    return tuple(
        Fault(kind, (number % num_ranks,), amount_s, onset=at, until=min(at + stretch, end))
        for number, at in enumerate(range(begin, end, stretch))
    )


def wandering(view: RunView) -> list[object]:
    """The findings of it."""
    return [finding for finding in view.findings if finding.id == "wandering_lateness"]


@pytest.mark.slow
@pytest.mark.parametrize(("num_ranks", "stretch"), crossed([2, 4, 8], [12, 25, 50]))
def test_verdict_finding_and_loss_agree(num_ranks: int, stretch: int) -> None:
    """Nobody is named as a straggler; what curing it gives is what the job without it really gains."""
    healthy = Job(num_ranks=num_ranks, num_steps=400, seed=stretch)
    job = healthy.with_faults(*in_turns(num_ranks, stretch, 12 * MS))
    with_it, without = (simulate(one).cycle_s[2:].mean() for one in (job, healthy))
    view = final_view(job)
    assert [("wandering_lateness", tuple(range(num_ranks)), "forward")] == above_info(view)
    assert () == view.stragglers
    (finding,) = wandering(view)
    assert ("tune", "wandering_lateness") == (view.verdict.decision, view.verdict.finding)
    assert with_it - without == pytest.approx(finding.loss_s_per_step, rel=0.1)
    assert view.verdict.speedup is not None
    assert with_it / without == pytest.approx(view.verdict.speedup.expected, rel=0.05)
    assert stretch == pytest.approx(finding.evidence["wandering_steps"], rel=0.2)
    assert finding.loss_s_per_step / with_it == pytest.approx(
        view.goodput_losses["wandering_lateness"], rel=0.05
    )
    assert 1 == pytest.approx(view.goodput + sum(view.goodput_losses.values()))


def test_it_is_dated_and_sized_from_its_onset() -> None:
    """Since step 200: the window begins there."""
    healthy = Job(num_steps=400)
    job = healthy.with_faults(*in_turns(4, 25, 12 * MS, begin=200))
    lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s)[200:].mean()
    (finding,) = wandering(final_view(job))
    assert 200 == pytest.approx(finding.since_step, abs=5)
    assert lost_s == pytest.approx(finding.loss_s_per_step, rel=0.1)


def test_a_rank_that_is_late_throughout_is_named_beside_it() -> None:
    """Rank 3 has 6 ms more in backward all the time, and lateness goes round: both, no more than is lost."""
    healthy = Job(num_steps=400)
    job = healthy.with_faults(Fault("backward", (3,), 6 * MS), *in_turns(4, 25, 15 * MS))
    lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s)[2:].mean()
    view = final_view(job)
    assert {("wandering_lateness", (0, 1, 2, 3)), ("straggler", (3,))} == {
        (name, ranks) for name, ranks, _ in above_info(view)
    }
    losses = [finding.loss_s_per_step for finding in view.findings if finding.loss_s_per_step]
    assert sum(losses) <= 1.1 * lost_s


@pytest.mark.slow
@pytest.mark.parametrize("seed", thinned(range(8), range(3)))
def test_work_drawn_anew_each_step_does_not_wander(seed: int) -> None:
    """Lengths by lot, and healthy ranks with much noise: nothing in stretches."""
    for job in (
        Job(num_steps=400, seed=seed, noise=0.25),
        Job(num_steps=400, seed=seed, faults=(Fault("length", None, 20 * MS),)),
    ):
        assert [] == wandering(final_view(job))


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        (Fault("forward", (1,), 12 * MS, until=200), Fault("forward", (2,), 12 * MS, onset=200)),
        tuple(Fault("forward", (1,), 12 * MS, onset=at, until=at + 25) for at in range(0, 400, 50)),
        (Fault("forward", (1,), 12 * MS), Fault("data", (2,), 12 * MS, onset=100)),
    ],
    ids=["moved once", "one rank in bursts", "two ranks for good"],
)
def test_what_one_or_two_ranks_have_is_theirs(faults: tuple[Fault, ...]) -> None:
    """Stragglers, as ever."""
    view = final_view(Job(num_steps=400, faults=faults))
    assert [] == wandering(view)
    assert {"straggler"} == {name for name, _, _ in above_info(view)}


def test_a_remark_beside_keep_is_in_the_verdict() -> None:
    """Noise that costs a fifth of the step on a crowded machine: nothing to act on, but not nothing."""
    view = final_view(Job(num_steps=400, noise=0.45, spike_chance=0))
    remarks = [finding.id for finding in view.findings]
    assert "taking_turns" in remarks
    assert "keep" == view.verdict.decision
    assert "nothing found" not in view.verdict.sentence
    assert "stragglers that vary from step to step" in view.verdict.sentence
    # Nobody's fault, and no useful time either.
    (loss_s,) = [finding.loss_s_per_step for finding in view.findings if finding.id == "taking_turns"]
    (kept_s,) = [finding.loss_s_per_step for finding in view.findings if finding.id == "healthy"]
    assert kept_s is None
    assert view.wall is not None
    assert view.step.mean_s is not None
    assert view.useful_share is not None
    (share,) = [part.share for part in view.wall.waterfall if part.kind == "taking_turns"]
    assert share == pytest.approx((loss_s or 0.0) / view.step.mean_s, rel=0.1)
    assert view.useful_share < 1 - share
    assert lens_share(view, "L-BALANCE") == pytest.approx(share, rel=0.1)


def test_noise_that_no_rule_speaks_of_is_no_loss_of_its_own() -> None:
    """A few per cent of the step: neither in the waterfall nor what limits the step next."""
    view = final_view(Job(num_steps=400))
    assert view.wall is not None
    assert "taking_turns" not in {part.kind for part in view.wall.waterfall}
    assert view.verdict.next_constraint != "taking_turns"


def test_short_or_single_series_have_none() -> None:
    """One rank, or too few steps for three handovers."""
    work = np.ones((1, 400))
    assert find_wandering(work, np.ones(400)) is None
    assert find_wandering(np.ones((4, 20)), np.ones(20)) is None
    assert find_wandering(np.ones((4, 400)), np.ones(400)) is None


@pytest.mark.slow
def test_a_host_that_is_late_since_mid_run_does_not_wander() -> None:
    """Its four ranks are late in the same steps; now one of them is last by a hair, now another."""
    for seed in range(3):
        late = Fault("data", (4, 5, 6, 7), 6 * MS, onset=120)
        view = final_view(Job(16, 240, ranks_per_host=4, seed=seed, faults=(late,)))
        assert [("straggler", (4, 5, 6, 7), "host")] == above_info(view), seed
        assert 120 == pytest.approx(view.stragglers[0].since_step, abs=4)


def by_lot(num_ranks: int, amount_s: float, num_steps: int, seed: int) -> tuple[Fault, ...]:
    """Each step one rank, drawn anew, is late in forward."""
    lots = np.random.default_rng(100 + seed).integers(0, num_ranks, num_steps)
    return tuple(
        Fault("forward", (int(rank),), amount_s, onset=step, until=step + 1) for step, rank in enumerate(lots)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("num_ranks", "seed"), crossed([2, 4], range(6)))
def test_one_late_rank_a_step_by_lot_does_not_wander(num_ranks: int, seed: int) -> None:
    """Five times of nine it is the same one by chance; without those stretches the job seemed to have changed, too."""
    faults = by_lot(num_ranks, 8 * MS, 320, seed)
    view = final_view(Job(num_ranks=num_ranks, num_steps=320, noise=0.05, seed=seed, faults=faults))
    assert [] == wandering(view)
    assert "slower_since" not in {finding.id for finding in view.findings}


@pytest.mark.parametrize("kind", ["data", "forward"])
def test_loaders_that_are_late_in_turns_are_told_as_that(kind: str) -> None:
    """Not as ranks that want cores of their own."""
    view = final_view(Job(num_steps=400).with_faults(*in_turns(4, 25, 12 * MS, kind=kind)))
    (finding,) = (one for one in view.findings if one.id == "wandering_lateness")
    is_data = kind == "data"
    assert is_data == (finding.title == "Ranks wait for their batches in turns")
    assert is_data == finding.actions[0].text.startswith("Make the loaders of all ranks faster")


@pytest.mark.parametrize(("look", "noise", "seed"), crossed([10, 0], [0.06, 0.1, 0.03], [0, 1, 2]))
def test_devices_that_are_idle_by_turns_for_data_that_all_threads_wait_for_are_one_loss(
    look: int, noise: float, seed: int
) -> None:
    """Threads ahead of their devices drift apart: "data loaders are late in turns" was half of the loss or all.

    All loaders take 126 ms; the devices have 87 ms of work.
    """
    job = DeviceJob(
        num_steps=160,
        sync_every=look,
        copy_s=4 * MS,
        forward_s=27 * MS,
        backward_s=54 * MS,
        transfer_s=18 * MS,
        data_host_s=126 * MS,
        num_forward=6,
        num_backward=6,
        num_optimizer=1,
        num_buckets=6,
        queue=130,
        host_noise=noise,
        seed=seed,
    )
    lost_s = (
        simulate_devices(job).mean_cycle_s() - simulate_devices(replace(job, data_host_s=0)).mean_cycle_s()
    )
    view = view_of_devices(job)
    assert [] == wandering(view)
    losses_s = [found.loss_s_per_step or 0.0 for found in view.findings if found.phase == "data_wait"]
    assert lost_s == pytest.approx(sum(losses_s), rel=0.1)
    assert "input_bound" == view.verdict.finding


@pytest.mark.parametrize("look", [10, 0])
def test_loaders_of_devices_that_are_slow_by_turns_still_wander(look: int) -> None:
    """Each for 25 steps: no thread waits for as long in the mean as a late one's device."""
    faults = tuple(
        DeviceFault("data", (number % 4,), 90 * MS, onset=at, until=at + 25)
        for number, at in enumerate(range(0, 400, 25))
    )
    view = view_of_devices(DeviceJob(num_steps=400, sync_every=look).with_faults(*faults))
    (finding,) = wandering(view)
    assert "data_wait" == finding.phase
