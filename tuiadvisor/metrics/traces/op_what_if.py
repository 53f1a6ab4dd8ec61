"""What a training step would take without its stragglers: every operation re-run at its ideal duration.

In: a per-operation grid.  Out: S, S_t, S_w, M_W, M_S and the step times behind them, seconds.
Definitions (What-if analysis, OSDI'25):
  measured  the step re-simulated from its dependencies with measured durations and no launch delays
  ideal     the same with computations at their mean and communication at its median transfer time, over all
            ranks and steps; transfer time = end - last start of its group
  S         mean measured / mean ideal.  S_t, S_w: only type t, or worker w, keeps its measured durations
  M_W       share of (measured - ideal) that fixing the slowest 3 % of workers recovers.  M_S: the last stage
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.metrics.traces import op_graph
from tuiadvisor.metrics.traces.slow_workers import slow_workers

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats
    from tuiadvisor.metrics.traces.op_graph import OpGraph
    from tuiadvisor.metrics.traces.op_table import OpGrid

CLOCK_ERROR_S: Final = 1e-2  # a transfer that ends this long before its last start: clocks disagree, count 0
MAX_TEMPLATES: Final = 8  # steps and ranks that are tried for the order of operations
LEAST_EXCESS: Final = 1e-6  # of the ideal step: below that, no share of the slowdown is defined
SHOWN_AS: Final = {
    "forward-send": "forward-pp-comm",
    "forward-recv": "forward-pp-comm",
    "backward-send": "backward-pp-comm",
    "backward-recv": "backward-pp-comm",
}


@dataclass(frozen=True, slots=True)
class Worker:
    """One recorded rank. S: the lesser of what its data-parallel rank and its stage cost alone."""

    rank: int
    dp: int
    stage: int
    S: float


@dataclass(frozen=True, slots=True)
class Slower:
    """A worker slower than its stage's others in nearly every step. gain_s: of the step, if it computed as the mean."""

    rank: int
    ratio: float
    num_slowest: int
    num_steps: int
    gain_s: float


@dataclass(frozen=True, slots=True)
class OpWhatIf:
    """Means over steps in seconds, slowdowns as ratios; M_W and M_S None where nothing is slow."""

    measured_s: float
    simulated_s: float
    ideal_s: float
    S: float
    S_step: dict[int, float]
    S_t: dict[str, float]
    S_dp: dict[int, float]
    S_stage: dict[int, float]
    S_w: tuple[Worker, ...]  # slowest first
    M_W: float | None
    fixed_workers: tuple[int, ...]  # the ranks of M_W
    without_workers_s: float
    M_S: float | None
    without_last_stage_s: float
    forward_backward_correlation: float | None  # of a micro-batch, within workers; near 1: lengths differ
    forward_variation: float | None  # standard deviation / mean of a worker's forward computations
    M_W_compute: float | None = None  # M_W by their computations alone: what no other rank can have caused
    M_L: float | None = None  # share recovered if each worker's micro-batches all took that worker's own mean
    slower: tuple[Slower, ...] = ()  # slowest first


def what_if(grid: OpGrid) -> OpWhatIf:
    """Re-simulate the grid. TuiadvisorError when its operations do not form a training step."""
    return _Study(grid, _graph(grid)).result()


def _graph(grid: OpGrid) -> OpGraph:
    """By the times of one step on one data-parallel rank, the first that fits together: one may have a wrong time."""
    others = np.linspace(0, grid.step_C.size - 1, min(MAX_TEMPLATES, grid.step_C.size)).astype(int)
    refused: TuiadvisorError | None = None
    for cell in dict.fromkeys((grid.template, *others.tolist())):
        start = grid.start_NC[:, cell]
        try:
            return op_graph.build(grid.ops, start, start + grid.dur_NC[:, cell])
        except TuiadvisorError as error:
            refused = refused or error
    raise refused or TuiadvisorError("no step in the table: record at least one whole step")


