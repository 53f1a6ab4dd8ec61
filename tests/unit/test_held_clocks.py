"""Devices that hold their clocks back for some of the time: how it is remembered, and what levels it explains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from device_rigs import heat
from device_weather import CAPPED, HOT, WEATHER
from device_worlds import on_two_hosts, said_of, second_half
from simulated_devices import DeviceJob, Fault, frames, simulate, view_of

from tuiadvisor.advisor.cluster.device_clocks import DeviceClocks
from tuiadvisor.advisor.cluster.held_back import HeldBack
from tuiadvisor.metrics.series.change_points import Change
from tuiadvisor.metrics.window.waves import comes_and_goes, held_more, is_high, times_high

S = 10**9
HEAT, WELL = frozenset({HOT}), frozenset[str]()
UP, DOWN = (0.0, 1.0), (1.0, 0.0)


def changes(*at: int, first: tuple[float, float] = UP) -> tuple[Change, ...]:
    """Levels that alternate at these steps."""
    other = DOWN if first == UP else UP
    return tuple(Change(index, *(other if number % 2 else first)) for number, index in enumerate(at))


def watched(whys: list[frozenset[str] | None], mhz: tuple[float, float] = (1755.0, 1404.0)) -> HeldBack:
    """A sample each second from 0 on."""
    result = HeldBack()
    for at, why in enumerate(whys):
        result.add(at * S, mhz[bool(why)], why)
    return result


def shares(held: HeldBack, *edges: int) -> list[float]:
    """Of the spans from each second to the next."""
    found = held.over(np.array(edges[:-1]) * S, np.array(edges[1:]) * S)
    assert found is not None
    return found.share_K.tolist()


def test_a_sample_stands_for_the_time_since_the_one_before() -> None:
    """Held back from second 10 to 20; its clock then, and otherwise."""
    held = watched([*[WELL] * 11, *[HEAT] * 10, *[WELL] * 10])
    assert [0.0, 0.5, 1.0, 0.0] == shares(held, 0, 5, 15, 20, 25)
    found = held.over(np.array([0]), np.array([S]))
    assert found is not None
    assert (1404.0, 1755.0, (HOT,)) == (found.mhz, found.free_mhz, found.reasons)


def test_what_nobody_saw_is_not_known() -> None:
    """Before the first sample, after the last, across a gap, and where the device gave no answer."""
    held = watched([*[WELL] * 11, *[HEAT] * 10, *[None] * 10, WELL, WELL])
    assert np.isnan(shares(held, 22, 28, 30)).tolist() == [True, True]
    held.add(60 * S, 1755.0, WELL)
    assert np.isnan(shares(held, 40, 50, 70)).all()


@pytest.mark.parametrize("whys", [[WELL] * 20, [HEAT] * 20, [None] * 20, [WELL]])
def test_a_device_that_is_never_held_back_or_always_explains_no_change(
    whys: list[frozenset[str] | None],
) -> None:
    """Nor one of which nothing is known."""
    assert watched(whys).over(np.array([0]), np.array([S])) is None


def test_another_boot_begins_anew_and_memory_is_bounded() -> None:
    """Its clock begins at 0 again; who swings each second for hours keeps the latest."""
    held = watched([*[WELL] * 11, *[HEAT] * 10])
    held.add(S, 1755.0, WELL)
    assert held.over(np.array([0]), np.array([S])) is None
    swinging = watched([HEAT if at % 2 else WELL for at in range(5000)])
    assert np.isnan(shares(swinging, 10, 12)[0])
    assert shares(swinging, 4990, 4999)[0] == pytest.approx(0.5, abs=0.1)


def test_levels_that_come_back_as_they_were_come_and_go() -> None:
    """Three times, or twice where the device tells of it; begun or ended in sight."""
    assert not comes_and_goes(changes(100, 200, 300, first=DOWN), 400)  # up to 100, and from 200 on
    assert comes_and_goes(changes(100, 200, 300, 400, first=DOWN), 500)
    assert comes_and_goes(changes(100, 200, 300, 400, 450, first=DOWN), 500)
    assert comes_and_goes(changes(100, 200, 300, 400, 450), 500)
    twice = changes(100, 200, 300, 400)
    held_k = is_high(twice, 500).astype(np.float64)
    assert (2, False, True) == (
        times_high(twice),
        comes_and_goes(twice, 500),
        comes_and_goes(twice, 500, held_k),
    )
    assert not comes_and_goes(twice, 500, 1 - held_k)
    assert not comes_and_goes(twice, 500, np.full(500, np.nan))


@pytest.mark.parametrize(
    ("levels", "num_steps"),
    [
        pytest.param(changes(100, 200), 300, id="one event"),
        pytest.param(changes(100), 300, id="a level that stays"),
        pytest.param((), 300, id="one level"),
        pytest.param(changes(100, 150, 200, 250, 300, 350), 600, id="it has been over for long"),
        pytest.param(changes(100, 150, 200, 250, 300), 600, id="it has stayed for long"),
        pytest.param((*changes(100, 150, 200, 250), Change(300, 0.0, 3.0)), 350, id="unlike levels"),
        pytest.param(
            (*changes(100, 150, 200, 250), Change(300, 0.0, 1.0), Change(330, 1.0, 2.0)), 350, id="a stair"
        ),
    ],
)
def test_what_does_not_come_back_is_a_level_of_its_own(levels: tuple[Change, ...], num_steps: int) -> None:
    """Each of these begins something new."""
    assert not comes_and_goes(levels, num_steps)


def test_a_clock_that_is_held_back_alike_in_all_steps_explains_none() -> None:
    """Late steps and others are compared; what was not seen counts for neither."""
    is_late_k = np.arange(10) < 5
    assert 1.0 == held_more(is_late_k, np.where(is_late_k, 1.0, 0.0))
    assert held_more(is_late_k, np.ones(10)) is None
    assert held_more(is_late_k, np.where(is_late_k, np.nan, 0.0)) is None


def test_a_host_whose_devices_are_capped_is_told_with_their_clock() -> None:
    """It was said to be late "mostly in backward", with NVML telling all along."""
    view = view_of(WEATHER["power cap on one node of four, NVML tells"].build(DeviceJob(num_ranks=8)))
    (found,) = (each for each in view.findings if each.id == "straggler")
    assert "for host node1: 12.8 ms late" in found.message
    assert (
        f"all its ranks alike, on their devices, which run at 1526 MHz against 1755 ({CAPPED})"
        in found.message
    )
    assert found.actions[0].text.startswith("Compare its device with its peers'")


def test_a_rank_whose_peers_are_as_hot_is_not_late_by_its_clock() -> None:
    """All devices are held back together; one is slow besides, whatever the time."""
    said = said_of(WEATHER["one device always slow, all devices hot for 30 s of 60"], 4, 10)
    assert "rank 2 late by" in said.words
    assert "MHz" not in said.words


def test_devices_are_remembered_by_the_rank_that_uses_them() -> None:
    """By UUID; a rank whose device is not known has none."""
    job = replace(
        WEATHER["one device's heat is a sawtooth of 5 s, NVML tells"].build(DeviceJob()), num_steps=100
    )
    clocks = DeviceClocks()
    for frame in frames(simulate(job)):
        if "gpus" in frame.payload:
            clocks.take("node0", frame.payload)
    spans = np.array([2, 10]) * S, np.array([10, 20]) * S
    found = clocks.throttled(("node0", 102, "5f6a-2"), *spans)
    assert found is not None
    assert (found.share_K > 0.5).all()
    assert clocks.throttled(("node0", 101, "5f6a-1"), *spans) is None
    assert clocks.throttled(("node0", None, None), *spans) is None


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_somebody_is_left_to_compare_with(num_ranks: int) -> None:
    """Of two ranks one is hot in turns, and the other one waits for data."""
    said = said_of(WEATHER["one device hot for 30 s of 60, another rank's data 300 ms late"], num_ranks, 1)
    assert said.word == "right", said.words


@pytest.mark.parametrize("num_ranks", [4, 16])
def test_ranks_of_a_host_that_are_hot_together_share_one_loss(num_ranks: int) -> None:
    """None of eight has enough of it to be named alone."""
    job = on_two_hosts(replace(heat(700)(DeviceJob(num_ranks=num_ranks, sync_every=1))))
    view = view_of(job.with_faults(Fault("device", second_half(job), factor=1.15, every=180, length=100)))
    assert {one.rank for one in view.stragglers} == set(second_half(job)), view.verdict.sentence
