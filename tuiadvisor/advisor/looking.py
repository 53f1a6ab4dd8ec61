"""What is seen of a window before anything is judged: its steps by the clock that counts, and who bears witness.

In: the stores that frames were folded into, which job steps.  Out: Seen. Nothing is changed by looking.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tuiadvisor.advisor.assemble.job_efficiency import job_efficiency, with_work
from tuiadvisor.advisor.assemble.picture import (
    missing_ranks,
    num_without_steps,
    step_summary,
)
from tuiadvisor.advisor.assemble.seen import Seen
from tuiadvisor.advisor.cluster.crowding import LAST_SAMPLE_NS
from tuiadvisor.advisor.cluster.membership import GONE
from tuiadvisor.advisor.detail.threads_beside import (
    mean_step_s,
    thread_data_s,
    thread_launch_s,
    thread_step_s,
    why_stale,
    why_unlike,
)
from tuiadvisor.advisor.detail.untold_devices import find_untold
from tuiadvisor.advisor.judge.communication import find_exchange
from tuiadvisor.advisor.judge.imports import (
    may_be_apart,
    named_at_the_end,
    why_blind,
)
from tuiadvisor.advisor.judge.meshes import exchange_apart
from tuiadvisor.advisor.judge.pipelines import find_pipelines, has_stages, is_stage_clear, pipeline_view
from tuiadvisor.advisor.judge.uneven_inputs import with_busy_ranks
from tuiadvisor.metrics.diagnosing import diagnose_table, without_device
from tuiadvisor.metrics.lateness.witnesses import Witnesses

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.advisor.detail.untold_devices import Untold
    from tuiadvisor.advisor.intake import Intake
    from tuiadvisor.causes.facts import Pipelines
    from tuiadvisor.events import GivenWork
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.late_phase import Pace
    from tuiadvisor.metrics.lateness.off_core import OffCore
    from tuiadvisor.metrics.steps.arrays import Bools, Ints
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.views.run_view import DeviceView

NOT_TIMED: Final = "no step was seen by the devices' own clocks"


def look(intake: Intake, given: GivenWork, steps: tuple[int | None, int] | None) -> Seen:
    """What the rules read; steps: as of `_view`."""
    missing = missing_ranks(intake.roster, intake.store)
    bounds = (None, None) if steps is None else steps
    found = intake.store.table(*bounds)
    devices = intake.device_times.views(intake.store, *bounds)
    timed, why_blind, untold = _timed(intake, found, bounds)
    table = timed or found
    if table is not None and why_blind:
        table = (replace(table[0], is_of_launches=True), table[1])
    diagnosis = None
    if table is not None and table[0].num_steps:
        diagnosis = _diagnose(
            intake,
            *table,
            any_missing=bool(missing) or num_without_steps(intake.roster, intake.store) > 0,
            host=(found[0], devices) if timed and found else None,
        )
        if why_blind:
            diagnosis = without_device(diagnosis)
        diagnosis = with_busy_ranks(diagnosis, intake.store)
        if timed is None and not why_blind:
            found, diagnosis = _where_they_meet(intake, found, diagnosis, bounds, any_missing=bool(missing))
    diagnosis, pipelines = _with_stages(
        intake, diagnosis, None if steps is None else steps[1], is_timed=timed is not None
    )
    places = _places(intake)
    given = given.over(intake.roster.header.given)
    # A trace begins with nothing queued: its thread runs ahead for all of it, and its devices' steps are all there.
    is_sampled = timed is not None and not intake.device_times.of_trace
    elapsed_s = mean_step_s(found[0], timed[0].first_step) if timed and found and is_sampled else None
    step = step_summary(diagnosis, given, elapsed_s)
    stack, efficiency = job_efficiency(intake.roster, diagnosis, step, given, why_blind)
    num_ranks = None if diagnosis is None else diagnosis.table.num_ranks
    step = with_work(step, stack, efficiency, num_ranks, intake.roster.world_size())
    return Seen(
        missing=missing,
        table=found[0] if found is not None else None,
        diagnosis=diagnosis,
        devices=devices,
        pipelines=pipelines,
        pipeline=pipeline_view(pipelines),
        exchange=find_exchange(intake.buckets, intake.store, intake.roster, diagnosis, stack),
        clock="device" if timed else "host",
        step=step,
        stack=stack,
        efficiency=efficiency,
        placements=intake.roster.placements.of_ranks(places),
        rank_devices=intake.roster.device_counters.of_ranks(places),
        links=intake.roster.device_counters.links(places),
        why_blind=why_blind,
        untold=untold,
        earliest=bounds[0],
    )


def _with_stages(
    intake: Intake, diagnosis: Diagnosis | None, until_step: int | None, *, is_timed: bool
) -> tuple[Diagnosis | None, Pipelines | None]:
    """(with what may be said before there are steps enough, the pipelines of the ranks that hold stages)."""
    pipelines = find_pipelines(
        intake.chunks,
        intake.roster,
        intake.store,
        diagnosis,
        until_step,
        on_device=intake.on_device,
        is_timed=is_timed,
    )
    if diagnosis is None or diagnosis.enough:
        return diagnosis, pipelines
    early = replace(
        diagnosis,
        is_stage_clear=is_stage_clear(pipelines, _off_core(intake, diagnosis)),
        lacks_cores=not intake.on_device and intake.roster.crowd(diagnosis).is_bound_by_cores,
    )
    return early, pipelines


def _where_they_meet(
    intake: Intake,
    found: tuple[StepTable, bool] | None,
    diagnosis: Diagnosis,
    bounds: tuple[int | None, int | None],
    *,
    any_missing: bool,
) -> tuple[tuple[StepTable, bool] | None, Diagnosis]:
    """The same, or of the steps that ranks with uneven inputs share, if one of all ranks is late in these.

    What those with fewer batches wait for at an epoch's end is in the steps of the others alone.
    """
    met = intake.store.met_table(*bounds)
    if met is None or not met[0].num_steps:
        return found, diagnosis
    own = _diagnose(intake, *met, any_missing=any_missing, host=None)
    return (met, own) if own.stragglers else (found, diagnosis)


class _Timed(NamedTuple):
    """The steps by the devices' clocks, if they are to be believed."""

    table: tuple[StepTable, bool] | None
    why_blind: str = ""  # why there are none although the ranks compute on devices
    untold: tuple[Untold, ...] = ()  # ranks that are left out of it, or all there are


