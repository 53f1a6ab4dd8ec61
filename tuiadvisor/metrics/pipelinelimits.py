"""What holds a pipeline up: a stage that takes longer than the others, too few micro-batches, or waiting beyond both.

In: events of one pipeline, the job's steady steps and their length.  Out: PipelineLimits, seconds a step and shares of
the pipeline's rank-time; fill, imbalance and delay sum to the bubble.
Sources: GPipe (bubble), What-if analysis OSDI'25 (re-simulation).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.changes import find_changes
from tuiadvisor.metrics.pipeline import (
    PipelineEvents,
    PipelineTimes,
    chunks_of,
    pipeline_times,
    whole_steps,
)
from tuiadvisor.metrics.pipelinesim import Replay, replay_of
from tuiadvisor.metrics.whatif import Gain, gain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.arrays import Floats, Ints

HEAVY_EXCESS: Final = 0.1  # beyond the typical stage: TraceML's moderate imbalance
HEAVY_MOST_STEPS: Final = 0.75  # of the steps, in each of which half of that excess must show
COVER: Final = 0.8  # of the excess in forward or in backward, to name it
MAX_STEPS: Final = 64  # simulated and averaged over
MIN_STEPS: Final = 8  # whole steady steps before anything is said
SMALL_BUBBLE: Final = 0.1  # what the micro-batch count asked for aims at
MIN_ONSET_SHIFT: Final = 0.05  # of the typical stage


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """S stages, R ranks, K steps of the window."""

    times: PipelineTimes
    heavy_stages: tuple[int, ...]  # heaviest first
    excess_S: Floats  # each stage's work beyond the typical stage's, as a share of that; negative: lighter
    hit_share: float  # of the steps in which the heaviest shows
    phase: str | None  # where its excess lies: forward, backward, or None for both
    since_step: int | None
    onset_seen: bool
    ideal_bubble: float | None  # by formula, else of the observed order with equal stages
    ideal_is_formula: bool
    fill_share: float | None  # of the ranks' time: pipeline filling and draining, equal stages
    imbalance_share: float | None  # stages that wait for a longer one
    delay_share: float | None  # sends, late wake-ups, anything between chunks
    heavy_gain: Gain | None  # if the heavy stages took as long as the others
    even_s: float | None  # a step, gone if the same work were spread evenly over the stages
    fill_gain: Gain | None  # with micro_batches_for[SMALL_BUBBLE]
    micro_batches_for: dict[float, int]  # bubble share -> micro-batches that bring fill and drain below it


def typical(work_S: Floats) -> float:
    """The lower median: of two stages the lighter one."""
    return float(np.sort(work_S)[(work_S.size - 1) // 2])


def pipeline_limits(
    events: PipelineEvents, steady_steps: Ints, step_s: Mapping[int, float]
) -> PipelineLimits | None:
    """What one pipeline's chunks tell; None without a whole step.

    step_s: length of job steps, where known. Fewer than MIN_STEPS whole steady steps: times, but nothing heavy.
    """
    held = whole_steps(events)
    whole = held[np.isin(held, steady_steps)][-MAX_STEPS:]
    times = pipeline_times(events, whole if whole.size else held[-MAX_STEPS:])
    if times is None:
        return None
    work_S = np.median(times.work_s_SK, axis=1)
    reference_s = typical(work_S)
    if reference_s <= 0:
        return None
    excess_S = work_S / reference_s - 1
    heavy: tuple[int, ...] = ()
    hit_share, since, seen = 0.0, None, False
    if whole.size >= MIN_STEPS:
        heavy, hit_share = _heavy(times, excess_S)
    if heavy:
        since, seen = _onset(events, held, heavy)
    replay = _replay(events, times)
    parts = _Parts(times, replay, heavy, step_s)
    return PipelineLimits(
        times=times,
        heavy_stages=heavy,
        excess_S=excess_S,
        hit_share=hit_share,
        phase=_phase(times, heavy),
        since_step=since,
        onset_seen=seen,
        ideal_bubble=times.ideal_bubble if times.ideal_bubble is not None else parts.order_bubble,
        ideal_is_formula=times.ideal_bubble is not None,
        fill_share=parts.fill_share,
        imbalance_share=parts.imbalance_share,
        delay_share=parts.delay_share,
        heavy_gain=parts.heavy_gain,
        even_s=parts.even_s,
        fill_gain=parts.fill_gain,
        micro_batches_for=parts.micro_batches_for,
    )


def _heavy(times: PipelineTimes, excess_S: Floats) -> tuple[tuple[int, ...], float]:
    reference_K = np.array([typical(column) for column in times.work_s_SK.T])
    hits_S = (times.work_s_SK > (1 + HEAVY_EXCESS / 2) * reference_K).mean(axis=1)
    rows = np.flatnonzero((excess_S > HEAVY_EXCESS) & (hits_S >= HEAVY_MOST_STEPS))
    rows = rows[np.argsort(-excess_S[rows], kind="stable")]
    return tuple(times.stages[row] for row in rows.tolist()), float(hits_S[rows[0]]) if rows.size else 0.0


def _phase(times: PipelineTimes, heavy: tuple[int, ...]) -> str | None:
    if not heavy:
        return None
    row = times.stages.index(heavy[0])
    forward_s = times.forward_s_S[row] - typical(times.forward_s_S)
    backward_s = times.backward_s_S[row] - typical(times.backward_s_S)
    whole_s = max(forward_s, 0.0) + max(backward_s, 0.0)
    if whole_s <= 0:
        return None
    if forward_s >= COVER * whole_s:
        return "forward"
    return "backward" if backward_s >= COVER * whole_s else None


def _onset(events: PipelineEvents, held: Ints, heavy: tuple[int, ...]) -> tuple[int | None, bool]:
    """(step since which the heaviest stage is so, whether it was seen to become so)."""
    times = pipeline_times(events, held)
    if times is None:
        return None, False
    reference_K = np.array([typical(column) for column in times.work_s_SK.T])
    series = times.work_s_SK[times.stages.index(heavy[0])] / np.maximum(reference_K, 1e-12)
    ups = [change for change in find_changes(series, MIN_ONSET_SHIFT) if change.shift > 0]
    return (times.steps[ups[-1].index], True) if ups else (times.steps[0], False)


def _replay(events: PipelineEvents, times: PipelineTimes) -> Replay | None:
    chosen = chunks_of(events) & np.isin(events.step, times.steps)
    return replay_of(
        rank=np.searchsorted(times.ranks, events.rank[chosen]),
        kind=events.kind[chosen],
        stage=events.stage[chosen],
        micro_batch=events.micro_batch[chosen],
        column=np.searchsorted(times.steps, events.step[chosen]),
        begin_ns=events.begin_ns[chosen],
        end_ns=events.end_ns[chosen],
    )


class _Parts:
    """The bubble's parts and what they cost."""

    def __init__(
        self,
        times: PipelineTimes,
        replay: Replay | None,
        heavy: tuple[int, ...],
        step_s: Mapping[int, float],
    ) -> None:
        self.order_bubble: float | None = None
        self.fill_share: float | None = None
        self.imbalance_share: float | None = None
        self.delay_share: float | None = None
        self.heavy_gain: Gain | None = None
        self.fill_gain: Gain | None = None
        self.even_s: float | None = None
        self.micro_batches_for: dict[float, int] = {}
        if replay is None:
            return
        self._times, self._replay = times, replay
        self._steps = [times.steps[column] for column in replay.columns.tolist()]
        span_K = times.span_s_K[replay.columns]
        self._step_K = np.array(
            [step_s.get(step, float(span)) for step, span in zip(self._steps, span_K, strict=True)]
        )
        equal_N1 = replay.equal_N[:, None]
        busy_s = float(equal_N1.sum()) / replay.num_ranks
        self._filled_s = float(replay.span_s(equal_N1)[0])
        self._fill_s = max(self._filled_s - busy_s, 0.0)
        self.order_bubble = self._fill_s / self._filled_s if self._filled_s > 0 else 0.0
        self._simulated_K = replay.span_s(replay.seconds_NK)
        self._share_out(span_K, busy_s)
        self._price(heavy, busy_s)

    def _share_out(self, span_K: Floats, busy_s: float) -> None:
        """The idle time of the mean step, first what the order itself costs, then the stages, then the rest."""
        span_s, simulated_s = float(span_K.mean()), float(self._simulated_K.mean())
        idle_s = max(span_s - busy_s, 0.0)
        fill_s = min(self._fill_s, idle_s)
        imbalance_s = min(max(simulated_s - self._filled_s, 0.0), idle_s - fill_s)
        # As shares of the bubble that is shown, the median over the steps.
        scale = self._times.bubble / idle_s if idle_s > 0 else 0.0
        self.fill_share = fill_s * scale
        self.imbalance_share = imbalance_s * scale
        self.delay_share = (idle_s - fill_s - imbalance_s) * scale

    def _price(self, heavy: tuple[int, ...], busy_s: float) -> None:
        times, replay = self._times, self._replay
        if heavy:
            others = np.setdiff1d(np.array(times.stages), np.array(heavy))
            if others.size:
                healed = replay.with_stages_like(np.array(heavy), others)
                loss_K = np.maximum(self._simulated_K - replay.span_s(healed), 0.0)
                self.heavy_gain = gain(self._step_K, np.minimum(loss_K, self._step_K))
                self.even_s = max(float(self._simulated_K.mean()) - self._filled_s, 0.0)
        if busy_s <= 0:
            return
        num = times.num_micro_batches
        for share in (0.3, 0.2, 0.15, SMALL_BUBBLE, 0.05):
            self.micro_batches_for[share] = max(
                ceil(num * self._fill_s * (1 - share) / (share * busy_s) - 1e-6), 1
            )
        wanted = self.micro_batches_for[SMALL_BUBBLE]
        if wanted > num:
            loss_s = self._fill_s * (1 - num / wanted)
            self.fill_gain = gain(self._step_K, np.minimum(np.full(self._step_K.size, loss_s), self._step_K))
