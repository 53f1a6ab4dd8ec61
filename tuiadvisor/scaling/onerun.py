"""What one measured run says about other sizes: its parts, each carried over by what is known of it.

In: Parts of one data-parallel run.  Out: for each size bounds on the step, and one decision. Bounds, not a statistical
interval: the best and the worst that the parts allow. One run can show that growing cannot pay; that it pays only a
second size shows, so one run never decides to grow.

| part of the step | best case | worst case |
|---|---|---|
| compute, same batch a device (weak) | stays | stays |
| compute, same total batch (strong) | divides | stays: a smaller batch may use the device no better |
| exchange | ring all-reduce, all of it bandwidth: (n-1)/n | all of it latency, n-1, or what nccl-tests allows |
| of which compute hides | all that fits under backward | as much as now; where unseen, backward was full of it |
| waiting for late ranks | as now; divides in strong scaling | grows as the latest of n does |
| waiting for input | as now; divides in strong scaling | the storage is at its limit: grows with the devices |
| optimizer, other | stay | stay |

Source of the ring: 2(n-1)·latency + 2(n-1)/n·bytes/bandwidth (Thakur et al. 2005; nccl-tests, PERFORMANCE.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

from tuiadvisor.scaling.choose import NOISE_FLOOR
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.decide import NOT_AIMED, SizeDecision, sized
from tuiadvisor.scaling.frontier import REACH
from tuiadvisor.scaling.predict import Range

CUSHION: Final = 2.0  # times the latency of an idle link: beside compute a message waits longer to be begun
FLOOR: Final = 0.8  # POP: parallel efficiency that is acceptable
NOTHING_STATED: Final = Aim(efficiency_floor=FLOOR)
MORE_WORK: Final = "more work per all-reduce or less to send first"
Mode = Literal["weak", "strong"]
MODES: Final[tuple[Mode, ...]] = ("weak", "strong")


@dataclass(frozen=True, slots=True)
class Parts:
    """One run's step, with its pauses. Seconds, mean over ranks; they sum to step_s. None: not observed."""

    devices: int
    num_hosts: int
    devices_a_host: int
    room_a_host: int | None  # devices one host has; None: not seen
    step_s: float
    compute_s: float  # host-to-device copy, forward, backward
    backward_s: float  # of compute_s: what can hide an exchange
    transfer_s: float  # exposed exchange once all ranks are there
    hidden_s: float | None  # exchange under compute
    skew_s: float  # waiting for the latest rank
    data_wait_s: float
    fixed_s: float  # optimizer and everything else
    global_batch: float | None
    latency_s: float | None = None  # of the exchange, by nccl-tests on this machine; None: not measured
    steps: str = ""  # of which step_s is


@dataclass(frozen=True, slots=True)
class Sized:
    """One size in one mode. Efficiency and throughput against the measured size."""

    devices: int
    mode: Mode
    step_s: Range
    efficiency: Range
    throughput: Range  # in multiples of today's
    exposed_share: Range  # exposed exchange, of the step


@dataclass(frozen=True, slots=True)
class OneRun:
    """Everything one run says."""

    parts: Parts
    sizes: tuple[Sized, ...]
    refused: tuple[tuple[int, str], ...]  # devices, why
    assumed: tuple[str, ...]
    decision: SizeDecision


def one_run(parts: Parts, targets: tuple[int, ...], aim: Aim = NOTHING_STATED) -> OneRun:
    """Bounds at each target that the run can speak for, and what follows. Default target: twice the devices."""
    sizes: list[Sized] = []
    refused: list[tuple[int, str]] = []
    for devices in dict.fromkeys(targets or (2 * parts.devices,)):
        why = why_not(parts, devices)
        if why:
            refused.append((devices, why))
        else:
            sizes += [sized_at(parts, devices, mode) for mode in MODES]
    sizes.sort(key=lambda one: (one.devices, one.mode != "weak"))
    found = tuple(sizes)
    return OneRun(parts, found, tuple(refused), _assumed(parts), _decide(parts, found, refused, aim))


def why_not(parts: Parts, devices: int) -> str:
    """Why this run says nothing about a size; empty if it does."""
    if parts.devices < 2:
        return (
            "one device has no gradient communication: what that costs was not measured; record two devices"
        )
    if devices > REACH * parts.devices:
        return f"more than {REACH} times the {parts.devices} devices measured: record a larger size"
    if parts.num_hosts == 1 and devices > (parts.room_a_host or parts.devices):
        room = "" if parts.room_a_host is None else f" with {sized(parts.room_a_host)}"
        return (
            f"one host{room} was recorded: at {devices} gradient communication uses a network nobody measured; "
            "record two hosts"
        )
    if parts.num_hosts > 1 and devices <= parts.devices_a_host:
        return (
            f"{parts.num_hosts} hosts were recorded: {sized(devices)} fit into one, where communication "
            "takes another path; record one host"
        )
    return ""


def sized_at(parts: Parts, devices: int, mode: Mode) -> Sized:
    """Bounds at one size."""
    steps = [_step(parts, devices, mode, case) for case in ("expected", "best", "worst")]
    # Where fewer devices are asked for, best and worst of a part may change places.
    low, high = min(total for total, _ in steps), max(total for total, _ in steps)
    scatter = 0.0 if devices == parts.devices else NOISE_FLOOR
    step = Range(steps[0][0], low * (1 - scatter), high * (1 + scatter))
    growth = devices / parts.devices
    work = growth if mode == "weak" else 1.0  # of a step, against today's
    shares = [exposed / total for total, exposed in steps]
    return Sized(
        devices,
        mode,
        step,
        efficiency=step.into(parts.step_s * work / growth),
        throughput=step.into(parts.step_s * work),
        exposed_share=Range(shares[0], min(shares), max(shares)),
    )