class _Study:
    """One grid with its measured and its ideal durations."""

    def __init__(self, grid: OpGrid, graph: OpGraph) -> None:
        self.grid, self.graph = grid, graph
        self.dps = np.unique(grid.dp_C)
        self.num_dp = self.dps.size
        # Cells come step by step, data-parallel rank by rank: (N, steps, dp).
        self.shape = (len(grid.ops), grid.step_C.size // self.num_dp, self.num_dp)
        self.measured = _durations(grid, graph, self.shape)
        self.types = [op.optype for op in grid.ops]
        self.stages = np.array([op.stage for op in grid.ops])
        self.ideal_N = self._ideal()
        self.ideal = np.broadcast_to(self.ideal_N[:, None, None], self.shape)

    def _ideal(self) -> Floats:
        ideal = np.empty(len(self.types))
        types = np.array(self.types)
        for optype in dict.fromkeys(self.types):
            rows = types == optype
            values = self.measured[rows]
            is_comm = optype in op_graph.COMMUNICATION
            ideal[rows] = np.median(values) if is_comm else values.mean()
        return ideal

    def step_s(self, dur: Floats) -> Floats:
        """Step times, one a step."""
        return np.asarray(simulate(self.graph, dur).max(axis=-1))

    def result(self) -> OpWhatIf:
        measured_K = self.step_s(self.measured)
        ideal_s = float(self.step_s(self.ideal_N[:, None, None])[0])
        end_NC = self.grid.start_NC + self.grid.dur_NC
        observed_K = end_NC.max(axis=0).reshape(self.shape[1:]).max(axis=1)
        by_type = self._by_type(ideal_s)
        by_dp = self._by_dp(ideal_s)
        by_stage = self._by_stage(ideal_s)
        workers = self._workers(by_dp, by_stage)
        num_fixed = -(-len(workers) * 3 // 100)
        fixed = workers[:num_fixed]
        mean_s = float(measured_K.mean())
        cells = self._cells_of(fixed)
        without_workers = self._without(cells)
        computes = np.array([optype in op_graph.COMPUTE for optype in self.types])
        without_their_compute = self._without(cells & computes[:, None, None])
        without_stage = self._without(np.broadcast_to(self._last_stage()[:, None, None], self.shape))
        excess = mean_s - ideal_s
        defined = excess > LEAST_EXCESS * ideal_s
        correlation, variation = self._lengths()
        slower = self._slower(mean_s, computes)
        return OpWhatIf(
            measured_s=float(observed_K.mean()),
            simulated_s=mean_s,
            ideal_s=ideal_s,
            S=mean_s / ideal_s,
            S_step={
                int(s): float(t) / ideal_s
                for s, t in zip(self.grid.step_C[:: self.num_dp], measured_K, strict=True)
            },
            S_t=dict(sorted(by_type.items(), key=lambda item: -item[1])),
            S_dp=by_dp,
            S_stage=by_stage,
            S_w=tuple(workers),
            M_W=(mean_s - without_workers) / excess if defined else None,
            fixed_workers=tuple(worker.rank for worker in fixed),
            without_workers_s=without_workers,
            M_S=(mean_s - without_stage) / excess if defined else None,
            without_last_stage_s=without_stage,
            forward_backward_correlation=correlation,
            forward_variation=variation,
            M_W_compute=(mean_s - without_their_compute) / excess if defined else None,
            M_L=(mean_s - self._without_variation()) / excess if defined else None,
            slower=slower,
        )

    def _keep(self, rows: Bools, ideal_s: float) -> float:
        """Slowdown when only these operations keep their measured durations."""
        dur = np.where(rows[:, None, None], self.measured, self.ideal)
        return float(self.step_s(dur).mean()) / ideal_s

    def _by_type(self, ideal_s: float) -> dict[str, float]:
        shown = np.array([SHOWN_AS.get(optype, optype) for optype in self.types])
        return {str(name): self._keep(shown == name, ideal_s) for name in dict.fromkeys(shown.tolist())}

    def _by_stage(self, ideal_s: float) -> dict[int, float]:
        return {int(stage): self._keep(self.stages == stage, ideal_s) for stage in np.unique(self.stages)}

    def _by_dp(self, ideal_s: float) -> dict[int, float]:
        """All data-parallel ranks at once: each alone against one ideal peer that stands for all the others."""
        steps = self.shape[1] * self.num_dp
        pairs = np.empty((self.shape[0], steps, 2 if self.num_dp > 1 else 1))
        pairs[:, :, 0] = self.measured.reshape(self.shape[0], steps)
        pairs[:, :, 1:] = self.ideal_N[:, None, None]
        mean_D = self.step_s(pairs).reshape(self.shape[1:]).mean(axis=0)
        return {int(dp): float(s) / ideal_s for dp, s in zip(self.dps, mean_D, strict=True)}

    def _workers(self, by_dp: dict[int, float], by_stage: dict[int, float]) -> list[Worker]:
        workers = [
            Worker(rank, dp, stage, min(by_dp[dp], by_stage[stage]))
            for (dp, stage), rank in self.grid.rank_of.items()
            if dp in by_dp and stage in by_stage
        ]
        return sorted(workers, key=lambda worker: (-worker.S, worker.rank))

    def _slower(self, mean_s: float, computes: Bools) -> tuple[Slower, ...]:
        passes = np.isin(self.types, (op_graph.FORWARD, op_graph.BACKWARD))
        by_stage = {
            int(stage): self.measured[passes & (self.stages == stage)].sum(axis=0)
            for stage in np.unique(self.stages)
        }
        found = []
        for one in slow_workers(by_stage):
            rank = self.grid.rank_of[int(self.dps[one.at]), one.stage]
            cells = np.zeros(self.shape, dtype=bool)
            cells[computes & (self.stages == one.stage), :, one.at] = True
            gain_s = mean_s - self._without(cells)
            found.append(Slower(rank, one.ratio, one.num_slowest, one.num_steps, gain_s))
        return tuple(found)

    def _cells_of(self, workers: list[Worker]) -> Bools:
        cells = np.zeros(self.shape, dtype=bool)
        for worker in workers:
            cells |= (self.stages == worker.stage)[:, None, None] & (self.dps == worker.dp)[None, None, :]
        return cells

    def _last_stage(self) -> Bools:
        return np.asarray(self.stages == self.stages.max())

    def _without(self, cells: Bools) -> float:
        return float(self.step_s(np.where(cells, self.ideal, self.measured)).mean())

    def _without_variation(self) -> float:
        dur = self.measured.copy()
        types = np.array(self.types)
        for optype in (op_graph.FORWARD, op_graph.BACKWARD):
            for stage in np.unique(self.stages):
                rows = (types == optype) & (self.stages == stage)
                dur[rows] = dur[rows].mean(axis=(0, 1))
        return float(self.step_s(dur).mean())

    def _lengths(self) -> tuple[float | None, float | None]:
        """Do long forwards go with long backwards of the same micro-batch? Means of workers taken out."""
        forward = self._deviations(op_graph.FORWARD)
        backward = self._deviations(op_graph.BACKWARD)
        variation = float(forward.std()) if forward.size else None
        if forward.shape != backward.shape or forward.size < 3 or not forward.std() or not backward.std():
            return None, variation
        return float(np.corrcoef(forward.ravel(), backward.ravel())[0, 1]), variation

    def _deviations(self, optype: str) -> Floats:
        """Relative deviation from the worker's own mean: (stage, chunk, seq) x steps x dp, in that order."""
        rows = [i for i, op in enumerate(self.grid.ops) if op.optype == optype]
        rows.sort(key=lambda i: (self.grid.ops[i].stage, self.grid.ops[i].chunk, self.grid.ops[i].seq))
        parts = []
        for stage in np.unique(self.stages):
            values = self.measured[[i for i in rows if self.grid.ops[i].stage == stage]]
            mean = values.mean(axis=(0, 1), keepdims=True)
            parts.append(np.divide(values - mean, mean, out=np.zeros_like(values), where=mean > 0))
        return np.concatenate(parts)


def simulate(graph: OpGraph, dur: Floats) -> Floats:
    """When the last operation ends: ... x D seconds from the step's start.

    dur: N operations x ... x D data-parallel ranks, transfer times for communication. A group ends its own
    transfer time after the last of it has started; groups across data-parallel ranks wait for all D.
    """
    start: list[Floats] = [np.zeros(dur.shape[1:])] * dur.shape[0]
    end: list[Floats] = list(start)
    last = np.zeros(dur.shape[1:])
    for is_finish, at in graph.order:
        if not is_finish:
            before = graph.waits_for[at]
            if before:
                latest = end[before[0]]
                for other in before[1:]:
                    latest = np.maximum(latest, end[other])
                start[at] = latest
            continue
        group = graph.groups[at]
        begin = start[group[0]]
        for member in group[1:]:
            begin = np.maximum(begin, start[member])
        if graph.joins_dp[at]:
            begin = begin.max(axis=-1, keepdims=True)
        for member in group:
            end[member] = begin + dur[member]
            last = np.maximum(last, end[member])
    return last


def _durations(grid: OpGrid, graph: OpGraph, shape: tuple[int, int, int]) -> Floats:
    """Computations as measured; communication: end minus the last start of its group."""
    start = grid.start_NC.reshape(shape)
    end = start + grid.dur_NC.reshape(shape)
    dur = grid.dur_NC.reshape(shape).copy()
    for group, joins in zip(graph.groups, graph.joins_dp, strict=True):
        if len(group) == 1 and not joins:
            continue  # nobody to wait for: the measured duration is the transfer
        begin = start[list(group)].max(axis=0)
        if joins:
            begin = begin.max(axis=-1, keepdims=True)
        for member in group:
            transfer = end[member] - begin
            dur[member] = np.where(transfer <= -CLOCK_ERROR_S, 0.0, transfer)
    return dur
