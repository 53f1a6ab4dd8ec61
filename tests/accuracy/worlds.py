"""Large synthetic jobs as the frames their agents would send: any number of ranks, in columns, chunk by chunk.

In: World: ranks, hosts, noise, faults.  Out: frames in the true shape, and what the faults really cost: the same steps
with the same noise are simulated without them. Nothing of a step is invented: the waits follow from the barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tuiadvisor.events import STEP_NAMES, StepFlag
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns

Floats = npt.NDArray[np.float64]
WORK = ("data_wait", "forward", "backward", "optimizer", "other")
SHARES = {
    "data_wait": 0.01,
    "forward": 0.31,
    "backward": 0.55,
    "optimizer": 0.07,
    "other": 0.02,
}  # the rest: transfer
TRANSFER_SHARE = 1 - sum(SHARES.values())
COMPUTE = ("forward", "backward", "optimizer")
CHUNK_STEPS = 8
TOKENS = 4096  # of the shortest batch

# Work between barriers over the rank's own median, quantiles of healthy trainings: what real noise looks like, heavy
# tail included. `quiet`: 2 gloo ranks with 63 ms steps on 2 cores; `crowded`: 4 with 19 ms steps on 2 cores, beside
# other jobs (recorded 2026-11-21). `device`: no recording, what devices with cores of their own would show.
QUANTILES = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 1)
NOISE: dict[str, tuple[float, ...]] = {
    "device": (0.985, 0.988, 0.992, 0.994, 0.997, 1, 1.003, 1.007, 1.012, 1.02, 1.03, 1.05, 1.15),
    "quiet": (0.917, 0.936, 0.958, 0.962, 0.973, 1, 1.05, 1.105, 1.148, 1.224, 1.265, 1.318, 1.392),
    "crowded": (0.611, 0.766, 0.8, 0.821, 0.91, 1, 1.138, 1.3, 1.358, 1.485, 1.527, 1.549, 1.632),
}


@dataclass(frozen=True)
class Fault:
    """kind: a phase of WORK, "device" (all compute alike), "length" (now this rank, now that) or "transfer"."""

    kind: str
    share: float  # of the step, in the steps it hits
    ranks: tuple[int, ...] = ()
    onset: int = 0
    period: int = 1  # hits the first `on` of every `period` steps
    on: int = 1


@dataclass(frozen=True)
class World:
    """A training to simulate."""

    num_ranks: int
    num_steps: int = 240
    step_s: float = 0.2
    ranks_per_host: int = 8
    hosts_per_agent: int = (
        1  # one source for several hosts' worth of ranks keeps the largest worlds cheap to write
    )
    noise: str = "device"
    static_noise: float = 0.002  # no two devices are equally fast
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    chunk_steps: int = CHUNK_STEPS  # of a frame
    correlation: float = 0.0  # of a rank's noise from one step to the next

    @property
    def block(self) -> int:
        """Ranks of one source."""
        return self.ranks_per_host * self.hosts_per_agent


@dataclass
class Truth:
    """Filled while the frames are read: time between releases, with the faults and without."""

    cycle_s: list[float] = field(default_factory=list)
    clean_s: list[float] = field(default_factory=list)

    def loss_s(self, first: int, last: int) -> float:
        """What the faults cost a step, mean over these steps."""
        window = slice(first, last + 1)
        return float(np.mean(self.cycle_s[window]) - np.mean(self.clean_s[window]))


@dataclass
class _Steps:
    """Seconds of a chunk of steps, K or K x R."""

    phase: dict[str, Floats]
    transfer: Floats
    late: Floats  # each rank's release after the first
    tokens: Floats  # of each rank's batch


@dataclass
class _Clock:
    """Seconds: when each rank's step began, and when the last one was released."""

    begin: Floats
    release: float


