"""What devices and links go through that comes, goes and differs: further situations for the table, each with a twin.

In: a healthy job of any size.  Out: World a situation, as in `device_worlds.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

import numpy as np
from device_rigs import LONG, STRETCHES, also, heat
from device_troubles import IN_TURNS, PAUSES, SLOW_WORDS, TURNS
from device_worlds import (
    COPY,
    DATA,
    DEVICE,
    HOST,
    LINK,
    Build,
    World,
    bad,
    changed,
    everyone,
    on_two_hosts,
    one,
    second_half,
    two_bad,
    within,
)
from simulated_devices import MS, DeviceJob, Fault

from tuiadvisor.stream.frames import Frame, FrameKind

SLOWER: Final = also(one("forward", factor=1.2), one("backward", factor=1.2))  # and no clock explains it
HOT: Final = "thermal (hardware)"
CAPPED: Final = "power cap"


def on_four_hosts(job: DeviceJob) -> DeviceJob:
    """A quarter of the ranks on each, at least two."""
    return replace(job, ranks_per_host=max(2, job.num_ranks // 4))


def second_of_them(job: DeviceJob) -> tuple[int, ...]:
    """The ranks of the second of these hosts."""
    each = on_four_hosts(job).ranks_per_host
    return tuple(rank for rank in range(job.num_ranks) if rank // each == 1)


def sawtooth(whom: Build | None = None) -> Build:
    """Each 5 s a device is 27 % slower at once, and recovers little by little: by 4 % every second step."""

    def build(job: DeviceJob) -> DeviceJob:
        hit = bad(job) if whom is None else None
        faults = (Fault("device", hit, factor=1.04, every=17, length=length) for length in range(3, 16, 2))
        return job.with_faults(*faults)

    return build


def in_antiphase(job: DeviceJob) -> DeviceJob:
    """Two devices take turns at being hot, 30 s each."""
    return job.with_faults(Fault("device", two_bad(job), factor=1.25, turns=100))


WEATHER: Final[dict[str, World]] = {
    "power cap on one node of four, NVML tells": World(
        lambda job: replace(on_four_hosts(job), throttled_by=CAPPED).with_faults(
            Fault("device", second_of_them(job), factor=1.15)
        ),
        second_of_them,
        DEVICE | HOST | SLOW_WORDS,
        is_sized=False,
    ),
    "errors of memory are corrected: one device stands for 0.8 s in one step of a hundred": World(
        within(LONG, one("backward", 0.8, chance=0.01)),
        bad,
        HOST | SLOW_WORDS,
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "PCIe replays: copies 25 ms slower in two steps of five on one rank": World(
        within(LONG, one("copy", 25 * MS, chance=0.4)), bad, COPY, is_sized=False
    ),
    "one NIC at half speed for the first half of the run": World(
        within(LONG, everyone("link", factor=4, until=200)), first=220
    ),
    "one NIC at a quarter of its speed, seen in the first half of the run": World(
        within(changed(num_steps=190), everyone("link", factor=4, until=200)),
        findings=LINK,
        is_least_wait=True,
    ),
    "one device's heat is a sawtooth of 5 s, steps of 300 ms": World(
        within(heat(600), sawtooth()), bad, DEVICE, first=88, is_sized=False
    ),
    "one device's heat is a sawtooth of 5 s, NVML tells": World(
        within(heat(600, HOT), sawtooth()), bad, DEVICE, first=88, is_sized=False
    ),
    "all devices' heat is a sawtooth of 5 s, NVML tells": World(
        within(heat(600, HOT), sawtooth(everyone("device"))),
        findings=STRETCHES | {"slower_since"},
        first=88,
        is_sized=False,
        may_pause=True,
    ),
    "a part of a device (MIG) for one rank, whole ones for the others": World(
        one("device", factor=2.3), bad, DEVICE
    ),
    "another process computes on one device in three steps of twenty": World(
        within(LONG, one("device", factor=1.8, every=20, length=3)),
        bad,
        DEVICE | SLOW_WORDS,
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "two devices take turns at being hot, 30 s each": World(
        within(heat(1000, HOT), in_antiphase),
        two_bad,
        DEVICE,
        findings=TURNS,
        sentence=IN_TURNS,
        must_all=False,
        first=488,
        is_sized=False,
    ),
    "one device hot for 30 s of 60, another rank's data 300 ms late": World(
        within(
            heat(1000, HOT),
            also(
                lambda job: job.with_faults(
                    Fault("device", two_bad(job)[:1], factor=1.25, every=200, length=100)
                ),
                lambda job: job.with_faults(Fault("data", two_bad(job)[1:], 0.3)),
            ),
        ),
        two_bad,
        DEVICE | DATA,
        must_all=False,
        first=488,
        is_sized=False,
    ),
    "one device was hot in turns until half of the run, then it is cooled": World(
        within(heat(1200, HOT), one("device", factor=1.25, every=100, length=50, until=800)), first=900
    ),
    "one device hot for 30 s of 60, evaluation of 2 s every ninety steps": World(
        within(
            within(heat(1000, HOT), changed(eval_every=90, eval_s=2.0)),
            one("device", factor=1.25, every=200, length=100),
        ),
        bad,
        DEVICE,
        first=488,
        may_pause=True,
        is_sized=False,
    ),
    "one device always slow, all devices hot for 30 s of 60": World(
        within(heat(1000, HOT), also(SLOWER, everyone("device", factor=1.2, every=200, length=100))),
        bad,
        DEVICE,
        findings=STRETCHES,
        must_all=False,
        first=488,
        is_sized=False,
        may_pause=True,
    ),
    "a hot host of two whose agent alone asks NVML": World(
        lambda job: on_two_hosts(heat(1000, HOT)(job)).with_faults(
            Fault("device", second_half(job)[:1], factor=1.25, every=200, length=100)
        ),
        lambda job: second_half(job)[:1],
        DEVICE,
        first=488,
        edit=lambda frames: [one for one in frames if one.kind.name != "HOST" or "node1" in one.source],
    ),
    "one thread four times slower for 30 s of 60, hidden behind its device": World(
        within(heat(1000), one("host", factor=2.0, every=200, length=100)), first=488
    ),
    "devices boost for the first minute, then run 6 % slower at their power cap": World(
        within(heat(1000, CAPPED), everyone("device", factor=1.06, onset=200)),
        first=488,
        is_sized=False,
        findings=frozenset({"slower_since"}),
        is_by_design=True,
    ),
}
FAIR: Final[dict[str, World]] = {
    "four hosts, healthy, NVML tells": World(lambda job: replace(on_four_hosts(job), throttled_by=CAPPED)),
    "steps of 300 ms, evaluation of 2 s every ninety steps, healthy": World(
        within(heat(1000, HOT), changed(eval_every=90, eval_s=2.0)), may_pause=True
    ),
}


def flickering(sequence: list[Frame], seed: int) -> list[Frame]:
    """NVML tells of a power cap for some seconds at a time, of each device by lot: it slows nothing."""
    stream, held = np.random.default_rng(seed), dict[str, bool]()
    result = []
    for frame in sequence:
        if frame.kind == FrameKind.HOST:
            gpus = []
            for gpu in cast("list[dict[str, object]]", frame.payload["gpus"]):
                name = str(gpu["uuid"])
                held[name] = held.get(name, False) != (stream.random() < 0.1)  # ten seconds each
                why = ["power cap"] if held[name] else []
                gpus.append({**gpu, "throttle_reasons": why, "sm_clock_mhz": 1500 if held[name] else 1755})
            frame = replace(frame, payload={**frame.payload, "gpus": gpus})  # noqa: PLW2901
        result.append(frame)
    return result
