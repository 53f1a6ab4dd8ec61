"""What practitioners on GPU clusters meet, thought of after the table and its further rows: each with a healthy twin.

In: a healthy job of any size.  Out: World a situation, as in `device_worlds.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from device_troubles import FOUR, IN_TURNS, PAUSES, SLOW_WORDS, TURNS, in_pairs, scaled
from device_worlds import (
    COPY,
    DATA,
    DEVICE,
    HOST,
    INPUT,
    LINK,
    SLOW,
    Build,
    World,
    bad,
    changed,
    clocked,
    everyone,
    on_two_hosts,
    one,
    second_half,
    two_bad,
    within,
)
from simulated_devices import MS, DeviceJob, Fault

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns, unpack_columns

BACKWARD: Final = frozenset({"backward"})
FORWARD: Final = frozenset({"forward"})
OTHER: Final = HOST | {"other"}
STRETCHES: Final = frozenset({"slow_stretches"})
LONG: Final = changed(num_steps=400)


def of(ranks: tuple[int, ...]) -> Build:
    """Rank 0 and the like look at the loss in every step."""
    return changed(logging_rank=ranks[0])


def also(*builds: Build) -> Build:
    """All their faults in one job, each of its own job's fields."""

    def build(job: DeviceJob) -> DeviceJob:
        for each in builds:
            job = each(replace(job, faults=())).with_faults(
                *job.faults, *each(replace(job, faults=())).faults
            )
        return job

    return build


def zero(_job: DeviceJob) -> tuple[int, ...]:
    """Rank 0."""
    return (0,)


def twice(sequence: list[Frame]) -> list[Frame]:
    """Rank 2 (1 of two) tells that its steps are of two micro-steps."""
    result = []
    for frame in sequence:
        if frame.kind != FrameKind.STEPS:
            result.append(frame)
            continue
        columns = dict(unpack_columns(frame.payload, STEP_NAMES))
        more = columns["samples"] > 2 * columns["samples"].min() - 1 if columns["samples"].size else 0
        columns["micro_steps"] = np.where(more & (np.ptp(columns["samples"]) > 0), 2, 1)
        rows = np.stack([columns[name] for name in STEP_NAMES], axis=1)
        result.append(replace(frame, payload=pack_columns(np.ascontiguousarray(rows), STEP_NAMES)))
    return result


def heat(num_steps: int, why: str = "") -> Build:
    """Steps of 300 ms; why: NVML's word for what holds devices back while a fault slows them; "": nobody asks."""
    return within(scaled(10 / 3), changed(num_steps=num_steps, throttled_by=why))


