"""Synthetic pipeline-parallel training: what the probes would write of a schedule that is simulated chunk by chunk.

Independent of the product's own re-simulation: here time goes forward in a loop over ranks until every chunk has run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.events import EVENT_NAMES, STEP_NAMES, EventKind, StepFlag
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns, unpack_columns
from tuiadvisor.views.run_view import RunView

MS = 1e-3
OUTSIDE_S = 2 * MS  # optimizer
LAUNCH_NS = 50_000
OBSERVED = ("forward", "backward", "comm_exposed", "optimizer", "pipeline_idle", "other")
Chunk = tuple[str, int, int]  # F or B, stage, micro-batch
Rows = list[tuple[int, ...]]
Ran = tuple[str, int, float, float, float]  # F or B, micro-batch, begin, end, seconds waited before it


@dataclass(frozen=True)
class Pipeline:
    """A training to simulate. Times are seconds of one micro-batch on one stage."""

    num_ranks: int = 4  # of one pipeline
    num_pipelines: int = 1
    num_micro_batches: int = 8
    num_steps: int = 60
    schedule: str = "1f1b"  # or gpipe
    forward_s: float = 4 * MS
    backward_s: float = 8 * MS
    send_s: float = 0.0
    heavy: tuple[tuple[int, float], ...] = ()  # (rank, factor)
    heavy_part: str = "FB"
    onset: int = 0
    noise: float = 0.02
    recorded: tuple[int, ...] = (4, 5, 6, 7, 40, 41, 42, 43)  # steps in detail
    tells_group: bool = True
    clock_s: tuple[float, ...] = ()  # of each rank, on a host of its own
    seed: int = 0

    @property
    def world_size(self) -> int:
        """Ranks of all pipelines."""
        return self.num_ranks * self.num_pipelines

    def host(self, rank: int) -> str:
        """Host of a rank."""
        return f"node{rank}" if self.clock_s else "node0"


def order(job: Pipeline, stage: int) -> list[Chunk]:
    """A rank's chunks as its schedule runs them."""
    num, depth = job.num_micro_batches, job.num_ranks
    forward: list[Chunk] = [("F", stage, chunk) for chunk in range(num)]
    backward: list[Chunk] = [("B", stage, chunk) for chunk in range(num)]
    if job.schedule == "gpipe":
        return forward + backward
    warm = min(depth - stage, num)
    result, ahead = forward[:warm], warm
    for chunk in backward:
        result.append(chunk)
        if ahead < num:
            result.append(forward[ahead])
            ahead += 1
    return result


def run_step(job: Pipeline, seconds: dict[tuple[int, str], np.ndarray], start: float) -> dict[int, list[Ran]]:
    """Rank in the pipeline -> (kind, micro-batch, begin, end, waited) of each chunk in order."""
    waiting = {stage: order(job, stage) for stage in range(job.num_ranks)}
    done: dict[Chunk, float] = {}
    free = dict.fromkeys(range(job.num_ranks), start)
    ran: dict[int, list[Ran]] = {stage: [] for stage in range(job.num_ranks)}
    while any(waiting.values()):
        for stage, chunks in waiting.items():
            while chunks:
                kind, _, chunk = chunks[0]
                step = -1 if kind == "F" else 1
                source: Chunk = (kind, stage + step, chunk)
                if 0 <= stage + step < job.num_ranks and source not in done:
                    break
                begin = max(free[stage], done.get(source, start) + (job.send_s if source in done else 0.0))
                end = begin + float(seconds[stage, kind][chunk])
                ran[stage].append((kind, chunk, begin, end, begin - free[stage]))
                free[stage] = done[kind, stage, chunk] = end
                chunks.pop(0)
    return ran


def frames(job: Pipeline) -> list[Frame]:
    """HELLO, then STEPS and EVENTS of every tenth of the run."""
    rng = np.random.default_rng(job.seed)
    steps: list[tuple[int, ...]] = []
    events: list[tuple[int, ...]] = []
    begins = np.full(job.world_size, 1.0)
    for step in range(job.num_steps):
        begins = _step(job, step, begins, rng, (steps, events))
    hosts = sorted({job.host(rank) for rank in range(job.world_size)})
    result = [_hello(job, host) for host in hosts]
    seq = dict.fromkeys(hosts, 1)
    for start in range(0, job.num_steps, 10):
        for host in hosts:
            for kind, names, rows, column in (
                (FrameKind.STEPS, STEP_NAMES, steps, 1),
                (FrameKind.EVENTS, EVENT_NAMES, events, 2),
            ):
                chosen = [
                    row for row in rows if start <= row[column] < start + 10 and job.host(row[0]) == host
                ]
                if chosen:
                    time_ns = max(row[4] for row in chosen)
                    result.append(Frame(kind, f"{host}/1/1", seq[host], time_ns, pack_columns(chosen, names)))
                    seq[host] += 1
    return result


