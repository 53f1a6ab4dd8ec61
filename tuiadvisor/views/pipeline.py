"""A pipeline as the screens show it: its stages, its ranks, the chunks of one step.

In: nothing.  Out: PipelineView, frozen; part of a RunView.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STAGE_FINDINGS: Final = frozenset({"heavy_stage", "pipeline_bubble"})  # told of stages' times alone


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One stage of a pipeline: medians over the steps of the window, of all its micro-batches together."""

    stage: int
    rank: int
    forward_s: float  # a step; the last stage's with the loss
    backward_s: float  # a step; weight gradients included
    balance: float  # its time / the slowest stage's
    excess: float  # its time beyond the typical stage's, as a share of that; negative: lighter
    is_heavy: bool  # so much longer than the others, step after step, that they wait for it


@dataclass(frozen=True, slots=True)
class PipelineRank:
    """How a rank of a pipeline spends a step, shares of the pipeline's span; they sum to 1."""

    rank: int
    stages: tuple[int, ...]
    busy: float
    wait_previous: float  # for activations
    wait_next: float  # for gradients
    other_idle: float  # before its first chunk, after its last, between chunks


@dataclass(frozen=True, slots=True)
class PipelineChunk:
    """One micro-batch on one stage; begin and end are shares of the step that is drawn."""

    rank: int
    stage: int
    micro_batch: int
    kind: str  # F forward, B backward, W weight gradients on their own
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class PipelineView:
    """The pipeline that sets the pace; of several (data parallel) ones the slowest."""

    schedule: str | None  # class of the schedule
    why_unknown: str  # empty where everything below is known
    num_pipelines: int = 0
    num_ranks: int = 0
    num_stages: int = 0
    num_micro_batches: int = 0
    first_step: int | None = None  # of the steps that stages are compared in
    last_step: int | None = None
    num_steps: int = 0
    num_recorded_steps: int = (
        0  # recorded chunk by chunk, in bursts: how a rank's time divides into chunks and waits
    )
    span_s: float | None = None  # first chunk to last, median
    busy: float | None = None  # the rest of it
    bubble: float | None = None  # idle share of ranks x span: fill + imbalance + delay
    ideal_bubble: float | None = None  # equal stages, free sends
    ideal_is_formula: bool = False  # (p-1)/(v*m+p-1); else of the order of chunks that was seen
    fill_share: float | None = None
    imbalance_share: float | None = None
    delay_share: float | None = None
    stages: tuple[PipelineStage, ...] = ()
    ranks: tuple[PipelineRank, ...] = ()
    slowest_stage: int | None = None
    split_stage: int | None = None  # the heavy one, where there is one
    heavy_loss_s: float | None = None  # a step, gone if the heavy stages took as long as the others
    even_loss_s: float | None = None  # a step, gone if the same work were spread evenly
    micro_batches_for: tuple[tuple[float, int], ...] = ()  # (bubble share, micro-batches that bring it below)
    chart_step: int | None = None
    chart_s: float | None = None  # length of the step that is drawn
    chart: tuple[PipelineChunk, ...] = ()  # by rank and begin; empty where there are too many to draw
    own_clocks: bool = False  # each device timed its own chunks: how they lie to each other is unknown
