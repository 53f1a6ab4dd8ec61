"""One step of a pipeline re-simulated from its dependencies: what it would take if stages, order or sends were other.

In: PipelineEvents of whole steps.  Out: Replay, which gives the span of every step for any chunk times.
A chunk starts when its rank has done the chunks before it, in the order observed, and its input is there: the same
micro-batch's forward on the stage before, or backward on the stage after. Sending costs nothing here, so what the
measured span takes beyond the simulated one is waiting that neither order nor stages explain.
Source: What-if analysis (OSDI'25).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import EventKind

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

MAX_CHUNKS: Final = 1 << 15  # of a step: 0.2 s of simulating
MAX_TRIED_CHUNKS: Final = 1 << 13  # of a step with other micro-batches: 25 ms, for each pipeline of the job
NONE: Final = -1  # no chunk


@dataclass(frozen=True, slots=True)
class Replay:
    """N chunks of a step, in an order in which each comes after those it needs; K steps with these same chunks."""

    rank_N: Ints  # row of the rank
    kind_N: Ints
    stage_N: Ints
    is_extra_N: Bools  # the loss: it continues the forward before it
    needs_N: Ints  # index of the chunk whose output it takes, or NONE
    seconds_NK: Floats
    columns: Ints  # which of the steps given have exactly these chunks in this order
    num_ranks: int

    def span_s(self, seconds_NK: Floats) -> Floats:
        """Length of each step if its chunks took so long and sends nothing; seconds_NK: N x K or N x 1."""
        finish_NK = np.zeros(seconds_NK.shape)
        free_RK = np.zeros((self.num_ranks, seconds_NK.shape[1]))
        for chunk, (rank, needs) in enumerate(zip(self.rank_N.tolist(), self.needs_N.tolist(), strict=True)):
            begin = free_RK[rank]
            if needs != NONE:
                begin = np.maximum(begin, finish_NK[needs])
            finish_NK[chunk] = free_RK[rank] = begin + seconds_NK[chunk]
        span: Floats = free_RK.max(axis=0)
        return span

    @property
    def equal_N(self) -> Floats:
        """Chunk times if the work were the same and all stages equal: each kind at its mean over stages."""
        equal = np.zeros(self.kind_N.size)
        for kind in np.unique(self.kind_N):
            of_kind = self.kind_N == kind
            equal[of_kind & ~self.is_extra_N] = self._mean_s(of_kind)
        return equal

    def with_stages_like(self, stages: Ints, others: Ints) -> Floats:
        """Chunk times with each kind of chunk of some stages no longer than on other stages, N x K."""
        healed = self.seconds_NK.copy()
        is_slow, is_other = np.isin(self.stage_N, stages), np.isin(self.stage_N, others)
        for kind in np.unique(self.kind_N[is_slow]):
            of_kind = self.kind_N == kind
            peers_s = self._mean_s(of_kind & is_other)
            for stage in stages:
                own = of_kind & (self.stage_N == stage)
                own_s = self._mean_s(own)
                if own_s > 0 and peers_s > 0:
                    healed[own] *= min(peers_s / own_s, 1.0)
        return healed

    def in_micro_batches(self, num: int) -> Replay | None:
        """The same work of each stage in so many equal micro-batches, in the order of GPipe or 1F1B, as it was.

        None for other schedules, whose order with another number is not known: several stages a rank, backward split.
        """
        stages = np.unique(self.stage_N)
        rank_of = [np.unique(self.rank_N[self.stage_N == stage]) for stage in stages]
        plain = np.isin(self.kind_N, (EventKind.STAGE_FORWARD, EventKind.STAGE_BACKWARD)).all()
        alone = all(ranks.size == 1 for ranks in rank_of) and self.num_ranks == stages.size
        if not (plain and alone) or 2 * num * stages.size > MAX_TRIED_CHUNKS:
            return None
        order = _tried_order(stages.size, num, is_gpipe=self._is_gpipe)
        seconds_NK = np.empty((order.stage_N.size, self.seconds_NK.shape[1]))
        for place, stage in enumerate(stages):
            for kind in (EventKind.STAGE_FORWARD, EventKind.STAGE_BACKWARD):
                was = (self.stage_N == stage) & (self.kind_N == kind)
                chosen = (order.stage_N == place) & (order.kind_N == kind)
                seconds_NK[chosen] = self.seconds_NK[was].sum(axis=0) / num
        return replace(order, seconds_NK=seconds_NK, columns=self.columns)

    @property
    def busiest_s(self) -> Floats:
        """Work of the rank with the most of it in each step: no order takes less."""
        busy_RK = np.zeros((self.num_ranks, self.seconds_NK.shape[1]))
        np.add.at(busy_RK, self.rank_N, self.seconds_NK)
        busiest: Floats = busy_RK.max(axis=0)
        return busiest

    @property
    def _is_gpipe(self) -> bool:
        """Whether the last stage, too, runs all forwards before its first backward; one micro-batch tells neither."""
        last = self.kind_N[self.stage_N == self.stage_N.max()]
        forwards = int((last == EventKind.STAGE_FORWARD).sum())
        return forwards > 1 and bool((last[:forwards] == EventKind.STAGE_FORWARD).all())

    def _mean_s(self, chosen_N: Bools) -> float:
        """Mean seconds a micro-batch of these chunks; 0 for none."""
        num = int((chosen_N & ~self.is_extra_N).sum())
        return float(self.seconds_NK[chosen_N].mean(axis=1).sum()) / num if num else 0.0


@lru_cache(maxsize=8)
def _tried_order(num_stages: int, num: int, *, is_gpipe: bool) -> Replay:
    """A stage a rank in that schedule's order, each chunk of no length; all pipelines of a job have the same."""
    warm = [num if is_gpipe else min(num, num_stages - place) for place in range(num_stages)]
    chunks = [(place, *chunk) for place in range(num_stages) for chunk in _one_f_one_b(num, warm[place])]
    place, kind, micro_batch = (np.array(column) for column in zip(*chunks, strict=True))
    order = _runnable(list(np.arange(place.size).reshape(num_stages, -1)), kind, place, micro_batch)
    assert order is not None  # noqa: S101 - these schedules run
    sequence, needs, is_extra = order
    return Replay(
        rank_N=place[sequence],
        kind_N=kind[sequence],
        stage_N=place[sequence],
        is_extra_N=np.array(is_extra),
        needs_N=np.array(needs),
        seconds_NK=np.zeros((place.size, 1)),
        columns=np.zeros(1, dtype=np.int64),
        num_ranks=num_stages,
    )


