"""The job's pipelines: which ranks form one, what limits each, and the picture of the one that sets the pace.

In: PipelineStore, roster and Diagnosis.  Out: Pipelines for the rules, PipelineView for the screens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.detail.pipeline_store import MAX_STAGE, HeldEvents
from tuiadvisor.causes.facts import Pipelines
from tuiadvisor.events import EventKind
from tuiadvisor.metrics.diagnosis import MIN_CLEAR_LOSS, is_clear
from tuiadvisor.metrics.pipeline.pipeline_balance import chunks_of
from tuiadvisor.metrics.pipeline.pipeline_limits import (
    MIN_STEPS,
    PipelineLimits,
    RankWork,
    pipeline_limits,
)
from tuiadvisor.metrics.pipeline.stage_account import (
    ALIKE,
    MAX_REST,
    StageAccount,
    stage_account,
)
from tuiadvisor.metrics.steps.arrays import column_median
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX
from tuiadvisor.views.pipeline import PipelineChunk, PipelineRank, PipelineStage, PipelineView
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.advisor.cluster.membership import Roster
    from tuiadvisor.advisor.cluster.rank_facts import RankFacts
    from tuiadvisor.advisor.detail.pipeline_store import PipelineStore
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.off_core import OffCore
    from tuiadvisor.metrics.pipeline.pipeline_balance import PipelineEvents

MAX_PIPELINES: Final = 64  # looked at, those with the slowest ranks
MAX_CHUNKS: Final = 4096  # of the step that is drawn
LAUNCHED: Final = (
    "chunks were timed by the host's clock, which says when they were launched, "
    "not what the devices took for them"
)
CAPTURE: Final = "a capture of kernels tells (tuiadvisor capture RANK --steps 3)"
MEET_WITHIN: Final = frozenset({"tp", "cp", "ep", "sp"})  # kinds of parallelism whose ranks meet in forward
LETTERS: Final = {
    int(EventKind.STAGE_FORWARD): "F",
    int(EventKind.STAGE_BACKWARD): "B",
    int(EventKind.STAGE_WEIGHT_GRAD): "W",
}


def has_stages(roster: Roster) -> bool:
    """Whether any rank says that it holds a stage of a pipeline."""
    return any(_num_ranks(fact) > 1 for fact in roster.ranks.values())


def _num_ranks(fact: RankFacts) -> int:
    return max(fact.pipeline.get("ranks", 0), fact.parallel.get("pp", 0))


def find_pipelines(
    chunks: PipelineStore,
    roster: Roster,
    store: StepStore,
    diagnosis: Diagnosis | None,
    until_step: int | None = None,
    *,
    on_device: bool = False,
    is_timed: bool = False,
) -> Pipelines | None:
    """The job's pipelines; None where no rank has a stage.

    on_device: chunks tell when they were launched. is_timed: the diagnosis rests on the devices' clocks, which tell
    what the devices took for the chunks of some steps, too.
    """
    told = has_stages(roster)
    timed = chunks.held_on_devices(store, until_step) if on_device and is_timed else None
    held = HeldEvents(timed, clocks_known=True) if timed is not None else None
    if held is None:
        held = chunks.held(store, roster.clocks.shift, until_step)
        if told and held is None and roster.header.imported is not None:
            return _nothing("the trace does not say when a stage works on which micro-batch", roster)
        if on_device and (told or held is not None):
            return _nothing(LAUNCHED, roster)
    if held is None:
        return _nothing("no chunk of a stage was seen yet", roster) if told else None
    groups = _groups(held, roster)
    if groups is None:
        return _nothing("several pipelines, and the ranks do not say which of them they are in", roster)
    work = _rank_work(diagnosis)
    found, unseen = [], ""
    for ranks in _slowest(groups, held.events):
        events = held.events.rows(np.isin(held.events.rank, ranks))
        if lacks := _lacks_ranks(events, roster, on_device=on_device):
            unseen = unseen or lacks
            continue
        limits = pipeline_limits(events, work, own_clocks=on_device)
        if limits is not None:
            found.append((limits, events))
    if not found:
        return _nothing(unseen or "no step was seen whole: all chunks of all its ranks", roster)
    found.sort(key=lambda entry: -entry[0].span_s)
    return Pipelines(
        limits=tuple(limits for limits, _ in found),
        events=found[0][1],
        clocks_known=held.clocks_known,
        num_pipelines=len(groups),
        schedule=_schedule(roster),
        why_not="",
        own_clocks=on_device,
        doubt=(unseen or _doubt(found, chunks.meet_within_chunks(store), roster, diagnosis))
        if on_device
        else "",
    )


def _slowest(groups: list[list[int]], events: PipelineEvents) -> list[list[int]]:
    """At most MAX_PIPELINES: those in which a rank takes longest for its chunks, each at its place."""
    if len(groups) <= MAX_PIPELINES:
        return groups
    chunks = events.rows(chunks_of(events))
    ranks, row = np.unique(chunks.rank, return_inverse=True)
    work_R = np.bincount(row, chunks.end_ns - chunks.begin_ns)
    steps = np.unique(np.stack((row, chunks.step)), axis=1)[0]
    mean_of = dict(zip(ranks.tolist(), (work_R / np.bincount(steps)).tolist(), strict=True))
    longest = [max(mean_of.get(rank, 0.0) for rank in group) for group in groups]
    chosen = sorted(range(len(groups)), key=lambda place: -longest[place])[:MAX_PIPELINES]
    return [groups[place] for place in sorted(chosen)]


def _doubt(
    found: list[tuple[PipelineLimits, PipelineEvents]],
    meet_within_chunks: bool,
    roster: Roster,
    diagnosis: Diagnosis | None,
) -> str:
    """Why what the devices tell does not show that nothing is slow, and what would; empty where it does."""
    meshes = {name for fact in roster.ranks.values() for name, size in fact.parallel.items() if size > 1}
    if meet_within_chunks or meshes & MEET_WITHIN:
        return (
            "ranks meet within the chunks of a pipeline's stages, where a device's clock does not tell waiting from "
            f"compute; {CAPTURE}"
        )
    fewest = min(len(limits.times.steps) for limits, _ in found)
    if fewest < MIN_STEPS:
        return (
            f"of {fewest} step{'s' * (fewest != 1)} it is known what the devices took for each chunk of the pipeline, "
            f"which takes {MIN_STEPS}"
        )
    account = None
    if diagnosis is not None:
        seconds_RK = diagnosis.steady.phase_s_PRK[PHASE_INDEX["optimizer"]]
        ranks = diagnosis.steady.ranks
        known = {rank: row[np.isfinite(row)] for rank, row in zip(ranks, seconds_RK, strict=True)}
        account = stage_account(found, known)
    if account is None:
        return f"the order of the pipeline's chunks could not be simulated; {CAPTURE}"
    return doubt_of(account)


def doubt_of(account: StageAccount) -> str:
    """What in a step on devices is too much to be kept unexplained, the surest first; empty where nothing is."""
    if account.is_launch_bound:
        return (
            f"the device of rank {account.unhidden_rank} may have waited for launches for up to "
            f"{_percent(account.unhidden_share)} of what it took for its chunks; {CAPTURE}"
        )
    if account.uneven_share > ALIKE:
        return (
            f"stage {account.stage} on rank {account.rank} takes up to {_percent(account.uneven_share)} longer than "
            "the lightest one, too little to be called slow and too much to call the stages alike; the layers that "
            "each holds, or the clocks and temperatures of the devices, tell which it is"
        )
    if account.rest_s > MAX_REST * account.step_s:
        return (
            f"of a step's {seconds(account.step_s)} {seconds(account.rest_s)} are neither the stages' work nor the "
            f"schedule's filling and draining: {seconds(max(account.between_s, 0.0))} pass between chunks (sends, "
            f"launches), {seconds(max(account.around_s, 0.0))} around them; {CAPTURE}"
        )
    return ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def is_stage_clear(pipelines: Pipelines | None, off_core: Callable[[tuple[int, ...]], list[OffCore]]) -> bool:
    """Whether the slowest pipeline's heavy stages are beyond doubt in few steps.

    off_core: what is known of these ranks. Who lacked a core or stood stopped in a few steps may be so by chance, and
    its stage with it: that takes as many steps as everything else.
    """
    limits = pipelines.shown if pipelines is not None else None
    if limits is None or limits.heavy_gain is None or not is_clear(limits.hit_share, limits.heavy_gain):
        return False
    times = limits.times
    ranks = tuple(sorted({times.rank_S[times.stages.index(stage)] for stage in limits.heavy_stages}))
    return all(_has_its_core(one) for one in off_core(ranks))


def _has_its_core(seen: OffCore) -> bool:
    wait = seen.most_wait if seen.wait is None else seen.wait
    return wait is not None and wait < MIN_CLEAR_LOSS and not seen.num_stopped and not seen.throttled


def _nothing(why: str, roster: Roster) -> Pipelines:
    return Pipelines((), None, clocks_known=False, num_pipelines=0, schedule=_schedule(roster), why_not=why)


def _schedule(roster: Roster) -> str | None:
    return next((fact.texts["schedule"] for fact in roster.ranks.values() if "schedule" in fact.texts), None)


def _groups(held: HeldEvents, roster: Roster) -> list[list[int]] | None:
    """Ranks of each pipeline; None where a stage is held by several ranks and nothing tells them apart."""
    events = held.events
    ranks: list[int] = np.unique(events.rank).tolist()
    named: dict[int | None, list[int]] = {}
    for rank in ranks:
        first = roster.ranks[rank].pipeline.get("first_rank") if rank in roster.ranks else None
        named.setdefault(first, []).append(rank)
    if len(named) > 1 and None not in named:
        return [of_one for _, of_one in sorted(named.items(), key=lambda entry: entry[0] or 0)]
    is_chunk = chunks_of(events)
    pairs = np.unique(events.rank[is_chunk] * MAX_STAGE + events.stage[is_chunk])
    if pairs.size > np.unique(pairs % MAX_STAGE).size:
        return None
    return [ranks]


def _lacks_ranks(events: PipelineEvents, roster: Roster, *, on_device: bool) -> str:
    """Why nothing is told of a pipeline of which some ranks' chunks are not held; empty where all are.

    The others' waits for those ranks would count as sends, and the bubble be that of a shorter pipeline.
    """
    ranks = np.unique(events.rank[chunks_of(events)]).tolist()
    wanted = max((_num_ranks(roster.ranks[rank]) for rank in ranks if rank in roster.ranks), default=0)
    if len(ranks) >= wanted:
        return ""
    how = "timed on their devices" if on_device else "seen"
    return f"chunks of only {len(ranks)} of the pipeline's {wanted} ranks were {how}"


def _rank_work(diagnosis: Diagnosis | None) -> RankWork | None:
    if diagnosis is None:
        return None
    table = diagnosis.table
    steps = table.steps_of(np.arange(table.num_steps))
    return RankWork(
        ranks=table.ranks,
        steps=steps,
        forward_s_RK=table.phase_s_PRK[PHASE_INDEX["forward"]],
        backward_s_RK=table.phase_s_PRK[PHASE_INDEX["backward"]],
        steady_steps=steps[np.flatnonzero(diagnosis.steadiness.steady_K)],
        window_steps=diagnosis.steady_steps,
        step_s_K=column_median(table.step_s_RK),
    )


def pipeline_view(pipelines: Pipelines | None) -> PipelineView | None:
    """What the screens show; None for a job without stages."""
    if pipelines is None:
        return None
    limits = pipelines.shown
    if limits is None or pipelines.events is None:
        return PipelineView(schedule=pipelines.schedule, why_unknown=pipelines.why_not)
    times = limits.times
    known = pipelines.clocks_known
    gain = limits.heavy_gain
    can_draw = known and not pipelines.own_clocks
    step, span_s, chunks = _chart(pipelines.events, limits) if can_draw else (None, None, ())
    return PipelineView(
        schedule=pipelines.schedule,
        why_unknown="" if known else "the hosts' clocks cannot be compared, so idle time is unknown",
        num_pipelines=pipelines.num_pipelines,
        num_ranks=len(times.ranks),
        num_stages=len(times.stages),
        num_micro_batches=times.num_micro_batches,
        first_step=limits.steps[0],
        last_step=limits.steps[-1],
        num_steps=len(limits.steps),
        num_recorded_steps=len(times.steps),
        span_s=limits.span_s if known else None,
        busy=1 - limits.bubble if known else None,
        bubble=limits.bubble if known else None,
        ideal_bubble=limits.ideal_bubble,
        ideal_is_formula=limits.ideal_is_formula,
        fill_share=limits.fill_share if known else None,
        imbalance_share=limits.imbalance_share if known else None,
        delay_share=limits.delay_share if known else None,
        stages=_stages(limits),
        ranks=_ranks(limits) if can_draw else (),
        slowest_stage=times.stages[int(np.argmax(limits.work_S))],
        split_stage=limits.heavy_stages[0] if limits.heavy_stages else None,
        heavy_loss_s=gain.loss_s if gain is not None else None,
        even_loss_s=limits.even_s,
        micro_batches_for=tuple(limits.micro_batches_for.items()),
        chart_step=step,
        chart_s=span_s,
        chart=chunks,
        own_clocks=pipelines.own_clocks,
    )


def _stages(limits: PipelineLimits) -> tuple[PipelineStage, ...]:
    times, work_S = limits.times, limits.work_S
    slowest_s = float(work_S.max())
    return tuple(
        PipelineStage(
            stage=stage,
            rank=times.rank_S[row],
            forward_s=float(np.median(limits.forward_s_SK[row])),
            backward_s=float(np.median(limits.backward_s_SK[row])),
            balance=float(work_S[row]) / slowest_s if slowest_s > 0 else 1.0,
            excess=float(limits.excess_S[row]),
            is_heavy=stage in limits.heavy_stages,
        )
        for row, stage in enumerate(times.stages)
    )


def _ranks(limits: PipelineLimits) -> tuple[PipelineRank, ...]:
    times = limits.times
    span_s = float(times.span_s_K.mean())
    result = []
    for row, rank in enumerate(times.ranks):
        busy = float(times.busy_s_RK[row].mean()) / span_s
        previous = float(times.wait_previous_s_RK[row].mean()) / span_s
        following = float(times.wait_next_s_RK[row].mean()) / span_s
        result.append(
            PipelineRank(
                rank=rank,
                stages=tuple(
                    stage for stage, its in zip(times.stages, times.rank_S, strict=True) if its == rank
                ),
                busy=busy,
                wait_previous=previous,
                wait_next=following,
                other_idle=max(1.0 - busy - previous - following, 0.0),
            )
        )
    return tuple(result)


def _chart(
    events: PipelineEvents, limits: PipelineLimits
) -> tuple[int | None, float | None, tuple[PipelineChunk, ...]]:
    """(job step, its length, its chunks) of the newest whole step, times as shares of it."""
    times = limits.times
    step = times.steps[-1]
    chosen = np.flatnonzero(chunks_of(events) & (events.step == step))
    if chosen.size > MAX_CHUNKS:
        return step, None, ()
    begin_ns = int(events.begin_ns[chosen].min())
    span_ns = max(int(events.end_ns[chosen].max()) - begin_ns, 1)
    chosen = chosen[np.lexsort((events.begin_ns[chosen], events.rank[chosen]))]
    return (
        step,
        span_ns * 1e-9,
        tuple(
            PipelineChunk(
                rank=int(events.rank[index]),
                stage=int(events.stage[index]),
                micro_batch=int(events.micro_batch[index]),
                kind=LETTERS[int(events.kind[index])],
                begin=(int(events.begin_ns[index]) - begin_ns) / span_ns,
                end=(int(events.end_ns[index]) - begin_ns) / span_ns,
            )
            for index in chosen.tolist()
        ),
    )
