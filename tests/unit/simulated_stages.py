"""Stages of pipelines on devices, simulated: threads that launch, compute streams, links between stages, replicas.

In: StageJob.  Out: the frames that the probes and agents of such a training would send.  A chunk begins on its device
when the device is free, its input has come and it was launched; a thread that takes longer to launch a chunk than the
device to run it makes the device wait within the chunk. A thread is at most QUEUE chunks ahead of its device.
Independent of what the product simulates: time goes forward until every chunk has run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from synthetic_pipeline import step_row

from tuiadvisor.events import EVENT_NAMES, STEP_NAMES, EventKind
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns

MS = 1e-3
QUEUE = 64  # chunks: about a thousand kernels each of tens
KERNELS = 20  # of a chunk
DRIVER_S = 5e-6  # between two borders that follow at once
Chunk = tuple[str, int, int]  # F or B, stage, micro-batch
Span = tuple[str, float, float]  # phase, begin, end


@dataclass(frozen=True)
class StageJob:
    """A training. Times are seconds of one micro-batch on one stage; faults are pairs of a rank and how slow it is."""

    num_ranks: int = 4  # of one pipeline
    num_pipelines: int = 1
    per_rank: int = 1  # stages a rank holds
    num_micro_batches: int = 32
    num_steps: int = 60
    schedule: str = "1f1b"  # gpipe, interleaved
    look_every: int = 1  # steps until the thread waits for its device; 0: never
    forward_s: float = 4 * MS
    backward_s: float = 8 * MS
    optimizer_s: float = 3 * MS
    send_s: float = 0.05 * MS
    exchange_s: float = 0.0  # of the gradients, after the last backward of all replicas
    launch_s: float = 0.8 * MS  # of a chunk
    between_s: float = 0.2 * MS  # of the thread, between steps
    noise: float = 0.01
    slow_rank: tuple[tuple[int, float], ...] = ()  # (rank of the job, factor of all its chunks)
    slow_every: int = 1  # in one step of so many
    slow_stage: tuple[tuple[int, float], ...] = ()  # (stage, factor), in every pipeline
    slow_backward: tuple[tuple[int, float], ...] = ()  # (stage, factor): recomputes its forward
    slow_link: tuple[tuple[int, float], ...] = ()  # (rank in its pipeline, seconds more of a send)
    slow_thread: tuple[tuple[int, float], ...] = ()  # (rank of the job, factor of launches)
    data_s: tuple[tuple[int, float], ...] = ()  # (rank of the job, seconds that its thread waits for a batch)
    pause_s: tuple[
        tuple[int, float], ...
    ] = ()  # (rank of the job, seconds that its thread logs between steps)
    slow_optimizer: tuple[tuple[int, float], ...] = ()  # (rank of the job, factor)
    in_chunk: str = ""  # a collective that each chunk launches
    measured: int = 1  # one step in so many is timed on the devices
    detail: tuple[int, ...] = tuple(range(4, 60))  # steps told chunk by chunk
    seed: int = 0

    @property
    def world_size(self) -> int:
        """Ranks of all pipelines."""
        return self.num_ranks * self.num_pipelines

    @property
    def num_stages(self) -> int:
        """Of one pipeline."""
        return self.num_ranks * self.per_rank


def order(job: StageJob, rank: int) -> list[Chunk]:
    """A rank's chunks as its schedule runs them."""
    num, depth, each = job.num_micro_batches, job.num_ranks, job.per_rank
    total = num * each

    def chunk(kind: str, place: int) -> Chunk:
        group, within = divmod(place, depth * each)
        part, micro_batch = divmod(within, depth)
        part = part if kind == "F" else each - 1 - part
        return kind, part * depth + rank, group * depth + micro_batch

    if job.schedule == "interleaved":
        warm = min((depth - rank - 1) * 2 + (each - 1) * depth + 1, total)
        forward, backward = [chunk("F", i) for i in range(total)], [chunk("B", i) for i in range(total)]
    else:
        warm = num if job.schedule == "gpipe" else min(depth - rank, num)
        forward = [("F", rank, i) for i in range(num)]
        backward = [("B", rank, i) for i in range(num)]
    result, ahead = forward[:warm], warm
    for one in backward:
        result.append(one)
        if ahead < total:
            result.append(forward[ahead])
            ahead += 1
    return result


