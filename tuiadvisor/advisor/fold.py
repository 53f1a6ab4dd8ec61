"""Fold frames into a RunView: the one path that live, replay and diagnose share.

In: frames as bytes or decoded.  Out: RunView, a pure function of the frames fed so far: no clock is read, nothing
is random, and asking for a view changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tuiadvisor.advisor.assemble.job_efficiency import job_efficiency, with_work
from tuiadvisor.advisor.assemble.named_lines import with_lines
from tuiadvisor.advisor.assemble.picture import (
    SCHEMA,
    chain,
    ended,
    level_changes,
    losses,
    missing_ranks,
    named_ranks,
    num_without_steps,
    overlap,
    run_info,
    step_summary,
    stragglers,
    unknowns,
    what_if,
    window,
)
from tuiadvisor.advisor.assemble.probe_overhead import probe_work, with_burst_wanted
from tuiadvisor.advisor.assemble.prospects import prospects
from tuiadvisor.advisor.assemble.rank_groups import groupings
from tuiadvisor.advisor.assemble.rank_rows import rank_rows, with_devices
from tuiadvisor.advisor.assemble.restarts import restarts
from tuiadvisor.advisor.assemble.seen import Seen, heat_first, marks
from tuiadvisor.advisor.assemble.stack_cards import stack_cards
from tuiadvisor.advisor.assemble.step_maps import heat_steps, step_maps
from tuiadvisor.advisor.assemble.step_times import captured, in_detail, step_times
from tuiadvisor.advisor.assemble.wall import wall_goodput
from tuiadvisor.advisor.cluster.crowding import LAST_SAMPLE_NS, LEAST_CROWD_S
from tuiadvisor.advisor.cluster.ends import deaths
from tuiadvisor.advisor.cluster.membership import GONE
from tuiadvisor.advisor.detail.device_times import of_job, paces
from tuiadvisor.advisor.detail.threads_beside import (
    data_s_in,
    mean_step_s,
    thread_data_s,
    why_stale,
    why_unlike,
)
from tuiadvisor.advisor.intake import Intake
from tuiadvisor.advisor.judge.communication import find_exchange
from tuiadvisor.advisor.judge.findings import Judged, catalog, find, find_standstill, with_processes
from tuiadvisor.advisor.judge.goodput import goodput
from tuiadvisor.advisor.judge.hang import measured_of, no_step, stall, standing, with_stall
from tuiadvisor.advisor.judge.imports import (
    in_words_of_a_trace,
    is_part,
    led_by_the_source,
    may_be_apart,
    named_at_the_end,
    not_contradicted,
    of_import,
    outweighed,
    unconfirmed,
    why_blind,
)
from tuiadvisor.advisor.judge.pause_facts import pause_views
from tuiadvisor.advisor.judge.pipelines import find_pipelines, has_stages, is_stage_clear, pipeline_view
from tuiadvisor.advisor.judge.uneven_inputs import with_busy_ranks
from tuiadvisor.advisor.judge.verdict import (
    after_the_end,
    not_yet,
    stands_still,
    unseen_device,
    verdict,
    with_deaths,
    with_no_step,
    with_priorities,
    with_restart,
)
from tuiadvisor.advisor.steps.trend import of_devices, of_steps, until
from tuiadvisor.causes.facts import Facts
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN, OPEN_END
from tuiadvisor.metrics.diagnosis import (
    MIN_STEADY_STEPS,
    Diagnosis,
    diagnose_table,
    without_device,
)
from tuiadvisor.metrics.lateness.off_core import lower_priorities
from tuiadvisor.metrics.lateness.witnesses import Witnesses
from tuiadvisor.paused_gc import collector_off
from tuiadvisor.views.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tuiadvisor.events import GivenWork
    from tuiadvisor.metrics.lateness.late_phase import Priority
    from tuiadvisor.metrics.lateness.off_core import OffCore
    from tuiadvisor.metrics.steps.arrays import Bools
    from tuiadvisor.metrics.steps.loader_stage import LoaderBatches
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.views.restart import Restart
    from tuiadvisor.views.run_view import CollectiveRow, DeviceView, RankRow, Trend, Verdict
    from tuiadvisor.views.stall import NoStep, Stall
    from tuiadvisor_rules.loader import Rule

NOT_TIMED = "no step was seen by the devices' own clocks"
NUM_STEPS_AFTER = 64  # ranks whose records come late still complete the last of the steps asked for


class _Concluded(NamedTuple):
    """What is said of one window."""

    judged: list[Judged]
    found: Verdict
    hang: list[Judged]
    stalled: Stall | None
    died: tuple[str, ...]
    no_step: NoStep | None  # where that is no hang; None where there are steps, or one of the above is said

    def verdict(self, waiting: Restart | None) -> Verdict:
        """What is said first: of a job that stands or has lost ranks, that. waiting: the newest restart."""
        first = with_deaths(stands_still(self.hang[0]) if self.hang else self.found, self.died)
        return with_restart(first, waiting)


class Advisor(Intake):
    """Feed frames in the order they were recorded; ask for a view at any time."""

    def __init__(self, rules: tuple[Rule, ...] | None = None, given: GivenWork = NOTHING_GIVEN) -> None:
        """rules: another catalogue than the shipped one. given: wins over what the recording was given."""
        super().__init__()
        self._given = given
        self.rules = catalog() if rules is None else rules
        self._cached: tuple[tuple[int, int], RunView] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Kept at places of a recording: without the picture, which is made anew, and the rules of this process."""
        return {**self.__dict__, "_cached": None, "rules": None if self.rules is catalog() else self.rules}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Rules that are shared are put back: to read them anew took a third of the time of unpickling."""
        self.__dict__.update(state)
        if state["rules"] is None:
            self.rules = catalog()

    def view(self) -> RunView:
        """The picture of the run now."""
        key = (self.num_frames, self.num_bad_frames)
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._view(None))
        return self._cached[1]

    def view_at(self, step: int) -> RunView:
        """The picture as it was when job step `step` had just ended; frames beyond it may have been fed."""
        view = self._view((None, step))
        return replace(view, trend=until(view.trend, step))

    def view_of(self, steps: tuple[int, int]) -> RunView:
        """The picture computed from job steps first..last alone, as far as they are still held."""
        return self._view(steps)

    def view_of_stretch(self, steps: tuple[int, int]) -> RunView:
        """As `view_of` for who looks at a stretch: its trend, too, and nothing of what ranks do at this moment."""
        seen = self._seen(steps)
        view = self._view(steps, seen)
        table = seen.table
        if self.on_device:  # by their clocks, also where these steps are not judged by them
            found = self.steps_of_job(*steps)
            table = None if found is None else found[0]
        return view if table is None else replace(view, trend=of_steps(table, steps, view.trend.marks))

    def trend_of_run(self) -> Trend:
        """The whole run's, without marks."""
        return self.trend.trend(self.store.axis_shift(), ())

    @collector_off()
    def _view(self, steps: tuple[int | None, int] | None, seen_alone: Seen | None = None) -> RunView:
        """seen_alone: of a stretch, whose picture has nothing of what ranks do at this moment."""
        seen = seen_alone or self._seen(steps)
        diagnosis = seen.diagnosis
        said = self._concluded(seen, with_now=steps is None)
        judgeable = None if seen.why_blind else diagnosis
        accounted = goodput(judgeable, said.judged, on_device=self.on_device)
        last_steps = self._last_steps(steps)
        rows = self._rows(seen, said, last_steps, with_now=seen_alone is None)
        probe = probe_work(diagnosis, seen.table, self.roster.ranks.values(), seen.devices)
        over = ended(self.roster)
        begun = restarts(
            self.roster, self.store, steps[1] if steps else None, with_now=steps is None and not over
        )
        cards = stack_cards(self.roster.stack_looks.newest_first()) if steps is None else ()
        return RunView(
            schema=SCHEMA,
            run=run_info(self.roster),
            window=window(diagnosis, _why_undecided(said.found, seen, is_whole=self._is_whole(seen))),
            step=seen.step,
            overlap=overlap(diagnosis),
            slowdown=diagnosis.slowdown.S if diagnosis is not None and diagnosis.slowdown else None,
            stragglers=stragglers(diagnosis, said.judged),
            ranks=rows,
            groupings=groupings(rows, self.chunks.stages, self.roster.replicas()),
            heat_first_step=heat_first(diagnosis),
            findings=tuple(
                one if over else with_burst_wanted(one, probe)
                for one in with_processes(with_lines(said.judged, cards), self.roster, is_over=bool(over))
            ),
            verdict=said.verdict(begun[-1] if begun else None),
            goodput=accounted.value,
            goodput_losses=accounted.losses,
            wall=None
            if steps is not None
            else wall_goodput(
                self.wall,
                self.roster,
                self.store,
                seen,
                accounted,
                stands=bool(said.hang or said.no_step),
                hangs=bool(said.hang),
                traced=self.device_times if seen.clock == "device" and self.device_times.of_trace else None,
            ),
            trend=self._trend(seen, marks(said.judged, diagnosis, begun)),
            hosts=tuple(self.roster.hosts[host] for host in sorted(self.roster.hosts)),
            rank_devices=seen.rank_devices,
            links=seen.links,
            placements=seen.placements,
            unknown=unknowns(diagnosis, self.roster, seen.missing, seen),
            losses=losses(
                self.roster,
                self.store,
                self.num_bad_frames,
                seen.missing,
                seen.table.ranks if seen.table else (),
            ),
            probe_cost=probe.cost if probe else None,
            num_frames=self.num_frames,
            event_time_s=self.roster.event_time_s(),
            last_step=max(last_steps.values(), default=None),
            ended=over,
            what_if=what_if(diagnosis),
            prospects=prospects(said.judged, seen.exchange.view, seen.step.mean_s),
            probe=probe,
            device=of_job(seen.devices),
            pipeline=seen.pipeline,
            pauses=pause_views(diagnosis),
            exchange=seen.exchange.view,
            efficiency=seen.efficiency,
            stack=seen.stack,
            chain=chain(diagnosis),
            collectives=self._collectives(steps),
            clock=seen.clock,
            imported=self.roster.header.imported,
            traced=self.roster.header.traced,
            alloc_retries=self.roster.host_use.num_alloc_retries if self.on_device else None,
            stall=said.stalled,
            no_step=said.no_step,
            step_times=step_times(seen.table, self.roster.clocks.wall_shift_ns),
            captured=captured(seen.table),
            in_detail=in_detail(seen.table, self.roster.bursts.of),
            changes=level_changes(diagnosis),
            restarts=begun,
            heat_steps=heat_steps(diagnosis.table) if diagnosis is not None else (),
            step_maps=step_maps(diagnosis.table, seen.clock, seen.table) if diagnosis is not None else (),
            cards=cards,
        )

    def _rows(
        self, seen: Seen, said: _Concluded, last_steps: dict[int, int], *, with_now: bool
    ) -> tuple[RankRow, ...]:
        """A row a rank, with its device and what it stands in."""
        ranks, stages = self.roster.ranks, self.chunks.stages
        rows = rank_rows(
            seen.diagnosis, ranks, last_steps, named_ranks(said.judged), stages, with_now=with_now
        )
        return with_stall(with_devices(rows, seen.devices), said.stalled)

    def _concluded(self, seen: Seen, *, with_now: bool) -> _Concluded:
        """What is said of the window; with_now: also of this moment, in which the job may hang or ranks have died."""
        imported = self.roster.header.imported
        every = in_words_of_a_trace(self._judged(seen, with_now=with_now), imported)
        judged = led_by_the_source(not_contradicted(every, imported), imported)
        still = standing(self.roster, self.store, seen.table) if with_now else None
        hang = find_standstill(measured_of(still, self.roster), self.rules) if still is not None else []
        stalled = stall(still, self.roster) if still is not None and hang else None
        died = deaths(self.roster.ranks.values()) if with_now else ()
        if hang or died:  # nothing is well
            judged = hang + _without_final(judged)
        found = self._verdict(judged, seen)
        late = unconfirmed(every, imported)
        found = of_import(
            found,
            imported,
            late,
            is_less=outweighed(found, every, late),
            is_cut=imported is not None and self._is_cut(seen),
        )
        if imported is not None or ended(self.roster):
            found = after_the_end(found)
        told = bool(hang or died) or not with_now
        waits = None if told else no_step(self.roster, self.store, seen.table)
        found = with_no_step(found, waits)
        if self.roster.silent_agents():  # what was found of its ranks may go on
            found = replace(found, may_hide=True)
        if found.decision is None:  # "nothing is worth acting on" is decided nowhere but in a verdict
            judged = _without_final(judged)
        return _Concluded(judged, found, hang, stalled, died, waits)

    def _is_whole(self, seen: Seen) -> bool:
        """Whether what was looked at is all steps that there will ever be, as of an import that was read to its end."""
        imported = self.roster.header.imported
        return imported is not None and not is_part(imported) and not self._is_cut(seen)

    def _is_cut(self, seen: Seen) -> bool:
        """Whether more steps are held than were looked at, as where a stretch or a moment of a replay was chosen."""
        held, looked_at = self.store.table(), seen.diagnosis
        return held is not None and looked_at is not None and held[0].num_steps > looked_at.table.num_steps

    def _last_steps(self, steps: tuple[int | None, int] | None) -> dict[int, int]:
        """Of each rank: its newest, and in a replay none behind the moment that is shown."""
        last_steps = self.store.last_job_steps()
        if steps is None or steps[0] is not None:
            return last_steps
        return {rank: min(last, steps[1]) for rank, last in last_steps.items()}

    def _trend(self, seen: Seen, noted: tuple[tuple[int, str], ...]) -> Trend:
        """Of the clock that is judged by."""
        found = None
        if seen.diagnosis is not None and seen.clock == "device":
            found = of_devices(seen.diagnosis.table, self.trend, noted)
        return found or self.trend.trend(self.store.axis_shift(), noted)

    def _collectives(self, steps: tuple[int | None, int] | None) -> tuple[CollectiveRow, ...]:
        """A single step of a replay shows what had been seen by then; a chosen range of steps says nothing of it."""
        if steps is not None and steps[0] is not None:
            return ()
        launched = self.on_device and self.roster.header.imported is None
        return self.collectives.rows(
            self.roster.world_size(), len(self.roster.hosts_of_ranks()), launched=launched
        )

    def _seen(self, steps: tuple[int | None, int] | None) -> Seen:
        """What the rules read; steps: as of `_view`."""
        missing = missing_ranks(self.roster, self.store)
        bounds = (None, None) if steps is None else steps
        found = self.store.table(*bounds)
        devices = self.device_times.views(self.store, *bounds)
        timed, why_blind = self._timed(found, bounds)
        table = timed or found
        if table is not None and why_blind:
            table = (replace(table[0], is_of_launches=True), table[1])
        diagnosis = None
        if table is not None and table[0].num_steps:
            diagnosis = self._diagnose(
                *table,
                any_missing=bool(missing) or num_without_steps(self.roster, self.store) > 0,
                host=(found[0], devices) if timed and found else None,
            )
            if why_blind:
                diagnosis = without_device(diagnosis)
            diagnosis = with_busy_ranks(diagnosis, self.store)
            if timed is None and not why_blind:
                found, diagnosis = self._where_they_meet(found, diagnosis, bounds, any_missing=bool(missing))
        pipelines = find_pipelines(
            self.chunks,
            self.roster,
            self.store,
            diagnosis,
            None if steps is None else steps[1],
            on_device=self.on_device,
            is_timed=timed is not None,
        )
        if diagnosis is not None and not diagnosis.enough:
            diagnosis = replace(
                diagnosis,
                is_stage_clear=is_stage_clear(pipelines, self._off_core(diagnosis)),
                lacks_cores=not self.on_device and self.roster.crowd(diagnosis).is_bound_by_cores,
            )
        places = self._places()
        given = self._given.over(self.roster.header.given)
        # A trace begins with nothing queued: its thread runs ahead for all of it, and its devices' steps are all there.
        is_sampled = timed is not None and not self.device_times.of_trace
        elapsed_s = mean_step_s(found[0], timed[0].first_step) if timed and found and is_sampled else None
        step = step_summary(diagnosis, given, elapsed_s)
        stack, efficiency = job_efficiency(self.roster, diagnosis, step, given, why_blind)
        num_ranks = None if diagnosis is None else diagnosis.table.num_ranks
        step = with_work(step, stack, efficiency, num_ranks)
        return Seen(
            missing=missing,
            table=found[0] if found is not None else None,
            diagnosis=diagnosis,
            devices=devices,
            pipelines=pipelines,
            pipeline=pipeline_view(pipelines),
            exchange=find_exchange(self.buckets, self.store, self.roster, diagnosis, stack),
            clock="device" if timed else "host",
            step=step,
            stack=stack,
            efficiency=efficiency,
            placements=self.roster.placements.of_ranks(places),
            rank_devices=self.roster.device_counters.of_ranks(places),
            links=self.roster.device_counters.links(places),
            why_blind=why_blind,
            earliest=bounds[0],
        )

    def _where_they_meet(
        self,
        found: tuple[StepTable, bool] | None,
        diagnosis: Diagnosis,
        bounds: tuple[int | None, int | None],
        *,
        any_missing: bool,
    ) -> tuple[tuple[StepTable, bool] | None, Diagnosis]:
        """The same, or of the steps that ranks with uneven inputs share, if one of all ranks is late in these.

        What those with fewer batches wait for at an epoch's end is in the steps of the others alone.
        """
        met = self.store.met_table(*bounds)
        if met is None or not met[0].num_steps:
            return found, diagnosis
        own = self._diagnose(*met, any_missing=any_missing, host=None)
        return (met, own) if own.stragglers else (found, diagnosis)

    def steps_of_job(self, first: int, last: int) -> tuple[StepTable, bool] | None:
        """Job steps first..last, as `StepStore.table`: by the devices' clocks where the ranks compute on devices."""
        found = self.store.table(first, last)
        if found is None or not self.on_device:
            return found
        timed = self.device_times.table(self.store, first, last)
        return timed or (replace(found[0], is_of_launches=True), found[1])

    def _timed(
        self, found: tuple[StepTable, bool] | None, bounds: tuple[int | None, int | None]
    ) -> tuple[tuple[StepTable, bool] | None, str]:
        """(the steps by the devices' clocks, why there are none although the ranks compute on devices)."""
        if found is None or why_blind(self.roster.header.imported):
            return None, why_blind(self.roster.header.imported)
        if not self.on_device:
            return None, ""
        timed = self.device_times.table(self.store, *bounds)
        if timed is None:
            facts = self.roster.ranks.values()
            why = next((fact.no_device_times for fact in facts if fact.no_device_times), "")
            return None, NOT_TIMED + (f" ({why})" if why else "")
        why = why_stale(found[0], timed[0], self._alive(timed[0])) or why_unlike(found[0], timed[0])
        return (None, why) if why else (timed, "")

    def _judged(self, seen: Seen, *, with_now: bool) -> list[Judged]:
        """What the rules find; with_now: also in what is known of the present moment alone."""
        if seen.diagnosis is None or not seen.diagnosis.enough:
            return []
        of_trace = self.roster.header.imported or self.roster.header.traced
        facts = Facts(
            num_missing=len(seen.missing),
            met_late=self.roster.clocks.was_met_late(self.roster.ranks.values()),
            cores_per_rank=self.roster.cores_per_rank(),
            crowd=self.roster.crowd(seen.diagnosis),
            on_device=self.on_device,
            filling=self.roster.memory.filling() if with_now else None,
            device=of_job(seen.devices),
            pipelines=seen.pipelines,
            exchange=seen.exchange.view,
            squares=self.loaders.squares(self.store, seen.diagnosis.table.ranks, seen.diagnosis.steady_steps),
            loaders=self._loaders(seen.table or seen.diagnosis.table, seen.diagnosis, seen.earliest),
            stack=seen.stack,
            device_work=None if of_trace is None else of_trace.device,
            efficiency=seen.efficiency,
            placements=seen.placements,
            priorities=self._priorities(seen.diagnosis),
            rank_devices=seen.rank_devices,
        )
        judged, _ = find(seen.diagnosis, facts, self.rules)
        return [entry for entry in judged if not entry.needs_device] if seen.why_blind else judged

    def _loaders(
        self, host: StepTable, diagnosis: Diagnosis, earliest: int | None
    ) -> dict[int, LoaderBatches]:
        """host: by the threads' clocks, for it is threads that wait for a loader's batches."""
        ranks, steps = diagnosis.table.ranks, diagnosis.steady_steps
        return self.loaders.held(self.store, ranks, steps, data_s_in(host, ranks, steps), earliest)

    def _verdict(self, judged: list[Judged], seen: Seen) -> Verdict:
        diagnosis = seen.diagnosis
        if diagnosis is None:
            return not_yet(MIN_STEADY_STEPS, any_steps=False, why_none=self.roster.why_no_step())
        if seen.why_blind:
            return unseen_device(seen.why_blind)
        num_not_compared = len(seen.missing) + self.store.tracks.num - len(diagnosis.table.ranks)
        num_not_compared += num_without_steps(self.roster, self.store) + diagnosis.num_not_compared
        silent = self.roster.silent_agents() if seen.clock == "device" else self.roster.lost_agents()
        num_not_compared += sum(fact.source in silent for fact in self.roster.ranks.values())
        found = verdict(
            judged,
            diagnosis,
            diagnosis.job_seconds,
            num_not_compared,
            seen.clock,
            stages=seen.pipelines,
            awake_share=self.roster.crowd(diagnosis).awake_share,
        )
        return found if diagnosis.enough else with_priorities(found, self._priorities(diagnosis))

    def _diagnose(
        self,
        table: StepTable,
        from_beginning: bool,
        *,
        any_missing: bool,
        host: tuple[StepTable, dict[int, DeviceView]] | None,
    ) -> Diagnosis:
        """host: where the table is of device times, the threads' own steps, and what is known of each device."""
        return diagnose_table(
            table,
            self._alive(table),
            from_beginning=from_beginning,
            all_ranks_seen=not any_missing
            and len(table.ranks) == self.store.tracks.num
            and not self.roster.silent_agents(),
            on_accelerator=self.on_device,
            # A host's clock sees stages wait for their neighbours, a device's only that it waits.
            is_unordered=(host is not None and has_stages(self.roster))
            or may_be_apart(self.roster.header.imported),
            named=named_at_the_end(self.roster.header.imported),
            witnesses=self._witnesses(table, host),
        )

    def _off_core(self, diagnosis: Diagnosis) -> Callable[[tuple[int, ...]], list[OffCore]]:
        """What kept these ranks from running over the steps of the window."""
        table = diagnosis.table
        ends_ns = dict(zip(table.ranks, table.last_end_ns_R.tolist(), strict=True))
        last_s = float(diagnosis.steady_barrier.span_K.sum())

        def of(ranks: tuple[int, ...]) -> list[OffCore]:
            return self.roster.outside.seen(ranks, last_s, [ends_ns[rank] + LAST_SAMPLE_NS for rank in ranks])

        return of

    def _priorities(self, diagnosis: Diagnosis) -> dict[int, Priority]:
        """Of each rank that yields to others' work more than the others do."""
        table = diagnosis.table
        ends_ns = (table.last_end_ns_R + LAST_SAMPLE_NS).tolist()
        lower = lower_priorities(self.roster.outside.seen(table.ranks, LEAST_CROWD_S, ends_ns))
        return {table.ranks[row]: told for row, told in lower.items()}

    def _witnesses(self, table: StepTable, host: tuple[StepTable, dict[int, DeviceView]] | None) -> Witnesses:
        """What the kernel, the devices and the agents' looks at processes say of these ranks."""
        roster = self.roster
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
        _, early_ns = self.store.early_seconds()
        return Witnesses(
            off_core=lambda last_s: roster.outside.seen(table.ranks, last_s, until_ns),
            device_clocks=lambda last_s: roster.device_clocks.clocks(places, last_s),
            # What may have stopped whom took 4 of 110 ms of a view of 512 ranks none of which ever was.
            was_stopped=roster.stops.within(hosts) if roster.stops.has_seen(hosts) else None,
            stopped_at=roster.stops.times(hosts),
            early_s=np.where(early_ns > 0, early_ns * 1e-9, np.nan)[
                1:
            ],  # the first one may be a part of a step
            paces=None if host is None else paces(host[1], table.ranks),
            thread_data_s=None if host is None else lambda first: thread_data_s(by_thread, table, first),
            loaders_at_limit=lambda first: self.loaders.at_limit(self.store, table.ranks, first),
        )

    def _places(self) -> list[tuple[int, str, str]]:
        """Each rank with its host and the name of its device, where that is known."""
        facts, clocks = self.roster.ranks, self.roster.device_clocks
        return [
            (rank, fact.host, clocks.device_of(fact.host, fact.pid, fact.texts.get("device_uuid")))
            for rank, fact in sorted(facts.items())
        ]

    def _alive(self, table: StepTable) -> Bools:
        """Of each rank, whether its next steps are still to come.

        After a stop of the hub the frames of one host may come long before another's, whose ranks are waited for:
        without them the others would wait for nobody who is seen, in communication, from now on.
        """
        lost = self.roster.lost_agents()
        alive = []
        for rank in table.ranks:
            fact = self.roster.ranks.get(rank)
            alive.append(fact is None or (fact.state not in GONE and fact.source not in lost))
        return np.array(alive, dtype=np.bool_)


