"""What goes wrong in trainings on 8 to 1,024 devices, each beside its healthy twin: further situations for the table.

In: a healthy job of any size.  Out: World a situation, as in `device_worlds.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

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
    one,
    two_bad,
    within,
)
from simulated_devices import EVENT_NAMES, MS, DeviceJob, Fault, edited

from tuiadvisor.stream.frames import Frame

PAUSES: Final = frozenset({"periodic_pause", "irregular_pause", "checkpoint_pause"})
COLLECTING: Final = frozenset({"unaligned_collection"})
TURNS: Final = frozenset({"wandering_lateness", "taking_turns", "uneven_lengths"})
IN_TURNS: Final = "stragglers that vary from step to step cost"


def other(job: DeviceJob) -> int:
    """A rank that nothing ails."""
    return 3 if job.num_ranks > 3 else 0


def on_hosts(job: DeviceJob) -> DeviceJob:
    """Eight hosts, or as many as there are ranks."""
    return replace(job, ranks_per_host=max(1, job.num_ranks // 8))


def second_host(job: DeviceJob) -> tuple[int, ...]:
    """All ranks of the second host."""
    each = on_hosts(job).ranks_per_host
    return tuple(range(each, 2 * each))


def an_eighth(job: DeviceJob) -> tuple[int, ...]:
    """One rank of eight, at least one."""
    return tuple(range(1, job.num_ranks, 8))


def scaled(factor: float) -> Build:
    """All times of a step by a factor."""
    names = ("copy", "forward", "backward", "optimizer", "transfer")
    hosts = tuple(f"{name}_host" for name in (*names[:4], "data", "other"))

    def change(job: DeviceJob) -> DeviceJob:
        return replace(job, **{f"{name}_s": factor * getattr(job, f"{name}_s") for name in (*names, *hosts)})

    return change


def without_rank(sequence: list[Frame], rank: int) -> list[Frame]:
    """Nothing comes from that rank's device."""
    return edited(sequence, lambda rows: rows[rows[:, EVENT_NAMES.index("rank")] != rank])


def all_in_turn(kind: str, amount_s: float, every: int) -> Build:
    """Each rank has it every so many steps, at its own time by lot."""
    return lambda job: job.with_faults(Fault(kind, None, amount_s, chance=1 / every))


