"""Assemble the RunView from what was measured, judged and heard."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.assemble.rank_rows import NOT_COMPARED
from tuiadvisor.advisor.cluster.ends import counted, failures
from tuiadvisor.advisor.cluster.membership import ENDED, GONE, STEPLESS, Roster
from tuiadvisor.advisor.judge.imports import OF_DUMPS, is_part, may_be_apart
from tuiadvisor.causes.communication_bound import overlap_seconds
from tuiadvisor.events import NOTHING_GIVEN, UNNAMED_HOST, StepFlag
from tuiadvisor.metrics.diagnosis import MIN_STEADY_STEPS, Diagnosis
from tuiadvisor.metrics.lateness.stragglers import MIN_EXCESS_SHARE
from tuiadvisor.metrics.series.bootstrap import CONFIDENCE, mean_interval
from tuiadvisor.metrics.steps.accounting import shares
from tuiadvisor.metrics.steps.arrays import mean_or_none, median_or_none, row_mean
from tuiadvisor.metrics.steps.barrier import has_stages
from tuiadvisor.metrics.window.slow_stretches import MIN_LONGER
from tuiadvisor.phases import BY_NAME, CHAIN, PAUSES, PHASES
from tuiadvisor.views.event import LevelChange
from tuiadvisor.views.run_view import (
    RUN_FINISHED,
    ChainLink,
    Losses,
    Overlap,
    RunInfo,
    StepSummary,
    Straggler,
    Unknown,
    WhatIf,
    Window,
)
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.advisor.assemble.seen import Seen
    from tuiadvisor.advisor.judge.findings import Judged
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.events import GivenWork
    from tuiadvisor.metrics.steps.arrays import Floats
    from tuiadvisor.views.pipeline import PipelineView

SCHEMA: Final = 1
# The order in which a step of one rank goes through its phases.
LET_GO: Final = "probes taken out; the training may go on"  # of all ranks
ALL_EXITING: Final = "the ranks are exiting, and how they end is not known"
MIN_LINK_SPREAD: Final = 0.1  # beyond the mean: below it naming a rank would name noise
TOLD_APART: Final = 0.05  # of the mean step: readers of both figures see that one is not the other's inverse
MAX_NAMED_RANKS: Final = 64
END_OF_TRACE: Final = "end of the imported trace"
END_OF_DUMPS: Final = "end of the imported dumps"
NOT_READ: Final = "worked out once the traces are read to their end; its time is in other until then"
NOT_SHOWN: Final = "the imported source does not show it; its time is in other"
NOT_STEADY: Final = "no steady step has one"
COSTS: Final = "what its pauses cost is under findings"


def run_info(roster: Roster) -> RunInfo:
    """What runs, from the lowest rank that says so."""
    facts = [roster.ranks[rank] for rank in sorted(roster.ranks)]

    def first(name: str) -> str | None:
        return next((f.texts[name] for f in facts if f.texts.get(name)), None)

    hosts = sorted({f.host for f in facts} | {a.host for a in roster.agents.values()})
    if roster.header.imported is not None:
        hosts = [host for host in hosts if not host.startswith(UNNAMED_HOST)]
    world_size = roster.world_size()
    parallel = dict(next((f.parallel for f in facts if f.parallel), {}))
    started = [f.start_wall_ns for f in facts if f.start_wall_ns]
    command = first("command") or roster.header.names.get("command", "")
    software = {name: value for name in ("cuda", "nccl", "git_commit", "container") if (value := first(name))}
    if roster.driver:
        software["driver"] = roster.driver
    if "tuiadvisor" in roster.header.names:
        software["tuiadvisor"] = roster.header.names["tuiadvisor"]
    return RunInfo(
        label=first("label") or roster.header.names.get("label", ""),
        command=command,
        world_size=world_size,
        hosts=tuple(hosts),
        torch=first("torch"),
        python=first("python"),
        backend=first("backend"),
        device=first("device"),
        parallel=parallel,
        software=software,
        started_wall_s=min(started) / 1e9 if started else None,
    )


def window(
    diagnosis: Diagnosis | None,
    why_undecided: str = "",
    num_missing_steps: int = 0,
    not_held: Mapping[str, int] = MappingProxyType({}),
    why_no_step: str = "",
) -> Window:
    """The steps behind every number. why_undecided: why they support no verdict although they are many.

    num_missing_steps: that the verdict waits for, where there are steps at all.
    not_held: of the steps that were asked for, those that are held no more, by why.
    why_no_step: what was found of ranks none of which makes a step.
    """
    if diagnosis is None:
        return Window(
            None, None, 0, {}, enough=False, num_missing_steps=MIN_STEADY_STEPS, why_no_step=why_no_step
        )
    steps = diagnosis.steady_steps
    num_missing = max(diagnosis.num_missing_steps, num_missing_steps)
    excluded = dict(diagnosis.steadiness.excluded)
    before = diagnosis.num_all_steady - int(steps.size)
    if before:
        excluded["before_change"] = before
    excluded |= {why: num for why, num in not_held.items() if num}
    return Window(
        first_step=int(steps[0]) if steps.size else None,
        last_step=int(steps[-1]) if steps.size else None,
        num_steps=int(steps.size),
        excluded=excluded,
        enough=not num_missing and not why_undecided,
        why_undecided=why_undecided,
        num_missing_steps=num_missing,
        missing_s=diagnosis.last_s(num_missing),
        change=_change(diagnosis) if before else "",
    )


_PHASE_NAMES: Final = {
    "data_wait": "waiting for data",
    "comm_exposed": "exposed communication",
    "other": "what runs between the phases",
}


def _change(diagnosis: Diagnosis) -> str:
    """Why the window begins where it does."""
    shift_s = diagnosis.regime_shift_s
    if diagnosis.regime_step is None or shift_s is None:
        return ""
    if diagnosis.regime_phase is not None:
        how = _how(shift_s)
        whom = " on all ranks" if diagnosis.table.num_ranks > 1 else ""
        phase = _PHASE_NAMES.get(diagnosis.regime_phase, diagnosis.regime_phase.replace("_", " "))
        return f"since step {diagnosis.regime_step:,} {phase} is {how} a step{whom}"
    return _change_words(diagnosis.regime_step, shift_s, diagnosis.regime_rank)


def _how(shift_s: float) -> str:
    return f"{seconds(abs(shift_s))} {'longer' if shift_s > 0 else 'shorter'}"


def _change_words(step: int, shift_s: float, rank: int | None) -> str:
    if rank is None:
        return f"since step {step:,} a step is {_how(shift_s)}"
    how = "more" if shift_s > 0 else "less"
    return f"since step {step:,} rank {rank} works {seconds(abs(shift_s))} {how} a step"


def level_changes(diagnosis: Diagnosis | None) -> tuple[LevelChange, ...]:
    """Where the job or one rank went to another level, the last one too: what is over by then has happened as well.

    Those alone that are worth acting on. Smaller ones begin a window, and its figures say since when they are.
    """
    if diagnosis is None:
        return ()
    cycle = diagnosis.steady_barrier.cycle_K
    least_s = MIN_LONGER * (median_or_none(cycle[np.isfinite(cycle)]) or 0.0)
    found = [
        LevelChange(step, () if rank is None else (rank,), _change_words(step, shift_s, rank))
        for step, shift_s, rank in diagnosis.earlier_changes
        if abs(shift_s) >= least_s
    ]
    if abs(diagnosis.regime_shift_s or 0.0) >= least_s and (words := _change(diagnosis)):
        rank = diagnosis.regime_rank if diagnosis.regime_phase is None else None
        found.append(LevelChange(diagnosis.regime_step or 0, () if rank is None else (rank,), words))
    return tuple(found)


def step_summary(
    diagnosis: Diagnosis | None, given: GivenWork = NOTHING_GIVEN, elapsed_s: float | None = None
) -> StepSummary:
    """The job's step in numbers; given: its work as the user says, which wins over what the batches tell.

    elapsed_s: of a step in the mean with its pauses, where the diagnosis has not all steps.
    """
    if diagnosis is None or not diagnosis.steady.num_steps:
        nothing = dict.fromkeys(PHASES)
        return StepSummary(None, None, None, None, None, dict(nothing), dict(nothing))
    cycle, steady = diagnosis.steady_barrier.cycle_K, diagnosis.steady
    known = cycle[np.isfinite(cycle)]
    if elapsed_s is None:
        elapsed_s = mean_or_none(diagnosis.barrier.cycle_K[diagnosis.elapsed_K])
    seconds = diagnosis.job_seconds
    low_s, high_s = mean_interval(known, CONFIDENCE) if known.size else (None, None)

    def rate(per_step: int | None, counts: Floats) -> float | None:
        if per_step is not None:
            return per_step / elapsed_s if elapsed_s else None
        # Every rank has its own samples: the job's are their sum. A rank that does not say leaves it unknown.
        if not elapsed_s or not np.isfinite(counts).any(axis=1).all():
            return None
        return float(row_mean(counts).sum()) / elapsed_s

    return StepSummary(
        median_s=median_or_none(cycle),
        p95_s=float(np.percentile(known, 95)) if known.size else None,
        throughput_steps_s=1 / elapsed_s if elapsed_s else None,
        throughput_samples_s=rate(given.samples_per_step, steady.samples_RK),
        throughput_tokens_s=rate(given.tokens_per_step, steady.tokens_RK),
        shares=shares(seconds),
        seconds=seconds,
        given=tuple(name for name in ("samples", "tokens") if f"{name}_per_step" in given.document()),
        mean_s=mean_or_none(cycle),
        mean_with_pauses_s=elapsed_s,
        # Of a series that mostly drifts it may reach below anything a step can take.
        mean_low_s=None if low_s is None else max(low_s, float(known.min())),
        mean_high_s=high_s,
        of_rank=diagnosis.table.ranks[0] if diagnosis.table.num_ranks == 1 else None,
        rates_of=_rates_of(known, elapsed_s, steady.is_sampled),
    )


def _rates_of(cycle_s: Floats, elapsed_s: float | None, is_sampled: bool) -> str:
    """cycle_s: of the steps that the mean is of; elapsed_s: of a step, whatever lay between these."""
    if elapsed_s is None or not cycle_s.size or abs(elapsed_s / float(cycle_s.mean()) - 1) <= TOLD_APART:
        return ""
    return "of all steps" if is_sampled else "with pauses"


def chain(diagnosis: Diagnosis | None) -> tuple[ChainLink, ...]:
    """A step's phases in their order, the longest marked, each with the rank that takes longest for it."""
    if diagnosis is None or not diagnosis.steady.num_steps:
        return ()
    seconds = diagnosis.job_seconds
    share = shares(seconds)
    longest = max(CHAIN, key=lambda name: seconds[name] or 0.0)
    links = []
    for name in CHAIN:
        mean_s, row_R = seconds[name], diagnosis.seconds_PR[PHASES.index(name)]
        rank = slowest_s = None
        # Exposed communication is waiting for others: who has most of it is the one that is not slow.
        if mean_s and name != "comm_exposed" and np.isfinite(row_R).sum() > 1:
            row = int(np.nanargmax(row_R))
            if row_R[row] > (1 + MIN_LINK_SPREAD) * mean_s:
                rank, slowest_s = diagnosis.table.ranks[row], float(row_R[row])
        links.append(ChainLink(name, mean_s, share[name], rank, slowest_s, bool(mean_s) and name == longest))
    return tuple(links)


