"""Situations on devices by name, and whether what is said of one is right, unknown or wrong.

In: a situation, a number of ranks, the steps between two looks at the loss.  Out: Said. The truth is the simulation's:
who was slowed down, by what, and what the same job with the same noise takes without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from simulated_devices import (
    EVENT_NAMES,
    MS,
    DeviceJob,
    Fault,
    folded,
    frames,
    simulate,
    true_loss_s,
)

from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns, unpack_columns
from tuiadvisor.views.run_view import Finding, RunView

WORTH_SAYING: Final = 0.03  # of the step: a rank that costs this much and is kept silent is a wrong "keep"
WORTH_A_WARNING: Final = 0.05  # of the step: TraceML's, as rule straggler; less is a remark
HELD_BACK: Final = (1755, 1462)  # MHz of a device that is well, and of one that is held back
Build = Callable[[DeviceJob], DeviceJob]


@dataclass(frozen=True)
class World:
    """A situation. build: of a healthy job of that size.

    causes: what a guilty rank may be late by. findings: what must be found where no rank is to blame; any of them
    will do, and so will these words in the verdict's `sentence`. guilty: the ranks that may be named; all of them must
    be, if `must_all`. first: the steps from there on tell the true loss. is_sized: whether the loss told must be it.
    """

    build: Build
    guilty: Callable[[DeviceJob], tuple[int, ...]] = lambda _job: ()
    causes: frozenset[str] = frozenset()
    findings: frozenset[str] = frozenset()
    sentence: str = ""
    must_all: bool = True
    first: int = 20
    is_sized: bool = True
    edit: Callable[[list[Frame]], list[Frame]] = lambda sequence: sequence
    may_pause: bool = False  # a remark on pauses is right
    is_least_wait: bool = False  # the loss is what every rank waits in the exchange
    is_by_design: bool = False  # steps take longer because they do more work


@dataclass(frozen=True)
class Said:
    """What was said of a situation. word: right, remark (so, but beside a verdict to keep), unknown, size or wrong."""

    word: str
    words: str

    @property
    def is_wrong(self) -> bool:
        """Whether a reader is misled."""
        return self.word == "wrong"


def bad(job: DeviceJob) -> tuple[int, ...]:
    """The rank that most faults hit."""
    return (2,) if job.num_ranks > 2 else (1,)


def two_bad(job: DeviceJob) -> tuple[int, ...]:
    """Two of them."""
    return (1, 2) if job.num_ranks > 2 else (0, 1)


def second_half(job: DeviceJob) -> tuple[int, ...]:
    """The ranks of the second of two hosts."""
    return tuple(range(job.num_ranks // 2, job.num_ranks))


def on_two_hosts(job: DeviceJob) -> DeviceJob:
    """Half of the ranks on each, whose clocks are hours apart."""
    return replace(job, ranks_per_host=max(1, job.num_ranks // 2), host_clock_s={1: 7200.0})


def one(kind: str, amount_s: float = 0.0, factor: float = 1.0, **more: Any) -> Build:
    """The bad rank has this fault."""
    return lambda job: job.with_faults(Fault(kind, bad(job), amount_s, factor, **more))


def everyone(kind: str, amount_s: float = 0.0, factor: float = 1.0, **more: Any) -> Build:
    """All ranks have it."""
    return lambda job: job.with_faults(Fault(kind, None, amount_s, factor, **more))


def within(change: Build, fault: Build) -> Build:
    """A fault in a job that is changed first."""
    return lambda job: fault(change(job))


def changed(**fields: object) -> Build:
    """The job with other fields."""
    return lambda job: replace(job, **fields)  # type: ignore[arg-type]


def clocked(job: DeviceJob, low: tuple[int, ...]) -> DeviceJob:
    """NVML tells the clocks, and that these ranks' are held back."""
    return replace(job, mhz=tuple(HELD_BACK[rank in low] for rank in range(job.num_ranks)))


def without_exchange(sequence: list[Frame]) -> list[Frame]:
    """As under FSDP2: what ranks wait for each other lies in forward and backward, where it looks like compute."""
    return [_recoded(frame) if frame.kind == FrameKind.EVENTS else frame for frame in sequence]


def _recoded(frame: Frame) -> Frame:
    columns = unpack_columns(frame.payload, EVENT_NAMES)
    phase = columns["group"]
    columns["group"] = np.where(phase == PHASES.index("comm_exposed"), PHASES.index("backward"), phase)
    rows = np.stack([columns[name] for name in EVENT_NAMES], axis=1)
    return replace(frame, payload=pack_columns(rows, EVENT_NAMES))


