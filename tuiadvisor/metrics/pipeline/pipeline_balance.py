"""Pipeline stages: how busy each is, how balanced they are, and how much of the pipeline stands idle.

In: chunk and wait events of all ranks, steps on the job's axis, clocks comparable.  Out: PipelineTimes, seconds.
The bubble is measured over all ranks' common span: one rank's own span leaves its idle start and end out.
Sources: GPipe, Megatron-LM (interleaved), Zero Bubble.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import UNKNOWN, EventKind
from tuiadvisor.metrics.steps.step_table import NS
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

KEY_STEP_BITS: Final = 42  # steps are below 2^40
CHUNK_KINDS: Final = (EventKind.STAGE_FORWARD, EventKind.STAGE_BACKWARD, EventKind.STAGE_WEIGHT_GRAD)


@dataclass(frozen=True, slots=True)
class PipelineEvents:
    """Columns of one length: events of PIPELINE_KINDS of all ranks; others are ignored."""

    rank: Ints
    kind: Ints
    step: Ints  # job steps
    begin_ns: Ints
    end_ns: Ints
    stage: Ints  # UNKNOWN for waits
    micro_batch: Ints
    # Where devices timed them: how far each was at least behind its thread at the end, and what launching it took.
    behind_ns: Ints | None = None
    launch_ns: Ints | None = None

    def rows(self, chosen: Bools | Ints) -> PipelineEvents:
        """Some of them."""
        return PipelineEvents(
            rank=self.rank[chosen],
            kind=self.kind[chosen],
            step=self.step[chosen],
            begin_ns=self.begin_ns[chosen],
            end_ns=self.end_ns[chosen],
            stage=self.stage[chosen],
            micro_batch=self.micro_batch[chosen],
            behind_ns=None if self.behind_ns is None else self.behind_ns[chosen],
            launch_ns=None if self.launch_ns is None else self.launch_ns[chosen],
        )


@dataclass(frozen=True, slots=True)
class PipelineTimes:
    """S stages, R ranks, K steps in which every rank ran all its chunks."""

    stages: tuple[int, ...]
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    num_micro_batches: int
    chunks_per_rank: int  # stages a rank holds: 1, or v where stages are interleaved
    forward_s_SK: Floats  # of each stage in each step; the last stage's with its loss
    backward_s_SK: Floats  # weight gradients included
    rank_S: tuple[int, ...]  # the rank that holds the stage
    busy_s_RK: Floats
    wait_previous_s_RK: Floats  # waits that a forward followed: for an activation
    wait_next_s_RK: Floats  # waits that a backward followed: for a gradient
    span_s_K: Floats  # first chunk's begin to last chunk's end over all ranks
    bubble_K: Floats  # idle share of ranks x span
    ideal_bubble: float | None  # None where the schedule splits the backward (zero bubble has no fixed ideal)

    @property
    def forward_s_S(self) -> Floats:
        """Mean seconds a step."""
        return np.asarray(self.forward_s_SK.mean(axis=1))

    @property
    def backward_s_S(self) -> Floats:
        """Mean seconds a step."""
        return np.asarray(self.backward_s_SK.mean(axis=1))

    @property
    def work_s_SK(self) -> Floats:
        """Forward and backward."""
        return self.forward_s_SK + self.backward_s_SK

    @property
    def bubble(self) -> float:
        """Median over the steps."""
        return float(np.median(self.bubble_K))


def ideal_bubble(num_ranks: int, num_micro_batches: int, chunks_per_rank: int = 1) -> float:
    """Idle share of GPipe and 1F1B, (p-1)/(m+p-1); of interleaved 1F1B (p-1)/(v*m+p-1). 0..1.

    Equal stages and free communication. ValueError below one rank, micro-batch or chunk.
    """
    if min(num_ranks, num_micro_batches, chunks_per_rank) < 1:
        raise ValueError(f"no pipeline: {num_ranks} ranks, {num_micro_batches} micro-batches")
    return (num_ranks - 1) / (chunks_per_rank * num_micro_batches + num_ranks - 1)


def chunks_of(events: PipelineEvents) -> Bools:
    """Which events are chunks of a stage."""
    return np.asarray(
        np.isin(events.kind, CHUNK_KINDS) & (events.stage != UNKNOWN) & (events.end_ns >= events.begin_ns)
    )


def whole_steps(events: PipelineEvents, among: Ints | None = None) -> Ints:
    """Steps in which every rank ran all its chunks, ascending.

    among: only of these, and all is what is usual in them: a job may change its number of micro-batches.
    """
    is_chunk = chunks_of(events)
    ranks = np.unique(events.rank[is_chunk])
    if among is not None:
        is_chunk &= np.isin(events.step, among)
    return _whole_steps(events, is_chunk, ranks) if ranks.size else np.zeros(0, dtype=np.int64)


def timed_by_devices(launched: PipelineEvents, timed: PipelineEvents) -> PipelineEvents:
    """The chunks that were launched, with the begins and ends that their devices' clocks give them.

    timed: spans of forward and backward, `stage` holding the phase. A device does in order what was launched in order,
    so the nth forward of a rank's step is the nth span of forward. Steps in which their numbers differ are left out.
    """
    chunks = launched.rows(chunks_of(launched))
    if not chunks.step.size or not timed.step.size:
        return launched.rows(np.zeros(0, dtype=np.int64))
    first = min(int(chunks.step.min()), int(timed.step.min()))
    keys = _keys(chunks, chunks.kind != EventKind.STAGE_FORWARD, first)
    timed_keys = _keys(timed, timed.stage != PHASES.index("forward"), first)
    kinds, counts = np.unique(keys, return_counts=True)
    timed_kinds, timed_counts = np.unique(timed_keys, return_counts=True)
    at = np.minimum(np.searchsorted(timed_kinds, kinds), timed_kinds.size - 1)
    unlike = kinds[(timed_kinds[at] != kinds) | (timed_counts[at] != counts)]
    told = ~np.isin(keys >> 1, unlike >> 1)
    chunks, keys = chunks.rows(told), keys[told]
    spans = timed.rows(np.isin(timed_keys, keys))
    span_keys = timed_keys[np.isin(timed_keys, keys)]
    chunks = chunks.rows(np.lexsort((chunks.begin_ns, keys)))
    spans = spans.rows(np.lexsort((spans.begin_ns, span_keys)))
    return replace(
        chunks,
        begin_ns=spans.begin_ns,
        end_ns=spans.end_ns,
        behind_ns=spans.behind_ns,
        launch_ns=chunks.end_ns - chunks.begin_ns,
    )


def unhidden_R(events: PipelineEvents, ranks: tuple[int, ...]) -> Floats:
    """Of each rank the share of its chunks' time at most for which its device may have waited for launches in them.

    0 where the threads' clocks timed them. A device that ends a chunk so far behind its thread has had all of it queued
    for as long: within that time it waited for nothing.
    """
    if events.behind_ns is None:
        return np.zeros(len(ranks))
    is_chunk = chunks_of(events)
    work_ns = (events.end_ns - events.begin_ns)[is_chunk]
    open_ns = np.maximum(work_ns - np.maximum(events.behind_ns[is_chunk], 0), 0)
    row = np.searchsorted(ranks, events.rank[is_chunk])
    work_R = np.bincount(row, work_ns, len(ranks))
    return np.asarray(np.bincount(row, open_ns, len(ranks)) / np.maximum(work_R, 1.0))


def launch_s_R(events: PipelineEvents, ranks: tuple[int, ...]) -> Floats:
    """Mean seconds in which each rank's thread launched a chunk; 0 where the threads' clocks timed them."""
    if events.launch_ns is None:
        return np.zeros(len(ranks))
    is_chunk = chunks_of(events)
    row = np.searchsorted(ranks, events.rank[is_chunk])
    total_R = np.bincount(row, events.launch_ns[is_chunk] * NS, len(ranks))
    return np.asarray(total_R / np.maximum(np.bincount(row, minlength=len(ranks)), 1))


def _keys(events: PipelineEvents, is_backward: Bools, first_step: int) -> Ints:
    """One number a rank, step and direction; the last bit is the direction."""
    return np.asarray((events.rank << KEY_STEP_BITS) | (events.step - first_step) << 1 | is_backward)


def pipeline_times(
    events: PipelineEvents, steps: Ints | None = None, *, own_clocks: bool = False
) -> PipelineTimes | None:
    """What the chunks tell; None with fewer than two ranks or without one whole step.

    steps: whole steps to look at, instead of all. own_clocks: each rank's times are on a clock of its own. The span is
    that of the rank with the longest one then: who begins a pipeline's step also ends it.
    """
    is_chunk = chunks_of(events)
    ranks = np.unique(events.rank[is_chunk])
    if ranks.size < 2:
        return None
    if steps is None:
        steps = _whole_steps(events, is_chunk, ranks)
    is_chunk &= np.isin(events.step, steps)
    if not is_chunk.any():
        return None
    stages = np.unique(events.stage[is_chunk])
    row = np.searchsorted(ranks, events.rank[is_chunk])
    column = np.searchsorted(steps, events.step[is_chunk])
    seconds = np.asarray((events.end_ns[is_chunk] - events.begin_ns[is_chunk]) * NS, dtype=np.float64)
    busy_RK = np.zeros((ranks.size, steps.size))
    np.add.at(busy_RK, (row, column), seconds)
    span_K = (
        np.max([_span(events, is_chunk & (events.rank == rank), steps) for rank in ranks], axis=0)
        if own_clocks
        else _span(events, is_chunk, steps)
    )
    forward_SK, backward_SK = _stage_seconds(events, is_chunk, stages, seconds, column)
    wait_previous, wait_next = _waits(events, is_chunk, ranks, steps)
    num_micro_batches = int(np.unique(events.micro_batch[is_chunk]).size)
    chunks_per_rank = max(
        int(np.unique(events.stage[is_chunk & (events.rank == rank)]).size) for rank in ranks
    )
    splits_backward = bool(np.any(events.kind[is_chunk] == EventKind.STAGE_WEIGHT_GRAD))
    return PipelineTimes(
        stages=tuple(int(stage) for stage in stages),
        ranks=tuple(int(rank) for rank in ranks),
        steps=tuple(int(step) for step in steps),
        num_micro_batches=num_micro_batches,
        chunks_per_rank=chunks_per_rank,
        forward_s_SK=forward_SK,
        backward_s_SK=backward_SK,
        rank_S=tuple(int(events.rank[is_chunk & (events.stage == stage)][0]) for stage in stages),
        busy_s_RK=busy_RK,
        wait_previous_s_RK=wait_previous,
        wait_next_s_RK=wait_next,
        span_s_K=span_K,
        bubble_K=1.0 - busy_RK.sum(axis=0) / (ranks.size * span_K),
        ideal_bubble=None
        if splits_backward
        else ideal_bubble(ranks.size, num_micro_batches, chunks_per_rank),
    )


def _whole_steps(events: PipelineEvents, is_chunk: Bools, ranks: Ints) -> Ints:
    """Steps in which every rank has as many chunks as in its usual step: a cut one would look idle."""
    steps = np.unique(events.step[is_chunk])
    counts_RK = np.zeros((ranks.size, steps.size), dtype=np.int64)
    rows = np.searchsorted(ranks, events.rank[is_chunk])
    np.add.at(counts_RK, (rows, np.searchsorted(steps, events.step[is_chunk])), 1)
    if not counts_RK.any(axis=1).all():
        return steps[:0]
    usual_R = np.array([np.bincount(counts[counts > 0]).argmax() for counts in counts_RK])
    found: Ints = steps[(counts_RK == usual_R[:, None]).all(axis=0)]
    return found


def _span(events: PipelineEvents, chosen: Bools, steps: Ints) -> Floats:
    column = np.searchsorted(steps, events.step[chosen])
    first = np.full(steps.size, np.iinfo(np.int64).max)
    last = np.full(steps.size, np.iinfo(np.int64).min)
    np.minimum.at(first, column, events.begin_ns[chosen])
    np.maximum.at(last, column, events.end_ns[chosen])
    span_s: Floats = np.maximum(last - first, 1) * NS
    return span_s


def _stage_seconds(
    events: PipelineEvents, is_chunk: Bools, stages: Ints, seconds: Floats, column: Ints
) -> tuple[Floats, Floats]:
    """Seconds of each stage in each step: forward, and backward with weight gradients."""
    row = np.searchsorted(stages, events.stage[is_chunk])
    is_forward = events.kind[is_chunk] == EventKind.STAGE_FORWARD
    forward = np.zeros((stages.size, int(column.max()) + 1))
    backward = np.zeros_like(forward)
    np.add.at(forward, (row[is_forward], column[is_forward]), seconds[is_forward])
    np.add.at(backward, (row[~is_forward], column[~is_forward]), seconds[~is_forward])
    return forward, backward


def _waits(events: PipelineEvents, is_chunk: Bools, ranks: Ints, steps: Ints) -> tuple[Floats, Floats]:
    """Seconds of wait by what follows on the same rank: a forward waited for the stage before, else the one after.

    Waits after a step's last chunk (for sends to be taken) are neither.
    """
    previous, following = np.zeros((ranks.size, steps.size)), np.zeros((ranks.size, steps.size))
    is_wait = (events.kind == EventKind.P2P_WAIT) & (events.end_ns >= events.begin_ns)
    for row, rank in enumerate(ranks):
        chunks = np.flatnonzero(is_chunk & (events.rank == rank))
        chunks = chunks[np.argsort(events.begin_ns[chunks], kind="stable")]
        waits = np.flatnonzero(is_wait & (events.rank == rank) & np.isin(events.step, steps))
        at = np.searchsorted(events.begin_ns[chunks], events.end_ns[waits])
        waits, at = waits[at < chunks.size], at[at < chunks.size]
        same_step = events.step[chunks[at]] == events.step[waits]
        waits, at = waits[same_step], at[same_step]
        column = np.searchsorted(steps, events.step[waits])
        seconds = (events.end_ns[waits] - events.begin_ns[waits]) * NS
        forward = events.kind[chunks[at]] == EventKind.STAGE_FORWARD
        np.add.at(previous[row], column[forward], seconds[forward])
        np.add.at(following[row], column[~forward], seconds[~forward])
    return previous, following
