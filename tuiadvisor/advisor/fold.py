"""Fold frames into a RunView: the one path that live, replay and diagnose share.

In: frames as bytes or decoded.  Out: RunView, a pure function of the frames fed so far: no clock is read, nothing
is random, and asking for a view changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuiadvisor.advisor.assemble.named_lines import with_lines
from tuiadvisor.advisor.assemble.picture import (
    SCHEMA,
    chain,
    ended,
    is_one_of_several,
    level_changes,
    losses,
    named_ranks,
    overlap,
    run_info,
    stragglers,
    unknowns,
    what_if,
    window,
)
from tuiadvisor.advisor.assemble.probe_overhead import probe_work, with_burst_wanted
from tuiadvisor.advisor.assemble.prospects import prospects
from tuiadvisor.advisor.assemble.rank_groups import groupings
from tuiadvisor.advisor.assemble.rank_rows import rank_rows, with_apart, with_devices
from tuiadvisor.advisor.assemble.restarts import restarts
from tuiadvisor.advisor.assemble.seen import Seen, heat_first, marks
from tuiadvisor.advisor.assemble.stack_cards import looks_within, stack_cards
from tuiadvisor.advisor.assemble.step_maps import heat_steps, step_maps
from tuiadvisor.advisor.assemble.step_times import captured, in_detail, step_times
from tuiadvisor.advisor.assemble.wall import wall_goodput
from tuiadvisor.advisor.concluding import conclude, is_whole, why_undecided
from tuiadvisor.advisor.detail.device_times import of_job
from tuiadvisor.advisor.intake import Intake
from tuiadvisor.advisor.judge.action_order import in_measured_order
from tuiadvisor.advisor.judge.findings import catalog, to_verify, with_processes
from tuiadvisor.advisor.judge.goodput import goodput
from tuiadvisor.advisor.judge.hang import with_stall
from tuiadvisor.advisor.judge.pause_facts import pause_views
from tuiadvisor.advisor.looking import look
from tuiadvisor.advisor.steps.trend import of_devices, of_steps, until
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN, OPEN_END
from tuiadvisor.paused_gc import collector_off
from tuiadvisor.views.measured import watched
from tuiadvisor.views.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.advisor.cluster.stack_looks import Look
    from tuiadvisor.advisor.concluding import Concluded
    from tuiadvisor.advisor.judge.findings import Judged
    from tuiadvisor.advisor.judge.goodput import Accounted
    from tuiadvisor.events import GivenWork
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.views.goodput import Goodput
    from tuiadvisor.views.run_view import CollectiveRow, Finding, ProbeWork, RankRow, Trend
    from tuiadvisor.views.stack_card import StackCard
    from tuiadvisor_rules.loader import Rule

NUM_STEPS_AFTER = 64  # ranks whose records come late still complete the last of the steps asked for


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
        seen = look(self, self._given, steps)
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
        self.number_alike()
        seen = seen_alone or look(self, self._given, steps)
        diagnosis = seen.diagnosis
        said = conclude(self, self.rules, seen, with_now=steps is None)
        judgeable = None if seen.why_blind else diagnosis
        is_alone = is_one_of_several(self.roster, judgeable)
        accounted = goodput(judgeable, said.judged, on_device=self.on_device, is_alone=is_alone)
        last_steps = self._last_steps(steps)
        rows = self._rows(seen, said, last_steps, with_now=seen_alone is None)
        probe = probe_work(diagnosis, seen.table, self.roster.ranks.values(), seen.devices)
        over = ended(self.roster)
        begun = restarts(
            self.roster,
            self.store,
            steps[1] if steps else None,
            with_now=steps is None,
            is_over=bool(over),
        )
        cards = self._cards(seen, steps)
        hosts = tuple(self.roster.hosts[host] for host in sorted(self.roster.hosts))
        retries = self.roster.host_use.num_alloc_retries if self.on_device else None
        judged = in_measured_order(said.judged, watched(hosts, retries, seen.step.shares))
        # Of steps that are over nothing is asked of the job as it is now, which may have ended or changed.
        is_over = bool(over) or steps is not None
        findings = self._findings(judged, cards, probe, is_over=is_over)
        verdict = said.verdict(begun[-1] if begun else None)
        return RunView(
            schema=SCHEMA,
            run=run_info(self.roster),
            window=window(
                diagnosis,
                why_undecided(said.found, seen, is_whole=is_whole(self, seen)),
                said.found.num_missing_steps,
                self._not_held(seen, steps),
                self.roster.why_no_step(),
            ),
            step=seen.step,
            overlap=overlap(diagnosis),
            slowdown=diagnosis.slowdown.S if diagnosis is not None and diagnosis.slowdown else None,
            stragglers=stragglers(diagnosis, said.judged),
            ranks=rows,
            groupings=groupings(rows, self.chunks.stages, self.roster.replicas()),
            heat_first_step=heat_first(diagnosis),
            findings=findings,
            verdict=to_verify(verdict, findings, self.roster, is_over=is_over),
            goodput=accounted.value,
            goodput_losses=accounted.losses,
            wall=self._wall(seen, said, accounted) if steps is None else None,
            trend=self._trend(seen, marks(said.judged, diagnosis, begun)),
            hosts=hosts,
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
            alloc_retries=retries,
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

    def _cards(self, seen: Seen, steps: tuple[int | None, int] | None) -> tuple[StackCard, ...]:
        """Of all looks at stacks; of chosen steps those that were taken in them."""
        looks: Sequence[Look] = self.roster.stack_looks.newest_first()
        if steps is not None:
            looks = looks_within(looks, seen.table, from_the_start=steps[0] is None)
        return stack_cards(looks, seen.table)

    def _findings(
        self, judged: list[Judged], cards: tuple[StackCard, ...], probe: ProbeWork | None, *, is_over: bool
    ) -> tuple[Finding, ...]:
        """What was judged, with lines of code, processes, and what a burst of detail would tell of a live run."""
        named = with_lines(judged, cards, self.roster.looks_at_stand())
        found = with_processes(named, self.roster, is_over=is_over)
        return tuple(one if is_over else with_burst_wanted(one, probe) for one in found)

    def _wall(self, seen: Seen, said: Concluded, accounted: Accounted) -> Goodput | None:
        """Of the run as a whole, from the start of its process on."""
        return wall_goodput(
            self.wall,
            self.roster,
            self.store,
            seen,
            accounted,
            stands=bool(said.hang or said.no_step),
            hangs=bool(said.hang),
            stands_s=said.stalled.for_s if said.stalled is not None else None,
            traced=self.device_times if seen.clock == "device" and self.device_times.of_trace else None,
        )

    def _not_held(self, seen: Seen, steps: tuple[int | None, int] | None) -> dict[str, int]:
        """Of the steps that were chosen, how many lie before the first of which there are figures, and why."""
        run_begins = self.trend.first_step
        if steps is None or steps[0] is None or seen.table is None or run_begins is None:
            return {}
        shift, span = self.store.axis_shift(), self.store.span()
        num = seen.table.first_step - max(steps[0], run_begins - shift)
        is_oldest = span is not None and seen.table.first_step <= span[0] - shift
        return {
            "before_restart" if is_oldest and self.store.tracks.num_restarts else "beyond_view": max(num, 0)
        }

    def _rows(
        self, seen: Seen, said: Concluded, last_steps: dict[int, int], *, with_now: bool
    ) -> tuple[RankRow, ...]:
        """A row a rank, with its device and what it stands in."""
        ranks, stages = self.roster.ranks, self.chunks.stages
        rows = rank_rows(
            seen.diagnosis, ranks, last_steps, named_ranks(said.judged), stages, with_now=with_now
        )
        apart = {one.rank: one.of_its_device for one in seen.untold} | self.store.not_compared(min_rows=1)
        rows = with_apart(rows, apart, ranks)
        return with_stall(with_devices(rows, seen.devices), said.stalled)

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
            found = of_devices(seen.diagnosis.table, self.trend, self.store.axis_shift(), noted)
        return found or self.trend.trend(self.store.axis_shift(), noted)

    def _collectives(self, steps: tuple[int | None, int] | None) -> tuple[CollectiveRow, ...]:
        """A single step of a replay shows what had been seen by then; a chosen range of steps says nothing of it."""
        if steps is not None and steps[0] is not None:
            return ()
        launched = self.on_device and self.roster.header.imported is None
        return self.collectives.rows(
            self.roster.world_size(), len(self.roster.hosts_of_ranks()), launched=launched
        )

    def steps_of_job(self, first: int, last: int) -> tuple[StepTable, bool] | None:
        """Job steps first..last, as `StepStore.table`: by the devices' clocks where the ranks compute on devices."""
        found = self.store.table(first, last)
        if found is None or not self.on_device:
            return found
        timed = self.device_times.table(self.store, first, last)
        return timed or (replace(found[0], is_of_launches=True), found[1])


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
    first, wants_more = None, True
    for frame in frames:
        span, num_restarts = advisor.held_steps(), advisor.roster.restarts.num_begun
        # Later steps would push those asked for out of the window that is held in detail.
        with_steps = wants_more and not advisor.is_past(steps[1] + NUM_STEPS_AFTER)
        advisor.feed(frame, with_steps=with_steps)
        if span is None:
            continue
        first = span[0] if first is None else min(first, span[0])
        if advisor.roster.restarts.num_begun > num_restarts and span[0] <= steps[1] <= span[1]:
            wants_more = False  # and so would those of the processes that have just begun
    view = advisor.view_of(steps)
    if view.window.first_step is None and advisor.view().window.first_step is not None:
        last = "" if steps[1] >= OPEN_END else steps[1]
        raise TuiadvisorError(f"--steps {steps[0]}:{last}: {_why_nothing(advisor, steps, first)}")
    return view


def _why_nothing(advisor: Advisor, steps: tuple[int, int], first_seen: int | None) -> str:
    """first_seen: the first job step that was held at any time."""
    first, last = advisor.held_steps() or (0, 0)
    begins = first if first_seen is None else min(first, first_seen)
    if steps[0] > last:
        return f"nothing there; the recording holds steps {begins}:{last}"
    if steps[1] < begins:
        return f"nothing there; the recording begins with step {begins}"
    if steps[1] < first:
        return (
            f"no longer held: since step {first} the ranks are counted anew; "
            "tuiadvisor trim makes a recording of these steps alone"
        )
    return "no steady step in that range (warm-up, pauses, or not all ranks were seen yet)"
