"""One run bounds what other sizes bring, from its parts; it never decides to grow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.onerun import MODES, Mode, Parts, one_run, sized_at, why_not
from tuiadvisor.scaling.onerundoc import one_run_document, one_run_text

MS = 1e-3
EIGHT = Parts(
    devices=8,
    num_hosts=1,
    devices_a_host=8,
    room_a_host=16,
    step_s=100 * MS,
    compute_s=70 * MS,
    backward_s=45 * MS,
    transfer_s=10 * MS,
    hidden_s=20 * MS,
    skew_s=5 * MS,
    data_wait_s=5 * MS,
    fixed_s=10 * MS,
    global_batch=256,
)


@pytest.mark.parametrize("mode", MODES)
def test_the_measured_size_is_what_was_measured(mode: Mode) -> None:
    """Nothing is modelled into it."""
    one = sized_at(EIGHT, 8, mode)
    for value in (one.step_s.expected, one.step_s.low, one.step_s.high):
        assert 100 * MS == pytest.approx(value)
    assert 1 == pytest.approx(one.efficiency.expected)


def test_twice_the_devices_by_hand() -> None:
    """Weak: the ring's bandwidth term goes from 7/8 to 15/16, its latency from 7 to 15; 20 ms stay hidden at least."""
    one = sized_at(EIGHT, 16, "weak")
    exchange = 30 * MS * (15 / 16) / (7 / 8)
    latest = NormalDist().inv_cdf(15.625 / 16.25) / NormalDist().inv_cdf(7.625 / 8.25)
    expected = 70 * MS + (exchange - 20 * MS) + 5 * MS * latest + 5 * MS + 10 * MS
    assert expected == pytest.approx(one.step_s.expected)
    worst = 70 * MS + (30 * MS * 15 / 7 - 20 * MS) + 5 * MS * latest + 2 * 5 * MS + 10 * MS
    assert 1.02 * worst == pytest.approx(one.step_s.high)
    strong = sized_at(EIGHT, 16, "strong")
    # What 35 ms of compute can no longer hide of the exchange comes out.
    expected = 35 * MS + (exchange - 10 * MS) + 2.5 * MS * latest + 2.5 * MS + 10 * MS
    assert expected == pytest.approx(strong.step_s.expected)


def test_the_links_latency_narrows_the_bounds() -> None:
    """Two of thirty milliseconds are latency by nccl-tests: at worst four, not thirty, grow with the ring."""
    wide, narrow = sized_at(EIGHT, 16, "weak"), sized_at(replace(EIGHT, latency_s=2 * MS), 16, "weak")
    assert wide.step_s.low == narrow.step_s.low
    grown = (26 * (15 / 16) / (7 / 8) + 4 * 15 / 7 - 30 * 15 / 7) * MS
    assert 1.02 * grown == pytest.approx(narrow.step_s.high - wide.step_s.high)
    assert any(
        "nccl-tests measured: 2 ms" in text for text in one_run(replace(EIGHT, latency_s=2 * MS), ()).assumed
    )


TIMES = some.floats(0.1 * MS, 100 * MS)


SHARE = some.floats(0, 1)


@dataclass(frozen=True)
class Truth:
    """A job whose constants are known, at `devices`. Shares 0..1."""

    devices: int
    compute: float
    exchange: float
    jitter: float
    reading: float
    latency: float  # share of the exchange that is latency
    room: float  # share of the exchange that may be hidden
    stiff: float  # share of compute that a smaller batch does not shorten
    storage: float  # share of the reading that waits for a storage at its limit

    def at(self, devices: int, mode: Mode) -> tuple[float, float, float, float, float]:
        """(compute, exposed exchange, hidden exchange, waiting, reading) of a step."""
        divided = 1.0 if mode == "weak" else self.devices / devices
        slowed = self.stiff + (1 - self.stiff) * divided
        hops = (devices - 1) / (self.devices - 1)
        share = (1 - 1 / devices) / (1 - 1 / self.devices)
        ring = self.exchange * (self.latency * hops + (1 - self.latency) * share)
        hidden = min(ring * self.room, 0.6 * self.compute * slowed)
        latest = NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))
        shared = devices / self.devices if mode == "weak" else 1.0
        read = self.reading * (self.storage * shared + (1 - self.storage) * divided)
        return self.compute * slowed, ring - hidden, hidden, self.jitter * slowed * latest, read