def _step(
    job: Pipeline,
    step: int,
    begins: np.ndarray,
    rng: np.random.Generator,
    rows: tuple[Rows, Rows],
) -> np.ndarray:
    steps, events = rows
    ends = begins.copy()
    slow = dict(job.heavy) if step >= job.onset else {}
    for pipeline in range(job.num_pipelines):
        ranks = [pipeline * job.num_ranks + stage for stage in range(job.num_ranks)]
        seconds = {}
        for stage, rank in enumerate(ranks):
            for kind, base in (("F", job.forward_s), ("B", job.backward_s)):
                factor = slow.get(rank, 1.0) if kind in job.heavy_part else 1.0
                seconds[stage, kind] = base * factor * rng.lognormal(0.0, job.noise, job.num_micro_batches)
        start = float(begins[ranks].max())
        ran = run_step(job, seconds, start)
        release = max(chunk[3] for chunks in ran.values() for chunk in chunks) + OUTSIDE_S
        for stage, rank in enumerate(ranks):
            ends[rank] = release
            steps.append(_row(job, rank, step, ran[stage], (float(begins[rank]), release)))
            if step in job.recorded:
                events += _events(job, rank, step, stage, ran[stage])
    return np.full(job.world_size, ends.max()) if job.num_pipelines > 1 else ends


def _ns(job: Pipeline, rank: int, clock: float) -> int:
    return round((clock + (job.clock_s[rank] if job.clock_s else 0.0)) * 1e9)


def _row(job: Pipeline, rank: int, step: int, ran: list[Ran], span: tuple[float, float]) -> tuple[int, ...]:
    busy = {kind: sum(chunk[3] - chunk[2] for chunk in ran if chunk[0] == kind) for kind in "FB"}
    idle = sum(chunk[4] for chunk in ran)
    begin_ns, end_ns = (_ns(job, rank, clock) for clock in span)
    # Sending books a little communication on every rank: no reason to call who has least of it late.
    values = {
        "forward": busy["F"],
        "backward": busy["B"],
        "pipeline_idle": idle,
        "optimizer": OUTSIDE_S / 2,
        "comm_exposed": (1 + rank) * 1e-5,
    }
    return step_row((rank, step), (begin_ns, end_ns), values, OBSERVED, job.num_micro_batches)


def step_row(
    place: tuple[int, int],
    span_ns: tuple[int, int],
    spent_s: dict[str, float],
    observed: tuple[str, ...],
    num_micro_batches: int,
) -> tuple[int, ...]:
    """What a probe writes of one step of a stage. place: rank and step. spent_s: by phase; the rest is `other`."""
    (rank, step), (begin_ns, end_ns) = place, span_ns
    nanoseconds = {name: round(spent_s.get(name, 0.0) * 1e9) for name in PHASES[:-1]}
    fields = {
        "step": step,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        **{f"{name}_ns": value for name, value in nanoseconds.items()},
        "other_ns": end_ns - begin_ns - sum(nanoseconds.values()),
        "group_seq": 3 * (step + 1),
        "micro_steps": num_micro_batches,
        "flags": int(StepFlag.NO_SYNC | (StepFlag.FIRST if step == 0 else 0)),
        "observed": sum(1 << PHASES.index(name) for name in observed),
        "probe_cost_ns": 20_000,
        "gc_ns": 0,
    }
    return (rank, *(fields.get(name, -1) for name in STEP_NAMES[1:]))


def _events(job: Pipeline, rank: int, step: int, stage: int, ran: list[Ran]) -> list[tuple[int, ...]]:
    kinds = {"F": EventKind.STAGE_FORWARD, "B": EventKind.STAGE_BACKWARD}
    rows: list[tuple[int, ...]] = []
    for kind, chunk, begin, end, waited in ran:
        if waited > 0:
            clocks = (_ns(job, rank, begin - waited), _ns(job, rank, begin))
            rows.append((rank, int(EventKind.P2P_WAIT), step, *clocks, -1, -1, -1, 1))
        clocks = (_ns(job, rank, begin), _ns(job, rank, end))
        rows.append((rank, int(kinds[kind]), step, *clocks, stage, chunk, -1, 1 if kind == "B" else -1))
    return rows