@dataclass
class _Rank:
    """Where a rank's thread and device are."""

    thread: float = 1.0
    device: float = 1.0
    waiting: list[Chunk] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)  # of its latest chunks on the device
    launched: list[tuple[Chunk, float, float]] = field(default_factory=list)
    borders: list[tuple[str, float, float]] = field(
        default_factory=list
    )  # phase from here on, recorded, passed
    began: float = 1.0  # of the step, by the thread

    def border(self, phase: str, passed: float) -> None:
        """The thread records one; the device passes it then, or when all before it is done."""
        self.thread += DRIVER_S
        self.borders.append((phase, self.thread, max(passed, self.thread)))

    def work(self, launch_s: float, seconds: float, ready: float = 0.0) -> None:
        """Kernels that need `ready`; while they are launched slower than they run the device waits."""
        begin = max(self.device, ready, self.thread)
        self.thread += launch_s
        self.device = max(begin + seconds, self.thread + seconds / KERNELS)


@dataclass
class StageRun:
    """What was simulated."""

    step_s: list[float] = field(default_factory=list)  # of the last rank's devices
    steps: list[tuple[int, ...]] = field(default_factory=list)
    events: list[tuple[int, ...]] = field(default_factory=list)


@lru_cache(maxsize=8)
def simulate(job: StageJob) -> StageRun:
    """Run it, once for its frames and its truth: nobody changes what is returned."""
    rng = np.random.default_rng(job.seed)
    run, ranks = StageRun(), [_Rank() for _ in range(job.world_size)]
    ended = 1.0
    for step in range(job.num_steps):
        for number, rank in enumerate(ranks):
            rank.began, rank.borders, rank.launched = rank.thread, [], []
            del rank.ends[:-QUEUE]
            rank.waiting = order(job, number % job.num_ranks)
            if wait_s := dict(job.data_s).get(number, 0.0):
                rank.border("data_wait", rank.device)
                rank.thread += wait_s
                rank.border("h2d", max(rank.device, rank.thread))
            else:
                rank.border("other", rank.device)
        for pipeline in range(job.num_pipelines):
            _chunks(job if step % job.slow_every == 0 else replace(job, slow_rank=()), rng, ranks, pipeline)
        _around(job, step, ranks)
        run.step_s.append(max(rank.device for rank in ranks) - ended)
        ended = max(rank.device for rank in ranks)
        for number, rank in enumerate(ranks):
            _write(job, run, step, number, rank)
    return run


def _chunks(job: StageJob, rng: np.random.Generator, ranks: list[_Rank], pipeline: int) -> None:
    """All chunks of one pipeline's step."""
    first = pipeline * job.num_ranks
    done: dict[Chunk, float] = {}
    slow, stages, links, threads, again = (
        dict(pairs)
        for pairs in (job.slow_rank, job.slow_stage, job.slow_link, job.slow_thread, job.slow_backward)
    )
    while any(ranks[first + each].waiting for each in range(job.num_ranks)):
        for each in range(job.num_ranks):
            number, rank = first + each, ranks[first + each]
            while rank.waiting:
                kind, stage, micro_batch = one = rank.waiting[0]
                source: Chunk = (kind, stage + (-1 if kind == "F" else 1), micro_batch)
                has_source = 0 <= source[1] < job.num_stages
                if has_source and source not in done:
                    break
                sender = source[1] % job.num_ranks
                send_s = job.send_s + links.get(sender, 0.0)
                ready = done[source] + send_s if has_source else 0.0
                base = job.forward_s if kind == "F" else job.backward_s
                factor = slow.get(number, 1.0) * stages.get(stage, 1.0) * rng.lognormal(0.0, job.noise)
                factor *= again.get(stage, 1.0) if kind == "B" else 1.0
                if len(rank.ends) >= QUEUE:
                    rank.thread = max(rank.thread, rank.ends[-QUEUE])
                rank.border("forward" if kind == "F" else "backward", max(rank.device, ready))
                begin = rank.thread
                rank.work(job.launch_s * threads.get(number, 1.0), base * factor / job.per_rank, ready)
                rank.launched.append((one, begin, rank.thread))
                rank.border("other", rank.device)
                rank.ends.append(rank.device)
                done[one] = rank.device
                rank.waiting.pop(0)


def _around(job: StageJob, step: int, ranks: list[_Rank]) -> None:
    """Exchange, optimizer, a look at the loss, what the threads do between steps."""
    threads, optimizers, pauses = dict(job.slow_thread), dict(job.slow_optimizer), dict(job.pause_s)
    if job.exchange_s:
        for each in range(job.num_ranks):
            group = ranks[each :: job.num_ranks]
            met = max(rank.device for rank in group) + job.exchange_s
            for rank in group:
                # Within the last backward, as of DDP: its span ends where the wait begins.
                rank.borders[-1] = ("comm_exposed", *rank.borders[-1][1:])
                rank.device = met
                rank.border("other", met)
    for number, rank in enumerate(ranks):
        rank.border("optimizer", rank.device)
        rank.work(job.launch_s * threads.get(number, 1.0), job.optimizer_s * optimizers.get(number, 1.0))
        rank.border("other", rank.device)
        if job.look_every and step % job.look_every == 0:
            rank.thread = max(rank.thread, rank.device)
        rank.thread += job.between_s * threads.get(number, 1.0) + pauses.get(number, 0.0)
        rank.border("end", rank.device)