@pytest.mark.slow
@given(
    some.builds(
        Truth, some.sampled_from([2, 4, 8, 32]), TIMES, TIMES, TIMES, TIMES, SHARE, SHARE, SHARE, SHARE
    ),
    some.sampled_from([2, 4, 16]),
    some.sampled_from(MODES),
    some.booleans(),
    some.none() | some.floats(0.5, 1.5),
)
def test_the_truth_lies_within_the_bounds(
    truth: Truth, growth: int, mode: Mode, seen: bool, benchmark: float | None
) -> None:
    """Any mix of latency and bandwidth, any room to hide it, compute that divides or not, storage at its limit."""
    work, exposed, hidden, waiting, read = truth.at(truth.devices, mode)
    parts = Parts(
        truth.devices, 2, truth.devices // 2, None, work + exposed + waiting + read, work, 0.6 * work, exposed,
        hidden if seen else None, waiting, read, 0.0, 64,
        # A benchmark that errs by a half is still a benchmark.
        None if benchmark is None else benchmark * truth.latency * truth.exchange,
    )  # fmt: skip
    work, exposed, _, waiting, read = truth.at(truth.devices * growth, mode)
    bounds = sized_at(parts, truth.devices * growth, mode).step_s
    assert bounds.low <= bounds.expected <= bounds.high
    assert bounds.low <= work + exposed + waiting + read <= bounds.high


@pytest.mark.parametrize(
    ("changes", "devices", "says"),
    [
        ({}, 32, "one host with 16 devices was recorded: at 32 gradient communication uses a network nobody measured"),
        ({"room_a_host": None}, 9, "one host was recorded: at 9"),
        ({"num_hosts": 2, "devices_a_host": 4}, 4, "4 devices fit into one, where communication takes another path"),
        ({"num_hosts": 2, "devices_a_host": 4}, 136, "more than 16 times the 8 devices measured"),
        ({"devices": 1}, 2, "one device has no gradient communication"),
    ],
)  # fmt: skip
def test_a_size_that_lies_beyond_what_was_measured_is_refused(
    changes: dict[str, int | None], devices: int, says: str
) -> None:
    """Another network, one device, or too far."""
    parts = replace(EIGHT, **changes)  # type: ignore[arg-type]
    assert says in why_not(parts, devices)
    found = one_run(parts, (devices,))
    assert () == found.sizes
    assert [devices] == [size for size, _ in found.refused]
    assert "keep" == found.decision.decision


def test_within_the_host_or_across_hosts_it_answers() -> None:
    """Free devices of the host, or more hosts where several were seen."""
    assert "" == why_not(EIGHT, 16)
    assert "" == why_not(replace(EIGHT, num_hosts=2, devices_a_host=4), 64)


STARVED = replace(
    EIGHT, devices=2, num_hosts=2, devices_a_host=1, room_a_host=None, compute_s=10 * MS, backward_s=6 * MS,
    transfer_s=80 * MS, hidden_s=0.0, skew_s=0.0, data_wait_s=0.0, fixed_s=10 * MS,
)  # fmt: skip


@given(TIMES, TIMES, TIMES, some.integers(2, 64))
def test_one_run_never_decides_to_grow(compute: float, exchange: float, skew: float, devices: int) -> None:
    """It can say stop; that growing pays only a second size shows."""
    parts = Parts(
        devices,
        2,
        devices // 2,
        None,
        compute + exchange + skew,
        compute,
        compute / 2,
        exchange,
        None,
        skew,
        0,
        0,
        8,
    )
    assert one_run(parts, (2 * devices, 4 * devices)).decision.decision in {"keep", "stop"}


def test_an_exchange_that_outweighs_everything_says_stop() -> None:
    """Even at best no efficiency is left in either mode: more devices cannot pay."""
    decision = one_run(STARVED, (4,), Aim(objective="time")).decision
    assert "stop" == decision.decision
    assert "below 0.8" in decision.because


def test_one_run_stops_without_an_objective_only_where_more_are_no_faster() -> None:
    """Faster at an efficiency that a floor would forbid is neither good nor bad before somebody says what decides."""
    found = one_run(STARVED, (4,))
    assert max(one.efficiency.high for one in found.sizes) < 0.8
    assert max(one.throughput.high for one in found.sizes) > 1.1
    assert "keep" == found.decision.decision
    assert "no objective was stated" in found.decision.because
    assert "stop" == one_run(STARVED, (4,), Aim(objective="efficiency")).decision.decision


def test_text_and_document_say_the_same() -> None:
    """Bounds with their mode, refusals and what was assumed."""
    found = one_run(EIGHT, (16, 32))
    document = one_run_document("a.tuirec", found)
    assert [(16, "weak"), (16, "strong")] == [
        (one["devices"], one["mode"]) for one in document["predictions"]
    ]
    assert [32] == [one["devices"] for one in document["refused"]]
    text = one_run_text("a.tuirec", found)
    assert text.isascii()
    assert max(map(len, text.splitlines()[:6])) <= 100
    assert f"{document['predictions'][0]['efficiency']['high']:.2f}" in text
    assert all(assumption in text for assumption in document["assumed"])