def overlap(diagnosis: Diagnosis | None) -> Overlap:
    """Communication, exposed and hidden."""
    if diagnosis is None:
        return Overlap(None, None, None, None, None, None)
    total, exposed_detail, detail = overlap_seconds(diagnosis)
    sampled_RK = np.isfinite(diagnosis.steady.comm_total_s_RK)
    num_sampled = int(sampled_RK.any(axis=0).sum())
    exposed = diagnosis.job_seconds["comm_exposed"]
    wait_s = mean_or_none(diagnosis.steady_barrier.wait_RK)
    transfer_s = diagnosis.transfer.gain.loss_s if diagnosis.transfer else None
    if transfer_s is not None and wait_s is not None and exposed is not None:
        # The transfer ends for all at once by the barrier, for each rank by its own clock in the exposed time.
        transfer_s = min(transfer_s, exposed)
        wait_s = exposed - transfer_s
    hidden = 1 - min(exposed_detail / total, 1.0) if total and exposed_detail is not None else None
    return Overlap(
        comm_total_s=total,
        comm_exposed_s=exposed,
        overlap=hidden,
        transfer_s=transfer_s,
        skew_s=wait_s,
        sampled_share=detail,
        hidden_s=total - min(exposed_detail, total)
        if total is not None and exposed_detail is not None
        else None,
        num_sampled_steps=num_sampled,
        exposed_sampled_s=exposed_detail,
        skew_sampled_s=mean_or_none(np.where(sampled_RK, diagnosis.steady_barrier.wait_RK, np.nan)),
    )