def _without_final(judged: list[Judged]) -> list[Judged]:
    return [entry for entry in judged if not entry.rule.final]


def _why_undecided(found: Verdict, seen: Seen, *, is_whole: bool) -> str:
    """Why steps enough support no verdict; empty where they do, and where more of them would. is_whole: none come."""
    if seen.why_blind:
        return seen.why_blind
    is_enough = is_whole or found.is_final or (seen.diagnosis is not None and seen.diagnosis.enough)
    return found.because if found.decision is None and is_enough else ""


def diagnose(
    frames: Iterable[bytes], steps: tuple[int, int] | None = None, given: GivenWork = NOTHING_GIVEN
) -> RunView:
    """The view at the end of a recording; steps: only these job steps, both included. given: work of a step.

    TuiadvisorError when the steps are not in the recording.
    """
    advisor = Advisor(given=given)
    if steps is None:
        advisor.feed_many(frames)
        return advisor.view()
    for frame in frames:
        # Later steps would push those asked for out of the window that is held in detail.
        advisor.feed(frame, with_steps=not advisor.is_past(steps[1] + NUM_STEPS_AFTER))
    view = advisor.view_of(steps)
    if view.window.first_step is None and advisor.view().window.first_step is not None:
        last = "" if steps[1] >= OPEN_END else steps[1]
        raise TuiadvisorError(f"--steps {steps[0]}:{last}: {_why_nothing(advisor, steps)}")
    return view


def _why_nothing(advisor: Advisor, steps: tuple[int, int]) -> str:
    span, shift = advisor.store.span(), advisor.store.axis_shift()
    first, last = (0, 0) if span is None else (max(span[0] - shift, 0), span[1] - shift)
    if steps[0] > last or steps[1] < first:
        return f"nothing there; the recording holds steps {first}:{last}"
    return "no steady step in that range (warm-up, pauses, or not all ranks were seen yet)"