def _mesh(job: DeviceJob, axis: str) -> dict[str, int]:
    """Two ranks of that axis in a row, data parallel beside."""
    return {"dp": max(1, job.num_ranks // 2), axis: 2}


def in_pairs(job: DeviceJob) -> DeviceJob:
    """Tensor parallel pairs, at least two of them."""
    job = replace(job, num_ranks=max(4, job.num_ranks), unseen_meetings=8, unseen_mates=2, groups=2)
    return replace(job, parallel=_mesh(job, "tp"))


def in_two_groups(job: DeviceJob) -> DeviceJob:
    """Two groups that never meet, of two ranks at least: whoever is alone in its group is waited for by nobody."""
    return replace(job, num_ranks=max(4, job.num_ranks), groups=2)


FOUR: Final = changed(micro_steps=4, queue=400)
LOCKED: Final = changed(micro_steps=4, queue=20)
SLOW_WORDS: Final = DEVICE | {"forward", "backward", "optimizer"}

TROUBLES: Final[dict[str, World]] = {
    "accumulation, data late in the last micro-step alone": World(
        within(LOCKED, one("data", 150 * MS, micro=3)), bad, DATA
    ),
    "accumulation, data late in the first micro-step alone": World(
        within(LOCKED, one("data", 150 * MS, micro=0)), bad, DATA
    ),
    "accumulation, backward slow in the last micro-step alone": World(
        within(FOUR, one("backward", 30 * MS, micro=3)), bad, frozenset({"backward"})
    ),
    "accumulation, backward slow in the first micro-step alone": World(
        within(FOUR, one("backward", 30 * MS, micro=0)), bad, frozenset({"backward"})
    ),
    "first step compiles for three minutes on one rank": World(
        one("forward_host", 180.0, until=1), may_pause=True
    ),
    "garbage collected for 200 ms in one step of thirty, any rank, thread far ahead": World(
        within(changed(num_steps=400, queue=400), all_in_turn("gc", 200 * MS, 30)), findings=COLLECTING
    ),
    "garbage collected for 200 ms in one step of thirty, any rank, thread just ahead": World(
        within(changed(num_steps=400, queue=12), all_in_turn("gc", 200 * MS, 30)), findings=COLLECTING
    ),
    "garbage collected for 200 ms every thirtieth step on one rank": World(
        within(changed(num_steps=400, queue=12), one("gc", 200 * MS, every=30)),
        bad,
        HOST | {"forward", "other"},
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "a loader's worker dies at step 500, data three times slower on one rank": World(
        within(changed(num_steps=700, data_host_s=40 * MS), one("data", factor=3, onset=500)),
        bad,
        DATA,
        first=500,
    ),
    "loaders of all ranks slower from step 500 on": World(
        within(changed(num_steps=700), everyone("data", 120 * MS, onset=500)), findings=INPUT, first=500
    ),
    "one worker of eight is slow: data late every eighth step on one rank": World(
        within(changed(num_steps=400), one("data", 300 * MS, every=8)),
        bad,
        DATA,
        findings=frozenset({"periodic_data_wait"}),
        must_all=False,
        is_sized=False,
    ),
    "loaders start anew at each epoch, 3 s every hundred steps on all": World(
        within(changed(num_steps=500), everyone("data", 3.0, every=100)),
        findings=PAUSES | INPUT | {"periodic_data_wait"},
        is_sized=False,
        may_pause=True,
    ),
    "last batch of an epoch is short on all ranks": World(
        within(changed(num_steps=500), everyone("batch", factor=0.3, every=100))
    ),
    "exchange four times slower (a rail of the network is down)": World(
        everyone("link", factor=4), findings=LINK, is_least_wait=True
    ),
    "exchange ten times slower in every fifth step": World(
        within(changed(num_steps=300), everyone("link", factor=10, every=5)),
        findings=LINK,
        is_least_wait=True,
    ),
    "exchange thirty times slower in one step of fifty": World(
        within(changed(num_steps=400), everyone("link", factor=30, chance=0.02 / 4)),
        findings=LINK | PAUSES,
        is_sized=False,
        may_pause=True,
    ),
    "two devices of one host share a degraded link": World(
        lambda job: job.with_faults(Fault("copy", two_bad(job), 25 * MS)),
        two_bad,
        COPY,
        findings=frozenset({"copy_in_step"}),
        must_all=False,
    ),
    "one host of several capped in waves of forty steps": World(
        lambda job: on_hosts(replace(job, num_steps=440)).with_faults(
            Fault("device", second_host(job), factor=1.25, every=80, length=40)
        ),
        second_host,
        SLOW_WORDS | HOST,
        findings=TURNS,
        must_all=False,
        is_sized=False,
    ),
    "one host of several always slow": World(
        lambda job: on_hosts(job).with_faults(Fault("device", second_host(job), factor=1.2)),
        second_host,
        SLOW_WORDS | HOST,
        is_sized=False,
    ),
    "device grows slower by a quarter over four hundred steps": World(
        within(changed(num_steps=440), one("device", factor=1.25, ramp=400, onset=20)),
        bad,
        DEVICE,
        first=380,
        is_sized=False,
    ),
    "device grows slower for two hundred steps and stays so": World(
        within(changed(num_steps=440), one("device", factor=1.25, ramp=200, onset=100)),
        bad,
        DEVICE,
        first=320,
    ),
    "one rank's loader grows slower over four hundred steps": World(
        within(changed(num_steps=440, queue=12), one("data", factor=400.0, ramp=400, onset=20)),
        bad,
        DATA,
        first=386,
    ),
    "all devices grow slower by a quarter over four hundred steps": World(
        within(changed(num_steps=440), everyone("device", factor=1.25, ramp=400, onset=20)),
        findings=frozenset({"slower_since"}),
        sentence="longer little by little on all ranks",  # what made them so no clock of a device tells
        is_sized=False,
    ),
    "device stands still once for 1.5 s": World(
        within(changed(num_steps=300), one("backward", 1.5, onset=200, until=201)),
        bad,
        SLOW_WORDS | HOST,
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "a checkpoint is copied beside the training, twenty slower steps of every hundred": World(
        within(changed(num_steps=500), everyone("device", factor=1.5, every=100, length=20)),
        findings=frozenset({"slow_stretches"}),
        is_sized=False,
        may_pause=True,
    ),
    "optimizer bound by the thread on all ranks": World(
        changed(optimizer_host_s=60 * MS),
        findings=frozenset({"host_bound"}),
        is_sized=False,
    ),
    "the thread waits for its device in each layer on all ranks": World(changed(looks_in_layers=True)),
    "the thread waits for its device in each layer, one device slow": World(
        within(changed(looks_in_layers=True), SLOW), bad, DEVICE
    ),
    "one device of eight of a slower kind": World(
        lambda job: job.with_faults(Fault("device", an_eighth(job), factor=1.4)),
        an_eighth,
        DEVICE,
        is_sized=False,
    ),
    "experts unevenly loaded, another rank each step, ranks meet in forward": World(
        within(changed(meetings=4), everyone("lengths", factor=0.25)),
        findings=TURNS,
        sentence=IN_TURNS,
        is_sized=False,
    ),
    "one rank always has sequences longer by a third": World(
        within(changed(tokens=8192), one("longer", factor=1.33)), bad, SLOW_WORDS, is_sized=False
    ),
    "batch grows by design over three hundred steps": World(
        within(changed(num_steps=400), everyone("batch", factor=2.0, ramp=300)),
        is_sized=False,
        is_by_design=True,
    ),
    "sequences twice as long from step 300 on, by design": World(
        within(changed(num_steps=450, tokens=8192), everyone("longer", factor=2.0, onset=300)),
        is_sized=False,
        is_by_design=True,
    ),
    "rank 0 alone evaluates for 2 s every hundred steps": World(
        changed(num_steps=500, eval_every=100, eval_s=2.0, eval_rank=0),
        may_pause=True,
        guilty=lambda _job: (0,),
        must_all=False,
        causes=frozenset({"eval", "other", "host"}),
    ),
    "rank 0 logs to a slow file system for 300 ms every tenth step": World(
        within(changed(num_steps=400), lambda job: job.with_faults(Fault("save", (0,), 0.3, every=10))),
        lambda _job: (0,),
        frozenset({"other", "host"}),
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "a profiler beside one rank makes launches six times dearer": World(one("host", factor=6), bad, HOST),
    "one rank is stopped for 2 s once": World(
        within(changed(num_steps=300), one("save", 2.0, onset=200, until=201)),
        bad,
        HOST | {"other"},
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "clocks of hosts 5 s apart, one device slow": World(
        lambda job: SLOW(replace(on_hosts(job), host_clock_s={1: 5.0, 2: -5.0})), bad, DEVICE
    ),
    "a device slow until step 150, from then on another rank's data": World(
        lambda job: replace(job, num_steps=300).with_faults(
            Fault("device", two_bad(job)[:1], factor=1.25, until=150),
            Fault("data", two_bad(job)[1:], 120 * MS, onset=150),
        ),
        lambda job: two_bad(job)[1:],
        DATA,
        first=170,
    ),
    "the slow device is another one from step 200 on": World(
        lambda job: replace(job, num_steps=320).with_faults(
            Fault("device", two_bad(job)[:1], factor=1.25, until=200),
            Fault("device", two_bad(job)[1:], factor=1.25, onset=200),
        ),
        lambda job: two_bad(job)[1:],
        DEVICE,
        first=220,
    ),
    "one device of a pipeline's stages slow, replicas of two stages": World(
        lambda job: SLOW(
            replace(job, unseen_meetings=4, unseen_mates=2, groups=2, parallel=_mesh(job, "pp"))
        ),
        bad,
        DEVICE,
    ),
    "one device of a tensor-parallel pair slow": World(
        lambda job: SLOW(in_pairs(job)),
        lambda _job: (2,),
        DEVICE,
        is_sized=False,  # what its mate waits for is its loss, too
    ),
    "data late on one of a tensor-parallel pair": World(
        lambda job: one("data", 120 * MS)(in_pairs(job)), lambda _job: (2,), DATA, is_sized=False
    ),
    "stages of a pipeline of unlike length beside data parallel": World(
        lambda job: replace(
            job, unseen_meetings=4, groups=2, parallel={"dp": job.num_ranks // 2, "pp": 2}
        ).with_faults(Fault("device", tuple(range(0, job.num_ranks, 2)), factor=1.3)),
        lambda job: tuple(range(0, job.num_ranks, 2)),
        SLOW_WORDS,
        must_all=False,
        is_sized=False,
    ),
    "two groups that exchange apart, one device slow": World(
        within(in_two_groups, SLOW), bad, DEVICE, is_sized=False
    ),
    "graphs, one device slow": World(lambda job: SLOW(job.graphed()), bad, DEVICE),
    "steps of 3 ms, healthy": World(scaled(1 / 30)),
    "steps of 3 ms, one device slow": World(within(scaled(1 / 30), SLOW), bad, DEVICE),
    "steps of 30 s, one device slow, forty steps": World(
        within(scaled(330), within(changed(num_steps=42), SLOW)), bad, DEVICE, first=2
    ),
    "twelve measured steps so far, one device slow": World(
        within(changed(num_steps=15), SLOW), bad, DEVICE, first=2
    ),
    "one rank's device is not seen, one device slow": World(
        SLOW, bad, DEVICE, edit=lambda sequence: without_rank(sequence, 0)
    ),
    "one rank's device is not seen, and it is the slow one": World(
        SLOW, bad, DEVICE, edit=lambda sequence: without_rank(without_rank(sequence, 2), 1)
    ),
    "all clocks held back alike, NVML tells, one device slow": World(
        lambda job: clocked(SLOW(job), tuple(range(job.num_ranks))), bad, DEVICE
    ),
    "NVML shows one clock held back, another rank's device is slow": World(
        lambda job: clocked(SLOW(job), (other(job),)), bad, DEVICE
    ),
    "NVML shows one clock held back, another rank's data is late": World(
        lambda job: clocked(one("data", 120 * MS)(job), (other(job),)), bad, DATA
    ),
    "NVML shows one clock held back, its pace is the others'": World(lambda job: clocked(job, (other(job),))),
    "devices whose kernels vary by a twentieth, healthy": World(changed(device_noise=0.05)),
    "devices whose kernels vary by a twentieth, one slow": World(
        within(changed(device_noise=0.05, num_steps=300), SLOW), bad, DEVICE
    ),
    "recompiles for 3 s in one step of eighty, any rank": World(
        lambda job: replace(job, num_steps=500).with_faults(
            Fault("forward_host", None, 3.0, chance=1 / 80 / job.num_ranks)
        ),
        findings=PAUSES | TURNS,
        sentence=IN_TURNS,
        is_sized=False,
        may_pause=True,
        guilty=lambda job: tuple(range(job.num_ranks)),
        must_all=False,
        causes=HOST | {"forward"},
    ),
    "memory is freed and asked for anew for 150 ms every fortieth step on one rank": World(
        within(changed(num_steps=450), one("backward", 150 * MS, every=40)),
        bad,
        HOST | SLOW_WORDS,
        findings=PAUSES,
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "data late on a quarter of the ranks": World(
        lambda job: job.with_faults(Fault("data", tuple(range(max(1, job.num_ranks // 4))), 120 * MS)),
        lambda job: tuple(range(max(1, job.num_ranks // 4))),
        DATA | HOST,
        is_sized=False,
    ),
    "data late on three quarters of the ranks": World(
        lambda job: job.with_faults(Fault("data", tuple(range(max(1, 3 * job.num_ranks // 4))), 120 * MS)),
        lambda job: tuple(range(max(1, 3 * job.num_ranks // 4))),
        DATA | HOST,
        findings=INPUT,
        must_all=False,
        is_sized=False,
    ),
    "three devices slow, for three reasons": World(
        lambda job: job.with_faults(
            Fault("device", two_bad(job)[:1], factor=1.2),
            Fault("copy", two_bad(job)[1:], 16 * MS),
            Fault("optimizer", (job.num_ranks - 1,), 15 * MS),
        ),
        lambda job: (*two_bad(job), job.num_ranks - 1),
        DEVICE | COPY | {"optimizer"},
        must_all=False,
    ),
}