def stragglers(diagnosis: Diagnosis | None, judged: list[Judged]) -> tuple[Straggler, ...]:
    """Ranks named by a finding above info, largest loss first."""
    if diagnosis is None:
        return ()
    named = named_ranks(judged)
    return tuple(
        Straggler(
            rank=entry.rank,
            score=entry.late.score,
            cause=entry.cause.name,
            loss_s_per_step=entry.late.gain.loss_s,
            since_step=entry.since_step,
            persistent=entry.late.persistent,
            onset_seen=entry.late.onset_seen,
        )
        for entry in diagnosis.stragglers
        if entry.rank in named
    )


def named_ranks(judged: list[Judged]) -> frozenset[int]:
    """The culprits: a finding that is only worth a remark makes nobody one."""
    return frozenset(
        rank
        for entry in judged
        if entry.rule.scope == "straggler" and entry.finding.severity != "info"
        for rank in entry.finding.ranks
    )


def what_if(diagnosis: Diagnosis | None) -> WhatIf | None:
    """S and its parts."""
    if diagnosis is None or diagnosis.slowdown is None:
        return None
    slow = diagnosis.slowdown
    return WhatIf(slow.S, slow.S_t, slow.S_w, slow.M_W, None)


def unknowns(
    diagnosis: Diagnosis | None, roster: Roster, missing: tuple[int, ...], seen: Seen
) -> tuple[Unknown, ...]:
    """What could not be observed, and why."""
    if diagnosis is None:
        return (Unknown("step", "no step was seen" if ended(roster) else "no step was seen yet"),)
    device = next((f.texts.get("device") for f in roster.ranks.values() if f.texts.get("device")), None)
    seconds = diagnosis.job_seconds
    not_shown = (
        "" if roster.header.imported is None else NOT_READ if is_part(roster.header.imported) else NOT_SHOWN
    )
    paused = {pause.kind for pause in diagnosis.steadiness.pauses}
    left_out = {name: NOT_STEADY for name in PAUSES if name in diagnosis.steadiness.excluded}
    left_out |= dict.fromkeys(paused, f"{NOT_STEADY}; {COSTS}")
    result = [
        Unknown(name, left_out.get(name) or not_shown or _why_phase(name, device, seen.pipeline))
        for name in PHASES
        if seconds[name] is None
    ]
    are_several = diagnosis.table.num_ranks > 1 or len(roster.ranks) > 1 or bool(missing)
    if diagnosis.steady_barrier.evidence == "none" and (are_several or is_one_of_several(roster, diagnosis)):
        result.append(
            Unknown(
                "stragglers",
                roster.header.imported.because
                if roster.header.imported is not None and may_be_apart(roster.header.imported)
                else _why_no_order(
                    diagnosis, len(roster.ranks), len(missing), has_pipeline=seen.pipelines is not None
                ),
            )
        )
    if diagnosis.transfer is None and diagnosis.table.num_ranks > 1 and not has_stages(diagnosis.table):
        why = (
            "a rank was not recorded, and a late rank nobody sees looks like a slow network"
            if missing
            else "no gradient barrier was observed"
        )
        result.append(Unknown("transfer", why))
    if overlap_seconds(diagnosis)[0] is None and seconds["comm_exposed"] is not None:
        result.append(Unknown("overlap", _why_no_overlap(diagnosis, has_stages=seen.pipeline is not None)))
    if seen.exchange.why and seen.pipeline is None:
        result.append(Unknown("buckets", seen.exchange.why))
    if seen.pipeline is not None and seen.pipeline.why_unknown:
        result.append(Unknown("pipeline", seen.pipeline.why_unknown))
    return tuple(result)


