"""What practitioners on GPU clusters meet: what is said is right or, with a reason, unknown; nobody wrong is named.

`tests/accuracy/device_table.py` asks all of it at several numbers of ranks; here each is asked once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from device_rigs import RIGS, TWINS, heat
from device_troubles import in_pairs
from device_weather import FAIR, WEATHER, flickering
from device_worlds import judged, one, said_of, within
from simulated_devices import DeviceJob, Fault, folded, frames, simulate, true_loss_s, view_of
from thinned import thinned

pytestmark = pytest.mark.slow

NOT_RIGHT = {
    # Who waits least came last within a group that exchanges alone; which group's exchange is slow nothing tells.
    "one rail degraded: one of two groups exchanges eight times slower": "unknown",
}
ALWAYS = {
    "one device held back by heat for 30 s, cool for 30 s, steps of 300 ms",
    "all devices were held back by heat twice for 30 s, NVML tells",
    "one rail degraded: one of two groups exchanges eight times slower",
    "one card degraded: two of the ranks copy and exchange slower",
    "one rank alone waits for its device in each layer",
    "pinning thread starves: data 150 ms late in a third of the steps on one rank",
    "H100 and A100, and one of the fast ones waits for data",
    "one rank accumulates by mistake: twice the work a step",
    "hot expert: one rank's forward longer where ranks meet in forward",
    "tensor-parallel pairs whose halves exchange apart, healthy",
    "power cap on one node of four, NVML tells",
    "all devices' heat is a sawtooth of 5 s, NVML tells",
    "one device always slow, all devices hot for 30 s of 60",
    "a hot host of two whose agent alone asks NVML",
    "four hosts, healthy, NVML tells",
}
ALL = {**RIGS, **TWINS, **WEATHER, **FAIR}


def parameters() -> list[object]:
    """Every situation by name, and the twins of those that change the job."""
    result = []
    for name in ALL:
        marks = [] if name in ALWAYS else [pytest.mark.extended]
        result.append(pytest.param(name, id=name, marks=marks))
    return result


@pytest.mark.parametrize("name", parameters())
def test_nothing_that_is_said_of_a_cluster_is_wrong(name: str) -> None:
    """With 4 ranks and a look at the loss in every tenth step."""
    said = said_of(ALL[name], 4, 10)

    assert said.word == NOT_RIGHT.get(name, "right"), said.words


@pytest.mark.parametrize("sync", [1, pytest.param(0, marks=pytest.mark.extended)])
@pytest.mark.parametrize("num_ranks", [8, pytest.param(64, marks=pytest.mark.extended)])
def test_ranks_of_the_quick_one_of_two_exchanges_are_not_called_late(num_ranks: int, sync: int) -> None:
    """They wait for their neighbours in the next step's backward, where no hook is."""
    name = "one rail degraded: one of two groups exchanges eight times slower"
    said = said_of(RIGS[name], num_ranks, sync)

    assert said.word == "unknown", said.words
    assert "of which nothing tells what is waiting for another rank" in said.words


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.extended), 3, 5])
def test_data_late_on_all_does_not_hide_that_a_device_is_slow_in_all_it_computes(seed: int) -> None:
    """Threads far ahead drift apart: the slow device happens to wait for data a little longer than most, too."""
    world = RIGS["data late on all and one device slow"]
    job = replace(world.build(DeviceJob(num_ranks=8, sync_every=0)), seed=seed)
    said = judged(world, job, folded(frames(simulate(job))))

    assert said.word == "right", said.words
    assert "r2 device" in said.words


@pytest.mark.parametrize("num_steps", [214, 320])
def test_ranks_of_the_quick_exchange_are_not_called_late_since_the_other_became_slow(num_steps: int) -> None:
    """For most of the run both took as long: by the typical step of all, ranks 0 and 2 were late in backward."""
    job = in_pairs(replace(DeviceJob(), num_ranks=4, sync_every=7, num_steps=num_steps))
    view = view_of(job.with_faults(Fault("link", (1,), factor=8, onset=200)))
    assert not view.stragglers
    assert view.verdict.decision is None