def _timed(
    intake: Intake, found: tuple[StepTable, bool] | None, bounds: tuple[int | None, int | None]
) -> _Timed:
    if found is None or why_blind(intake.roster.header.imported):
        return _Timed(None, why_blind(intake.roster.header.imported))
    if not intake.on_device:
        return _Timed(None)
    times = intake.device_times
    # Stages of a pipeline do different work, and some of them may have no exchange.
    waits_alike = not has_stages(intake.roster)
    timed = times.table(intake.store, *bounds, waits_alike=waits_alike)
    untold = _untold(intake, found[0], None if timed is None else timed[0], bounds)
    are_all = bool(untold) and not _any_but(intake, found[0], untold)
    if timed is not None and untold and not are_all:
        left_out = [one.rank for one in untold]
        timed = times.table(intake.store, *bounds, without=left_out, waits_alike=waits_alike)
    if timed is None:
        facts = intake.roster.ranks.values()
        why = next((fact.no_device_times for fact in facts if fact.no_device_times), "")
        return _Timed(None, NOT_TIMED + (f" ({why})" if why else ""), untold if are_all else ())
    why = why_stale(found[0], timed[0], _alive(intake, timed[0])) or why_unlike(found[0], timed[0])
    return _Timed(None, why, untold if are_all else ()) if why else _Timed(timed, "", untold)


def _any_but(intake: Intake, host: StepTable, untold: tuple[Untold, ...]) -> bool:
    """Whether there are other ranks than these; of a job that is over, whether there were."""
    alive_R = _alive(intake, host)
    is_untold_R = np.isin(np.array(host.ranks), [one.rank for one in untold])
    return bool((~is_untold_R & (alive_R | ~alive_R.any())).any())


def _untold(
    intake: Intake, host: StepTable, timed: StepTable | None, bounds: tuple[int | None, int | None]
) -> tuple[Untold, ...]:
    """Ranks whose devices say nothing though their steps come, each with what its probe says of it."""
    if intake.device_times.of_trace:
        return ()
    found = find_untold(intake.store, intake.device_times, (host, timed), bounds)
    facts = intake.roster.ranks
    return tuple(
        replace(one, why=fact.no_device_waits if one.missing == "waits" else fact.no_device_times)
        if (fact := facts.get(one.rank)) is not None
        else one
        for one in found
    )