def frames(world: World, truth: Truth | None = None) -> Iterator[Frame]:
    """HELLO of every agent, then STEPS, world.chunk_steps steps a frame."""
    truth = Truth() if truth is None else truth
    rng = np.random.default_rng(world.seed)
    speed = rng.normal(1.0, world.static_noise, world.num_ranks)
    blocks = [
        (f"node{number}", np.arange(start, min(start + world.block, world.num_ranks)))
        for number, start in enumerate(range(0, world.num_ranks, world.block))
    ]
    for host, ranks in blocks:
        yield _hello(world, host, ranks)
    dirty = _Clock(np.full(world.num_ranks, 1.0), 1.0)
    clean = _Clock(np.full(world.num_ranks, 1.0), 1.0)
    state = None
    for seq, start in enumerate(range(0, world.num_steps, world.chunk_steps), 1):
        steps = np.arange(start, min(start + world.chunk_steps, world.num_steps))
        quantile, state = _drawn(world, rng, state, steps.size)
        chunk = _noise(world, rng, speed, quantile)
        _run(replace(chunk, transfer=chunk.transfer + _even_s(world, steps)), clean, truth.clean_s)
        _apply(world, rng, chunk, steps)
        table = _table(world, chunk, _run(chunk, dirty, truth.cycle_s), steps)
        for host, ranks in blocks:
            rows = table[:, ranks].transpose(1, 0, 2).reshape(-1, len(STEP_NAMES))
            time_ns = int(rows[:, STEP_NAMES.index("end_ns")].max())
            yield Frame(FrameKind.STEPS, f"{host}/1/1", seq, time_ns, pack_columns(rows, STEP_NAMES))


def _drawn(
    world: World, rng: np.random.Generator, state: Floats | None, num_steps: int
) -> tuple[Floats, Floats | None]:
    """K x R: where in the distribution of its noise each step of each rank lies, and what the next step follows."""
    shape = (num_steps, world.num_ranks)
    if not world.correlation:
        return rng.random(shape), None
    state = rng.standard_normal(world.num_ranks) if state is None else state
    normal = np.empty(shape)
    for k, fresh in enumerate(rng.standard_normal(shape) * np.sqrt(1 - world.correlation**2)):
        state = world.correlation * state + fresh
        normal[k] = state
    return np.vectorize(NormalDist().cdf)(normal), state


def _noise(world: World, rng: np.random.Generator, speed: Floats, quantile: Floats) -> _Steps:
    """Steps of a healthy job."""
    shape, num_steps = quantile.shape, len(quantile)
    factor = np.interp(quantile, QUANTILES, NOISE[world.noise]) * speed
    phase = {name: share * world.step_s * factor for name, share in SHARES.items()}
    # What makes one step long lies in one of its phases: move the excess of each step into a phase drawn by lot.
    lot = rng.integers(0, 2, shape)
    excess = np.maximum(factor - speed, 0.0) * sum(SHARES.values()) * world.step_s
    for index, name in enumerate(("forward", "backward")):
        phase[name] = np.minimum(phase[name], SHARES[name] * world.step_s * speed) + excess * (lot == index)
    for name in ("data_wait", "optimizer", "other"):
        phase[name] = np.minimum(phase[name], SHARES[name] * world.step_s * speed)
    transfer = TRANSFER_SHARE * world.step_s * rng.lognormal(0.0, 0.1, num_steps)
    return _Steps(phase, transfer, rng.exponential(2e-5, shape), np.full(shape, float(TOKENS)))


def _even_s(world: World, steps: npt.NDArray[np.int64]) -> Floats:
    """What lengths cost every rank if they were spread evenly: no fault, so it stays in the steps without it."""
    found = np.zeros(steps.size)
    for fault in world.faults:
        if fault.kind == "length":
            found += _hit(fault, steps) * fault.share * world.step_s / 4  # mean of a uniform number's cube
    return found


