"""What holds a pipeline up: a stage that takes longer than the others, too few micro-batches, or waiting beyond both.

Which chunks a step has, in which order and how they divide a rank's time is known from the steps recorded chunk by
chunk (some, in bursts); how long each rank is in forward and backward is known of every step. Together they give every
stage's time in every step. In: events of one pipeline, the ranks' work, the job's steady steps and their length.
Out: PipelineLimits, seconds a step and shares of the pipeline's rank-time; fill, imbalance and delay sum to the bubble.
Sources: GPipe (bubble), What-if analysis OSDI'25 (re-simulation).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import EventKind
from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.pipeline.pipeline_balance import (
    PipelineEvents,
    PipelineTimes,
    chunks_of,
    launch_s_R,
    pipeline_times,
    unhidden_R,
    whole_steps,
)
from tuiadvisor.metrics.pipeline.pipeline_simulation import Replay, replay_of
from tuiadvisor.metrics.series.change_points import find_changes
from tuiadvisor.metrics.series.what_if import Gain, gain

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

HEAVY_EXCESS: Final = 0.1  # beyond the typical stage: TraceML's moderate imbalance
HEAVY_MOST_STEPS: Final = 0.75  # of the steps, in each of which half of that excess must show
MAX_STEPS: Final = 64  # simulated and averaged over
MIN_STEPS: Final = 8  # steady steps before a stage is called heavy; each has all micro-batches of all stages
SMALL_BUBBLE: Final = 0.1  # what the micro-batch count asked for aims at
MAX_UNHIDDEN: Final = 0.05  # of a rank's work, that its device may have waited for launches within chunks
MIN_ONSET_SHIFT: Final = 0.05  # of the typical stage


@dataclass(frozen=True, slots=True)
class RankWork:
    """Forward and backward of each rank in every step, also those whose chunks were not recorded one by one."""

    ranks: tuple[int, ...]
    steps: Ints  # job step of each column, ascending; of devices those that were measured
    forward_s_RK: Floats  # NaN where not observed
    backward_s_RK: Floats
    steady_steps: Ints  # also before the job's present level
    window_steps: Ints  # of the present level
    step_s_K: Floats  # length of all columns' steps, NaN where not observed

    def columns_of(self, steps: Ints) -> tuple[Ints, Bools]:
        """(columns of those steps that have one, which those are)."""
        at = np.minimum(np.searchsorted(self.steps, steps), max(self.steps.size - 1, 0))
        known = self.steps[at] == steps if self.steps.size else np.zeros(steps.size, dtype=np.bool_)
        return at[known], known


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """S stages, K steps of the window."""

    times: PipelineTimes  # of the steps recorded chunk by chunk
    steps: tuple[int, ...]  # of the window
    forward_s_SK: Floats
    backward_s_SK: Floats
    heavy_stages: tuple[int, ...]  # heaviest first
    excess_S: Floats  # each stage's work beyond the typical stage's, as a share of that; negative: lighter
    hit_share: float  # of the steps in which the heaviest shows
    phase: str | None  # where its excess lies: forward, backward, or None for both
    since_step: int | None
    onset_seen: bool
    span_s: float  # first chunk to last, median
    step_s: float  # mean
    span_mean_s: float
    equal_span_s: float | None  # first chunk to last of the mean step if its stages were equal and sends free
    bubble: float  # idle share of ranks x span, median
    ideal_bubble: float | None  # by formula, else of the observed order with equal stages
    ideal_is_formula: bool
    fill_share: float | None  # of the ranks' time: pipeline filling and draining, equal stages
    imbalance_share: float | None  # waiting for longer chunks
    delay_share: float | None  # sends, late wake-ups, anything between chunks
    heavy_gain: Gain | None  # if the heavy stages took as long as the others
    even_s: float | None  # a step, gone if the same work were spread evenly over the stages
    fill_gain: Gain | None  # with micro_batches_for[SMALL_BUBBLE], the stages as they are
    micro_batches_for: dict[float, int]  # bubble share -> micro-batches that bring fill and drain below it

    @property
    def work_S(self) -> Floats:
        """Median seconds a step of each stage."""
        return np.asarray(np.median(self.forward_s_SK + self.backward_s_SK, axis=1))


def typical(work_S: Floats) -> float:
    """The lower median: of two stages the lighter one."""
    return float(np.sort(work_S)[(work_S.size - 1) // 2])


def pipeline_limits(
    events: PipelineEvents, work: RankWork | None, *, own_clocks: bool = False
) -> PipelineLimits | None:
    """What one pipeline's chunks tell; None without a step that was recorded whole. own_clocks: as `pipeline_times`."""
    # Of the present level where any of its steps was recorded.
    held = whole_steps(events, work.window_steps if work is not None else None)
    held = held if held.size else whole_steps(events)
    times = pipeline_times(events, held[-MAX_STEPS:], own_clocks=own_clocks)
    if times is None or typical(times.work_s_SK.mean(axis=1)) <= 0:
        return None
    window = _Window(times, work)
    excess_S, reference_s = _excess(window.work_SK)
    if reference_s <= 0:
        return None
    heavy: tuple[int, ...] = ()
    hit_share, since, seen = 0.0, None, False
    if len(window.steps) >= MIN_STEPS:
        heavy, hit_share = _heavy(times, window.work_SK, excess_S)
        heavy = _not_of_launches(heavy, times, excess_S, events)
    if heavy and work is not None:
        since, seen = _onset(times, heavy, work)
    parts = _Parts(_replay(events, times), window, heavy)
    return PipelineLimits(
        times=times,
        steps=window.steps,
        forward_s_SK=window.forward_SK,
        backward_s_SK=window.backward_SK,
        heavy_stages=heavy,
        excess_S=excess_S,
        hit_share=hit_share,
        phase=_phase(window, times, heavy),
        since_step=since,
        onset_seen=seen,
        span_s=float(np.median(window.span_K)),
        step_s=float(window.step_K.mean()),
        span_mean_s=float(window.span_K.mean()),
        equal_span_s=parts.equal_span_s,
        bubble=window.bubble,
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


class _Window:
    """Every stage's time in the steps of the window: the recorded steps' division of a rank's time, scaled."""

    def __init__(self, times: PipelineTimes, work: RankWork | None) -> None:
        self.times = times
        scale = _scale(times, work)
        if scale is None:  # no records of whole steps: the steps seen chunk by chunk are all there is
            self.steps = times.steps
            self.forward_SK, self.backward_SK = times.forward_s_SK, times.backward_s_SK
            self.scale: tuple[Floats, Floats] | None = None
            self.step_K = self.span_K = times.span_s_K
            return
        steps, forward_RK, backward_RK = scale
        rows = [times.ranks.index(rank) for rank in times.rank_S]
        self.steps = tuple(steps.tolist())
        self.forward_SK = times.forward_s_S[:, None] * forward_RK[rows]
        self.backward_SK = times.backward_s_S[:, None] * backward_RK[rows]
        self.scale = (forward_RK, backward_RK)
        assert work is not None  # noqa: S101 - there is no scale without it
        self.step_K = work.step_s_K[work.columns_of(steps)[0]]
        # What lies around the pipeline in a step (data, optimizer) is known from the recorded steps.
        self.span_K = self.step_K - min(_outside_s(times, work), 0.5 * float(self.step_K.min()))

    @property
    def bubble(self) -> float:
        """Idle share of ranks x span, median over the steps."""
        busy_K = self.work_SK.sum(axis=0)
        return max(float(np.median(1 - busy_K / (len(self.times.ranks) * self.span_K))), 0.0)

    @property
    def work_SK(self) -> Floats:
        """Forward and backward."""
        return self.forward_SK + self.backward_SK


def _outside_s(times: PipelineTimes, work: RankWork) -> float:
    """Seconds of a step before the first and after the last chunk."""
    columns, known = work.columns_of(np.array(times.steps))
    outside = work.step_s_K[columns] - times.span_s_K[known]
    outside = outside[np.isfinite(outside)]
    return max(float(np.median(outside)), 0.0) if outside.size else 0.0


def _scale(times: PipelineTimes, work: RankWork | None) -> tuple[Ints, Floats, Floats] | None:
    """(steps of the window, each rank's forward and backward against its mean in the recorded steps, R x K)."""
    if work is None or not set(times.ranks) <= set(work.ranks):
        return None
    rows = [work.ranks.index(rank) for rank in times.ranks]
    recorded, _ = work.columns_of(np.array(times.steps))
    window, _ = work.columns_of(work.window_steps)
    factors = []
    for seconds_RK in (work.forward_s_RK[rows], work.backward_s_RK[rows]):
        known = seconds_RK[:, recorded][:, np.isfinite(seconds_RK[:, recorded]).all(axis=0)]
        if not known.size or (known.mean(axis=1) <= 0).any():
            return None
        factors.append(seconds_RK[:, window] / known.mean(axis=1)[:, None])
    step_s = work.step_s_K[window]
    good = np.isfinite(factors[0] + factors[1]).all(axis=0) & np.isfinite(step_s) & (step_s > 0)
    good = np.flatnonzero(good)[-MAX_STEPS:]
    if not good.size:
        return None
    return work.steps[window[good]], factors[0][:, good], factors[1][:, good]


def _excess(work_SK: Floats) -> tuple[Floats, float]:
    """(each stage's time beyond the typical one as a share of that, the typical one's)."""
    work_S = np.median(work_SK, axis=1)
    reference_s = typical(work_S)
    return (work_S / reference_s - 1 if reference_s > 0 else np.zeros(work_S.size)), reference_s


def _heavy(times: PipelineTimes, work_SK: Floats, excess_S: Floats) -> tuple[tuple[int, ...], float]:
    hits_S = (work_SK > (1 + HEAVY_EXCESS / 2) * _typical_K(work_SK)).mean(axis=1)
    rows = np.flatnonzero((excess_S > HEAVY_EXCESS) & (hits_S >= HEAVY_MOST_STEPS))
    rows = rows[np.argsort(-excess_S[rows], kind="stable")]
    return tuple(times.stages[row] for row in rows.tolist()), float(hits_S[rows[0]]) if rows.size else 0.0


def _not_of_launches(
    heavy: tuple[int, ...], times: PipelineTimes, excess_S: Floats, events: PipelineEvents
) -> tuple[int, ...]:
    """Those of the heavy stages whose excess is not just that devices wait for launches which take equally long.

    A stage that gets its input late has more of a chunk launched by then, and takes less: the first and the last are
    not heavier for that. A thread that launches longer than the typical one is the stage's own.
    """
    waited_R, launch_R = unhidden_R(events, times.ranks), launch_s_R(events, times.ranks)
    kept = []
    for stage in heavy:
        row = times.stages.index(stage)
        rank = times.ranks.index(times.rank_S[row])
        is_work = (1 + excess_S[row]) * (1 - waited_R[rank]) > 1 + HEAVY_EXCESS
        if (
            waited_R[rank] <= MAX_UNHIDDEN
            or is_work
            or launch_R[rank] > (1 + HEAVY_EXCESS) * typical(launch_R)
        ):
            kept.append(stage)
    return tuple(kept)


def _typical_K(work_SK: Floats) -> Floats:
    """The typical stage's time in each step."""
    return np.asarray(np.sort(work_SK, axis=0)[(work_SK.shape[0] - 1) // 2])


def _phase(window: _Window, times: PipelineTimes, heavy: tuple[int, ...]) -> str | None:
    if not heavy:
        return None
    row = times.stages.index(heavy[0])
    forward_S, backward_S = np.median(window.forward_SK, axis=1), np.median(window.backward_SK, axis=1)
    forward_s = max(float(forward_S[row]) - typical(forward_S), 0.0)
    backward_s = max(float(backward_S[row]) - typical(backward_S), 0.0)
    whole_s = forward_s + backward_s
    if whole_s <= 0:
        return None
    if forward_s >= MIN_COVER * whole_s:
        return "forward"
    return "backward" if backward_s >= MIN_COVER * whole_s else None


def _onset(times: PipelineTimes, heavy: tuple[int, ...], work: RankWork) -> tuple[int | None, bool]:
    """(step since which the heaviest stage's rank is so, whether it was seen to become so)."""
    if not set(times.ranks) <= set(work.ranks):
        return None, False
    rows = [work.ranks.index(rank) for rank in times.ranks]
    columns, _ = work.columns_of(work.steady_steps)
    series_RK = (work.forward_s_RK + work.backward_s_RK)[rows][:, columns]
    known = np.isfinite(series_RK).all(axis=0)
    steps, series_RK = work.steady_steps[known], series_RK[:, known]
    if not steps.size:
        return None, False
    row = times.ranks.index(times.rank_S[times.stages.index(heavy[0])])
    ratio = series_RK[row] / np.maximum(_typical_K(series_RK), 1e-12)
    ups = [change for change in find_changes(ratio, MIN_ONSET_SHIFT) if change.shift > 0]
    return (int(steps[ups[-1].index]), True) if ups else (int(steps[0]), False)


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
    """The bubble's parts, and what they cost a step."""

    def __init__(self, recorded: Replay | None, window: _Window, heavy: tuple[int, ...]) -> None:
        self.order_bubble: float | None = None
        self.equal_span_s: float | None = None
        self.fill_share: float | None = None
        self.imbalance_share: float | None = None
        self.delay_share: float | None = None
        self.heavy_gain: Gain | None = None
        self.fill_gain: Gain | None = None
        self.even_s: float | None = None
        self.micro_batches_for: dict[float, int] = {}
        if recorded is None:
            return
        replay = _scaled(recorded, window)
        self._share_out(replay, window)
        self._price(replay, window, heavy)

    def _share_out(self, replay: Replay, window: _Window) -> None:
        """The idle time of the mean step, first what the order itself costs, then the stages, then the rest."""
        filled_s, busy_s = _equal(replay)
        self.order_bubble = 1 - busy_s / filled_s if filled_s > 0 else 0.0
        self.equal_span_s = filled_s
        idle_s = max(float(window.span_K.mean()) - busy_s, 0.0)
        fill_s = min(max(filled_s - busy_s, 0.0), idle_s)
        simulated_s = float(replay.span_s(replay.seconds_NK).mean())
        imbalance_s = min(max(simulated_s - filled_s, 0.0), idle_s - fill_s)
        # As shares of the bubble that is shown, the median over the steps.
        scale = window.bubble / idle_s if idle_s > 0 else 0.0
        self.fill_share = fill_s * scale
        self.imbalance_share = imbalance_s * scale
        self.delay_share = (idle_s - fill_s - imbalance_s) * scale

    def _price(self, replay: Replay, window: _Window, heavy: tuple[int, ...]) -> None:
        times, step_K = window.times, window.step_K
        filled_s, busy_s = _equal(replay)
        others = np.setdiff1d(np.array(times.stages), np.array(heavy))
        simulated_K = replay.span_s(replay.seconds_NK)
        if heavy and others.size:
            healed = replay.with_stages_like(np.array(heavy), others)
            loss_K = np.maximum(simulated_K - replay.span_s(healed), 0.0)
            self.heavy_gain = gain(step_K, np.minimum(loss_K, step_K))
            self.even_s = min(max(float(simulated_K.mean()) - filled_s, 0.0), self.heavy_gain.loss_s)
        if busy_s <= 0:
            return
        num, fill_s = times.num_micro_batches, max(filled_s - busy_s, 0.0)
        for share in (0.3, 0.2, 0.15, SMALL_BUBBLE, 0.05):
            wanted = ceil(num * fill_s * (1 - share) / (share * busy_s) - 1e-6)
            self.micro_batches_for[share] = max(wanted, 1)
        wanted = self.micro_batches_for[SMALL_BUBBLE]
        if wanted > num:
            loss_K = _filled_loss(replay, simulated_K, wanted, fill_s * (1 - num / wanted))
            self.fill_gain = gain(step_K, np.minimum(loss_K, step_K))


def _filled_loss(replay: Replay, simulated_K: Floats, num_micro_batches: int, equal_loss_s: float) -> Floats:
    """What more micro-batches save of each step with the stages as they are: a heavy one stays the slowest.

    Where the schedule is not simulated: at most what they save with equal stages, and never of the busiest rank's work.
    """
    more = replay.in_micro_batches(num_micro_batches)
    if more is not None:
        return np.maximum(simulated_K - more.span_s(more.seconds_NK), 0.0)
    return np.clip(simulated_K - replay.busiest_s, 0.0, equal_loss_s)


def _equal(replay: Replay) -> tuple[float, float]:
    """(span of the mean step if all stages were equal, each rank's work in it), seconds."""
    equal_N1 = replay.equal_N[:, None]
    return float(replay.span_s(equal_N1)[0]), float(equal_N1.sum()) / replay.num_ranks


def _scaled(recorded: Replay, window: _Window) -> Replay:
    """The recorded chunks with the ranks' times of the window's steps."""
    if window.scale is None:
        # Other orders than the latest step's are left out of it, so their lengths are too.
        window.step_K, window.span_K = window.step_K[recorded.columns], window.span_K[recorded.columns]
        window.forward_SK = window.forward_SK[:, recorded.columns]
        window.backward_SK = window.backward_SK[:, recorded.columns]
        return recorded
    forward_RK, backward_RK = window.scale
    is_forward = (recorded.kind_N == EventKind.STAGE_FORWARD)[:, None]
    scale_NK = np.where(is_forward, forward_RK[recorded.rank_N], backward_RK[recorded.rank_N])
    mean_N1 = recorded.seconds_NK.mean(axis=1)[:, None]
    return replace(recorded, seconds_NK=mean_N1 * scale_NK, columns=np.arange(scale_NK.shape[1]))
