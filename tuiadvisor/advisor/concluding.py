"""What is said of a window: what its rules find, that the job hangs or has lost ranks, and the verdict.

In: what was seen.  Out: Concluded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tuiadvisor.advisor.assemble.picture import (
    ended,
    is_one_of_several,
    num_without_steps,
)
from tuiadvisor.advisor.cluster.crowding import LAST_SAMPLE_NS, LEAST_CROWD_S
from tuiadvisor.advisor.cluster.ends import deaths
from tuiadvisor.advisor.detail.device_times import launched_of_last, of_job
from tuiadvisor.advisor.detail.threads_beside import (
    data_s_in,
)
from tuiadvisor.advisor.judge.findings import Judged, find, find_standstill
from tuiadvisor.advisor.judge.hang import is_over, measured_of, no_step, stall, standing
from tuiadvisor.advisor.judge.imports import (
    in_words_of_a_trace,
    is_part,
    led_by_the_source,
    not_contradicted,
    of_import,
    outweighed,
    unconfirmed,
)
from tuiadvisor.advisor.judge.verdict import (
    after_the_end,
    not_yet,
    stands_still,
    unseen_device,
    verdict,
    with_bound_ranks,
    with_deaths,
    with_failed_restart,
    with_no_step,
    with_priorities,
    with_restart,
)
from tuiadvisor.causes.facts import Facts
from tuiadvisor.causes.placement import bound_words, packed
from tuiadvisor.metrics.diagnosis import MIN_STEADY_STEPS, Diagnosis
from tuiadvisor.metrics.lateness.off_core import lower_priorities
from tuiadvisor.metrics.window.course import run_shift

if TYPE_CHECKING:
    from tuiadvisor.advisor.assemble.seen import Seen
    from tuiadvisor.advisor.intake import Intake
    from tuiadvisor.causes.facts import Crowd
    from tuiadvisor.metrics.lateness.late_phase import Priority
    from tuiadvisor.metrics.steps.loader_stage import LoaderBatches
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.metrics.window.level_shift import LevelShift
    from tuiadvisor.views.restart import Restart
    from tuiadvisor.views.run_view import Verdict
    from tuiadvisor.views.stall import NoStep, Stall
    from tuiadvisor_rules.loader import Rule


class Concluded(NamedTuple):
    """What is said of one window."""

    judged: list[Judged]
    found: Verdict
    hang: list[Judged]
    stalled: Stall | None
    died: tuple[str, ...]
    no_step: NoStep | None  # where that is no hang; None where there are steps, or one of the above is said
    is_over: bool  # every process of the job has ended

    def verdict(self, waiting: Restart | None) -> Verdict:
        """What is said first: of a job that stands or has lost ranks, that. waiting: the newest restart."""
        if self.hang and self.is_over:
            return stands_still(self.hang[0], self.died)
        if waiting is not None and waiting.came_to_nothing:
            return with_failed_restart(self.found, waiting, self.died)
        first = with_deaths(stands_still(self.hang[0]) if self.hang else self.found, self.died)
        return with_restart(first, waiting)


def conclude(intake: Intake, rules: tuple[Rule, ...], seen: Seen, *, with_now: bool) -> Concluded:
    """What is said of the window; with_now: also of this moment, in which the job may hang or ranks have died."""
    imported = intake.roster.header.imported
    crowd = intake.roster.crowd(seen.diagnosis) if seen.diagnosis is not None else None
    every = in_words_of_a_trace(_judged(intake, rules, seen, crowd, with_now=with_now), imported)
    judged = led_by_the_source(not_contradicted(every, imported), imported)
    still = standing(intake.roster, intake.store, intake.wall, seen.table) if with_now else None
    hang = find_standstill(measured_of(still, intake.roster), rules) if still is not None else []
    stalled = stall(still, intake.roster) if still is not None and hang else None
    died = deaths(intake.roster.ranks.values()) if with_now else ()
    if hang or died:  # nothing is well
        judged = hang + _without_final(judged)
    found = _verdict(intake, judged, seen, crowd)
    late = unconfirmed(every, imported)
    found = of_import(
        found,
        imported,
        late,
        is_less=outweighed(found, every, late),
        is_cut=imported is not None and _is_cut(intake, seen),
        missing=seen.missing,
    )
    if imported is not None or ended(intake.roster):
        found = after_the_end(found)
    told = bool(hang or died) or not with_now
    waits = None if told else no_step(intake.roster, intake.store, intake.wall, seen.table)
    found = with_no_step(found, waits, any_steps=intake.store.span() is not None)
    if intake.roster.silent_agents():  # what was found of its ranks may go on
        found = replace(found, may_hide=True)
    if found.decision is None:  # "nothing is worth acting on" is decided nowhere but in a verdict
        judged = _without_final(judged)
    return Concluded(judged, found, hang, stalled, died, waits, is_over(intake.roster))


def why_undecided(found: Verdict, seen: Seen, *, is_whole: bool) -> str:
    """Why steps enough support no verdict; empty where they do, and where more of them would. is_whole: none come."""
    if seen.why_blind:
        return seen.why_blind
    waits = seen.diagnosis is None or not seen.diagnosis.enough or found.num_missing_steps > 0
    is_enough = is_whole or found.is_final or not waits
    return found.because if found.decision is None and is_enough else ""


def is_whole(intake: Intake, seen: Seen) -> bool:
    """Whether what was looked at is all steps that there will ever be, as of an import that was read to its end."""
    imported = intake.roster.header.imported
    return imported is not None and not is_part(imported) and not _is_cut(intake, seen)


def _is_cut(intake: Intake, seen: Seen) -> bool:
    """Whether more steps are held than were looked at, as where a stretch or a moment of a replay was chosen."""
    # By the threads' clocks both: the devices' steps are those that all of them have.
    held, looked_at = intake.store.table(), seen.table
    return held is not None and looked_at is not None and held[0].num_steps > looked_at.num_steps


def _judged(
    intake: Intake, rules: tuple[Rule, ...], seen: Seen, crowd: Crowd | None, *, with_now: bool
) -> list[Judged]:
    """What the rules find; with_now: also in what is known of the present moment alone."""
    if seen.diagnosis is None or crowd is None or not seen.diagnosis.enough:
        return []
    of_trace = intake.roster.header.imported or intake.roster.header.traced
    facts = Facts(
        num_missing=len(seen.missing),
        num_not_compared=max(intake.store.tracks.num - len(seen.diagnosis.table.ranks), 0),
        met_late=intake.roster.clocks.was_met_late(intake.roster.ranks.values()),
        cores_per_rank=intake.roster.cores_per_rank(),
        cores_of_hosts=intake.roster.cores_of_hosts() or {},
        crowd=crowd,
        on_device=intake.on_device,
        filling=intake.roster.memory.filling() if with_now else None,
        device=of_job(seen.devices),
        launched_share=None if intake.roster.header.imported else launched_of_last(seen.devices),
        pipelines=seen.pipelines,
        exchange=seen.exchange.view,
        squares=intake.loaders.squares(intake.store, seen.diagnosis.table.ranks, seen.diagnosis.steady_steps),
        loaders=_loaders(intake, seen.table or seen.diagnosis.table, seen.diagnosis, seen.earliest),
        stack=seen.stack,
        device_work=None if of_trace is None else of_trace.device,
        efficiency=seen.efficiency,
        placements=seen.placements,
        priorities=_priorities(intake, seen.diagnosis),
        rank_devices=seen.rank_devices,
        run_shift=_run_shift(intake, seen.diagnosis) if seen.earliest is None else None,
    )
    judged, _ = find(seen.diagnosis, facts, rules)
    return [entry for entry in judged if not entry.needs_device] if seen.why_blind else judged


def _run_shift(intake: Intake, diagnosis: Diagnosis) -> LevelShift | None:
    """Of the present processes, which may have been given another work than those before; up to the window's end."""
    span, cycle_K = intake.store.span(), diagnosis.steady_barrier.cycle_K
    if span is None or not diagnosis.steady_steps.size:
        return None
    shift, last = (
        intake.store.axis_shift(),
        int(diagnosis.steady_steps[-1]),
    )  # in a replay there may be later steps
    course = intake.course.course(shift, max(span[0] - shift, 0), last)
    return run_shift(course, diagnosis.table.first_step, cycle_K, of_launches=intake.on_device)


