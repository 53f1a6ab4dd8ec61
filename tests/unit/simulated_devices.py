"""Data-parallel training on asynchronous devices, simulated: what the probes of all ranks would record of it.

A rank is a host clock, a compute stream, a communication stream and a bounded launch queue. The host launches, the
device begins a kernel when it was launched and the stream is free; the exchange of a bucket begins when all ranks'
compute has reached it, and after backward the compute stream waits for it. Nothing that is waited for is invented.

In: DeviceJob.  Out: DeviceRun: times of all borders on both clocks, frames, and what the faults truly cost: the same
job with the same noise is simulated without them (`healthy`).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.events import EVENT_COLUMNS, STEP_NAMES, WAIT_PARTS_BITS, EventKind, StepFlag
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns, unpack_columns
from tuiadvisor.views.run_view import RunView
from tuiadvisor_probes.device_times import is_drawn

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Rows = Callable[[Ints], Ints]
MS = 1e-3
EVENT_NAMES = ("rank", "kind", *EVENT_COLUMNS)
BORDERS = (  # the phase that each border of a step begins, in their order
    "data_wait",
    "h2d",
    "forward",
    "backward",
    "comm_exposed",
    "other",
    "optimizer",
    "other",
)
CLOSING = len(BORDERS)  # the border that closes a step is the next one's first
COMM = BORDERS.index("comm_exposed")
HOOKED = ("data_wait", "forward", "backward", "comm_exposed", "optimizer", "other")
MAX_PENDING = 32
MAX_RESOLVED = 2
MEETING_S = 50e-6  # of a few numbers
EVENT_S = 5e-6  # from the record of a border to its passing on an idle device
START_S = 1.0
HELD_FROM_MHZ = 1755  # of a device that is well
LIGHT_COST_NS = (
    80_000  # of the hooks in a step, and with the device's events: seen on an H200 with the Python hooks
)
MEASURED_COST_NS = 450_000


def edited(sequence: list[Frame], edit: Rows) -> list[Frame]:
    """The same frames with other event rows; a frame without rows is lost."""
    result = []
    for frame in sequence:
        if frame.kind != FrameKind.EVENTS:
            result.append(frame)
            continue
        columns = unpack_columns(frame.payload, EVENT_NAMES)
        rows = edit(np.stack([columns[name] for name in EVENT_NAMES], axis=1))
        if len(rows):
            result.append(replace(frame, payload=pack_columns(np.ascontiguousarray(rows), EVENT_NAMES)))
    return result


@dataclass(frozen=True)
class Fault:
    """What is wrong, with whom; amount_s is added, factor multiplies.

    kind: device (factor on kernels), data (host waits for its batch), copy (copy to the device takes longer), host
    (factor on all launches), link (factor on the transfer of the groups of these ranks), rotate (kernels of one rank
    after another, 20 steps each), spikes (kernels of whoever it hits, with that chance a rank and step), forward,
    backward, optimizer (their kernels
    alone), save (the thread does something else after the step), lengths (kernels of every rank and step by a factor
    that is drawn anew; `factor` is its spread), gc (the thread collects garbage before forward), longer and batch
    (factor on kernels and on the tokens or samples that the rank tells), and any of the thread's parts (data_host).
    every: in one step of so many, or `length` steps in a row. turns: the ranks take turns, so many steps each; 0: all
    of them at once. ramp: it grows for so many steps. micro: in that micro-step alone; None: in all of them.
    """

    kind: str
    ranks: tuple[int, ...] | None = None  # None: all
    amount_s: float = 0.0
    factor: float = 1.0
    onset: int = 0
    until: int = 1 << 40
    chance: float = 1.0
    every: int = 1
    turns: int = 0
    length: int = 1
    ramp: int = 0
    micro: int | None = None


@dataclass(frozen=True)
class DeviceJob:
    """A training to simulate. Times are seconds; *_host_s are the thread's, the others the device's."""

    num_ranks: int = 4
    num_steps: int = 140
    ranks_per_host: int = 8
    sync_every: int = 1  # steps between two looks at the loss; 0: never
    period: int = 1  # steps from one measured step to the next, as the probe rounds it
    copy_s: float = 1 * MS
    forward_s: float = 28 * MS
    backward_s: float = 50 * MS
    optimizer_s: float = 6 * MS
    transfer_s: float = 14 * MS  # of all buckets
    data_host_s: float = 0.3 * MS
    copy_host_s: float = 0.1 * MS
    forward_host_s: float = 9 * MS
    backward_host_s: float = 12 * MS
    optimizer_host_s: float = 3 * MS
    other_host_s: float = 0.5 * MS
    is_copy_blocking: bool = False  # the host waits for the copy
    num_forward: int = 12  # pieces of a phase that are launched as one
    num_backward: int = 24
    num_optimizer: int = 4
    num_buckets: int = 4
    queue: int = 100  # pieces that may lie launched and not begun: two and a half steps
    device_noise: float = 0.01  # sigma of the lognormal factor on a phase
    host_noise: float = 0.03
    transfer_noise: float = 0.05
    static_noise: float = 0.002  # no two devices are equally fast
    attach: tuple[int, ...] = ()  # step in which each rank was attached; default 0
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    host_clock_s: dict[int, float] = field(default_factory=dict, hash=False)  # host index -> clock offset
    mhz: tuple[int, ...] = ()  # of each rank's device, as NVML tells; (): nobody asks
    throttled_by: str = (
        ""  # why NVML says, once a second, that devices are held back while a fault slows them
    )
    samples: int = 32
    micro_steps: int = 1  # forwards and backwards before the exchange, each of them as long as one alone
    meetings: int = 0  # layers in whose forward and backward all ranks meet (SyncBatchNorm)
    eval_every: int = 0  # steps; all ranks evaluate after such a step, as long as
    eval_s: float = 2.0
    logging_rank: int = -1  # looks at the loss in every step, whatever the others do
    unseen_meetings: int = (
        0  # times in backward that all ranks meet where no hook sees it (a pipeline's neighbours)
    )
    unseen_mates: int = 0  # so many ranks in a row meet there; 0: all
    groups: int = 1  # rank r exchanges gradients with those of r % groups alone
    eval_rank: int = -1  # evaluates alone; -1: all do
    looks_in_layers: bool = False  # the thread waits for its device after each layer
    looking_rank: int = -1  # of this rank alone it does
    tokens: int = -1  # of a rank's step; -1: nobody tells
    parallel: dict[str, int] = field(default_factory=dict, hash=False)  # as the rank tells
    on_one_device: tuple[int, ...] = ()  # these ranks compute on the device of the first of them
    # FSDP2: so many layers are gathered in forward and in backward, and reduced one by one; 0: DDP. transfer_s is that
    # of all these collectives together.
    layers: int = 0
    layer_noise: float = 0.0  # sigma of the factor on each layer alone

    def host(self, rank: int) -> str:
        """Host of a rank."""
        return f"node{rank // self.ranks_per_host}"

    def healthy(self) -> DeviceJob:
        """The same job and the same noise, without faults."""
        return replace(self, faults=())

    def with_faults(self, *faults: Fault) -> DeviceJob:
        """The same job and the same noise, with faults."""
        return replace(self, faults=faults)

    def graphed(self) -> DeviceJob:
        """A step is launched at one go."""
        return replace(
            self, forward_host_s=0.2 * MS, backward_host_s=0.3 * MS, optimizer_host_s=0.1 * MS, queue=4096
        )

    @property
    def bits(self) -> int:
        """One step in 2^bits is measured."""
        return (self.period - 1).bit_length()

    @property
    def borders(self) -> tuple[str, ...]:
        """The phase that each border of a step begins, in their order."""
        if self.layers:
            gathers, reduces = ("comm_exposed", "forward"), ("comm_exposed", "backward")
            backward = ("backward", *reduces * (2 * self.layers - 1))
            return (*BORDERS[:3], *gathers * self.layers, *backward, *BORDERS[COMM:])
        forward = BORDERS[:3] + ("comm_exposed", "forward") * self.meetings + ("backward",)
        evaluation = ("eval", "other") if self.eval_every else ()
        return (*forward, "other") * (self.micro_steps - 1) + forward + BORDERS[COMM:] + evaluation

    @property
    def closing(self) -> int:
        """The border that closes a step, which is the next one's first."""
        return len(self.borders)

    @property
    def comm(self) -> int:
        """The border at which a device has done its own backward."""
        evaluation = 2 if self.eval_every else 0
        return self.closing - evaluation - (CLOSING - COMM)

    def evaluates(self, step: int) -> bool:
        """Whether an evaluation follows on that step."""
        return bool(self.eval_every) and (step + 1) % self.eval_every == 0


