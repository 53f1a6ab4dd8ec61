"""Synthetic data-parallel training: rank-step records as a probe would write them, faults included.

The waits are not invented: they follow from simulating the barrier, so that all ranks' steps take the same time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.events import EVENT_COLUMNS, STEP_NAMES, EventKind, StepFlag
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind, encode, pack_columns, unpack_columns
from tuiadvisor.views.run_view import RunView

HOOKED = ("data_wait", "forward", "backward", "comm_exposed", "optimizer", "checkpoint", "other")
MS = 1e-3


@dataclass(frozen=True)
class Fault:
    """kind: data, forward, backward, optimizer, other, spread, checkpoint, eval, comm, warmup, length, gc, decay or
    release.
    """

    kind: str
    ranks: tuple[int, ...] | None = None  # None: all
    amount_s: float = 0.0
    onset: int = 0
    until: int = 1 << 40
    every: int = 1  # hits steps k with k % every == 0
    chance: float = 1.0


@dataclass(frozen=True)
class Job:
    """A training to simulate. Times are seconds."""

    num_ranks: int = 4
    num_steps: int = 200
    ranks_per_host: int = 64
    data_s: float = 0.3 * MS
    forward_s: float = 6 * MS
    backward_s: float = 9 * MS
    optimizer_s: float = 1 * MS
    other_s: float = 0.3 * MS
    transfer_s: float = 0.8 * MS
    noise: float = 0.08  # sigma of the lognormal factor on every phase
    louder: tuple[int, float] | None = None  # since which step, and the sigma from there on
    spike_chance: float = 0.02
    spike_s: float = 4 * MS
    attach: tuple[int, ...] = ()  # step at which each rank was attached; default 0
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    observed: tuple[str, ...] = HOOKED
    barrier_seen: bool = True
    seq_known: bool = True
    host_clock_s: dict[int, float] = field(default_factory=dict)  # host index -> clock offset
    world_size: int | None = None
    missing: tuple[int, ...] = ()  # ranks that are not recorded
    samples: int = 32
    saving: tuple[int, int, int] | None = (
        None  # rank, every so many steps, so many steps beside a background save
    )
    meets_every: int = 1  # steps; between two meetings each rank goes at its own pace (local SGD)
    own_exchange: float = (
        0.0  # of a transfer: in between each rank exchanges gradients within a group of its own
    )
    own_numbers: bool = False  # the collectives of such groups are those that are numbered, in each step

    def host(self, rank: int) -> str:
        """Host of a rank."""
        return f"node{rank // self.ranks_per_host}"

    def with_faults(self, *faults: Fault) -> Job:
        """The same job and the same noise, with faults."""
        return Job(**{**self.__dict__, "faults": faults})


@dataclass(frozen=True)
class Simulated:
    """rows[rank]: records in step order; cycle_s: time between releases, one a step."""

    rows: dict[int, list[tuple[int, ...]]]
    cycle_s: np.ndarray


def simulate(job: Job) -> Simulated:
    """All records of all ranks."""
    rng = np.random.default_rng(job.seed)
    shape = (job.num_steps, job.num_ranks)
    base = {
        "data_wait": job.data_s,
        "forward": job.forward_s,
        "backward": job.backward_s,
        "optimizer": job.optimizer_s,
        "other": job.other_s,
    }
    since, louder = job.louder or (job.num_steps, job.noise)
    sigma = np.where(np.arange(job.num_steps) < since, job.noise, louder)[:, None]
    phase = {name: value * rng.lognormal(0.0, sigma, shape) for name, value in base.items()}
    spikes = (rng.random(shape) < job.spike_chance) * rng.exponential(job.spike_s, shape)
    where = rng.integers(0, 3, shape)
    for index, name in enumerate(("forward", "backward", "other")):
        phase[name] = phase[name] + spikes * (where == index)
    transfer = job.transfer_s * rng.lognormal(0.0, job.noise, job.num_steps)
    late_release = rng.exponential(0.05 * MS, shape)
    lots = rng.random(shape)
    phase["checkpoint"], phase["eval"] = np.zeros(shape), np.zeros(shape)
    phase["gc"] = np.zeros(shape)
    phase["tokens"] = np.full(shape, -1.0)
    phase["release"] = late_release  # a rank that is stopped in the exchange leaves it late
    for fault in job.faults:
        _apply(fault, job, phase, transfer, lots)
    late_release = phase["release"]
    return _run(job, phase, transfer, late_release)


def _apply(
    fault: Fault, job: Job, phase: dict[str, np.ndarray], transfer: np.ndarray, lots: np.ndarray
) -> None:
    steps = np.arange(job.num_steps)[:, None]
    hit = (steps >= fault.onset) & (steps < fault.until) & (steps % fault.every == 0)
    hit = hit & (lots < fault.chance) if fault.ranks is not None else hit & (lots[:, :1] < fault.chance)
    ranks = np.arange(job.num_ranks) if fault.ranks is None else np.array(fault.ranks)
    mask = hit & np.isin(np.arange(job.num_ranks), ranks)[None, :]
    if fault.kind == "comm":
        transfer += hit[:, 0] * fault.amount_s
    elif fault.kind == "spread":  # amount_s is a factor on all compute phases
        for name in ("forward", "backward", "optimizer", "other"):
            phase[name] = np.where(mask, phase[name] * fault.amount_s, phase[name])
    elif fault.kind == "decay":  # amount_s is what the data wait has grown by at the end
        phase["data_wait"] = phase["data_wait"] + mask * fault.amount_s * steps / job.num_steps
    elif fault.kind == "gc":  # in forward, as any allocation may start it
        phase["forward"] = phase["forward"] + mask * fault.amount_s
        phase["gc"] = phase["gc"] + mask * fault.amount_s
    elif fault.kind == "length":  # amount_s is what the longest batch takes beyond the shortest
        phase["forward"] = phase["forward"] + mask * fault.amount_s * lots
        phase["tokens"] = np.rint(1000 + 1000 * mask * lots)
    elif fault.kind == "warmup":
        phase["forward"] = phase["forward"] + mask * fault.amount_s
    else:
        name = "data_wait" if fault.kind == "data" else fault.kind
        mask = mask & (steps > 0) if fault.kind in ("checkpoint", "eval") else mask
        phase[name] = phase[name] + mask * fault.amount_s


def _run(job: Job, phase: dict[str, np.ndarray], transfer: np.ndarray, late_release: np.ndarray) -> Simulated:
    shape = (job.num_steps, job.num_ranks)
    begin, end, arrive, release = (np.empty(shape) for _ in range(4))
    at = np.full(job.num_ranks, 1.0)
    for k in range(job.num_steps):
        begin[k] = at
        arrive[k] = at + phase["data_wait"][k] + phase["forward"][k] + phase["backward"][k]
        meets = (k + 1) % job.meets_every == 0
        last = arrive[k].max() if meets else arrive[k]
        release[k] = last + (transfer[k] + late_release[k]) * (1.0 if meets else job.own_exchange)
        at = (
            release[k] + phase["optimizer"][k] + phase["checkpoint"][k] + phase["eval"][k] + phase["other"][k]
        )
        end[k] = at
    parts = {**phase, "comm_exposed": release - arrive}
    table = _table(job, parts, {"begin_ns": begin, "end_ns": end, "arrive_ns": arrive, "release_ns": release})
    attach = job.attach or (0,) * job.num_ranks
    rows = {
        rank: list(map(tuple, table[attach[rank] :, rank].tolist()))
        for rank in range(job.num_ranks)
        if rank not in job.missing
    }
    return Simulated(rows, np.diff(np.median(release, axis=1), prepend=1.0))


def _table(job: Job, parts: dict[str, np.ndarray], clocks: dict[str, np.ndarray]) -> np.ndarray:
    """K steps x R ranks x the columns of STEP_NAMES. parts, clocks: seconds, K x R."""
    ranks, steps = np.arange(job.num_ranks), np.arange(job.num_steps)[:, None]
    local = steps - np.array(job.attach or (0,) * job.num_ranks)
    shift = np.array([job.host_clock_s.get(rank // job.ranks_per_host, 0.0) for rank in ranks.tolist()])
    columns: dict[str, Any] = {name: _ns(seconds + shift) for name, seconds in clocks.items()}
    flags = np.where(local == 0, int(StepFlag.FIRST), 0)
    flags |= np.where(parts["checkpoint"] > 0, int(StepFlag.CHECKPOINT), 0)
    flags |= np.where(parts["eval"] > 0, int(StepFlag.EVAL), 0)
    if job.saving is not None:
        saver, every, length = job.saving
        flags |= np.where((ranks == saver) & (steps % every < length), int(StepFlag.SAVING), 0)
    if not job.barrier_seen:
        columns["arrive_ns"] = columns["release_ns"] = -1
        flags |= int(StepFlag.NO_SYNC)
    for name in PHASES[:-1]:
        columns[f"{name}_ns"] = _ns(parts[name]) if name in job.observed and name in parts else 0
    if "comm_exposed" not in job.observed:
        columns["backward_ns"] = columns["backward_ns"] + _ns(parts["comm_exposed"])
    columns |= {
        "rank": ranks,
        "step": local,
        "other_ns": columns["end_ns"]
        - columns["begin_ns"]
        - sum(columns[f"{name}_ns"] for name in PHASES[:-1]),
        "group_seq": 1000 + 3 * ((steps + 1) // (1 if job.own_numbers else job.meets_every))
        if job.seq_known
        else -1,
        "num_collectives": 3,
        "micro_steps": 1,
        "samples": job.samples,
        "tokens": parts["tokens"],
        "flags": flags,
        "observed": sum(1 << PHASES.index(name) for name in job.observed),
        "probe_cost_ns": 20_000,
        "gc_ns": _ns(parts["gc"]),
        "cpu_ns": _ns(0.9 * (parts["forward"] + parts["backward"])),
    }
    table = np.full((job.num_steps, job.num_ranks, len(STEP_NAMES)), -1, dtype=np.int64)
    for name, values in columns.items():
        table[:, :, STEP_NAMES.index(name)] = values
    return table


def _ns(seconds: np.ndarray) -> np.ndarray:
    return np.rint(seconds * 1e9).astype(np.int64)


def hello(job: Job, host: str, seq: int = 0) -> Frame:
    """The agent's first frame."""
    ranks = [rank for rank in range(job.num_ranks) if job.host(rank) == host and rank not in job.missing]
    payload = {
        "host": host,
        "agent_pid": 1,
        "wall_ns": 1_700_000_000_000_000_000,
        "mono_ns": 1_000_000_000,
        "num_cpus": 2,
        "ranks": [
            {
                "rank": rank,
                "local_rank": rank % job.ranks_per_host,
                "world_size": job.world_size or job.num_ranks,
                "pid": 100 + rank,
                "state": "live",
                "detail": "",
                "torch": "2.13.0",
                "backend": "gloo",
                "device": "cpu",
                "label": "train.py",
                "command": "train.py --fast",
                "parallel": {},
                "hooks": {"data": "ok"},
            }
            for rank in ranks
        ],
    }
    return Frame(FrameKind.HELLO, f"{host}/1/1", seq, 1_000_000_000, payload)