def _loaders(
    intake: Intake, host: StepTable, diagnosis: Diagnosis, earliest: int | None
) -> dict[int, LoaderBatches]:
    """host: by the threads' clocks, for it is threads that wait for a loader's batches."""
    ranks, steps = diagnosis.table.ranks, diagnosis.steady_steps
    return intake.loaders.held(intake.store, ranks, steps, data_s_in(host, ranks, steps), earliest)


def _verdict(intake: Intake, judged: list[Judged], seen: Seen, crowd: Crowd | None) -> Verdict:
    diagnosis = seen.diagnosis
    if diagnosis is None or crowd is None:
        return not_yet(MIN_STEADY_STEPS, any_steps=False, why_none=intake.roster.why_no_step())
    if seen.why_blind:
        return unseen_device(seen.why_blind, is_final=bool(seen.untold))
    num_not_compared = len(seen.missing) + intake.store.tracks.num - len(diagnosis.table.ranks)
    num_not_compared += num_without_steps(intake.roster, intake.store) + diagnosis.num_not_compared
    silent = intake.roster.silent_agents() if seen.clock == "device" else intake.roster.lost_agents()
    num_not_compared += sum(fact.source in silent for fact in intake.roster.ranks.values())
    if not num_not_compared and is_one_of_several(intake.roster, diagnosis):
        num_not_compared = 1  # or more: nothing says how many ranks the job has
    found = verdict(
        judged,
        diagnosis,
        diagnosis.job_seconds,
        num_not_compared,
        seen.clock,
        stages=seen.pipelines,
        awake_share=crowd.awake_share,
        untold=seen.untold,
    )
    if crowd.core_wait_share is None and not intake.on_device:
        together = packed(seen.placements, intake.roster.cores_of_hosts() or {})
        found = with_bound_ranks(found, bound_words(together))
    return found if diagnosis.enough else with_priorities(found, _priorities(intake, diagnosis))


def _priorities(intake: Intake, diagnosis: Diagnosis) -> dict[int, Priority]:
    """Of each rank that yields to others' work more than the others do."""
    table = diagnosis.table
    ends_ns = (table.last_end_ns_R + LAST_SAMPLE_NS).tolist()
    lower = lower_priorities(intake.roster.outside.nices(table.ranks, LEAST_CROWD_S, ends_ns))
    return {table.ranks[row]: told for row, told in lower.items()}


def _without_final(judged: list[Judged]) -> list[Judged]:
    return [entry for entry in judged if not entry.rule.final]