def _one_f_one_b(num: int, num_warm: int) -> list[tuple[int, int]]:
    """(kind, micro-batch) of a stage: some forwards, then a backward and a forward in turn; all of them is GPipe."""
    forward, backward = int(EventKind.STAGE_FORWARD), int(EventKind.STAGE_BACKWARD)
    chunks = [(forward, each) for each in range(num_warm)]
    for each in range(num):
        chunks.append((backward, each))
        if num_warm + each < num:
            chunks.append((forward, num_warm + each))
    return chunks


def replay_of(
    *, rank: Ints, kind: Ints, stage: Ints, micro_batch: Ints, column: Ints, begin_ns: Ints, end_ns: Ints
) -> Replay | None:
    """The chunks of all steps as one Replay, after the latest step's order; columns of one length.

    rank: row of the rank. column: index of the step. None where the order contradicts itself (clocks apart) or a
    step has more than MAX_CHUNKS chunks.
    """
    latest = int(column.max())
    reference = np.flatnonzero(column == latest)
    if reference.size > MAX_CHUNKS:
        return None
    rows = _by_rank(reference, rank, begin_ns)
    order = _runnable(rows, kind, stage, micro_batch)
    if order is None:
        return None
    sequence, needs, is_extra = order
    place = {chunk: index for index, chunk in enumerate(sequence)}
    by_rank = np.concatenate(rows)
    back = np.array([place[int(chunk)] for chunk in by_rank])
    signature = _signature(by_rank, rank, kind, stage, micro_batch)
    seconds, columns = [], []
    for step in np.unique(column):
        chunks = np.concatenate(_by_rank(np.flatnonzero(column == step), rank, begin_ns))
        if chunks.size != by_rank.size or not np.array_equal(
            signature, _signature(chunks, rank, kind, stage, micro_batch)
        ):
            continue
        took = np.empty(chunks.size)
        took[back] = (end_ns[chunks] - begin_ns[chunks]) * 1e-9
        seconds.append(took)
        columns.append(int(step))
    chosen = np.array(sequence)
    return Replay(
        rank_N=rank[chosen],
        kind_N=kind[chosen],
        stage_N=stage[chosen],
        is_extra_N=np.array(is_extra),
        needs_N=np.array(needs),
        seconds_NK=np.stack(seconds, axis=1),
        columns=np.array(columns),
        num_ranks=int(rank.max()) + 1,
    )