def on_and_off(job: DeviceJob) -> DeviceJob:
    """Well for fifty steps, slow for fifty, and so on; slow at the end."""
    faults = (Fault("device", bad(job), factor=1.25, onset=at, until=at + 50) for at in range(50, 400, 100))
    return replace(job, num_steps=400).with_faults(*faults)


SLOW: Final = one("device", factor=1.2)
DEVICE: Final = frozenset({"device"})
DATA: Final = frozenset({"data_wait"})
COPY: Final = frozenset({"h2d"})
HOST: Final = frozenset({"host"})
LINK: Final = frozenset({"communication_bound"})
INPUT: Final = frozenset({"input_bound"})

TABLE: Final[dict[str, World]] = {
    "healthy": World(changed()),
    "one device slower by a fifth, NVML shows its clock held back": World(
        lambda job: clocked(SLOW(job), bad(job)), bad, DEVICE
    ),
    "one device slower by a fifth, nobody asks NVML": World(SLOW, bad, DEVICE),
    "link ten times slower": World(everyone("link", factor=10), findings=LINK, is_least_wait=True),
    "data 120 ms late on one rank": World(one("data", 120 * MS), bad, DATA),
    "data 120 ms late on all": World(everyone("data", 120 * MS), findings=INPUT),
    "copy to device 20 ms slower on one rank": World(one("copy", 20 * MS), bad, COPY),
    "thread three times slower": World(one("host", factor=3), bad, HOST),
    "thread four and a half times slower": World(one("host", factor=4.5), bad, HOST),
    "graphs, healthy": World(lambda job: job.graphed()),
    "one of two hosts late": World(
        lambda job: on_two_hosts(job).with_faults(Fault("device", second_half(job), factor=1.2)),
        second_half,
        DEVICE | HOST,  # one rank of it alone is a device; all of them are "its host"
        is_sized=False,
    ),
    "FSDP2, healthy": World(changed(), edit=without_exchange),
    "FSDP2, one device slow": World(SLOW, bad, DEVICE, edit=without_exchange),
}