def _step(parts: Parts, devices: int, mode: Mode, case: str) -> tuple[float, float]:
    """(step, exposed exchange in it) in one case."""
    growth = devices / parts.devices
    divided = 1.0 if mode == "weak" else 1 / growth
    latest = _latest(devices) / _latest(parts.devices)
    storage = growth if mode == "weak" else 1.0  # where the storage is the limit, all read at its pace
    # A smaller batch a device may take as long as the present one; a larger one takes its time.
    compute = _case(case, divided, divided, max(divided, 1.0))
    # In strong scaling a rank's jitter shrinks with its compute, unless it has another cause.
    waiting = _case(
        case, latest * divided, min(latest, 1.0) * min(divided, 1.0), max(latest, 1.0) * max(divided, 1.0)
    )
    reading = _case(case, divided, min(divided, storage), max(divided, storage))
    exposed = _exposed(parts, devices, compute, case)
    total = (
        parts.compute_s * compute
        + exposed
        + parts.skew_s * waiting
        + parts.data_wait_s * reading
        + parts.fixed_s
    )
    return total, exposed


def _case(case: str, expected: float, best: float, worst: float) -> float:
    return {"expected": expected, "best": best, "worst": worst}[case]


def _exposed(parts: Parts, devices: int, compute_ratio: float, case: str) -> float:
    # Unseen: in the best case nothing is hidden that could come out, in the worst all of backward is full.
    hidden = parts.hidden_s if parts.hidden_s is not None else _case(case, 0.0, 0.0, parts.backward_s)
    exchange = _exchange(parts, devices, parts.transfer_s + hidden, case)
    covered = hidden * min(compute_ratio, 1.0)
    if case == "best":  # backward may have had room to hide more than there was
        covered = max(covered, min(exchange - parts.transfer_s, parts.backward_s * compute_ratio))
    return max(exchange - covered, 0.0)


def _exchange(parts: Parts, devices: int, now_s: float, case: str) -> float:
    """The whole exchange at a size. What of it is latency is bounded by the benchmark's, where there is one."""
    bandwidth = (1 - 1 / devices) / (1 - 1 / parts.devices)
    latency = (devices - 1) / (parts.devices - 1)
    known_s = parts.latency_s
    most_s = now_s if known_s is None else min(CUSHION * known_s, now_s)
    all_bandwidth, most_latency = now_s * bandwidth, (now_s - most_s) * bandwidth + most_s * latency
    if case == "expected":
        likely_s = min(known_s or 0.0, now_s)
        return (now_s - likely_s) * bandwidth + likely_s * latency
    return min(all_bandwidth, most_latency) if case == "best" else max(all_bandwidth, most_latency)


def _latest(devices: int) -> float:
    """Expected largest of n standard normal values, Blom's approximation; 0 for one."""
    return NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))


def _assumed(parts: Parts) -> tuple[str, ...]:
    said = [
        "data parallelism with a ring all-reduce, as many devices per host as now, the same kind of device"
    ]
    if parts.hidden_s is None:
        said.append(
            "communication that compute hides was not observed: in the worst case it fills all of backward"
        )
    if parts.latency_s is not None:
        said.append(
            f"at most {CUSHION:g} x the latency that nccl-tests measured: {1e3 * parts.latency_s:.3g} ms a step"
        )
    if parts.global_batch is None:
        said.append("the batch was not observed: weak keeps it a device, strong keeps it in total")
    said.append(
        "fewer devices hold the batch in memory; more cost nothing in accuracy (strong) or in progress (weak)"
    )
    return tuple(said)


def _decide(parts: Parts, sizes: tuple[Sized, ...], refused: list[tuple[int, str]], aim: Aim) -> SizeDecision:
    larger = [one for one in sizes if one.devices > parts.devices]
    if not larger:
        why = max(refused)[1] if refused else "no larger size was asked for"
        return SizeDecision("keep", parts.devices, f"one run cannot show what more devices bring: {why}")
    nearest = min(one.devices for one in larger)
    first = [one for one in larger if one.devices == nearest]
    if all(one.throughput.high <= 1 + NOISE_FLOOR for one in first):
        return SizeDecision(
            "stop", parts.devices, f"{sized(nearest)} are no faster, even at best: {MORE_WORK}"
        )
    if all(one.efficiency.high < aim.efficiency_floor for one in first):
        told = " and ".join(f"{one.efficiency.high:.2f} ({one.mode} scaling)" for one in first)
        below = f"at {sized(nearest)} efficiency is at best {told}, below {aim.efficiency_floor:g}"
        if aim.is_stated:
            return SizeDecision("stop", parts.devices, f"{below}: {MORE_WORK}")
        return SizeDecision("keep", parts.devices, f"{NOT_AIMED}; {below}")
    told = ", ".join(
        f"{one.throughput.low:.2f} to {one.throughput.high:.2f} x the throughput in {one.mode} scaling"
        for one in first
    )
    return SizeDecision(
        "keep",
        parts.devices,
        f"one run only bounds what {sized(nearest)} bring: {told}; record that size and give both recordings",
    )