@dataclass(frozen=True)
class DeviceRun:
    """K steps x R ranks, seconds on a clock common to all. Borders: K x (CLOSING + 1) x R."""

    job: DeviceJob
    recorded: Floats  # when the host recorded each border
    passed: Floats  # when the device passed it
    arrive: Floats  # the last gradient's kernel was launched
    release: Floats  # backward returned on the host
    gc_s: Floats | None = None  # K x R that the threads collected garbage

    @cached_property
    def cycle_s(self) -> Floats:
        """From one step's end of the exchange to the next one's, on the device; step 0 has none."""
        end = self.passed[:, self.job.comm + 1].max(axis=1)
        return np.diff(end, prepend=np.nan)

    def mean_cycle_s(self, first: int = 20, last: int | None = None) -> float:
        """Over the steps first..last-1."""
        return float(self.cycle_s[max(first, 1) : last].mean())

    def spans_s(self) -> Floats:
        """What the device spent between a border and the next: K x CLOSING x R."""
        return np.diff(self.passed, axis=1)

    def waits_s(self) -> Floats:
        """What each device waited in the exchange, K x R; under FSDP2 for all collectives of the step."""
        if self.job.layers:
            waits = np.flatnonzero(np.array(self.job.borders) == "comm_exposed")
            return np.asarray(self.spans_s()[:, waits].sum(axis=1))
        return self.passed[:, self.job.comm + 1] - self.passed[:, self.job.comm]

    def ahead_s(self) -> Floats:
        """How far the thread was ahead of its device at most, K x R."""
        return np.asarray((self.passed - self.recorded).max(axis=1))