RIGS: Final[dict[str, World]] = {
    "one device held back by heat for 30 s, cool for 30 s, steps of 300 ms": World(
        within(heat(1000), one("device", factor=1.25, every=200, length=100)), bad, DEVICE, first=488
    ),
    "all devices held back by heat for 30 s, cool for 30 s, steps of 300 ms": World(
        within(heat(1000), everyone("device", factor=1.25, every=200, length=100)),
        findings=STRETCHES,
        first=488,
        may_pause=True,
    ),
    "one device was held back by heat twice for 30 s, NVML tells": World(
        within(heat(600, "thermal (hardware)"), one("device", factor=1.25, onset=150, every=200, length=100)),
        bad,
        DEVICE,
        first=88,
    ),
    "all devices were held back by heat twice for 30 s, NVML tells": World(
        within(
            heat(600, "thermal (hardware)"), everyone("device", factor=1.25, onset=150, every=200, length=100)
        ),
        findings=STRETCHES,
        first=88,
    ),
    "all devices held back by heat for 40 s, cool for 20 s, NVML tells": World(
        within(heat(1000, "thermal (software)"), everyone("device", factor=1.25, every=200, length=133)),
        findings=STRETCHES,
        first=488,
    ),
    "the devices of one of two hosts held back by heat for 30 s, cool for 30 s": World(
        lambda job: on_two_hosts(heat(1000)(job)).with_faults(
            Fault("device", second_half(job), factor=1.25, every=200, length=100)
        ),
        second_half,
        DEVICE | HOST,
        first=488,
    ),
    "one rail degraded: one of two groups exchanges eight times slower": World(
        lambda job: in_pairs(job).with_faults(Fault("link", (1,), factor=8)),
        lambda job: tuple(range(1, max(4, job.num_ranks), 2)),
        LINK,
        findings=LINK,
        must_all=False,
        is_sized=False,
    ),
    "one card degraded: two of the ranks copy and exchange slower": World(
        also(lambda job: job.with_faults(Fault("copy", two_bad(job), 12 * MS)), everyone("link", factor=3)),
        two_bad,
        COPY,
        findings=LINK | {"copy_in_step"},  # of two ranks both do
        must_all=False,
        is_sized=False,
    ),
    "one device slow in backward alone": World(one("backward", factor=1.3), bad, BACKWARD),
    "one device slow in forward alone": World(one("forward", factor=1.4), bad, FORWARD),
    "one rank alone waits for its device in each layer": World(
        lambda job: replace(job, looking_rank=bad(job)[0]), bad, HOST | FORWARD, is_sized=False
    ),
    "rank 0 looks at the loss and logs for 15 ms in each step": World(
        within(of((0,)), lambda job: job.with_faults(Fault("save", (0,), 15 * MS))),
        zero,
        OTHER,
        is_sized=False,
    ),
    "rank 0 looks at the loss and logs for 5 ms every second step": World(
        within(of((0,)), lambda job: job.with_faults(Fault("save", (0,), 5 * MS, every=2))),
        zero,
        OTHER,
        is_sized=False,
    ),
    "allocator retries: 60 ms in forward in one step of ten on one rank": World(
        within(within(LONG, changed(queue=12)), one("forward_host", 60 * MS, chance=0.1)),
        bad,
        HOST | FORWARD,
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "allocator frees and synchronizes: 400 ms every fiftieth step on one rank": World(
        within(LONG, one("forward", 400 * MS, every=50)),
        bad,
        HOST | SLOW_WORDS,
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "a row of memory is remapped: one device stands for 6 s": World(
        within(changed(num_steps=300), one("forward", 6.0, onset=180, until=181)),
        bad,
        HOST | SLOW_WORDS,
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "a row of memory is remapped: one device stands for 6 s and is slower from then on": World(
        within(
            changed(num_steps=400),
            lambda job: job.with_faults(
                Fault("forward", bad(job), 6.0, onset=180, until=181),
                Fault("device", bad(job), factor=1.2, onset=181),
            ),
        ),
        bad,
        HOST | SLOW_WORDS,
        first=200,
        may_pause=True,
        is_sized=False,
    ),
    "pinning thread starves: data 150 ms late in a third of the steps on one rank": World(
        within(LONG, one("data", 150 * MS, chance=0.33)), bad, DATA, findings=INPUT, is_sized=False
    ),
    "pinning threads starve: data 150 ms late in a third of the steps on all, by lot": World(
        within(LONG, everyone("data", 150 * MS, chance=0.33)),
        findings=INPUT | TURNS,
        sentence=IN_TURNS,
        is_sized=False,
    ),
    "H100 and A100: half of the devices take 2.2 times as long": World(
        lambda job: job.with_faults(Fault("device", second_half(job), factor=2.2)),
        second_half,
        DEVICE,
        must_all=False,
        is_sized=False,
    ),
    "H100 and A100, and one of the fast ones waits for data": World(
        lambda job: job.with_faults(
            Fault("device", second_half(job), factor=1.6), Fault("data", (0,), 250 * MS)
        ),
        lambda job: (0, *second_half(job)),
        DEVICE | DATA,
        must_all=False,
        is_sized=False,
    ),
    "rank 0 evaluates for 1 s every fifty steps, no look at the loss by others": World(
        changed(num_steps=400, eval_every=50, eval_s=1.0, eval_rank=0),
        zero,
        frozenset({"eval", "other", "host"}),
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "one rank accumulates by mistake: twice the work a step": World(
        one("batch", factor=2.0), bad, SLOW_WORDS, is_sized=False, edit=twice
    ),
    "accumulation over four micro-steps, one device slow in backward alone": World(
        within(FOUR, one("backward", factor=1.3)), bad, BACKWARD, is_sized=False
    ),
    "sequences of very uneven lengths, tokens told": World(
        within(changed(tokens=8192), everyone("lengths", factor=0.5)),
        findings=TURNS,
        sentence=IN_TURNS,
        is_sized=False,
    ),
    "hot expert: one rank's forward longer where ranks meet in forward": World(
        within(changed(meetings=4), one("forward", factor=1.5)), bad, FORWARD | DEVICE, is_sized=False
    ),
    "hot expert: one rank longer in forward and backward where ranks meet in both": World(
        within(changed(meetings=4), also(one("forward", factor=1.4), one("backward", factor=1.4))),
        bad,
        SLOW_WORDS,
        is_sized=False,
    ),
    "two ranks share one device": World(
        lambda job: replace(job, on_one_device=two_bad(job)).with_faults(
            Fault("device", two_bad(job), factor=1.9)
        ),
        two_bad,
        DEVICE,
        sentence="share devices (2 ranks on one device); how much longer",  # both of two do: more cannot be known
        must_all=False,
        is_sized=False,
    ),
    "a rank on the far socket: thread and copies half as fast": World(
        lambda job: job.with_faults(Fault("host", bad(job), factor=1.8), Fault("copy", bad(job), 9 * MS)),
        bad,
        COPY | HOST,
        is_sized=False,
    ),
    "cgroup throttles one rank: thread ten times slower in three steps of ten": World(
        within(LONG, one("host", factor=10, every=10, length=3)), bad, OTHER | SLOW_WORDS, is_sized=False
    ),
    "gradients are clipped by a number the thread reads: a look after each exchange": World(
        changed(is_copy_blocking=True)
    ),
    "gradients are clipped by a number the thread reads, one device slow": World(
        within(changed(is_copy_blocking=True), SLOW), bad, DEVICE
    ),
    "data late on all and one device slow": World(
        also(everyone("data", 150 * MS), SLOW),
        bad,
        DEVICE,
        findings=INPUT,
        must_all=False,
        is_sized=False,
    ),
    "first epoch reads cold files: data 200 ms late on all until step 150": World(
        within(LONG, everyone("data", 200 * MS, until=150)), first=200
    ),
    "caches go cold: data 200 ms late on one host's ranks for 60 steps, then well": World(
        within(
            LONG, lambda job: job.with_faults(Fault("data", second_half(job), 200 * MS, onset=150, until=210))
        ),
        first=300,
        may_pause=True,
    ),
    "NVML shows all clocks held back, one rank's data is late": World(
        lambda job: clocked(one("data", 120 * MS)(job), tuple(range(job.num_ranks))), bad, DATA
    ),
    "one rank's launches slow down little by little (it leaks)": World(
        within(changed(num_steps=440, queue=12), one("host", factor=8.0, ramp=400, onset=20)),
        bad,
        HOST | SLOW_WORDS,
        first=386,
        is_sized=False,
    ),
    "one device jitters: each step 0 to 60 % longer by lot": World(
        within(LONG, one("backward", 45 * MS, chance=0.5)), bad, BACKWARD | DEVICE, is_sized=False
    ),
}
TWINS: Final[dict[str, World]] = {
    "steps of 300 ms, healthy": World(heat(1000)),
    "steps of 300 ms, healthy, NVML tells": World(heat(1000, "thermal (hardware)")),
    "tensor-parallel pairs whose halves exchange apart, healthy": World(in_pairs),
    "accumulation, short queue, healthy": World(changed(queue=12, num_steps=400)),
    "tokens told, healthy": World(changed(tokens=8192)),
}