def _by_rank(chunks: Ints, rank: Ints, begin_ns: Ints) -> list[Ints]:
    ordered = chunks[np.lexsort((begin_ns[chunks], rank[chunks]))]
    edges = np.flatnonzero(np.diff(rank[ordered])) + 1
    return list(np.split(ordered, edges))


def _signature(chunks: Ints, rank: Ints, kind: Ints, stage: Ints, micro_batch: Ints) -> Ints:
    return np.stack([rank[chunks], kind[chunks], stage[chunks], micro_batch[chunks]])


def _runnable(
    rows: list[Ints], kind: Ints, stage: Ints, micro_batch: Ints
) -> tuple[list[int], list[int], list[bool]] | None:
    """(chunks in an order in which each can run, index of what each needs, whether it continues one); None if stuck."""
    every = np.concatenate(rows).tolist()
    present = {(int(kind[c]), int(stage[c]), int(micro_batch[c])) for c in every}
    last_of: dict[tuple[int, int, int], int] = {}  # the loss comes after the forward it belongs to
    sequence: list[int] = []
    needs: list[int] = []
    is_extra: list[bool] = []
    waiting = [row.tolist() for row in rows]
    heads = [0] * len(rows)
    counts = _counts(every, kind, stage, micro_batch)
    moved = True
    while moved:
        moved = False
        for index, row in enumerate(waiting):
            while heads[index] < len(row):
                chunk = row[heads[index]]
                wanted = _wanted(int(kind[chunk]), int(stage[chunk]), int(micro_batch[chunk]))
                if wanted in present and counts[wanted]:
                    break
                needs.append(last_of.get(wanted, NONE) if wanted is not None else NONE)
                key = (int(kind[chunk]), int(stage[chunk]), int(micro_batch[chunk]))
                is_extra.append(key in last_of)
                last_of[key] = len(sequence)
                counts[key] -= 1
                sequence.append(chunk)
                heads[index] += 1
                moved = True
    return (sequence, needs, is_extra) if len(sequence) == len(every) else None


def _counts(chunks: list[int], kind: Ints, stage: Ints, micro_batch: Ints) -> dict[tuple[int, int, int], int]:
    counts: dict[tuple[int, int, int], int] = {}
    for chunk in chunks:
        key = (int(kind[chunk]), int(stage[chunk]), int(micro_batch[chunk]))
        counts[key] = counts.get(key, 0) + 1
    return counts


def _wanted(kind: int, stage: int, micro_batch: int) -> tuple[int, int, int] | None:
    """What a chunk takes from another stage; weight gradients take nothing from one."""
    if kind == EventKind.STAGE_FORWARD:
        return (int(EventKind.STAGE_FORWARD), stage - 1, micro_batch)
    if kind == EventKind.STAGE_BACKWARD:
        return (int(EventKind.STAGE_BACKWARD), stage + 1, micro_batch)
    return None