def _hello(job: Pipeline, host: str) -> Frame:
    ranks = [
        {
            "rank": rank,
            "world_size": job.world_size,
            "pid": 100 + rank,
            "state": "live",
            "torch": "2.13.0",
            "device": "cpu",
            "label": "pipeline.py",
            "parallel": {"pp": job.num_ranks},
            "schedule": "Schedule1F1B",
            "pipeline": {
                "stages": job.num_ranks,
                "ranks": job.num_ranks,
                "micro_batches": job.num_micro_batches,
                **({"first_rank": rank // job.num_ranks * job.num_ranks} if job.tells_group else {}),
            },
        }
        for rank in range(job.world_size)
        if job.host(rank) == host
    ]
    clock = {} if job.clock_s else {"wall_ns": 10**18, "mono_ns": 10**9}
    return Frame(FrameKind.HELLO, f"{host}/1/1", 0, 10**9, {"host": host, "ranks": ranks, **clock})


def on_devices(job: Pipeline, measured: range) -> list[Frame]:
    """The same run of ranks on devices, whose threads launch a chunk in 50 us and run on.

    The steps in `measured` were timed on the devices, each by a clock of its own: rank r's is 3 ms r beside the host's.
    """
    whole = frames(replace(job, recorded=tuple(range(job.num_steps))))
    result = []
    for frame in whole:
        if frame.kind == FrameKind.HELLO:
            payload: Any = frame.payload
            ranks = [{**entry, "device": "cuda"} for entry in payload["ranks"]]
            result.append(replace(frame, payload={**payload, "ranks": ranks}))
        elif frame.kind != FrameKind.EVENTS:
            result.append(frame)
        else:
            columns = unpack_columns(frame.payload, EVENT_NAMES)
            rows = [tuple(row) for row in np.stack([columns[name] for name in EVENT_NAMES], axis=1).tolist()]
            rows = [row for row in rows if row[1] != EventKind.P2P_WAIT]
            told = [*_launched(job, rows), *_timed(rows, measured)]
            if told:
                result.append(replace(frame, payload=pack_columns(told, EVENT_NAMES)))
    return result


def _launched(job: Pipeline, rows: Rows) -> Rows:
    """Chunks as the threads saw them, of steps in detail."""
    told: Rows = []
    for rank, step in sorted({(row[0], row[2]) for row in rows if row[2] in job.recorded}):
        chunks = sorted((row for row in rows if (row[0], row[2]) == (rank, step)), key=lambda row: row[3])
        begin = chunks[0][3]
        for place, row in enumerate(chunks):
            at = begin + place * LAUNCH_NS
            told.append((*row[:3], at, at + LAUNCH_NS, *row[5:]))
    return told


def _timed(rows: Rows, measured: range) -> Rows:
    """Device phases: the chunks, and what lies around them from the step's begin to its end."""
    phases = {
        EventKind.STAGE_FORWARD: PHASES.index("forward"),
        EventKind.STAGE_BACKWARD: PHASES.index("backward"),
    }
    told: Rows = []
    for rank, step in sorted({(row[0], row[2]) for row in rows if row[2] in measured}):
        of_step = [row for row in rows if row[2] == step]
        chunks = sorted((row for row in of_step if row[0] == rank), key=lambda row: row[3])
        at, done = min(row[3] for row in of_step), max(row[4] for row in of_step)
        spans = []
        for row in chunks:
            spans += [(at, row[3], PHASES.index("other")), (row[3], row[4], phases[EventKind(row[1])])]
            at = row[4]
        spans += [
            (at, done, PHASES.index("other")),
            (done, done + round(OUTSIDE_S * 1e9), PHASES.index("optimizer")),
        ]
        shift = 3_000_000 * rank
        told += [
            (rank, int(EventKind.DEVICE_PHASE), step, a + shift, b + shift, phase, 20_000, -1, 40_000_000)
            for a, b, phase in spans
            if b > a
        ]
    return told


def pipeline_run(job: Pipeline) -> RunView:
    """The view after all frames."""
    advisor = Advisor()
    for frame in frames(job):
        advisor.feed_frame(frame)
    return advisor.view()