def simulate(job: DeviceJob) -> DeviceRun:
    """All borders of all ranks."""
    return _simulated(job)


@lru_cache(maxsize=8)
def _simulated(job: DeviceJob) -> DeviceRun:
    rng = np.random.default_rng(job.seed)
    shape = (job.num_steps, job.num_ranks)
    speed = rng.normal(1.0, job.static_noise, job.num_ranks) if job.static_noise else np.ones(job.num_ranks)

    def noisy(value: float, sigma: float) -> Floats:
        return value * rng.lognormal(0.0, sigma, shape)

    seconds = {
        name: noisy(getattr(job, f"{name}_s"), job.device_noise) * speed
        for name in ("copy", "forward", "backward", "optimizer")
    }
    hosts = ("data", "copy", "forward", "backward", "optimizer", "other")
    seconds |= {f"{name}_host": noisy(getattr(job, f"{name}_host_s"), job.host_noise) for name in hosts}
    transfer = job.transfer_s * rng.lognormal(0.0, job.transfer_noise, job.num_steps)
    transfer = np.repeat(transfer[:, None], job.groups, axis=1)
    lots = rng.random(shape)
    seconds["save"], seconds["gc"] = np.zeros(shape), np.zeros(shape)
    for fault in job.faults:
        if fault.micro is None:
            transfer = _apply(fault, job, seconds, transfer, lots)
    micro = [dict(seconds) for _ in range(job.micro_steps)]
    for fault in job.faults:
        if fault.micro is not None:
            _apply(fault, job, micro[fault.micro], transfer, lots)
    late = rng.exponential(20e-6, shape)
    if job.layers:
        noise = rng.lognormal(0.0, job.layer_noise, (job.num_steps, 2, job.layers, job.num_ranks))
        return _run_sharded(job, seconds, transfer[:, 0], late, noise)
    return _run(job, seconds, transfer, late, micro)