def _why_no_overlap(diagnosis: Diagnosis, *, has_stages: bool) -> str:
    if has_stages:
        return "what stages wait for each other and what moving data takes are not told apart"
    if diagnosis.steady.flagged_RK(StepFlag.DETAIL).any():
        return "steps were seen in detail, but not when their communication began and ended"
    return "no steady step was seen in detail"


def _why_phase(name: str, device: str | None, pipeline: PipelineView | None) -> str:
    if name == "pipeline_idle" and pipeline is not None:
        return "what its stages wait for each other could not be told from their work"
    if name == "h2d" and device in {None, "cpu"}:
        return "no device"
    return BY_NAME[name].why_unknown


def _why_no_order(diagnosis: Diagnosis, num_seen: int, num_missing: int, *, has_pipeline: bool) -> str:
    if has_pipeline or has_stages(diagnosis.table):
        return "the ranks hold stages of a pipeline, which do different work"
    if diagnosis.table.num_ranks < 2:
        if num_seen > 1:  # with too few steps, as of a short trace
            return f"of {num_seen} ranks that were recorded only one has steps that could be compared"
        return f"only one rank was recorded{f' of {1 + num_missing}' if num_missing else ''}"
    if diagnosis.barrier.are_apart:
        return (
            "the ranks do not wait for each other: each takes as much longer for its steps as it works longer"
        )
    if (diagnosis.table.flagged_RK(StepFlag.NO_SYNC) & diagnosis.table.present_RK).any():
        return "no gradient barrier was seen, so nothing tells who arrives last"
    return "the ranks' arrivals could not be compared"


