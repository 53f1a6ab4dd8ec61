"""One row an operation: the columns of a per-operation trace, and the same as operations x columns.

In: parallel arrays, one entry an operation of one worker in one step.  Out: a grid whose rows are the
operations that every worker of a stage runs in a step, whose columns are (step, data-parallel rank) cells.
Steps and data-parallel ranks that do not have all operations are left out, and named.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

MAX_GRID_CELLS: Final = 1 << 27  # one float64 matrix of 1 GiB: beyond that, fewer steps must be asked for
MAX_NAMED: Final = 8  # in a message
LEAST_STEPS: Final = 3  # a table that is cut at both ends has two steps that are not whole on all ranks


@dataclass(frozen=True, slots=True)
class OpTable:
    """Parallel columns, times in seconds. optype holds indices into `optypes`; seq < 0: order by start."""

    step: Ints
    rank: Ints
    dp_rank: Ints
    stage: Ints
    optype: Ints
    start_s: Floats
    dur_s: Floats
    seq: Ints
    chunk: Ints  # model chunk within the stage, 0 without virtual stages
    optypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of the template: the seq-th of its type on a stage within a step."""

    optype: str
    seq: int
    stage: int
    chunk: int


@dataclass(frozen=True, slots=True)
class OpGrid:
    """N operations x C cells; cell c is step `step_C[c]` on data-parallel rank `dp_C[c]`."""

    ops: tuple[Op, ...]
    start_NC: Floats  # seconds since the step's first operation
    dur_NC: Floats
    step_C: Ints
    dp_C: Ints
    rank_of: dict[tuple[int, int], int]  # (dp_rank, stage) -> rank
    template: int  # cell whose start times give the order of operations
    losses: tuple[str, ...]  # what was left out, in words