FURTHER: Final[dict[str, World]] = {
    "optimizer alone slow on one rank": World(one("optimizer", 20 * MS), bad, frozenset({"optimizer"})),
    "forward alone slow on one rank": World(one("forward", 15 * MS), bad, frozenset({"forward"})),
    "two devices slow, by 20 and by 10 %": World(
        lambda job: job.with_faults(
            Fault("device", two_bad(job)[:1], factor=1.2), Fault("device", two_bad(job)[1:], factor=1.1)
        ),
        two_bad,
        DEVICE,
        must_all=False,
    ),
    "slow device alternates between two ranks, step by step": World(
        lambda job: replace(job, num_steps=200).with_faults(
            Fault("device", two_bad(job), factor=1.3, turns=1)
        ),
        two_bad,
        DEVICE,
        findings=frozenset({"wandering_lateness", "taking_turns"}),
        must_all=False,
        is_sized=False,  # spread evenly over the ranks it would be half
    ),
    "slow device alternates between two ranks, every ten steps": World(
        lambda job: replace(job, num_steps=200).with_faults(
            Fault("device", two_bad(job), factor=1.3, turns=10)
        ),
        two_bad,
        DEVICE,
        findings=frozenset({"wandering_lateness", "taking_turns"}),
        must_all=False,
        is_sized=False,  # spread evenly over the ranks it would be half
    ),
    "well for fifty steps, slow for fifty, in turn": World(on_and_off, bad, DEVICE, first=2),
    "accumulation over four micro-steps, healthy": World(changed(micro_steps=4, queue=400)),
    "accumulation over four micro-steps, one device slow": World(
        within(changed(micro_steps=4, queue=400), SLOW), bad, DEVICE
    ),
    "accumulation over four micro-steps, data late on one": World(
        within(changed(micro_steps=4), one("data", 120 * MS)), bad, DATA
    ),
    "SyncBatchNorm, healthy": World(changed(meetings=4)),
    "SyncBatchNorm, one device slow": World(
        within(changed(meetings=4), SLOW),
        bad,
        DEVICE | {"forward"},  # where ranks meet in backward no border is
    ),
    "SyncBatchNorm, data late on one": World(within(changed(meetings=4), one("data", 120 * MS)), bad, DATA),
    "thread five steps ahead, one device slow": World(within(changed(queue=200), SLOW), bad, DEVICE),
    "thread five steps ahead, data late on one": World(
        within(changed(queue=200), one("data", 120 * MS)), bad, DATA
    ),
    "held back from step 300 on": World(
        within(changed(num_steps=450), one("device", factor=1.2, onset=300)), bad, DEVICE, first=300
    ),
    "all devices held back alike, NVML tells": World(
        lambda job: clocked(job, tuple(range(job.num_ranks))), is_sized=False
    ),
    "all devices slower since step 200": World(
        within(changed(num_steps=350), everyone("device", factor=1.3, onset=200)),
        findings=frozenset({"slower_since"}),
        sentence="longer on all ranks",  # what did it no clock of a device tells
        first=200,
        is_sized=False,
    ),
    "evaluation of 0.5 s every sixty steps, healthy": World(
        changed(num_steps=300, eval_every=60, eval_s=0.5), may_pause=True
    ),
    "evaluation of 0.5 s every sixty steps, one device slow": World(
        within(changed(num_steps=300, eval_every=60, eval_s=0.5), SLOW), bad, DEVICE, may_pause=True
    ),
    "rank 0 saves for 1 s every fifty steps, nothing marks it": World(
        lambda job: replace(job, num_steps=300).with_faults(Fault("save", (0,), 1.0, every=50)),
        lambda _job: (0,),
        frozenset({"other", "host", "checkpoint"}),
        findings=frozenset({"periodic_pause", "irregular_pause", "checkpoint_pause"}),
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "link six times slower and one device slow": World(
        lambda job: job.with_faults(Fault("device", bad(job), factor=1.2), Fault("link", factor=6)),
        bad,
        DEVICE,
        findings=LINK,
        is_sized=False,
    ),
    "data late on one of two hosts": World(
        lambda job: on_two_hosts(job).with_faults(Fault("data", second_half(job), 120 * MS)),
        second_half,
        DATA | HOST,
        is_sized=False,
    ),
    "half of the devices of a slower kind": World(
        lambda job: job.with_faults(Fault("device", second_half(job), factor=1.5)),
        second_half,
        DEVICE,
        must_all=False,
        is_sized=False,
    ),
    "batches of very different lengths": World(
        everyone("lengths", factor=0.3),
        findings=frozenset({"wandering_lateness", "uneven_lengths"}),
        sentence="stragglers that vary from step to step cost",
        is_sized=False,
    ),
    "one thread stops for 80 ms every twenty steps": World(
        lambda job: replace(job, num_steps=300).with_faults(Fault("save", bad(job), 0.08, every=20)),
        bad,
        frozenset({"other", "host"}),
        findings=frozenset({"periodic_pause", "irregular_pause"}),
        must_all=False,
        is_sized=False,
        may_pause=True,
    ),
    "rank 0 alone looks at the loss in every step, healthy": World(changed(logging_rank=0)),
    "rank 0 alone looks at the loss, one device slow": World(
        within(changed(logging_rank=0), SLOW), bad, DEVICE
    ),
    "copy slow on all ranks": World(everyone("copy", 30 * MS), findings=frozenset({"copy_in_step"})),
    "was slow until step 150 of 300": World(
        lambda job: replace(job, num_steps=300, faults=()).with_faults(
            Fault("device", bad(job), factor=1.3, until=150)
        ),
        first=200,
    ),
    "slow device and slow data on another rank": World(
        lambda job: job.with_faults(
            Fault("device", two_bad(job)[:1], factor=1.2), Fault("data", two_bad(job)[1:], 120 * MS)
        ),
        two_bad,
        DEVICE | DATA,
        must_all=False,
    ),
}


def said_of(world: World, num_ranks: int, sync_every: int, period: int = 1) -> Said:
    """What is said of it; period: one step in so many is measured, of a job that is longer by so much."""
    job = stretched(world.build(DeviceJob(num_ranks=num_ranks, sync_every=sync_every)), period)
    world = replace(world, first=world.first * stretch(period))
    return judged(world, job, folded(world.edit(frames(simulate(job)))))


def stretch(period: int) -> int:
    """How many times as many steps a job has of which one in so many is measured."""
    return max(1, period // 2)


def stretched(job: DeviceJob, period: int) -> DeviceJob:
    """The job with as much later onsets; what comes every so many steps does so as before."""
    by = stretch(period)
    faults = tuple(
        fault
        if fault.until == fault.onset + 1
        else replace(fault, onset=by * fault.onset, until=by * fault.until, ramp=by * fault.ramp)
        for fault in job.faults
    )
    return replace(job, num_steps=by * job.num_steps, period=period, faults=faults)


def judged(world: World, job: DeviceJob, view: RunView) -> Said:
    """Against the truth."""
    guilty = set(world.guilty(job))
    true_s = true_loss_s(job, world.first) if job.faults else 0.0
    share = 0.0 if world.is_by_design else true_s / simulate(job).mean_cycle_s(world.first)
    words = said(view, true_s, share)
    wrong = _misled(world, job, view)
    if wrong:
        return Said("wrong", f"{wrong}: {words}")
    is_said = bool(world.sentence) and world.sentence in view.verdict.sentence
    if view.verdict.decision is None and not is_said:
        return Said("unknown", words)
    if share < WORTH_SAYING:
        others = [found.id for found in _above(view) if not (world.may_pause and "pause" in found.id)]
        return Said("wrong", f"alarm {others}: {words}") if others and not guilty else Said("right", words)
    hits = [found for found in view.findings if found.id in world.findings]
    named = _named(view, job)
    missing = guilty - named if world.must_all else set()
    remarked = {rank for found in view.findings if found.loss_s_per_step for rank in found.ranks}
    if guilty and (missing or not named) and guilty <= remarked and not hits and share < WORTH_A_WARNING:
        return Said("remark", words)
    if missing or not (named or hits or is_said):
        return Said("wrong", f"silent of {sorted(missing)[:4]}: {words}")
    if world.is_least_wait:
        true_s = float(simulate(job).waits_s()[20:].min(axis=1).mean())
    elif named & guilty and guilty - named:
        true_s = _cost_s(job, named, world.first)
    late_s = sum(one.loss_s_per_step for one in view.stragglers)
    return _sized(
        world, late_s or max((found.loss_s_per_step or 0.0 for found in hits), default=0.0), true_s, words
    )


def _cost_s(job: DeviceJob, ranks: set[int], first: int) -> float:
    """What a step would be shorter by if these ranks alone were well: what others are late by is not theirs."""
    left = (
        fault if fault.ranks is None else replace(fault, ranks=tuple(sorted({*fault.ranks} - ranks)))
        for fault in job.faults
    )
    cured = job.with_faults(*(fault for fault in left if fault.ranks is None or fault.ranks))
    return simulate(job).mean_cycle_s(first) - simulate(cured).mean_cycle_s(first)


def _misled(world: World, job: DeviceJob, view: RunView) -> str:
    """What is said and not so; empty where nothing is."""
    innocent = _named(view, job) - set(world.guilty(job))
    if innocent:
        return f"innocent {sorted(innocent)[:4]}"
    if world.is_by_design and any(found.id == "slower_since" for found in view.findings):
        return "more work called slower"
    causes = {one.cause for one in view.stragglers} - world.causes
    return f"by {sorted(causes)}" if causes else ""


def _above(view: RunView) -> list[Finding]:
    return [found for found in view.findings if found.severity != "info"]


def _named(view: RunView, job: DeviceJob) -> set[int]:
    """Stragglers, and ranks that a finding above a remark singles out: one that holds for all ranks does not."""
    singled = [found for found in _above(view) if len(found.ranks) < job.num_ranks]
    return {one.rank for one in view.stragglers} | {rank for found in singled for rank in found.ranks}


def _sized(world: World, loss_s: float, true_s: float, words: str) -> Said:
    is_near = abs(loss_s - true_s) <= 0.1 * true_s + 1 * MS
    return Said("right" if is_near or not world.is_sized else "size", words)


def said(view: RunView, true_s: float, share: float) -> str:
    """In one line."""
    above = [
        f"{found.id} {list(found.ranks)[:4]} {found.phase or ''} {1e3 * (found.loss_s_per_step or 0):.1f} ms"
        for found in view.findings
        if found.severity != "info"
    ]
    late = [f"r{one.rank} {one.cause} {1e3 * one.loss_s_per_step:.1f}" for one in view.stragglers[:4]]
    return (
        f"costs {1e3 * true_s:.1f} ms ({share:.0%}); {view.verdict.decision}: {view.verdict.sentence} | "
        f"{'; '.join(above)} | {', '.join(late)}"
    )
