"""A per-operation trace as a run: the what-if document of `import ops`, and each worker's steps for a recording.

In: a table's path.  Out: ImportedRun. Operations have a begin within their step and none beyond it, so steps are laid
end to end; a worker's step is as long as the job's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS, UNKNOWN, EventKind, StepFlag
from tuiadvisor.importers.imported import ImportedRank, ImportedRun, Reading
from tuiadvisor.importers.opsreport import analysed
from tuiadvisor.metrics.series.intervals import union
from tuiadvisor.metrics.traces.op_graph import BACKWARD, COMPUTE, FORWARD, P2P
from tuiadvisor.metrics.traces.op_verdict import STRAGGLING
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.importers.imported import Progress, Row
    from tuiadvisor.metrics.steps.arrays import Bools, Ints
    from tuiadvisor.metrics.traces.op_table import OpGrid

NS: Final = 1e9
END_TO_END: Final = "what lies between two steps is not in the table: they are laid end to end"
CHUNKS: Final = {FORWARD: EventKind.STAGE_FORWARD, BACKWARD: EventKind.STAGE_BACKWARD}


def ops_run(path: Path, progress: Progress | None = None) -> tuple[dict[str, Any], ImportedRun]:
    """(the import's document, the run)."""
    if progress is not None:
        progress(Reading(path.name, 1, 1))
    cells, document = analysed(path)
    places = sorted(cells.rank_of.items(), key=lambda entry: entry[1])
    steps = _steps(cells)
    # Data-parallel ranks that were left out of the grid have no cell; the losses name them.
    ranks = [_rank(cells, place, rank, steps) for place, rank in places if (cells.dp_C == place[0]).any()]
    found = document["causes"]
    because = "; ".join(cause["words"] for cause in found) or f"no straggler: S is not above {STRAGGLING}"
    return document, ImportedRun(
        kind="ops",
        source=path.name,
        words="a per-operation table, by the clock it was written with",
        ranks=tuple(ranks),
        world_size=None,
        late_ranks=tuple(rank for cause in found if cause["kind"] == "worker" for rank in cause["ranks"]),
        because=because,
        says=because,
        notes=(END_TO_END, *cells.losses),
        parallel=document["run"]["parallel"],
        cause_ranks=tuple(found[0]["ranks"]) if found else (),
    )


def _steps(cells: OpGrid) -> list[tuple[int, int, int]]:
    """(step, begin, length) in nanoseconds; each lasts until the last operation of any worker ends."""
    steps = np.unique(cells.step_C)
    ends = (cells.start_NC + cells.dur_NC).max(axis=0)
    longest = np.array([ends[cells.step_C == step].max() for step in steps])
    length = np.maximum(np.rint(longest * NS).astype(np.int64), 1)
    begin = np.cumsum(length) - length
    return list(zip(steps.tolist(), begin.tolist(), length.tolist(), strict=True))


def _rank(
    cells: OpGrid, place: tuple[int, int], rank: int, steps: list[tuple[int, int, int]]
) -> ImportedRank:
    """place: data-parallel rank and stage."""
    stages = sorted({stage for _, stage in cells.rank_of})
    worker = _Worker(cells, *place, num_stages=len(stages))
    done = [worker.step(*step) for step in steps]
    pipeline = {}
    if len(stages) > 1:
        pipeline = dict.fromkeys(("stages", "ranks"), len(stages))
        pipeline["micro_batches"] = worker.num_micro_batches
        first = cells.rank_of.get((place[0], stages[0]))
        pipeline |= {} if first is None else {"first_rank": first}
    events = tuple(event for _, chunks in done for event in chunks)
    return ImportedRank(rank, tuple(row for row, _ in done), events, None, 0, pipeline)


class _Worker:
    """One stage of one data-parallel rank."""

    def __init__(self, cells: OpGrid, dp: int, stage: int, *, num_stages: int) -> None:
        self._cells, self._dp, self._stage, self._num_stages = cells, dp, stage, num_stages
        self._rows = np.array([at for at, op in enumerate(cells.ops) if op.stage == stage])
        self._types = np.array([cells.ops[at].optype for at in self._rows])
        self._chunk = [max(cells.ops[at].chunk, 0) for at in self._rows]  # -1: does not apply
        self.num_micro_batches = int((self._types == FORWARD).sum()) // (max(self._chunk, default=0) + 1)

    def step(self, step: int, origin: int, length: int) -> tuple[Row, list[Row]]:
        """(its row, its chunks)."""
        (column,) = np.flatnonzero((self._cells.step_C == step) & (self._cells.dp_C == self._dp))
        begin = origin + np.rint(self._cells.start_NC[self._rows, column] * NS).astype(np.int64)
        end = begin + np.rint(self._cells.dur_NC[self._rows, column] * NS).astype(np.int64)
        works, moves = np.isin(self._types, tuple(COMPUTE)), np.isin(self._types, P2P)

        def covered(*masks: Bools) -> int:
            chosen = np.logical_or.reduce(masks)
            return union(begin[chosen], end[chosen]).length

        forward, backward = self._types == FORWARD, self._types == BACKWARD
        collective = ~works & ~moves
        exposed = covered(works, collective) - covered(works)
        parts = {
            "forward": covered(forward),
            "backward": covered(forward, backward) - covered(forward),
            "optimizer": covered(forward, backward, self._types == "optimizer") - covered(forward, backward),
        }
        if collective.any():
            parts["comm_exposed"] = exposed
        if self._num_stages > 1:
            # What is left beside a transfer to a neighbour is a wait for it, or for its data.
            parts["pipeline_idle"] = covered(works, collective, moves) - covered(works, collective)
        fields = {f"{name}_ns": value for name, value in parts.items()}
        fields |= {"other_ns": max(length - sum(parts.values()), 0)}
        fields |= {"step": step, "begin_ns": origin, "end_ns": origin + length, "group_seq": step + 1}
        fields |= {
            "micro_steps": self.num_micro_batches or UNKNOWN,
            "flags": int(StepFlag.DETAIL | StepFlag.NO_SYNC),
        }
        fields["observed"] = sum(1 << PHASES.index(name) for name in (*parts, "other"))
        if collective.any():
            fields["comm_total_ns"] = covered(collective)
        gc = self._types == "gc"
        if gc.any():
            fields["gc_ns"] = covered(gc)
        row = tuple(fields.get(name, UNKNOWN) for name in STEP_COLUMNS)
        return row, self._chunks(step, begin, end) if self._num_stages > 1 else []

    def _chunks(self, step: int, begin: Ints, end: Ints) -> list[Row]:
        """Forward and backward of each micro-batch in order, with the wait for a neighbour right before it."""
        rows: list[Row] = []
        count: dict[tuple[str, int], int] = {}
        computes = [at for at in np.argsort(begin, kind="stable").tolist() if self._types[at] in CHUNKS]
        done = 0
        for at in computes:
            optype, chunk = str(self._types[at]), self._chunk[at]
            receives = f"{optype.partition('-')[0]}-recv"
            mine = (self._types == receives) & (end <= begin[at]) & (end > done)
            if mine.any():
                waited = max(int(begin[mine].min()), done)
                rows.append(_event(EventKind.P2P_WAIT, step, (waited, int(end[mine].max()))))
            number = count[optype, chunk] = count.get((optype, chunk), -1) + 1
            stage = self._stage + chunk * self._num_stages
            rows.append(_event(CHUNKS[optype], step, (int(begin[at]), int(end[at])), stage, number))
            done = max(done, int(end[at]))
        return rows


def _event(
    kind: EventKind, step: int, span: tuple[int, int], group: int = UNKNOWN, seq: int = UNKNOWN
) -> Row:
    detail = 1 if kind == EventKind.STAGE_BACKWARD else UNKNOWN
    fields = {
        "step": step,
        "begin_ns": span[0],
        "end_ns": span[1],
        "group": group,
        "seq": seq,
        "detail": detail,
    }
    return (int(kind), *(fields.get(name, UNKNOWN) for name in EVENT_COLUMNS))