@pytest.mark.parametrize(
    ("num_ranks", "hot"),
    [(3, (1, 2)), pytest.param(4, (1, 2, 3), marks=pytest.mark.extended), (8, (0, 1, 3, 4, 6))],
)
def test_more_than_half_of_the_ranks_held_back_in_turns_are_named(
    num_ranks: int, hot: tuple[int, ...]
) -> None:
    """The level that ranks have in common is theirs: 9 % of the step was kept, for nobody was beyond it."""
    job = heat(600)(replace(DeviceJob(), num_ranks=num_ranks, sync_every=7))
    job = job.with_faults(Fault("device", hot, factor=1.25, every=200, length=100))
    view = view_of(job)
    assert hot == tuple(sorted(one.rank for one in view.stragglers))
    assert {"device"} == {one.cause for one in view.stragglers}
    assert true_loss_s(job, 88) == pytest.approx(sum(one.loss_s_per_step for one in view.stragglers), rel=0.1)


@pytest.mark.parametrize("num_ranks", thinned([2, 4, 8], [4]))
def test_a_device_that_is_held_back_for_some_of_the_time_is_told_with_its_clock(num_ranks: int) -> None:
    """As NVML tells it of just those steps, though it runs well when the look is taken; two times are enough then."""
    said = said_of(RIGS["one device was held back by heat twice for 30 s, NVML tells"], num_ranks, 10)

    assert said.word == "right", said.words
    assert (
        "of the steps, on its device, which runs at 1404 MHz then against 1755 (thermal (hardware))"
        in said.words
    )


@pytest.mark.parametrize("num_ranks", thinned([64, 128], [64]))
def test_a_hot_host_of_many_ranks_is_named_though_not_each_is_searched(num_ranks: int) -> None:
    """Half of 64 ranks: of 32 that stood out most half were the others, and "keep" was said at 9 % of the step."""
    name = "the devices of one of two hosts held back by heat for 30 s, cool for 30 s"

    said = said_of(RIGS[name], num_ranks, 10)

    assert said.word == "right", said.words
    assert "Tune: host node1 late by" in said.words


@pytest.mark.parametrize("num_ranks", thinned([1, 2, 4, 8], [1, 4]))
def test_devices_that_are_held_back_together_are_told_with_their_clock(num_ranks: int) -> None:
    """So are two thirds of the steps: which level is the usual one the devices tell."""
    said = said_of(RIGS["all devices held back by heat for 40 s, cool for 20 s, NVML tells"], num_ranks, 10)

    assert said.word == "right", said.words
    assert "on all ranks, while their devices run at 1404 MHz against 1755 (thermal (software))" in said.words


@pytest.mark.parametrize("num_ranks", thinned([4, 8], [4]))
@pytest.mark.parametrize("why", ["", "thermal (hardware)"])
def test_one_stretch_is_no_heat_that_comes_and_goes(num_ranks: int, why: str) -> None:
    """It is over; and what a rank does once nobody is named for afterwards."""
    fault = one("device", factor=1.25, onset=200, until=300)
    view = folded(frames(simulate(within(heat(500, why), fault)(DeviceJob(num_ranks=num_ranks)))))

    assert (view.verdict.decision, view.stragglers) == ("keep", ()), view.verdict.sentence


def test_heat_of_which_the_device_says_nothing_is_not_called_held_back() -> None:
    """NVML saw the clock all along, at its height: the rank is late for a while again and again all the same."""
    world = RIGS["one device held back by heat for 30 s, cool for 30 s, steps of 300 ms"]
    job = replace(world.build(DeviceJob(num_ranks=4, sync_every=10)), mhz=(1755,) * 4)
    said = judged(world, job, folded(frames(simulate(job))))

    assert said.word == "right", said.words
    assert "in all compute phases alike, so on its device" in said.words


@pytest.mark.parametrize(
    ("seed", "num_ranks"),
    [(0, 4), *(pytest.param(n, r, marks=pytest.mark.extended) for n in range(1, 6) for r in (1, 2, 8))],
)
def test_a_cap_that_slows_nothing_is_no_cause_of_anything(seed: int, num_ranks: int) -> None:
    """Beside healthy steps, and beside a rank that is late for data in turns: nobody's clock is blamed."""
    job = replace(heat(600, "power cap")(DeviceJob(num_ranks=num_ranks, sync_every=10)), seed=seed)
    view = folded(flickering(frames(simulate(job)), seed))

    assert (view.verdict.decision, view.stragglers) == ("keep", ()), view.verdict.sentence
    late = one("data", 0.3, every=200, length=100)(job)
    said = folded(flickering(frames(simulate(late)), seed)).verdict.sentence
    assert "MHz" not in said