def _hit(fault: Fault, job: DeviceJob, lots: Floats | None = None) -> Bools:
    """Where it is, K x R; lots: K x R, None: wherever it may be."""
    steps, ranks = np.arange(job.num_steps)[:, None], np.arange(job.num_ranks)[None, :]
    hit = (steps >= fault.onset) & (steps < fault.until) & (steps % fault.every < fault.length)
    hit = hit & (
        np.ones((job.num_steps, job.num_ranks), dtype=np.bool_) if lots is None else lots <= fault.chance
    )
    if fault.turns and fault.ranks:
        hit &= ranks == np.array(fault.ranks)[steps // fault.turns % len(fault.ranks)]
    elif fault.kind == "rotate":
        hit &= steps // 20 % job.num_ranks == ranks
    elif fault.ranks is not None:
        hit &= np.isin(ranks, fault.ranks)
    return np.asarray(hit)


def _factor(fault: Fault, num_steps: int) -> Floats:
    """By step, K x 1: what it multiplies by."""
    if not fault.ramp:
        return np.full((num_steps, 1), fault.factor)
    grown = np.clip((np.arange(num_steps)[:, None] - fault.onset) / fault.ramp, 0.0, 1.0)
    return np.asarray(1 + (fault.factor - 1) * grown)


def _apply(
    fault: Fault, job: DeviceJob, seconds: dict[str, Floats], transfer: Floats, lots: Floats
) -> Floats:
    hit, factor = _hit(fault, job, lots), _factor(fault, job.num_steps)
    if fault.kind == "link":
        group = np.arange(job.num_ranks) % job.groups
        is_hit = np.stack([hit[:, group == number].any(axis=1) for number in range(job.groups)], axis=1)
        return np.where(is_hit, transfer * factor, transfer)
    if fault.kind == "lengths":
        # Its own lots, so that the noise is the healthy twin's.
        drawn = np.random.default_rng(job.seed + 1).lognormal(0.0, fault.factor, hit.shape)
        for name in ("copy", "forward", "backward"):
            seconds[name] = np.where(hit, seconds[name] * drawn / np.exp(fault.factor**2 / 2), seconds[name])
        return transfer
    names: tuple[str, ...]
    if fault.kind in {"device", "rotate"}:
        names = ("copy", "forward", "backward", "optimizer")
    elif fault.kind in {"longer", "batch"}:
        names = ("copy", "forward", "backward")
    elif fault.kind == "host":
        names = ("copy_host", "forward_host", "backward_host", "optimizer_host", "other_host")
    else:
        names = ({"data": "data_host", "spikes": "backward", "save": "save"}.get(fault.kind, fault.kind),)
    for name in names:
        seconds[name] = np.where(hit, seconds[name] * factor + fault.amount_s, seconds[name])
    return transfer


class _Ranks:
    """Clocks of all ranks: where the threads are, and when the compute streams are free."""

    def __init__(self, job: DeviceJob) -> None:
        self.host = np.full(job.num_ranks, START_S)
        self.free = np.full(job.num_ranks, START_S)
        self.begun = [np.zeros(job.num_ranks)] * job.queue  # of the latest pieces, a ring
        self.num_launched = 0

    def launch(self, host_s: Floats, device_s: Floats) -> None:
        """The thread launches one piece; it waits for room in the queue."""
        slot = self.num_launched % len(self.begun)
        self.host = np.maximum(self.host, self.begun[slot]) + host_s
        begin = np.maximum(self.host, self.free)
        self.free = begin + device_s
        self.begun[slot] = begin
        self.num_launched += 1


def _run(  # noqa: PLR0912 - a step from its begin to its end, as it happens
    job: DeviceJob,
    seconds: dict[str, Floats],
    transfer: Floats,
    late: Floats,
    micro: list[dict[str, Floats]] | None = None,  # the seconds of each micro-step, where these differ
) -> DeviceRun:
    ranks = _Ranks(job)
    recorded = np.empty((job.num_steps, job.closing + 1, job.num_ranks))
    passed = np.empty_like(recorded)
    arrive = np.empty((job.num_steps, job.num_ranks))
    release = np.empty_like(arrive)
    at = {round((index + 1) * job.num_backward / job.num_buckets) for index in range(job.num_buckets)}
    group = np.arange(job.num_ranks) % job.groups
    members = [np.flatnonzero(group == number) for number in range(job.groups)]
    exchanged = np.full(job.num_ranks, START_S)
    index = 0  # of the next border
    pieces = {"forward": job.num_forward, "backward": job.num_backward, "optimizer": job.num_optimizer}
    micro = micro or [seconds] * job.micro_steps
    piece_s = [
        {name: (one[f"{name}_host"] / number, one[name] / number) for name, number in pieces.items()}
        for one in micro
    ]

    def border(k: int) -> None:
        nonlocal index
        recorded[k, index] = ranks.host
        passed[k, index] = ranks.free = np.maximum(ranks.host + EVENT_S, ranks.free)
        index += 1

    def meet(mates: int = 0) -> None:
        """Devices wait for the last one of so many in a row (0: of all), within a phase."""
        by_group = ranks.free.reshape(-1, mates or job.num_ranks)
        ranks.free = np.repeat(by_group.max(axis=1) + MEETING_S, by_group.shape[1])

    for k in range(job.num_steps):
        index = 0
        border(k)
        if k:
            recorded[k - 1, job.closing], passed[k - 1, job.closing] = recorded[k, 0], passed[k, 0]
        for micro_step in range(job.micro_steps):
            is_last = micro_step == job.micro_steps - 1
            part = {name: values[k] for name, values in micro[micro_step].items()}
            forward, backward, optimizer = (
                (host_s[k], device_s[k]) for host_s, device_s in piece_s[micro_step].values()
            )
            if micro_step:
                border(k)
            ranks.host = ranks.host + part["data_host"]
            border(k)
            ranks.launch(part["copy_host"], part["copy"])
            if job.is_copy_blocking:
                ranks.host = np.maximum(ranks.host, ranks.free)
            border(k)
            if not micro_step:
                ranks.host = ranks.host + part.get("gc", 0.0)
            for layer in range(job.meetings + 1):
                if layer:  # the border before it is passed when the device is there
                    border(k)
                    meet()
                    border(k)
                num = job.num_forward / (job.meetings + 1)
                for _ in range(round(num * (layer + 1)) - round(num * layer)):
                    ranks.launch(*forward)
                    if job.looks_in_layers or job.looking_rank >= 0:
                        looks = (job.looking_rank < 0) | (np.arange(job.num_ranks) == job.looking_rank)
                        ranks.host = np.where(looks, np.maximum(ranks.host, ranks.free), ranks.host)
            border(k)
            layers = {round((n + 1) * job.num_backward / (job.meetings + 1)) for n in range(job.meetings)}
            unseen = {
                round((n + 1) * job.num_backward / (job.unseen_meetings + 1))
                for n in range(job.unseen_meetings)
            }
            for piece in range(1, job.num_backward + 1):
                ranks.launch(*backward)
                if piece in layers:
                    meet()
                if piece in unseen:
                    meet(job.unseen_mates)
                if is_last and piece in at:
                    # The slowest rank's compute has reached the bucket, and the one before is through.
                    for number, mates in enumerate(members):
                        there = np.maximum(exchanged[mates], ranks.free[mates].max())
                        # One transfer of all groups alike, or each its own.
                        exchanged[mates] = there + np.ravel(transfer[k])[number % transfer[k].size] / (
                            job.num_buckets
                        )
            if not is_last:
                border(k)
        arrive[k] = ranks.host
        border(k)
        ranks.free = np.maximum(ranks.free, exchanged + late[k])
        ranks.host = ranks.host + 0.02 * part["backward_host"]
        release[k] = ranks.host
        border(k)
        ranks.host = ranks.host + 0.2 * part["other_host"]
        border(k)
        for _ in range(job.num_optimizer):
            ranks.launch(*optimizer)
        border(k)
        if job.sync_every and (k + 1) % job.sync_every == 0:
            ranks.host = np.maximum(ranks.host, ranks.free + 2 * EVENT_S)
        elif job.logging_rank >= 0:
            looks = np.arange(job.num_ranks) == job.logging_rank
            ranks.host = np.where(looks, np.maximum(ranks.host, ranks.free + 2 * EVENT_S), ranks.host)
        ranks.host = ranks.host + 0.8 * part["other_host"] + part.get("save", 0.0)
        if job.eval_every:
            border(k)
            if job.evaluates(k):
                who = (job.eval_rank < 0) | (np.arange(job.num_ranks) == job.eval_rank)
                ranks.launch(np.where(who, 0.1 * job.eval_s, 0.0), np.where(who, job.eval_s, 0.0))
                ranks.host = np.where(who, np.maximum(ranks.host, ranks.free), ranks.host)
            border(k)
    recorded[-1, job.closing] = ranks.host
    passed[-1, job.closing] = np.maximum(ranks.host + EVENT_S, ranks.free)
    return DeviceRun(job, recorded, passed, arrive, release, seconds.get("gc"))


class _Shards:
    """The collectives of FSDP2: one after another on the communicator, each when the last rank is ready for it."""

    def __init__(self, ranks: _Ranks) -> None:
        self.ranks = ranks
        self.free = START_S

    def call(self, ready: Floats, transfer_s: float) -> float:
        """When it is over, on all ranks. ready: what it follows on, on each; none begins before its host has called."""
        self.free = max(self.free, float(np.maximum(ready, self.ranks.host).max())) + transfer_s
        return self.free


def _run_sharded(
    job: DeviceJob, seconds: dict[str, Floats], transfer: Floats, late: Floats, noise: Floats
) -> DeviceRun:
    """As torch does it: see sharded_waits.py of the probes for where the compute stream waits.

    noise: K x 2 x layers x R, on each layer's forward and backward.
    """
    ranks, num = _Ranks(job), job.layers
    shards = _Shards(ranks)
    recorded = np.empty((job.num_steps, job.closing + 1, job.num_ranks))
    passed = np.empty_like(recorded)
    arrive, release = np.empty((2, job.num_steps, job.num_ranks))
    index = 0  # of the next border

    def border(k: int) -> None:
        nonlocal index
        recorded[k, index] = ranks.host
        passed[k, index] = ranks.free = np.maximum(ranks.host + EVENT_S, ranks.free)
        index += 1

    def wait(k: int, until_s: float, late_s: Floats | float = 0.0) -> None:
        border(k)
        ranks.free = np.maximum(ranks.free, until_s + late_s)
        border(k)

    for k in range(job.num_steps):
        part = {name: values[k] for name, values in seconds.items()}
        each_s = float(transfer[k]) / (3 * num)
        index = 0
        border(k)
        if k:
            recorded[k - 1, job.closing], passed[k - 1, job.closing] = recorded[k, 0], passed[k, 0]
        ranks.host = ranks.host + part["data_host"]
        border(k)
        ranks.launch(part["copy_host"], part["copy"])
        border(k)
        copied_out = [ranks.free] * 2  # of the layers before
        for layer in range(num):
            gathered = shards.call(copied_out[-2], each_s)
            wait(k, gathered)
            copied_out.append(ranks.free)
            ranks.launch(part["forward_host"] / num, part["forward"] / num * noise[k, 0, layer])
        border(k)
        gathered, reduced = shards.call(copied_out[-1], each_s), 0.0
        for layer in reversed(range(num)):
            wait(k, gathered)
            if layer:
                gathered = shards.call(ranks.free, each_s)
            ranks.launch(part["backward_host"] / num, part["backward"] / num * noise[k, 1, layer])
            if layer < num - 1:
                wait(k, reduced)
            reduced = shards.call(ranks.free, each_s)
        arrive[k] = ranks.host
        wait(k, reduced, late[k])
        release[k] = ranks.host
        ranks.host = ranks.host + 0.2 * part["other_host"]
        border(k)
        for _ in range(job.num_optimizer):
            ranks.launch(part["optimizer_host"] / job.num_optimizer, part["optimizer"] / job.num_optimizer)
        border(k)
        if job.sync_every and (k + 1) % job.sync_every == 0:
            ranks.host = np.maximum(ranks.host, ranks.free + 2 * EVENT_S)
        ranks.host = ranks.host + 0.8 * part["other_host"] + part.get("save", 0.0)
    recorded[-1, job.closing] = ranks.host
    passed[-1, job.closing] = np.maximum(ranks.host + EVENT_S, ranks.free)
    return DeviceRun(job, recorded, passed, arrive, release)


# -- what the probes write ----------------------------------------------------------------------------------------


def attached(job: DeviceJob) -> Ints:
    """The step in which each rank was attached."""
    return np.array(job.attach or (0,) * job.num_ranks, dtype=np.int64)


def seq_at_end(job: DeviceJob, step: int) -> int:
    """Sequence number of the gradients' group when a step ends."""
    return 1000 + job.num_buckets * (step + 1)


def measured_steps(job: DeviceJob) -> list[int]:
    """The steps that are drawn by the sequence at their begin; the same on all ranks."""
    return [step for step in range(2, job.num_steps) if is_drawn(seq_at_end(job, step - 1), job.bits)]


def step_table(run: DeviceRun) -> Ints:
    """K x R x columns of STEP_NAMES, on each host's clock; rows before a rank was attached are in it, too."""
    job, recorded = run.job, run.recorded
    table = np.full((job.num_steps, job.num_ranks, len(STEP_NAMES)), -1, dtype=np.int64)
    shift_ns = np.array([_offset_ns(job, rank) for rank in range(job.num_ranks)])
    begin, end = recorded[:, 0], recorded[:, job.closing]
    spans = np.diff(recorded, axis=1)
    spent: dict[str, Floats] = {}
    for index, name in enumerate(job.borders):
        if name in HOOKED or name == "eval":
            spent[name] = spent.get(name, 0.0) + spans[:, index]
    evaluates = np.array(
        [
            [job.evaluates(step) and job.eval_rank in {-1, rank} for rank in range(job.num_ranks)]
            for step in range(job.num_steps)
        ]
    )
    steps = np.arange(job.num_steps)[:, None]
    local = steps - attached(job)[None, :]
    clocks = {"begin_ns": begin, "end_ns": end, "arrive_ns": run.arrive, "release_ns": run.release}
    columns: dict[str, Any] = {name: np.rint(values * 1e9) + shift_ns for name, values in clocks.items()}
    columns |= {f"{name}_ns": np.rint(spent.get(name, np.zeros(1)) * 1e9) for name in PHASES[:-1]}
    columns["other_ns"] = (
        columns["end_ns"] - columns["begin_ns"] - sum(columns[f"{n}_ns"] for n in PHASES[:-1])
    )
    columns |= {
        "rank": np.arange(job.num_ranks)[None, :],
        "step": local,
        "group_seq": seq_at_end(job, 0) + job.num_buckets * steps,
        "num_collectives": job.num_buckets,
        "micro_steps": job.micro_steps,
        "samples": np.rint(job.samples * _more(job, "batch")),
        "tokens": np.rint(job.tokens * _more(job, "longer")) if job.tokens > 0 else -1,
        "flags": np.where(local == 0, int(StepFlag.FIRST), 0) | np.where(evaluates, int(StepFlag.EVAL), 0),
        "observed": sum(1 << PHASES.index(name) for name in HOOKED),
        "probe_cost_ns": np.where(np.isin(steps, measured_steps(job)), MEASURED_COST_NS, LIGHT_COST_NS),
        "gc_ns": 0 if run.gc_s is None else np.rint(run.gc_s * 1e9),
        "cpu_ns": np.rint(0.9 * (end - begin) * 1e9),  # a thread that waits for its device spins
    }
    for name, values in columns.items():
        table[:, :, STEP_NAMES.index(name)] = values
    return table


def _more(job: DeviceJob, kind: str) -> Floats:
    """By what factor each rank's step has more of what that kind of fault brings, K x R."""
    result = np.ones((job.num_steps, job.num_ranks))
    for fault in job.faults:
        if fault.kind == kind:
            result *= np.where(_hit(fault, job), _factor(fault, job.num_steps), 1.0)
    return result


def _offset_ns(job: DeviceJob, rank: int) -> int:
    return round(job.host_clock_s.get(rank // job.ranks_per_host, 0.0) * 1e9)


@dataclass(frozen=True)
class Measured:
    """One measured step of one rank: its rows, and the step at whose end they were written."""

    step: int
    rank: int
    written_at: int
    rows: Ints  # spans x EVENT_NAMES


def measured_rows(run: DeviceRun) -> list[Measured]:
    """DEVICE_PHASE rows, bracketed and held back as the probe does; a step the device never finished has none."""
    job, end = run.job, run.job.closing
    steps = measured_steps(job)
    found: list[Measured] = []
    for rank, attach in enumerate(attached(job).tolist()):
        closing, last = run.recorded[:, end, rank], run.passed[:, end, rank]
        finished = np.searchsorted(closing, last).tolist()  # the step at whose end the device was through
        measured: list[int] = []
        written: list[int] = []
        in_vain: list[float] = []  # the host's clock when it last asked and the device was not through
        for step in [step for step in steps if step - attach >= 2]:
            pending = min(len(written) - bisect.bisect_right(written, step - 1), MAX_PENDING)
            at = max(step, finished[step])
            if written:
                at = max(at, written[-1])
            if len(written) >= MAX_RESOLVED and written[-MAX_RESOLVED] >= at:
                at = written[-MAX_RESOLVED] + 1
            if pending >= MAX_PENDING or at >= job.num_steps:
                continue
            measured.append(step)
            written.append(at)
            # Asked in vain at the end of the step before, unless another one was still to be written then.
            is_oldest = len(written) < 2 or written[-2] < at
            asked_in_vain = at > step and is_oldest and closing[at - 1] < last[step]
            in_vain.append(float(closing[at - 1]) if asked_in_vain else -np.inf)
        if measured:
            rows = _rows_of(run, measured, rank, attach, closing[written], np.array(in_vain))
            for step, at, row in zip(measured, written, rows, strict=True):
                found.append(Measured(step, rank, at, row))
    return found


def _rows_of(  # noqa: PLR0917 - what the host knew of each step
    run: DeviceRun, steps: list[int], rank: int, attach: int, asked: Floats, in_vain: Floats
) -> list[Ints]:
    """Spans x EVENT_NAMES of each step.

    asked: the host's clock when the step's last border was found passed; in_vain: when it last was not.
    """
    recorded, passed = run.recorded[steps, :, rank], run.passed[steps, :, rank]  # steps x borders
    ahead = recorded[:, 1:] - passed[:, :-1]  # each border is asked about when the next is recorded
    caught_up = recorded[:, 1:] >= passed[:, :-1]
    # To add to the device's times; at most 0.
    earliest = np.maximum((recorded - passed).max(axis=1), np.where(caught_up, -np.inf, ahead).max(axis=1))
    earliest = np.maximum(earliest, in_vain - passed[:, -1])
    latest = np.minimum(np.where(caught_up, ahead, np.inf).min(axis=1), asked - passed[:, -1])
    latest = np.maximum(earliest, latest)
    times = np.rint((passed + earliest[:, None]) * 1e9).astype(np.int64)
    on_host = np.rint(recorded * 1e9).astype(np.int64)
    shift = _offset_ns(run.job, rank)
    borders = run.job.borders
    columns: dict[str, Any] = {
        "rank": rank,
        "kind": int(EventKind.DEVICE_PHASE),
        "step": (np.array(steps) - attach)[:, None],
        "begin_ns": times[:, :-1] + shift,
        "end_ns": times[:, 1:] + shift,
        "group": [PHASES.index(name) for name in borders],
        "seq": np.rint((latest - earliest) * 1e9)[:, None],
        "num_bytes": places(borders),
        "detail": np.maximum(0, times[:, 1:] - on_host[:, 1:]),
    }
    table = np.empty((len(steps), len(borders), len(EVENT_NAMES)), dtype=np.int64)
    for name, values in columns.items():
        table[:, :, EVENT_NAMES.index(name)] = values
    is_training = np.array([name != "eval" for name in borders])
    return [
        rows if run.job.evaluates(step) and run.job.eval_rank in {-1, rank} else rows[is_training]
        for step, rows in zip(steps, table, strict=True)
    ]


def places(borders: tuple[str, ...]) -> Ints:
    """Of each wait among those of its step, as the probe tells it; -1 of other spans, and of an only wait."""
    waits = np.flatnonzero(np.array(borders) == "comm_exposed")
    result = np.full(len(borders), -1, dtype=np.int64)
    if waits.size > 1:
        result[waits] = (
            waits.size << WAIT_PARTS_BITS | (np.arange(waits.size) << WAIT_PARTS_BITS) // waits.size
        )
    return result


# -- frames -------------------------------------------------------------------------------------------------------


def hello(job: DeviceJob, host: str, device: str = "cuda") -> Frame:
    """The agent's first frame."""
    ranks = [rank for rank in range(job.num_ranks) if job.host(rank) == host]
    mono_ns = 1_000_000_000 + _offset_ns(job, ranks[0])
    payload: dict[str, object] = {
        "host": host,
        "agent_pid": 1,
        "wall_ns": 1_700_000_000_000_000_000,
        "mono_ns": mono_ns,
        "num_cpus": 16 * job.ranks_per_host,
        "ranks": [
            {
                "rank": rank,
                "local_rank": rank % job.ranks_per_host,
                "world_size": job.num_ranks,
                "pid": 100 + rank,
                "state": "live",
                "detail": "",
                "torch": "2.13.0",
                "backend": "nccl",
                "device": device,
                "device_uuid": f"5f6a-{job.on_one_device[0] if rank in job.on_one_device else rank}",
                "label": "train.py",
                "command": "train.py --fast",
                "parallel": dict(job.parallel),
                "model": {"mesh": " ".join(f"{name}={size}" for name, size in job.parallel.items())}
                if job.parallel
                else {},
                "ddp": not job.layers,
                "hooks": {"data": "ok", "device_times": "ok", "device_barrier": "ok"},
            }
            for rank in ranks
        ],
    }
    return Frame(FrameKind.HELLO, f"{host}/1/1", 0, mono_ns, payload)


def frames(run: DeviceRun, *, with_devices: bool = True, steps_a_frame: int = 40) -> list[Frame]:
    """HELLO, STEPS and EVENTS of every host's agent (and HOST where NVML is asked), as time goes by."""
    job = run.job
    hosts = [job.host(rank) for rank in range(0, job.num_ranks, job.ranks_per_host)]
    table = step_table(run)
    first = attached(job)
    measured = measured_rows(run) if with_devices else []
    result = [hello(job, host) for host in hosts]
    seq = 0
    for start in range(0, job.num_steps, steps_a_frame):
        chunk = np.arange(start, min(start + steps_a_frame, job.num_steps))
        here: dict[str, list[Ints]] = {host: [] for host in hosts}
        for one in measured:
            if start <= one.written_at < start + steps_a_frame:
                here[job.host(one.rank)].append(one.rows)
        seq += 3
        for number, host in enumerate(hosts):
            ranks = np.arange(
                number * job.ranks_per_host, min((number + 1) * job.ranks_per_host, job.num_ranks)
            )
            rows = table[np.ix_(chunk, ranks)]
            rows = rows[chunk[:, None] >= first[ranks][None, :]]
            if not len(rows):
                continue
            time_ns = int(rows[:, STEP_NAMES.index("end_ns")].max())
            source = f"{host}/1/1"
            result.append(Frame(FrameKind.STEPS, source, seq, time_ns, pack_columns(rows, STEP_NAMES)))
            if here[host]:
                payload = pack_columns(np.concatenate(here[host]), EVENT_NAMES)
                result.append(Frame(FrameKind.EVENTS, source, seq + 1, time_ns, payload))
            if job.mhz:
                result.append(_nvml(job, host, ranks.tolist(), seq + 2, time_ns, job.mhz))
            if job.throttled_by:
                result += _nvml_by_the_second(run, host, ranks, seq, (int(chunk[0]), int(chunk[-1])))
        if job.throttled_by:
            seq += 1000
    return result


def _nvml_by_the_second(
    run: DeviceRun, host: str, ranks: Ints, seq: int, steps: tuple[int, int]
) -> list[Frame]:
    """Of a host's devices, each second of these steps: held back where a fault makes all they compute slower."""
    job = run.job
    slower = np.ones((job.num_steps, job.num_ranks))
    for fault in job.faults:
        if fault.kind == "device":
            slower = np.where(_hit(fault, job), slower * _factor(fault, job.num_steps), slower)
    begin = run.recorded[:, 0, ranks[0]]
    result = []
    for number, at_s in enumerate(np.arange(np.ceil(begin[steps[0]]), run.recorded[steps[1], -1, ranks[0]])):
        step = int(np.clip(np.searchsorted(begin, at_s, side="right") - 1, 0, job.num_steps - 1))
        mhz = tuple(np.rint(HELD_FROM_MHZ / slower[step]).astype(int).tolist())
        time_ns = round(at_s * 1e9) + _offset_ns(job, int(ranks[0]))
        result.append(_nvml(job, host, ranks.tolist(), seq + 3 + number, time_ns, mhz, HELD_FROM_MHZ))
    return result


def _nvml(  # noqa: PLR0917 - one sample
    job: DeviceJob,
    host: str,
    ranks: list[int],
    seq: int,
    time_ns: int,
    mhz: tuple[int, ...],
    highest: int | None = None,
) -> Frame:
    highest = highest or max(mhz)
    why = job.throttled_by or "hardware slowdown"
    gpus = [
        {
            "index": rank % job.ranks_per_host,
            "name": "NVIDIA H200",
            "uuid": f"GPU-5f6a-{rank}",
            "is_lost": False,
            "xids": [],
            "utilization": 0.97,
            "sm_clock_mhz": mhz[rank],
            "max_sm_clock_mhz": 1980,
            "memory_used_bytes": 60 << 30,
            "memory_total_bytes": 141 << 30,
            "power_w": 612.4,
            "power_limit_w": 700.0,
            "temperature_c": 61,
            "throttle_reasons": [why] if mhz[rank] < 0.97 * highest else [],
            "pids": [100 + rank],
            "parts": None,
        }
        for rank in ranks
    ]
    payload: dict[str, object] = {
        "host": host,
        "mono_ns": time_ns,
        "wall_ns": time_ns - _offset_ns(job, ranks[0]) + 1_699_999_999 * 10**9,
        "gpus": gpus,
        "ranks": [],
    }
    return Frame(FrameKind.HOST, f"{host}/1/1", seq, time_ns, payload)


def folded(sequence: list[Frame]) -> RunView:
    """The view after these frames."""
    advisor = Advisor()
    for frame in sequence:
        advisor.feed_frame(frame)
    return advisor.view()


def view_of(job: DeviceJob, *, with_devices: bool = True) -> RunView:
    """The view at the end of a job."""
    return folded(frames(simulate(job), with_devices=with_devices))


def true_loss_s(job: DeviceJob, first: int = 20, last: int | None = None) -> float:
    """What the faults cost a step: mean cycle less that of the healthy twin."""
    healthy = simulate(job.healthy())
    return simulate(job).mean_cycle_s(first, last) - healthy.mean_cycle_s(first, last)