def _hit(fault: Fault, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return np.asarray((steps >= fault.onset) & ((steps - fault.onset) % fault.period < fault.on))


def _apply(world: World, rng: np.random.Generator, chunk: _Steps, steps: npt.NDArray[np.int64]) -> None:
    """Add the faults, in place."""
    phase, transfer = chunk.phase, chunk.transfer
    for fault in world.faults:
        hit = _hit(fault, steps)
        extra = hit * fault.share * world.step_s
        ranks = np.array(fault.ranks, dtype=np.int64)
        if fault.kind == "transfer":
            transfer += extra
        elif fault.kind == "length":  # sequence lengths: of each step other ranks have the long ones
            length = rng.random((steps.size, world.num_ranks)) ** 3
            chunk.tokens += np.rint(hit[:, None] * TOKENS * length)
            for name, part in (("forward", 0.36), ("backward", 0.64)):
                phase[name] += extra[:, None] * part * length
        elif fault.kind == "device":
            total = sum(SHARES[name] for name in COMPUTE)
            for name in COMPUTE:
                phase[name][:, ranks] += extra[:, None] * SHARES[name] / total
        else:
            phase[fault.kind][:, ranks] += extra[:, None]


def _run(chunk: _Steps, clock: _Clock, cycles: list[float]) -> dict[str, Floats]:
    """Step through the barrier; clocks K x R."""
    phase, num_steps = chunk.phase, chunk.transfer.size
    result = {name: np.empty(chunk.late.shape) for name in ("begin_ns", "arrive_ns", "release_ns", "end_ns")}
    for k in range(num_steps):
        arrive = clock.begin + phase["data_wait"][k] + phase["forward"][k] + phase["backward"][k]
        common = float(arrive.max()) + chunk.transfer[k]
        release = common + chunk.late[k]
        end = release + phase["optimizer"][k] + phase["other"][k]
        for name, values in zip(result, (clock.begin, arrive, release, end), strict=True):
            result[name][k] = values
        middle = float(np.median(release))
        cycles.append(middle - clock.release)
        clock.begin, clock.release = end, middle
    return result


def _table(
    world: World, chunk: _Steps, clocks: dict[str, Floats], steps: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """K x R x columns of STEP_NAMES."""
    table = np.full((steps.size, world.num_ranks, len(STEP_NAMES)), -1, dtype=np.int64)

    def put(name: str, values: npt.ArrayLike) -> None:
        table[:, :, STEP_NAMES.index(name)] = values

    for name in PHASES:
        put(f"{name}_ns", 0)
    for name, values in clocks.items():
        put(name, np.rint(values * 1e9))
    spent = {**chunk.phase, "comm_exposed": clocks["release_ns"] - clocks["arrive_ns"]}
    for name, values in spent.items():
        if name != "other":
            put(f"{name}_ns", np.rint(values * 1e9))
    named = [STEP_NAMES.index(f"{name}_ns") for name in PHASES[:-1]]
    length = table[:, :, STEP_NAMES.index("end_ns")] - table[:, :, STEP_NAMES.index("begin_ns")]
    put("other_ns", length - table[:, :, named].sum(axis=2))
    put("rank", np.arange(world.num_ranks)[None, :])
    put("step", steps[:, None])
    put("group_seq", 1000 + 3 * (steps[:, None] + 1))
    put("num_collectives", 3)
    put("micro_steps", 1)
    put("samples", 8)
    put("tokens", chunk.tokens)
    put("flags", np.where(steps == 0, int(StepFlag.FIRST), 0)[:, None])
    put("observed", sum(1 << PHASES.index(name) for name in (*WORK, "comm_exposed")))
    put("probe_cost_ns", 20_000)
    put("gc_ns", 0)
    return table


def _hello(world: World, host: str, ranks: npt.NDArray[np.int64]) -> Frame:
    entries = [
        {
            "rank": rank,
            "local_rank": rank % world.ranks_per_host,
            "world_size": world.num_ranks,
            "pid": 1000 + rank,
            "state": "live",
            "torch": "2.13.0",
            "backend": "gloo",
            "device": "cpu",  # the thread's clock is that of the work; of devices: simulated_devices.py
            "label": "world",
        }
        for rank in ranks.tolist()
    ]
    payload: dict[str, object] = {
        "host": host,
        "wall_ns": 1_700_000_000_000_000_000,
        "mono_ns": 1_000_000_000,
        "num_cpus": 64,
        "ranks": entries,
    }
    return Frame(FrameKind.HELLO, f"{host}/1/1", 0, 1_000_000_000, payload)