def grid(table: OpTable) -> OpGrid:
    """The table as a grid. TuiadvisorError when no step is whole on any data-parallel rank."""
    if table.step.size == 0:
        raise TuiadvisorError("the table has no rows: record at least one whole step")
    losses: list[str] = []
    table = _one_rank_a_cell(table, losses)
    key = _operation_key(table)
    steps, step_at = np.unique(table.step, return_inverse=True)
    dps, dp_at = np.unique(table.dp_rank, return_inverse=True)
    cell = step_at * dps.size + dp_at
    order = np.lexsort((key, cell))
    cells, first = np.unique(cell[order], return_index=True)
    rows_of = np.split(order, first[1:])
    signatures = [key[rows].tobytes() for rows in rows_of]
    # Of as many with a stage as without it those are whole that have it.
    common = max(Counter(signatures).items(), key=lambda item: (item[1], len(item[0])))[0]
    rows = rows_of[signatures.index(common)]
    if np.any(np.diff(key[rows]) == 0):
        raise TuiadvisorError(_twice(table, rows, key))
    whole = np.zeros((steps.size, dps.size), dtype=bool)
    for at, signature in zip(cells, signatures, strict=True):
        whole[at // dps.size, at % dps.size] = signature == common
    keep_steps, keep_dps = _whole_block(whole, steps, dps, losses)
    if rows.size * keep_steps.size * keep_dps.size > MAX_GRID_CELLS:
        raise TuiadvisorError("the table is too large to simulate at once: keep fewer steps and import again")
    wanted = {int(s) * dps.size + int(d) for s in keep_steps for d in keep_dps}
    picked = [chosen for at, chosen in zip(cells, rows_of, strict=True) if int(at) in wanted]
    rows_NC = np.stack(picked, axis=1)
    start_NC = table.start_s[rows_NC]
    step_C = table.step[rows_NC[0]]
    for step in np.unique(step_C):
        inside = step_C == step
        start_NC[:, inside] -= start_NC[:, inside].min()
    return OpGrid(
        ops=tuple(
            Op(table.optypes[table.optype[i]], int(s), int(table.stage[i]), int(table.chunk[i]))
            for i, s in zip(rows, _sequence(table)[rows], strict=True)
        ),
        start_NC=start_NC,
        dur_NC=table.dur_s[rows_NC],
        step_C=step_C,
        dp_C=table.dp_rank[rows_NC[0]],
        rank_of=_ranks(table),
        template=0,
        losses=tuple(losses),
    )


def without(cells: OpGrid, kept_C: Bools, why: str) -> OpGrid:
    """The cells that are kept, of whole steps; why: what is said of the others."""
    return replace(
        cells,
        start_NC=cells.start_NC[:, kept_C],
        dur_NC=cells.dur_NC[:, kept_C],
        step_C=cells.step_C[kept_C],
        dp_C=cells.dp_C[kept_C],
        losses=(*cells.losses, why),
    )


def _sequence(table: OpTable) -> Ints:
    """Seq as given, or the order of starts within a worker's step and operation type."""
    if np.all(table.seq >= 0):
        return table.seq
    order = np.lexsort((table.start_s, table.optype, table.stage, table.dp_rank, table.step))
    columns = np.stack([c[order] for c in (table.step, table.dp_rank, table.stage, table.optype)])
    fresh = np.ones(order.size, dtype=bool)
    fresh[1:] = np.any(columns[:, 1:] != columns[:, :-1], axis=0)
    begins = np.flatnonzero(fresh)
    seq = np.empty(order.size, dtype=np.int64)
    seq[order] = np.arange(order.size) - np.repeat(begins, np.diff(np.append(begins, order.size)))
    return seq


def _operation_key(table: OpTable) -> Ints:
    seq = _sequence(table)
    span_seq, span_type = int(seq.max()) + 1, len(table.optypes)
    if (int(table.stage.max()) + 1) * span_seq * span_type >= 1 << 62:
        raise TuiadvisorError("column seq_id or stage has absurd values: number both from 0")
    return np.asarray((table.stage * span_type + table.optype) * span_seq + seq)


def _ranks(table: OpTable) -> dict[tuple[int, int], int]:
    places = np.unique(np.stack([table.dp_rank, table.stage, table.rank], axis=1), axis=0)
    return {(int(dp), int(stage)): int(rank) for dp, stage, rank in places}


def _one_rank_a_cell(table: OpTable, losses: list[str]) -> OpTable:
    """Tensor-parallel peers share a (dp, stage) place: the lowest rank stands for them, and that is said."""
    places = np.unique(np.stack([table.dp_rank, table.stage, table.rank], axis=1), axis=0)
    _, first = np.unique(places[:, :2], axis=0, return_index=True)
    if first.size == len(places):
        return table
    spare = np.setdiff1d(np.arange(len(places)), first)
    kept = np.isin(table.rank, places[first, 2])
    losses.append(
        f"{spare.size} ranks share data-parallel rank and stage with a lower rank and were not simulated: "
        + named(places[spare, 2].tolist())
    )
    columns = {
        name: getattr(table, name)[kept]
        for name in ("step", "rank", "dp_rank", "stage", "optype", "start_s", "dur_s", "seq", "chunk")
    }
    return OpTable(**columns, optypes=table.optypes)


def _whole_block(whole: np.ndarray, steps: Ints, dps: Ints, losses: list[str]) -> tuple[Ints, Ints]:
    """Steps x data-parallel ranks that are all whole. A rank that lost most steps goes first, then steps.

    Of fewer steps than tell a rank without operations from a cut through the table, no rank is left out.
    """
    share = whole.mean(axis=0)
    gaps = sorted(set(range(int(dps.max()) + 1)) - set(dps.tolist()))
    if gaps:
        losses.append("data-parallel ranks that the table does not have: " + named(gaps))
    is_told = np.count_nonzero(whole.any(axis=1)) >= LEAST_STEPS
    keep_dp = (share >= 0.5 * share.max()) | (not is_told)
    if not np.all(keep_dp):
        losses.append(
            "data-parallel ranks without all operations, left out (a late one among them cannot be named): "
            + named(dps[~keep_dp].tolist())
        )
    keep_step = whole[:, keep_dp].all(axis=1)
    if not keep_step.any():
        raise TuiadvisorError(
            "no step has all operations on all data-parallel ranks: record whole steps on every rank"
        )
    if not keep_step.all():
        losses.append("steps without all operations, left out: " + named(steps[~keep_step].tolist()))
    return np.flatnonzero(keep_step), np.flatnonzero(keep_dp)


def _twice(table: OpTable, rows: Ints, key: Ints) -> str:
    i = rows[1:][np.diff(key[rows]) == 0][0]
    where = f"step {table.step[i]}, rank {table.rank[i]}"
    return f"operation {table.optypes[table.optype[i]]} has one seq_id twice ({where}): number them from 0"


def counted(num: int, noun: str, plural: str = "") -> str:
    """'1 step', '40 steps', '2 matrices'."""
    return f"{num:,} {noun if num == 1 else plural or f'{noun}s'}"


def named(items: Sequence[object]) -> str:
    """A few names and how many more."""
    text = ", ".join(str(item) for item in items[:MAX_NAMED])
    more = len(items) - MAX_NAMED
    return f"{text} and {more} more" if more > 0 else text