def _diagnose(
    intake: Intake,
    table: StepTable,
    from_beginning: bool,
    *,
    any_missing: bool,
    host: tuple[StepTable, dict[int, DeviceView]] | None,
) -> Diagnosis:
    """host: where the table is of device times, the threads' own steps, and what is known of each device."""
    return diagnose_table(
        table,
        _alive(intake, table),
        from_beginning=from_beginning,
        all_ranks_seen=not any_missing
        and len(table.ranks) == intake.store.tracks.num
        and not (host is not None and intake.roster.silent_agents()),
        all_ranks_heard=not intake.roster.silent_agents(),
        on_accelerator=intake.on_device,
        # A host's clock sees stages wait for their neighbours, a device's only that it waits.
        is_unordered=(
            host is not None and (has_stages(intake.roster) or exchange_apart(table, intake.roster))
        )
        or may_be_apart(intake.roster.header.imported),
        named=named_at_the_end(intake.roster.header.imported),
        witnesses=_witnesses(intake, table, host),
    )


def _off_core(intake: Intake, diagnosis: Diagnosis) -> Callable[[tuple[int, ...]], list[OffCore]]:
    """What kept these ranks from running over the steps of the window."""
    table = diagnosis.table
    ends_ns = dict(zip(table.ranks, table.last_end_ns_R.tolist(), strict=True))
    last_s = float(diagnosis.steady_barrier.span_K.sum())

    def of(ranks: tuple[int, ...]) -> list[OffCore]:
        return intake.roster.outside.seen(ranks, last_s, [ends_ns[rank] + LAST_SAMPLE_NS for rank in ranks])

    return of


def _paces(intake: Intake, ranks: tuple[int, ...]) -> Callable[[Ints], list[Pace | None]]:
    offsets = intake.store.job_offsets()

    def of(steps: Ints) -> list[Pace | None]:
        return [
            intake.device_times.pace(rank, steps - offsets[rank]) if rank in offsets else None
            for rank in ranks
        ]

    return of


def _witnesses(
    intake: Intake, table: StepTable, host: tuple[StepTable, dict[int, DeviceView]] | None
) -> Witnesses:
    """What the kernel, the devices and the agents' looks at processes say of these ranks."""
    roster = intake.roster
    places = [
        (fact.host, fact.pid, fact.texts.get("device_uuid")) if fact else ("", None, None)
        for fact in (roster.ranks.get(rank) for rank in table.ranks)
    ]
    # What a process did once its newest step had ended, or another one that took its rank, is no cause of a step.
    by_thread = table if host is None else host[0]
    ends_ns = dict(zip(by_thread.ranks, by_thread.last_end_ns_R.tolist(), strict=True))
    if host is not None:
        ends_ns = dict(zip(table.ranks, table.last_end_ns_R.tolist(), strict=True)) | ends_ns
    until_ns = [ends_ns[rank] + LAST_SAMPLE_NS for rank in table.ranks]
    hosts = dict(zip(table.ranks, table.hosts, strict=True))
    _, early_ns = intake.store.early_seconds()
    return Witnesses(
        off_core=lambda last_s: roster.outside.seen(table.ranks, last_s, until_ns),
        device_clocks=lambda last_s: roster.device_clocks.clocks(places, last_s),
        held_back=lambda row, begin, end: roster.device_clocks.throttled(places[row], begin, end),
        # What may have stopped whom took 4 of 110 ms of a view of 512 ranks none of which ever was.
        was_stopped=roster.stops.within(hosts) if roster.stops.has_seen(hosts) else None,
        stopped_at=roster.stops.times(hosts),
        early_s=np.where(early_ns > 0, early_ns * 1e-9, np.nan)[1:],  # the first one may be a part of a step
        paces=None if host is None else _paces(intake, table.ranks),
        thread_data_s=None if host is None else lambda first: thread_data_s(by_thread, table, first),
        thread_step_s=None
        if host is None
        else lambda rows, first: thread_step_s(by_thread, table, rows, first),
        thread_launch_s=None if host is None else lambda first: thread_launch_s(by_thread, table, first),
        loaders_at_limit=lambda first: intake.loaders.at_limit(intake.store, table.ranks, first),
    )


def _places(intake: Intake) -> list[tuple[int, str, str]]:
    """Each rank with its host and the name of its device, where that is known."""
    facts, clocks = intake.roster.ranks, intake.roster.device_clocks
    return [
        (rank, fact.host, clocks.device_of(fact.host, fact.pid, fact.texts.get("device_uuid")))
        for rank, fact in sorted(facts.items())
    ]


def _alive(intake: Intake, table: StepTable) -> Bools:
    """Of each rank, whether its next steps are still to come.

    After a stop of the hub the frames of one host may come long before another's, whose ranks are waited for:
    without them the others would wait for nobody who is seen, in communication, from now on.
    """
    lost = intake.roster.lost_agents()
    alive = []
    for rank in table.ranks:
        fact = intake.roster.ranks.get(rank)
        alive.append(fact is None or (fact.state not in GONE and fact.source not in lost))
    return np.array(alive, dtype=np.bool_)