IN_PART: Final = (
    "compared in the steps that it shares with the others: it makes fewer or more (uneven inputs)"
)


def losses(
    roster: Roster, store: StepStore, num_bad: int, missing: tuple[int, ...], compared: tuple[int, ...]
) -> Losses:
    """What was not seen. compared: ranks, some of them perhaps in a part of the steps alone."""
    facts = roster.ranks.values()
    notes = [*roster.notes, *roster.owners.sentences()]
    # A training of one process has no rank number before its probe is in.
    notes += [why for reasons in roster.unplaced.values() for why in reasons][:4]
    notes += [why for why in roster.left_out.values() if why and missing][:4]  # else another agent has them
    stepless: dict[str, list[int]] = {}
    for fact in facts:
        if fact.no_step:
            stepless.setdefault(fact.no_step, []).append(fact.rank)
    for why, (rank, *others) in list(stepless.items())[:4]:
        notes.append(f"rank {rank}{f' and {len(others)} more' if others else ''}: {STEPLESS}: {why}")
    for source, silent_s in sorted(roster.silent_agents().items()):
        host = roster.agents[source].host
        notes.append(f"agent on {host} silent" + ("" if silent_s is None else f" for {silent_s:.0f} s"))
    for rank, why in list(store.not_compared(min_rows=8).items())[:4]:
        notes.append(f"rank {rank} is {IN_PART if rank in compared else f'{NOT_COMPARED}: {why}'}")
    if store.num_bad_rows:
        notes.append(f"{store.num_bad_rows} step records contradicted themselves and were left out")
    if roster.num_not_recorded:
        notes.append(f"{roster.num_not_recorded} frames could not be recorded")
    for fact in sorted(facts, key=lambda f: f.rank):
        if fact.state == "killed" and len(notes) < 24:
            notes.append(f"rank {fact.rank}: {fact.told or 'killed'}")
    return Losses(
        events_dropped=sum(f.lost_steps + f.lost_events for f in facts),
        frames_lost=roster.num_frames_lost,
        frames_bad=roster.num_frames_bad + num_bad,
        hooks_disabled=sum(f.hooks_disabled for f in facts),
        ranks_missing=missing[:MAX_NAMED_RANKS],
        ranks_missing_more=max(len(missing) - MAX_NAMED_RANKS, 0),
        notes=tuple(notes),
    )