def _write(job: StageJob, run: StageRun, step: int, number: int, rank: _Rank) -> None:
    run.steps.append(_row(job, step, number, rank))
    pairs = list(zip(rank.borders[:-1], rank.borders[1:], strict=True))
    if step % job.measured == 0:
        recorded, passed = np.array([one[1:] for one in rank.borders]).T
        passed = passed - passed[0]
        early = (recorded - passed).max()  # when the first border was passed, at the earliest
        late = rank.borders[0][2]
        for index, ((phase, *_), _next) in enumerate(pairs):
            begin, end = early + passed[index], early + passed[index + 1]
            behind = max(0.0, end - recorded[index + 1])
            clocks = (_ns(begin), _ns(end))
            width = (PHASES.index(phase), _ns(max(late - early, 0.0)), -1, _ns(behind))
            run.events.append((number, int(EventKind.DEVICE_PHASE), step, *clocks, *width))
    if step in job.detail:
        kinds = {"F": EventKind.STAGE_FORWARD, "B": EventKind.STAGE_BACKWARD}
        for (kind, stage, micro_batch), begin, end in rank.launched:
            clocks = (_ns(begin), _ns(end))
            whole = 1 if kind == "B" else -1
            run.events.append((number, int(kinds[kind]), step, *clocks, stage, micro_batch, -1, whole))
            if job.in_chunk:
                clocks = (_ns(begin + 1e-5), _ns(begin + 2e-5))
                call = int(EventKind[job.in_chunk])
                run.events.append((number, call, step, *clocks, 0, micro_batch, 4 << 20, 2))


def _ns(clock: float) -> int:
    return round(clock * 1e9)


def _row(job: StageJob, step: int, number: int, rank: _Rank) -> tuple[int, ...]:
    """The thread's step: launches take as long as they take, and what it waits for its device is `other`."""
    spent = {"forward": 0.0, "backward": 0.0, "optimizer": job.launch_s}
    for (kind, *_), begin, end in rank.launched:
        spent["forward" if kind == "F" else "backward"] += end - begin
    if wait_s := dict(job.data_s).get(number, 0.0):
        spent["data_wait"] = wait_s
    observed = ("data_wait", "forward", "backward", "comm_exposed", "optimizer", "pipeline_idle", "other")
    span_ns = _ns(rank.began), _ns(rank.thread)
    return step_row((number, step), span_ns, spent, observed, job.num_micro_batches)


def frames(job: StageJob) -> list[Frame]:
    """HELLO, then STEPS and EVENTS of every tenth of the run; all ranks on one host."""
    run, names = simulate(job), {"1f1b": "Schedule1F1B", "gpipe": "ScheduleGPipe"}
    ranks = [
        {
            "rank": number,
            "world_size": job.world_size,
            "pid": 100 + number,
            "state": "live",
            "torch": "2.13.0",
            "device": "cuda",
            "label": "pipeline.py",
            "parallel": {"pp": job.num_ranks},
            "schedule": names.get(job.schedule, "ScheduleInterleaved1F1B"),
            "pipeline": {
                "stages": job.num_stages,
                "ranks": job.num_ranks,
                "micro_batches": job.num_micro_batches,
                "first_rank": number // job.num_ranks * job.num_ranks,
            },
        }
        for number in range(job.world_size)
    ]
    payload = {"host": "node0", "ranks": ranks, "wall_ns": 10**18, "mono_ns": 10**9}
    result = [Frame(FrameKind.HELLO, "node0/1/1", 0, 10**9, payload)]
    for start in range(0, job.num_steps, 10):
        for kind, columns, rows, column in (
            (FrameKind.STEPS, STEP_NAMES, run.steps, 1),
            (FrameKind.EVENTS, EVENT_NAMES, run.events, 2),
        ):
            if chosen := [row for row in rows if start <= row[column] < start + 10]:
                time_ns = max(row[4] for row in chosen)
                result.append(Frame(kind, "node0/1/1", len(result), time_ns, pack_columns(chosen, columns)))
    return result