def frames(job: Job, rows_per_frame: int = 40, simulated: Simulated | None = None) -> list[Frame]:
    """HELLO and STEPS of every host's agent, interleaved as time goes by."""
    run = simulated or simulate(job)
    hosts = sorted({job.host(rank) for rank in run.rows})
    result = [hello(job, host) for host in hosts]
    longest = max((len(rows) for rows in run.rows.values()), default=0)
    attach = job.attach or (0,) * job.num_ranks
    pieces: dict[tuple[int, str], list[tuple[int, ...]]] = defaultdict(list)
    for rank, records in run.rows.items():
        for row in records:
            pieces[(row[1] + attach[rank]) // rows_per_frame, job.host(rank)].append(row)
    for seq, start in enumerate(range(0, longest + max(attach), rows_per_frame), 1):
        for host in hosts:
            rows = pieces.get((start // rows_per_frame, host))
            if rows:
                payload = pack_columns(rows, STEP_NAMES)
                time_ns = max(row[3] for row in rows)
                result.append(Frame(FrameKind.STEPS, f"{host}/1/1", seq, time_ns, payload))
    return result


def on_devices(sequence: list[Frame], behind_share: float = 0.3) -> list[Frame]:
    """The same run on devices whose clocks tell what the records do: as where the host waits for them in every phase.

    behind_share: how far each device is behind its thread at the end of backward, of its step.
    """
    result = []
    for frame in sequence:
        if frame.kind == FrameKind.HELLO:
            entries = [
                {**entry, "device": "cuda"}
                for entry in cast("list[dict[str, object]]", frame.payload["ranks"])
            ]
            result.append(replace(frame, payload={**frame.payload, "ranks": entries}))
            continue
        result.append(replace(frame, seq=2 * frame.seq))
        if frame.kind != FrameKind.STEPS:
            continue
        columns = unpack_columns(frame.payload, STEP_NAMES)
        rows = []
        for row in zip(*(columns[name].tolist() for name in STEP_NAMES), strict=True):
            rows += _spans(dict(zip(STEP_NAMES, row, strict=True)), behind_share)
        payload = pack_columns(rows, ("rank", "kind", *EVENT_COLUMNS))
        result.append(Frame(FrameKind.EVENTS, frame.source, 2 * frame.seq + 1, frame.time_ns, payload))
    return result


def _spans(record: dict[str, int], behind_share: float) -> list[tuple[int, ...]]:
    """DEVICE_PHASE rows of one record, in the order in which a step goes."""
    at = record["begin_ns"]
    rows: list[tuple[int, ...]] = []
    behind_ns = round(behind_share * (record["end_ns"] - at))
    for name in ("data_wait", "forward", "backward", "comm_exposed", "optimizer", "checkpoint"):
        took = max(record[f"{name}_ns"], 0)
        if record["observed"] >> PHASES.index(name) & 1:
            behind = behind_ns if name == "backward" else 0
            kind = int(EventKind.DEVICE_PHASE)
            rows.append(
                (record["rank"], kind, record["step"], at, at + took, PHASES.index(name), 1000, -1, behind)
            )
            at += took
    other = PHASES.index("other")
    rows.append(
        (
            record["rank"],
            int(EventKind.DEVICE_PHASE),
            record["step"],
            at,
            max(at, record["end_ns"]),
            other,
            1000,
            -1,
            0,
        )
    )
    return rows


def encoded(frame: Frame) -> bytes:
    """The frame's bytes."""
    return encode(frame.kind, frame.source, frame.seq, frame.time_ns, frame.payload)


def final_view(job: Job, rows_per_frame: int = 40) -> RunView:
    """The view after all frames."""
    return folded(frames(job, rows_per_frame)).view()


def folded(sequence: list[Frame]) -> Advisor:
    """An advisor that has taken these frames."""
    advisor = Advisor()
    for frame in sequence:
        advisor.feed_frame(frame)
    return advisor


def above_info(view: RunView) -> list[tuple[str, tuple[int, ...], str | None]]:
    """(id, ranks, phase) of the findings that ask for action."""
    return [
        (finding.id, finding.ranks, finding.phase) for finding in view.findings if finding.severity != "info"
    ]


def restarted(job: Job, num_steps: int, pause_s: float = 20.0) -> Simulated:
    """Records of the job's next incarnation: everything counts from 0 again, later on the same clocks."""
    again = simulate(replace(job, num_steps=num_steps, seed=job.seed + 1))
    last_ns = max(row[3] for rows in simulate(job).rows.values() for row in rows)
    shift_ns = last_ns + round(pause_s * 1e9)
    clocks = [STEP_NAMES.index(name) for name in ("begin_ns", "end_ns", "arrive_ns", "release_ns")]
    rows = {
        rank: [
            tuple(value + shift_ns if index in clocks else value for index, value in enumerate(row))
            for row in records
        ]
        for rank, records in again.rows.items()
    }
    return Simulated(rows, again.cycle_s)


def elastic(job: Job, cut: str) -> list[Frame]:
    """100 steps, an elastic restart of all ranks, 100 steps more, cut into frames in different ways."""
    first, second = simulate(job), restarted(job, 100)
    head = [hello(job, host) for host in sorted({job.host(rank) for rank in first.rows})]
    if cut == "one rank a frame":
        batches = [rows[rank] for rows in (first.rows, second.rows) for rank in rows]
    elif cut == "ten steps of one rank a frame":
        batches = [
            rows[rank][start : start + 10]
            for rows in (first.rows, second.rows)
            for start in range(0, 100, 10)
            for rank in rows
        ]
    elif cut == "both in one frame":
        batches = [
            [row for rank in first.rows for row in (*first.rows[rank], *second.rows[rank])],
        ]
    else:
        batches = [[row for rank in rows for row in rows[rank]] for rows in (first.rows, second.rows)]
    result = []
    for seq, batch in enumerate(batches, 1):
        hosts = sorted({job.host(row[0]) for row in batch})
        for host in hosts:
            mine = [row for row in batch if job.host(row[0]) == host]
            result.append(Frame(FrameKind.STEPS, f"{host}/1/1", seq, seq, pack_columns(mine, STEP_NAMES)))
    return [*head, *result]