def missing_ranks(roster: Roster, store: StepStore) -> tuple[int, ...]:
    """Ranks of the job that were never heard of."""
    world_size = 0 if is_part(roster.header.imported) else roster.world_size() or 0
    seen = set(roster.ranks) | set(store.ranks())
    if world_size - len(seen) > 1 << 20:
        return ()
    return tuple(rank for rank in range(world_size) if rank not in seen)


def is_one_of_several(roster: Roster, diagnosis: Diagnosis | None) -> bool:
    """Whether one rank alone was compared whose communication is worth a word: what it waits for others nobody saw.

    A job of unknown world size has others where it communicates; a job of one rank has none.
    """
    if diagnosis is None or diagnosis.table.num_ranks != 1 or roster.world_size() == 1:
        return False
    exposed_s, cycle_K = diagnosis.job_seconds["comm_exposed"], diagnosis.steady_barrier.cycle_K
    return (
        exposed_s is not None and bool(cycle_K.size) and exposed_s > MIN_EXCESS_SHARE * float(cycle_K.mean())
    )


def num_without_steps(roster: Roster, store: StepStore) -> int:
    """Ranks that are there, but of which no step was ever seen: nothing is known of what they do.

    That the watch is over, or they, makes nothing of it known: ranks that were live without a step count on.
    """
    with_steps = set(store.ranks())
    return sum(
        rank not in with_steps and (fact.state not in GONE or bool(fact.no_step))
        for rank, fact in roster.ranks.items()
    )


def _end_of(roster: Roster) -> str:
    imported = roster.header.imported
    if imported is None:
        is_over = all(fact.is_leaving for fact in roster.ranks.values())
        return ALL_EXITING if is_over else LET_GO
    return END_OF_DUMPS if imported.kind == OF_DUMPS else END_OF_TRACE


def ended(roster: Roster) -> str:
    """Why nothing more will come; empty while the run goes on."""
    states = [] if is_part(roster.header.imported) else [fact.state for fact in roster.ranks.values()]
    if states and all(state in GONE for state in states):
        num_failed = len(failures(roster.ranks.values()))
        if all(state == "exited" for state in states):
            return (
                f"all ranks ended, {num_failed} of {len(states)} by an error" if num_failed else RUN_FINISHED
            )
        if all(state == "detached" for state in states):
            return _end_of(roster)
        if any(state == "killed" for state in states):
            over = "all ranks ended" if ENDED.issuperset(states) else "no rank is watched any more"
            return f"{over}, {counted(roster.ranks.values())}"
        return "no rank is watched any more"
    if roster.agents and all(agent.bye is not None for agent in roster.agents.values()):
        reasons = sorted({agent.bye for agent in roster.agents.values() if agent.bye})
        return "; ".join(reasons)
    return roster.hub_bye or ""
