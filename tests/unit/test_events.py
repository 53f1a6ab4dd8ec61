"""What has happened in a run: collected from its pictures, listed, filtered, and left by enter for its step."""

from __future__ import annotations

from dataclasses import replace
from time import localtime, strftime
from typing import TYPE_CHECKING

import numpy as np
import pytest
from snapshot import views
from synthetic_run import MS, Fault, Job, encoded, final_view, folded, frames
from test_cli_first_steps import RUN
from test_tui_navigator import Keyboard
from thinned import thinned

from tuiadvisor.advisor.assemble.step_times import captured
from tuiadvisor.app import event_log
from tuiadvisor.app.event_log import EventLog
from tuiadvisor.app.measured_recording import measured
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.app.survey import Survey
from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.cli.__main__ import main
from tuiadvisor.events import STEP_NAMES, StepFlag
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns, unpack_columns
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.text.line import length
from tuiadvisor.text.wording import past_facts
from tuiadvisor.tui.contract.feed import SeekStep
from tuiadvisor.tui.pages.around import around
from tuiadvisor.tui.pages.events import EventsPage
from tuiadvisor.views.event import CHANGE, GONE_S, SETTLE_S, Captured, Event, LevelChange, StepTimes
from tuiadvisor.views.run_view import NEW_PACE, PastFinding, Trend

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.views.run_view import RunView

LATE = Job(num_ranks=4, num_steps=200, faults=(Fault("data", (2,), 0.02, onset=100),))
SAVES = Job(num_ranks=4, num_steps=200, faults=(Fault("checkpoint", None, 0.5, every=50),))


def kinds(log: EventLog) -> list[tuple[str, int | None, tuple[int, ...]]]:
    return [(event.kind, event.step, event.ranks) for event in log.events]


def at(view: RunView, second: float, step: int, **changes: object) -> RunView:
    return replace(view, event_time_s=second, last_step=step, **changes)  # type: ignore[arg-type]


def test_a_late_rank_and_checkpoints_are_noted_once_with_the_time_of_their_step() -> None:
    """However often they are seen; the times are those of the steps, one after another."""
    log = EventLog()
    for job in (LATE, SAVES):
        view = folded(frames(job)).view()
        for second in (20.0, 21.0, 20.0 + SETTLE_S):
            log.take(replace(view, event_time_s=second))
        log.jump()
    onsets = [event for event in log.events if event.kind == "onset" and event.ranks == (2,)]
    assert [100] == [event.step for event in onsets]
    saved = [event for event in log.events if event.kind == "checkpoint"]
    assert [50, 100, 150] == [event.step for event in saved]
    times = [event.wall_s for event in saved]
    assert None not in times
    assert times == sorted({*times})


def test_ranks_that_died_are_an_event_the_likeliest_cause_first() -> None:
    """Of a job that was killed the list had checkpoints and an alert, and no word of its end."""
    view, log = views.healthy(), EventLog()
    log.take(view)
    dead = [
        replace(view.ranks[0], state="killed", state_detail="killed by SIGTERM after step 340"),
        replace(view.ranks[1], state="exited", state_detail="exited with code 1"),
        replace(view.ranks[2], state="killed", state_detail="killed by SIGKILL after step 341"),
    ]
    for rows in (dead[:1], dead):
        log.take(replace(view, ranks=(*rows, *view.ranks[len(rows) :])))
    (died,) = [event for event in log.events if event.kind == "died"]
    assert (died.step, died.ranks) == (view.last_step, (2,))
    assert died.words == "killed by SIGKILL after step 341; 2 more ranks ended with it"
    calm = EventLog()
    calm.take(replace(view, ranks=tuple(replace(row, state="exited", state_detail="") for row in view.ranks)))
    assert "died" not in {event.kind for event in calm.events}


def test_a_finding_is_over_once_it_has_been_gone_for_a_while() -> None:
    """What flickers is no news, and after a jump nothing is said to be over."""
    view = views.straggler()
    log = EventLog()
    for second in (100.0, 100.0 + SETTLE_S):
        log.take(at(view, second, 341))
    log.take(at(view, 103.0, 350, findings=()))
    log.take(at(view, 104.0, 360))
    log.take(at(view, 105.0, 370, findings=()))
    assert "resolved" not in {event.kind for event in log.events}
    log.take(at(view, 104.0 + GONE_S, 460, findings=()))
    (over,) = [event for event in log.events if event.kind == "resolved" and event.ranks == (2,)]
    assert (over.step, over.by_then) == (460, True)

    jumped = EventLog()
    jumped.take(at(view, 100.0, 341))
    jumped.jump()
    jumped.take(at(view, 500.0, 4000, findings=()))
    assert "resolved" not in {event.kind for event in jumped.events}


def test_a_picture_in_which_it_may_stand_unseen_ends_nothing() -> None:
    """A window that holds one step too few, or lateness not explained yet: the finding may stand all the same."""
    view, log = views.straggler(), EventLog()
    for second in (100.0, 100.0 + SETTLE_S):
        log.take(at(view, second, 341))
    open_verdict = replace(view.verdict, decision=None, may_hide=True)
    undecided = at(view, 110.0 + GONE_S, 900, findings=(), verdict=open_verdict)
    log.take(undecided)
    log.end(undecided)
    assert () == log.past(undecided)
    decided = at(view, 120.0 + GONE_S, 1300, findings=())
    log.end(decided)
    assert (2,) in {past.finding.ranks for past in log.past(decided)}


@pytest.mark.parametrize(("is_told", "ended"), [(False, set()), (True, {"heavy_stage"})])
def test_a_stage_is_not_over_while_no_stage_is_told_of(is_told: bool, ended: set[str]) -> None:
    """The chunks of one rank were no longer seen: whether its pipeline still waits for that stage nobody knows."""
    heavy = replace(views.straggler_finding(), id="heavy_stage")
    view, log = replace(views.pipeline(), findings=(heavy,)), EventLog()
    for second in (100.0, 100.0 + SETTLE_S):
        log.take(at(view, second, 341))
    stages = view.pipeline if is_told else views.pipeline_unknown().pipeline
    without = at(view, 110.0 + GONE_S, 900, findings=(), pipeline=stages)
    log.take(without)
    log.end(without)
    assert ended == {past.finding.id for past in log.past(without)}


def test_of_two_findings_of_one_rule_and_the_same_ranks_one_ends() -> None:
    """They had one key: the second was never noted, and while it stood the first was never over."""
    found = views.straggler().findings[0]
    one, two = (
        replace(found, subject=subject, title=subject, ranks=()) for subject in ("evaluation", "periodic")
    )
    log = EventLog()
    for second, findings in (
        (0.0, (one, two)),
        (SETTLE_S, (one, two)),
        (SETTLE_S + GONE_S, (two,)),
    ):
        log.take(at(views.straggler(), second, 341, findings=findings))
    told = {(event.kind, event.words) for event in log.events}
    assert {("onset", "evaluation"), ("onset", "periodic"), ("resolved", "evaluation")} <= told
    assert ("resolved", "periodic") not in told


def test_what_was_over_before_the_end_is_kept_with_its_steps() -> None:
    """Whether it came once or again; what stands now is not over, whoever else has a name for the same ranks."""
    view, log = views.straggler(), EventLog()
    (late,) = [found for found in view.findings if found.ranks == (2,)]
    for begin_s, step in ((100.0, 341), (200.0, 900)):
        for second in (0.0, SETTLE_S):
            log.take(at(view, begin_s + second, step + int(second), findings=(late,)))
        log.take(at(view, begin_s + SETTLE_S + GONE_S, step + 100, findings=()))
    (past,) = log.past(replace(view, findings=()))
    assert (past.finding.id, past.first_step, past.last_step, past.num_times) == (
        late.id,
        late.since_step,
        902,
        2,
    )
    assert not log.past(view)
    assert not log.past(replace(view, findings=(replace(late, id="another"),)))


def test_of_ranks_that_steps_have_dated_looks_at_processes_say_no_more() -> None:
    """They tell of the last quarter of a minute: "held, steps 1,289 to 1,508" of a rank that was well again."""
    view, log = views.straggler(), EventLog()
    (late,) = [found for found in view.findings if found.ranks == (2,)]
    looked = replace(late, id="held_rank", since_step=None)
    for begin_s, found in ((100.0, late), (130.0, looked)):
        for second in (0.0, SETTLE_S):
            log.take(at(view, begin_s + second, 341 + int(begin_s), findings=(found,)))
        for gone_s in (SETTLE_S, GONE_S):
            log.take(at(view, begin_s + SETTLE_S + gone_s, 460 + int(begin_s), findings=()))
    assert [late.id] == [each.finding.id for each in log.past(replace(view, findings=()))]


def test_no_more_findings_that_are_over_are_held_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live run of days; those that ended first go."""
    monkeypatch.setattr(event_log, "MAX_PAST", 2)
    view, log = views.straggler(), EventLog()
    (late,) = [found for found in view.findings if found.ranks == (2,)]
    for number in range(4):
        found, begin_s = replace(late, id=f"rule{number}", ranks=(number,)), 100.0 * (number + 1)
        for second in (0.0, SETTLE_S):
            log.take(at(view, begin_s + second, 341 + number, findings=(found,)))
        log.take(at(view, begin_s + SETTLE_S + GONE_S, 341 + number, findings=()))
    assert {(2,), (3,)} == {each.finding.ranks for each in log.past(replace(view, findings=()))}


def test_what_stood_for_a_moment_is_no_event_and_was_no_finding() -> None:
    """A picture of it alone, between others without it; nor by being there for a moment twice."""
    view, log = views.straggler(), EventLog()
    for second in (100.0, 104.0, 108.0):
        log.take(at(view, second, 341))
        log.take(at(view, second + 1, 341, findings=()))
    log.take(at(view, 110.0 + GONE_S, 400, findings=()))
    assert not {"onset", "resolved"} & {event.kind for event in log.events}
    assert not log.past(replace(view, findings=()))


def test_what_stands_after_a_jump_has_not_begun_there() -> None:
    """At the beginning of a run it was seen to stand by its first step; elsewhere nobody knows since when."""
    view = views.straggler()
    always = (replace(view.findings[0], since_step=None),)
    for jumps, told in ((False, [(341, True)]), (True, [])):
        log = EventLog()
        if jumps:
            log.jump()
        for second in (100.0, 100.0 + SETTLE_S):
            log.take(at(view, second, 341, findings=always))
        onsets = [(event.step, event.by_then) for event in log.events if event.kind == "onset"]
        assert told == onsets


def test_a_run_that_ends_has_resolved_nothing() -> None:
    """Its findings were there to the end."""
    view, log = views.straggler(), EventLog()
    log.take(at(view, 100.0, 341))
    log.take(at(view, 200.0, 342, findings=(), ended="run finished"))
    assert "resolved" not in {event.kind for event in log.events}


def test_a_stall_begins_once_and_is_over_when_steps_come_again() -> None:
    """With whom they wait for."""
    log = EventLog()
    for for_s in (5.0, 20.0, 41.3):
        log.take(at(views.stalled(for_s), 100.0 + for_s, 341, findings=()))
    log.take(at(views.healthy(), 150.0, 342))
    stalls = [event for event in log.events if event.kind == "stalled"]
    assert [(341, (3,))] == [(event.step, event.ranks) for event in stalls]
    assert any(event.kind == "resolved" and "41 s" in event.words for event in log.events)


def test_a_stall_has_one_step_in_header_and_events() -> None:
    """It was of step 573 among the events and of 576, in which the ranks stood, in the header."""
    log, stalled = EventLog(), views.stalled(40.0)
    assert stalled.stall is not None
    times = StepTimes((341,), (1_700_000_000.0,))
    within = replace(stalled, stall=replace(stalled.stall, step=344), step_times=times)
    log.take(at(stalled, 130.0, 341, findings=()))  # not known yet
    log.take(at(within, 140.0, 341, findings=()))
    assert [("stalled", 344)] == [(event.kind, event.step) for event in log.events]
    for size in ((80, 24), (160, 45)):
        (row,) = [
            row.text for row in Keyboard(views.live(within)).place.rows(*size) if "STALLED" in row.text
        ][:1]
        assert "344" in row
    log.take(at(replace(views.healthy(), step_times=times), 150.0, 345))
    told = [(event.kind, event.step, event.wall_s) for event in log.events]
    assert told == [("stalled", 344, 1_700_000_000.0), ("resolved", 344, 1_700_000_040.0)]


def test_a_stall_is_one_event_and_its_end_has_its_own_time() -> None:
    """The finding of the hang is no second event; whoever goes on did not do so when the step before ended."""
    log = EventLog()
    stalled = views.stalled(40.0)
    hang = replace(stalled.findings[0], since_step=342)
    times = StepTimes((341,), (1_700_000_000.0,))
    log.take(at(replace(stalled, step_times=StepTimes((), ())), 140.0, 341, findings=(hang,)))
    log.take(at(replace(views.healthy(), step_times=times), 150.0, 342))
    told = [(event.kind, event.wall_s) for event in log.events]
    assert told == [("stalled", 1_700_000_000.0), ("resolved", 1_700_000_040.0)]


def test_steps_that_the_profiler_saw_are_one_capture() -> None:
    """Of the ranks that it saw."""
    table = folded(frames(LATE)).steps_of_job(0, 199)
    assert table is not None
    assert not captured(table[0])
    table[0].flags_RK[1, 40:43] |= int(StepFlag.CAPTURE)
    table[0].flags_RK[3, 42:44] |= int(StepFlag.CAPTURE)
    (window,) = captured(table[0])
    assert (window.first_step, window.last_step, window.ranks) == (
        table[0].step_of(40),
        table[0].step_of(43),
        (1, 3),
    )
    log = EventLog()
    log.take(replace(views.healthy(), captured=(window,)))
    assert ("capture", window.first_step, (1, 3)) in kinds(log)


def asked_for(job: Job, burst_ns: object, detailed: tuple[int, int]) -> list[Frame]:
    """A job whose ranks 1 and 3 were asked for detail; the probe's own burst is in steps 8 to 11 of all."""
    made = frames(job)
    rows = np.concatenate([table_of(frame) for frame in made if frame.kind == FrameKind.STEPS])
    names = {name: place for place, name in enumerate(STEP_NAMES)}
    flags, step, rank = (rows[:, names[name]] for name in ("flags", "step", "rank"))
    mine = np.isin(rank, (1, 3)) & (step >= detailed[0]) & (step <= detailed[1])
    flags[mine | ((step >= 8) & (step <= 11))] |= int(StepFlag.DETAIL)
    steps = Frame(
        FrameKind.STEPS, made[0].source, 1, made[-1].time_ns, pack_columns(rows.tolist(), STEP_NAMES)
    )
    told = {
        "host": "node0",
        "mono_ns": made[-1].time_ns,
        "ranks": [{"rank": rank, "state": "live", "burst_ns": burst_ns} for rank in (1, 3)],
    }
    return [made[0], steps, Frame(FrameKind.STATUS, made[0].source, 2, made[-1].time_ns, told)]


def table_of(frame: Frame) -> np.ndarray:
    columns = unpack_columns(frame.payload, STEP_NAMES)
    return np.stack([columns[name] for name in STEP_NAMES], axis=1)


def burst_of(job: Job, first: int, last: int) -> list[int]:
    """From the middle of a step of rank 1 to the middle of another, on the host's clock."""
    found = folded(frames(job)).steps_of_job(0, job.num_steps - 1)
    assert found is not None
    table = found[0]
    middle_s = (table.begin_s_RK[1] + table.end_s_RK[1]) / 2
    return [int(middle_s[step] * 1e9) + int(table.origin_ns_R[1]) for step in (first, last)]


def test_detail_that_was_asked_for_is_an_event_of_its_steps_and_ranks(tmp_path: Path) -> None:
    """Live, and read from a recording; the probe's own bursts are none, nor is a wish that nobody followed."""
    made = asked_for(LATE, burst_of(LATE, 120, 150), (121, 150))
    log = EventLog()
    log.take(folded(made).view())
    (event,) = [each for each in log.events if each.kind == "detail"]
    assert (event.step, event.last_step, event.ranks) == (121, 150, (1, 3))
    assert "steps 121–150" in event.words  # noqa: RUF001 - as screens write a range
    assert event.wall_s is not None

    path = tmp_path / "run.tuirec"
    writer = RecordingWriter(path, RUN)
    for frame in made:
        writer.append(encoded(frame))
    writer.close()
    assert [event] == [each for each in Survey(path).whole().events.events if each.kind == "detail"]

    unheard = EventLog()
    unheard.take(folded(asked_for(LATE, burst_of(LATE, 170, 190), (121, 150))).view())
    assert "detail" not in {each.kind for each in unheard.events}


@pytest.mark.parametrize(
    "burst_ns", [[], [1], [1, 2, 3], [2, 1], [None, 5], [True, 5], [-(1 << 80), 1 << 80]]
)
def test_a_wish_for_detail_that_cannot_be_costs_nothing(burst_ns: list[object]) -> None:
    """It comes from a stranger; times of any size may be compared with."""
    view = folded(asked_for(LATE, burst_ns, (121, 150))).view()
    is_endless = burst_ns == [-(1 << 80), 1 << 80]
    assert is_endless == bool(view.in_detail)


def test_what_lasts_is_one_event_while_it_grows_and_while_its_steps_are_dropped() -> None:
    """A capture's first steps are no longer held: what is left of it is no capture of its own."""
    log = EventLog()
    for window in (
        Captured(100, 101, (1,)),
        Captured(100, 104, (1, 3)),
        Captured(102, 104, (1, 3)),
        Captured(104, 104, (3,)),
        Captured(300, 302, (0,)),
    ):
        log.take(replace(views.healthy(), captured=(window,), in_detail=(window,)))
    told = [(event.kind, event.step, event.last_step, event.ranks) for event in log.events]
    assert [each for each in told if each[0] == "capture"] == [
        ("capture", 100, 104, (1, 3)),
        ("capture", 300, 302, (0,)),
    ]
    assert [each[1:] for each in told if each[0] == "detail"] == [
        each[1:] for each in told if each[0] == "capture"
    ]
    beside = EventLog()
    beside.take(replace(views.healthy(), captured=(Captured(103, 106, (2,)),)))
    log.join(beside)
    assert ("capture", 100, (1, 2, 3)) in kinds(log)


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ((Fault("forward", (1,), 2.0, onset=300, until=301),), ("pause", 300, (1,))),
        # Behind a change the window begins anew: what was before it has happened all the same.
        (
            (Fault("forward", (1,), 2.0, onset=300, until=301), Fault("data", (2,), 0.02, onset=330)),
            ("pause", 300, (1,)),
        ),
        ((Fault("data", (2,), 0.03, onset=300, until=360),), ("change", 300, (2,))),
        (
            (Fault("data", (2,), 0.03, onset=300, until=360), Fault("backward", None, 0.02, onset=400)),
            ("change", 300, (2,)),
        ),
    ],
)
def test_what_came_and_went_between_two_pictures_is_an_event(
    faults: tuple[Fault, ...], expected: tuple[str, int, tuple[int, ...]]
) -> None:
    """From the steps of the one picture in which it is over: a stall of 2 s, a rank that was late for a second."""
    log = EventLog()
    log.take(folded(frames(Job(num_ranks=4, num_steps=600, faults=faults))).view())
    assert expected in kinds(log)


def test_a_lateness_that_grows_is_no_change_in_every_picture() -> None:
    """The window is the latest part of it and moves on: nothing has happened where it begins."""
    log = EventLog()
    for num_steps in (200, 240, 280, 400, 600):
        job = Job(num_ranks=4, num_steps=num_steps, faults=(Fault("decay", (1,), num_steps / 20 * MS),))
        view = folded(frames(job)).view()
        assert view.window.first_step is not None
        assert view.window.first_step > 150
        log.take(view)
    assert ("onset", 1, (1,)) in kinds(log)
    assert not [event for event in log.events if event.words.startswith("the pace changed")]


def test_a_steady_run_has_no_change_of_level() -> None:
    """Noise is no event."""
    log = EventLog()
    log.take(folded(frames(Job(num_ranks=4, num_steps=600))).view())
    assert not kinds(log)


def test_who_comes_later_sees_no_second_beginning() -> None:
    """A replay that opens at its end dated a finding at the first step held, beside its true beginning."""
    view = views.straggler()
    early, late = EventLog(), EventLog()
    for log, since in ((early, 1), (late, 36)):
        evidence = {**view.findings[0].evidence, "onset_seen": 0}
        found = replace(view.findings[0], severity="critical", since_step=since, evidence=evidence)
        for second_s in (100.0, 100.0 + SETTLE_S):
            log.take(at(replace(view, findings=(found,)), second_s, 341))
    late.join(early)
    assert [1] == [each.step for each in late.events if each.kind == "onset"]


def test_no_more_than_a_bound_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go."""
    monkeypatch.setattr(event_log, "MAX_EVENTS", 2)
    log = EventLog()
    log.take(folded(frames(SAVES)).view())
    assert 2 == len(log.events)
    assert ("checkpoint", 150, ()) in [kind for kind in kinds(log) if kind[0] == "checkpoint"]


@pytest.mark.slow
def test_a_recording_has_the_events_of_all_of_it(tmp_path: Path) -> None:
    """Also of steps that the fold no longer holds at its end: hours come from the file, not from memory."""
    job = Job(num_ranks=2, num_steps=3000, faults=(Fault("checkpoint", None, 0.5, every=500),))
    path = tmp_path / "long.tuirec"
    writer = RecordingWriter(path, RUN)
    for frame in frames(job):
        writer.append(encoded(frame))
    writer.close()
    whole = Survey(path).whole()
    held = {event.step for event in whole.events.events if event.kind == "checkpoint"}
    assert {500, 1000, 1500, 2000, 2500} <= held
    assert whole.view is not None
    assert 500 not in {step for pause in whole.view.pauses for step in pause.steps}


@pytest.mark.slow
def test_a_fault_that_is_over_at_the_end_is_told_wherever_a_recording_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With rank and steps; the verdict is of the end, and what never was there is not told either."""
    job = Job(num_ranks=3, num_steps=900, faults=(Fault("data", (2,), 0.1, onset=150, until=400),))
    path = tmp_path / "over.tuirec"
    writer = RecordingWriter(path, RUN)
    for frame in frames(job):
        writer.append(encoded(frame))
    writer.close()
    view = whole_view(str(path))
    assert not any(2 in found.ranks for found in view.findings)
    (past,) = view.past
    assert (past.finding.id, past.finding.ranks) == ("straggler", (2,))
    assert past.first_step is not None
    assert past.last_step is not None
    assert abs(past.first_step - 150) < 20
    assert 250 < past.last_step < 700
    assert view == Survey(path).whole().view
    assert view.past == measured(str(path)).view.past
    report = tmp_path / "over.html"
    for command in (["diagnose", str(path)], ["report", str(path), "-o", str(report)], ["advise", str(path)]):
        assert 0 == main(command)
    told, read = capsys.readouterr().out, report.read_text()
    where = past_facts(past)
    assert 1 == told.count("over by now ──")
    assert where in told
    assert f"seen from step {past.first_step} to {past.last_step}" in told
    assert where in read
    assert ("onset", past.first_step, (2,)) in kinds(Survey(path).whole().events)


def test_the_first_screen_says_how_many_are_over_and_the_key_that_lists_them() -> None:
    """Beside those that stand."""
    view = views.straggler()
    past = PastFinding(replace(view.findings[0], ranks=(1,)), 20, 90, 1)
    text = Keyboard(views.live(replace(view, past=(past, past)))).press("1")
    assert f"{len(view.findings)} finding, 2 over by now: E" in text.replace("findings", "finding")


@pytest.fixture
def board() -> Keyboard:
    keyboard = Keyboard(views.with_events())
    keyboard.press("E")
    return keyboard


def test_the_list_has_the_newest_first_and_enter_goes_to_the_step(board: Keyboard) -> None:
    """And leaves the list for the screen it was opened from."""
    rows = [row.text for row in board.place.drawn if row.target]
    for row, kind in zip(rows, ("resolved", "restart", "capture", "resolved", "stalled"), strict=False):
        assert f" {kind} " in row
    board.press("down", "down", "down", "enter")
    assert [SeekStep(300)] == board.shell.asked
    assert "overview" == board.page


def test_a_click_goes_to_the_step_of_its_own_row(board: Keyboard) -> None:
    """Two events of one step are two rows."""
    places = [n for n, row in enumerate(board.place.drawn) if " 290 " in row.text]
    assert 2 == len(places)
    board.place.click(places[0])
    assert [SeekStep(290)] == board.shell.asked


def test_typing_filters(board: Keyboard) -> None:
    """By kind, rank, step or word; escape shows all again."""
    text = board.press("/", *"rank", "space", "2")
    assert "3 of 8 events" in text
    assert "stalled" not in text
    assert "no event has" in board.press("x", "y")
    assert "8 events" in board.press("escape")
    assert "1 of 8" in board.press("/", *"222")


def test_a_change_that_is_dated_anew_is_one_change() -> None:
    """Of one onset E had "since step 348 rank 2 works 16 ms more" and "since step 349 … 15.2 ms longer"."""
    first = LevelChange(348, (2,), "since step 348 rank 2 works 16 ms more a step")
    then = replace(first, step=349, words="since step 349 rank 2 works 15.2 ms more a step")
    other = LevelChange(350, (0,), "since step 350 rank 0 works 1.7 ms less a step")
    again = LevelChange(400, (2,), "since step 400 rank 2 works 15 ms less a step")
    log = EventLog()
    healthy = views.healthy()
    log.take(replace(healthy, changes=(first, other)))
    log.take(replace(healthy, changes=(then, other, again)))
    log.take(replace(healthy, changes=(again,)))  # the others are no longer held
    told = [(event.step, event.ranks) for event in log.events if event.kind == "change"]
    assert told == [(349, (2,)), (350, (0,)), (400, (2,))]


def test_what_rang_is_in_the_list_at_its_step() -> None:
    """With the time at which it rang and the ranks it is about, by which it is found; the step is the stall's."""
    keyboard = Keyboard(views.live(views.healthy()))
    stalled = views.stalled()
    assert stalled.stall is not None
    keyboard.place.take_state(views.live(replace(stalled, stall=replace(stalled.stall, step=344))))
    (told,) = keyboard.shell.alerted
    row = next(each for each in keyboard.press("E").splitlines() if "! alert" in each)
    assert told[:20] in row
    assert " 344 " in row
    assert "rank 3 " in row.partition("!")[0]
    assert "! alert" in keyboard.press("/", *"rank", "space", "3")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 45)])
def test_a_sentence_that_is_cut_in_the_list_stands_whole_below_it(width: int, height: int) -> None:
    """Of the newest event, then of the one that is selected; at 80 columns half of an alert was nowhere to be read."""
    last = "so this is the end of it"
    long = f"train.py: the others wait 14.8 ms a step for rank 2: 16.1 ms late in all of the steps, in backward, {last}"
    told = (Event("onset", 10, (2,), f"{long}, too"), Event("change", 20, (), f"{long} {long}, really"))
    keyboard = Keyboard(replace(views.live(views.straggler()), events=told))
    keyboard.press("E")

    def shown() -> str:
        return " ".join(" ".join(row.text.split()) for row in keyboard.place.rows(width, height))

    assert f"{last}, really" in shown()
    keyboard.press("down", "down")
    assert f"{last}, too" in shown()
    assert "onset · step 10" in shown()


def test_where_no_row_is_cut_nothing_stands_below_the_list() -> None:
    """The rows are the list's then."""
    keyboard = Keyboard(views.live(views.straggler(), events=(Event("checkpoint", 10, (), "4.1 s"),)))
    assert "selected" not in keyboard.press("E")


def test_an_unknown_time_is_said_and_hostile_words_stay_words() -> None:
    """Never 00:00:00; nothing of a recording reaches the terminal as an escape sequence."""
    bad = Event("onset", None, (), "a\x1b[2Jb\nc")
    keyboard = Keyboard(replace(views.live(views.straggler()), events=(bad,)))
    text = keyboard.press("E")
    assert "\x1b" not in text
    assert "unknown" in text
    assert "is not known" in keyboard.press("down", "enter")
    assert not keyboard.shell.asked


def test_what_the_feed_and_the_look_at_the_whole_recording_saw_is_one_event() -> None:
    """Each collects by itself; joined, nothing stands twice."""
    view = views.straggler()
    since = replace(view.findings[0], severity="critical", since_step=222)
    seen = replace(view, findings=(since,))
    first, second = EventLog(), EventLog()
    for log in (first, second):
        for second_s in (100.0, 100.0 + SETTLE_S):
            log.take(at(seen, second_s, 341))
    second.join(first)
    assert 1 == len([each for each in second.events if each.words == since.title])


def seen(log: EventLog, view: RunView, begin_s: float, until_s: float, step: int) -> None:
    """The same picture once a second."""
    for second in range(round(begin_s), round(until_s)):
        log.take(at(view, float(second), step + second))


def test_what_has_another_number_of_ranks_goes_on_and_what_went_to_others_is_over() -> None:
    """The list of what happened and what is over say the same of the rank."""
    view = views.straggler()
    (late,) = [found for found in view.findings if found.ranks == (2,)]
    for ranks, is_over in (((1, 2), False), ((3,), True)):
        log = EventLog()
        seen(log, replace(view, findings=(late,)), 0, 20, 300)
        after = replace(view, findings=(replace(late, ranks=ranks),))
        seen(log, after, 20, 40, 300)
        told = [past.finding.ranks for past in log.past(after)]
        assert told == ([(2,)] if is_over else [])
        assert is_over == (("resolved", (2,)) in {(event.kind, event.ranks) for event in log.events})
        none = replace(view, findings=())
        seen(log, none, 40, 60, 300)
        assert {(2,), ranks} == {past.finding.ranks for past in log.past(none)}
        assert {(2,), ranks} == {event.ranks for event in log.events if event.kind == "resolved"}


def test_a_finding_that_falls_to_a_remark_goes_on() -> None:
    """It is still told."""
    view, log = views.straggler(), EventLog()
    milder = replace(view, findings=tuple(replace(found, severity="info") for found in view.findings))
    seen(log, view, 0, 20, 300)
    seen(log, milder, 20, 40, 300)
    assert "resolved" not in {event.kind for event in log.events}
    assert not log.past(milder)


def test_what_is_missing_for_a_moment_is_not_over() -> None:
    """Neither in the list nor in the number beside it, which a live screen shows."""
    view, log = views.straggler(), EventLog()
    none = replace(view, findings=())
    seen(log, view, 0, 20, 300)
    seen(log, none, 20, 23, 300)
    assert "resolved" not in {event.kind for event in log.events}
    assert not log.past(none)


def test_what_has_another_name_for_a_moment_without_one_is_not_over() -> None:
    """The rank's trouble stands although this picture alone lacks it."""
    view, log = views.straggler(), EventLog()
    (late,) = [found for found in view.findings if found.ranks == (2,)]
    other = replace(view, findings=(replace(late, id="periodic_pause"),))
    seen(log, other, 0, 20, 300)
    seen(log, replace(view, findings=(late,)), 20, 40, 300)
    gone = at(view, 40.0, 340, findings=())
    log.take(gone)
    assert not log.past(gone)


def test_in_a_replay_nothing_is_over_that_comes_later(tmp_path: Path) -> None:
    """Also before the whole recording was looked at: one may go back in it."""
    path = tmp_path / "run.tuirec"
    writer = RecordingWriter(path, RUN)
    for frame in frames(Job(num_steps=40)):
        writer.append(encoded(frame))
    writer.close()
    feed = ReplayFeed(ReplaySource(path))
    try:
        view = views.straggler()
        none = replace(view, findings=())
        seen(feed.events, view, 0, 20, 300)
        seen(feed.events, none, 20, 40, 300)
        assert feed._survey.view is None
        assert (2,) in {past.finding.ranks for past in feed._past(at(none, 40.0, 339))}
        assert not feed._past(at(none, 10.0, 100))
    finally:
        feed.stop()


def test_a_stall_in_the_step_of_a_former_one_is_that_one() -> None:
    """While Ctrl-C ended its ranks one by one, a job that hung was told to move again and to stall anew."""
    log, stalled = EventLog(), views.stalled()
    assert stalled.stall is not None
    stalled = replace(stalled, stall=replace(stalled.stall, step=339))
    log.take(at(stalled, 50.0, 339))
    log.take(at(replace(stalled, stall=None), 51.0, 339))
    assert "resolved" in [event.kind for event in log.events]
    log.take(at(stalled, 52.0, 340, ended="all ranks ended"))
    told = [event.kind for event in log.events if event.kind in {"stalled", "resolved"}]
    assert ["stalled"] == told


def test_while_a_recording_is_read_the_list_says_how_far(tmp_path: Path) -> None:
    """It told that nothing had happened, and how many events there were, of a recording that it was still reading."""
    path = tmp_path / "run.tuirec"
    writer = RecordingWriter(path, RUN)
    for frame in frames(Job(num_steps=40)):
        writer.append(encoded(frame))
    writer.close()
    feed = ReplayFeed(ReplaySource(path))
    try:
        assert feed._replay_state().share_read < 1
        while not feed._survey.advance(1.0):
            pass
        assert 1.0 == feed._replay_state().share_read
    finally:
        feed.stop()
    state = replace(views.replay(), events=())
    assert state.replay is not None
    reading = replace(state, replay=replace(state.replay, share_read=0.5))
    drawn = ["\n".join(row.text for row in EventsPage().lines(each, 100, 24)) for each in (state, reading)]
    assert ["Nothing has happened" in each for each in drawn] == [True, False]
    assert "0 events so far, still reading the recording: 50 %" in drawn[1]
    assert "No event so far; still reading the recording: 50 %." in drawn[1]


def test_who_came_late_is_not_told_that_nothing_has_happened() -> None:
    """A viewer of a daemon's recording saw no beginning of what stands."""
    recorded = views.replay().view
    assert recorded is not None
    late = replace(views.live(recorded), events=())
    healthy = replace(late, view=replace(recorded, findings=()))
    said = [
        " ".join(row.text.strip() for row in EventsPage().lines(each, 100, 24)) for each in (late, healthy)
    ]
    assert "had begun before" in said[0]
    assert "Nothing has happened yet" in said[1]


def test_the_line_of_a_replay_marks_where_a_finding_began(tmp_path: Path) -> None:
    """Of seven hours the mark stood at their end, where the last view's steps begin, hours behind its onset."""
    path = tmp_path / "run.tuirec"
    writer = RecordingWriter(path, RUN)
    for frame in frames(Job(num_steps=3000, faults=(Fault("backward", (1,), 0.02, onset=300),))):
        writer.append(encoded(frame))
    writer.close()
    survey = Survey(path).whole()
    feed = ReplayFeed(ReplaySource(path), survey)
    try:
        (onset,) = {event.step for event in survey.events.events if event.kind == "onset"}
        assert onset is not None
        assert abs(onset - 300) < 20
        assert [onset] == [step for step, _ in feed.steps]
        assert [0.08] == [pytest.approx(position, abs=0.04) for position, _ in feed._replay_state().marks]
    finally:
        feed.stop()


def test_two_troubles_of_the_whole_job_are_two() -> None:
    """All ranks have no other name for what was over before in another phase."""
    view, log = views.straggler(), EventLog()
    everybody = tuple(row.rank for row in view.ranks)
    first = replace(view.findings[0], id="input_bound", ranks=everybody, phase="data_wait")
    second = replace(first, id="communication_bound", phase="comm_exposed")
    seen(log, replace(view, findings=(first,)), 0, 20, 300)
    after = replace(view, findings=(second,))
    seen(log, after, 20, 40, 300)
    assert ["input_bound"] == [past.finding.id for past in log.past(after)]
    again = replace(view, findings=(replace(second, phase="data_wait"),))
    assert not log.past(again)


@pytest.mark.parametrize(("num_more", "is_over"), [(1, False), (100, True)])
def test_the_last_picture_of_a_recording_tells_what_is_over_if_steps_went_on(
    num_more: int, is_over: bool
) -> None:
    """A run that ends resolves nothing; steps without the trouble do."""
    view, log = views.straggler(), EventLog()
    log.take(at(view, 100.0, 300))
    log.take(at(view, 104.0, 341))
    last = at(view, 106.0, 341 + num_more, findings=(), ended="run finished")
    log.end(last)
    assert is_over == bool(log.past(last))
    assert is_over == ("resolved" in {event.kind for event in log.events})


def tall(keyboard: Keyboard) -> list[str]:
    """The screen at 160x45."""
    return [row.text for row in keyboard.place.rows(160, 45)]


def test_what_the_list_leaves_free_shows_the_steps_of_the_event() -> None:
    """The jump that it speaks of, its mark below it; a list that fills the screen has all rows."""
    keyboard = Keyboard(views.with_events())
    keyboard.press("E")
    shown = tall(keyboard)
    chart = next(place for place, row in enumerate(shown) if "step time around it" in row)
    assert set("▁▂▃▄▅▆▇█") & set(shown[chart + 6])
    marks = shown[-2]
    keyboard.press(*["down"] * 7)  # the onset at 222
    moved = tall(keyboard)
    assert "▲ onset · step 222" in moved[-2]
    assert moved[-2] != marks
    assert len(moved) == 45
    assert not any("around it" in row.text for row in keyboard.place.rows(80, 18))


def test_the_chart_around_an_event_moves_nothing_as_steps_come() -> None:
    """Each cell of it that changes goes over the wire: what comes takes the place that is free for it."""
    event = Event("onset", 90, (2,), "late")
    steps = tuple(0.02 if place < 90 else 0.03 for place in range(118))
    trend = Trend(0, 1, steps, (), ())
    before, after = (
        around(replace(trend, step_s=steps[:num]), event, (event,), 158, 12, is_over=False)
        for num in (105, 118)
    )
    for old, new in zip(before[1:-2], after[1:-2], strict=True):
        assert new.text.startswith(old.text.rstrip())
    whole = around(trend, event, (event,), 158, 12, is_over=True)
    assert all(length(row) == 158 for row in whole[1:-2])


def test_the_selected_beginning_has_its_finding_and_what_to_do_first() -> None:
    """Its title alone stood there, above twenty empty rows."""
    found = views.straggler().findings[0]
    event = Event("onset", 222, found.ranks, found.title, 1_700_000_000.0)
    keyboard = Keyboard(replace(views.with_events(), events=(event,)))
    keyboard.press("E")
    shown = "\n".join(tall(keyboard))
    assert found.message[:60] in shown
    assert found.actions[0].text[:60] in shown
    assert "what was found" not in keyboard.draw()


def test_the_self_test_does_not_tell_what_it_asks() -> None:
    """The banner above its first question, "which rank holds the others up?", named it; so did the ribbon."""
    keyboard = Keyboard(views.live(views.healthy()))
    late = views.straggler()
    late = replace(late, findings=tuple(replace(each, severity="critical") for each in late.findings))
    keyboard.place.take_state(views.live(late))
    assert "CRITICAL" in keyboard.press("2")
    asked = keyboard.press("T")
    assert "question 1 of" in asked
    assert "CRITICAL" not in asked
    assert not any(row.text.startswith((" run ", " events ")) for row in keyboard.place.rows(160, 45))
    keyboard.place.take_state(views.live(views.stalled()))
    assert "STALLED" in keyboard.draw()


TWO_HOSTS = Job(
    num_ranks=4, num_steps=900, ranks_per_host=2, faults=(Fault("backward", (2,), 0.02, onset=200),)
)


def with_hub_stopped(how: str, begin_s: float, end_s: float) -> list[Frame]:
    """The frames of two hosts as a hub hands them on that stood between these times.

    how: one host's frames before the other's, either way; or both lost, each host said to be silent until it is heard.
    """
    sent = frames(TWO_HOSTS)
    before = [frame for frame in sent if frame.time_ns <= begin_s * 1e9]
    within = [frame for frame in sent if begin_s * 1e9 < frame.time_ns < end_s * 1e9]
    after = [frame for frame in sent if frame.time_ns >= end_s * 1e9]
    sources = sorted({frame.source for frame in sent})
    if how == "lost":
        told = {"what": "agent silent", "why": "not heard for 3.2 s", "num_frames": 0}
        gaps = [
            Frame(FrameKind.GAP, "hub", 0, before[-1].time_ns, {**told, "source": one}) for one in sources
        ]
        return [*before, *gaps, *after]
    order = sources if how == "first host first" else sources[::-1]
    return [*before, *(frame for source in order for frame in within if frame.source == source), *after]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "begin_s", "end_s"),
    thinned(
        [
            ("first host first", 15.0, 29.0),
            ("second host first", 15.0, 29.0),
            ("first host first", 5.5, 12.0),
            ("first host first", 3.5, 20.0),
            ("lost", 18.0, 30.0),
        ],
        [("first host first", 15.0, 29.0), ("second host first", 15.0, 29.0), ("lost", 18.0, 30.0)],
        is_row=True,
    ),
)
def test_a_hub_that_stood_for_a_while_moves_no_onset(how: str, begin_s: float, end_s: float) -> None:
    """While one host's frames were still to come, the others waited for nobody who was seen: slow communication since
    the step at which the hub stopped, and the late rank was resolved.
    """
    advisor, log, due_s = folded([]), EventLog(), 0.0
    for frame in with_hub_stopped(how, begin_s, end_s):
        advisor.feed_many([encoded(frame)])
        if frame.time_ns * 1e-9 >= due_s:
            due_s = frame.time_ns * 1e-9 + 0.45
            log.take(advisor.view())
    log.take(advisor.view())
    assert [("change", 200, (2,)), ("onset", 200, (2,))] == kinds(log)
    (onset,) = [event for event in log.events if event.kind == "onset"]
    assert not onset.by_then
    assert onset.wall_s == pytest.approx(1_700_000_003.75, abs=0.01)


def test_a_beginning_does_not_creep_as_old_steps_leave_the_window() -> None:
    """Since step 5 or earlier it was, then 591, 739, 1,695 and 1,822 of a rank that was late all the time."""
    view, log = views.straggler(), EventLog()
    unseen = view.findings[0].evidence | {"onset_seen": 0}

    def since(step: int, second: float, findings: bool = True) -> list[tuple[int | None, bool]]:
        found = replace(view.findings[0], since_step=step, evidence=unseen)
        late = replace(view.stragglers[0], since_step=step, onset_seen=False)
        shown = at(view, second, 2000, findings=(found,) if findings else (), stragglers=(late,))
        log.take(shown)
        dated = log.dated(shown)
        return [(each.since_step, each.onset_seen) for each in (*dated.findings, *dated.stragglers)]

    assert since(5, 10.0) == [(5, False)] * 2
    assert since(591, 20.0) == [(5, False)] * 2
    for second in (20.0 + GONE_S, 21.0 + 2 * GONE_S):
        since(700, second, findings=False)
    assert since(739, 30.0 + 2 * GONE_S) == [(5, False)] * 2
    assert since(2600, 40.0 + 2 * GONE_S) == [(5, False)] * 2


def test_the_beginning_of_a_late_rank_stays_beside_a_finding_of_all_ranks() -> None:
    """Beside "exposed communication" of ranks 0 to 3 its row crept with the window: 1,053, 1,100, 1,150."""
    view, log = views.straggler(), EventLog()
    found = replace(view.findings[0], since_step=5, evidence=view.findings[0].evidence | {"onset_seen": 0})
    of_all = replace(found, id="communication_bound", ranks=(0, 1, 2, 3), since_step=None)
    late = replace(view.stragglers[0], since_step=5, onset_seen=False)
    for step, second in ((5, 10.0), (5, 20.0), (1053, 30.0)):
        findings = (replace(found, since_step=step), of_all)
        shown = at(view, second, 2000, findings=findings, stragglers=(replace(late, since_step=step),))
        log.take(shown)
        assert [5] == [each.since_step for each in log.dated(shown).stragglers]


def test_what_was_seen_standing_did_not_begin_later() -> None:
    """A window that begins anew for a while dates it to its own beginning: onset 376 of what stood "since step 1"."""
    view = views.straggler()
    (found, *others) = view.findings
    since = replace(found, since_step=1, evidence=found.evidence | {"onset_seen": 0})
    anew = replace(found, since_step=376, evidence=found.evidence | {"onset_seen": 1})
    log = EventLog()
    for second, step, now in ((20.0, 340, since), (24.0, 360, since), (30.0, 420, anew), (33.0, 500, since)):
        log.take(at(view, second, step, findings=(now, *others)))
    begun = [event for event in log.events if event.kind == "onset" and event.ranks == found.ranks]
    assert [(1, True)] == [(event.step, event.by_then) for event in begun]
    # Better known as more of its steps come: they are from before it was first seen.
    sooner = EventLog()
    better = replace(found, since_step=320, evidence=found.evidence | {"onset_seen": 1})
    for second, step, now in ((20.0, 340, since), (24.0, 360, since), (30.0, 420, better)):
        sooner.take(at(view, second, step, findings=(now, *others)))
    begun = [event for event in sooner.events if event.kind == "onset" and event.ranks == found.ranks]
    assert [(320, False)] == [(event.step, event.by_then) for event in begun]


def test_what_happened_at_one_step_is_listed_in_the_order_of_time() -> None:
    """The alert of a stall stood above the end of that stall, 36 s later."""
    events = (
        Event("stalled", 1483, (1,), "ranks 0 and 2 wait for rank 1", 1_700_000_000.0),
        Event("resolved", 1483, (), "moves again after 42 s", 1_700_000_042.0),
    )
    page, state = EventsPage(), replace(views.replay(), events=events)
    rang = strftime("%H:%M:%S", localtime(1_700_000_006.0))
    page._alerts.append((rang, Event("alert", 1483, (1,), "train.py stalled")))
    text = "\n".join(row.text for row in page.lines(state, 100, 24))
    assert text.index("moves again") < text.index("train.py stalled") < text.index("wait for rank 1")


@pytest.mark.parametrize(("longer_ms", "is_told"), [(1.3, False), (6.0, True)])
def test_a_change_of_level_is_told_only_if_it_is_worth_acting_on(longer_ms: float, is_told: bool) -> None:
    """The first 20 s of the demo told four times that communication is 3 ms shorter or longer, of 40 ms a step."""
    job = Job(num_ranks=4, num_steps=400, faults=(Fault("forward", None, longer_ms * MS, onset=200),))
    view = folded(frames(job)).view()
    assert view.window.change.startswith("since step "), "the figures say since when they are, in either case"
    log = EventLog()
    log.take(view)
    told = [event for event in log.events if event.kind == CHANGE]
    assert is_told == bool(told)
    assert is_told == bool(view.changes)


def test_a_pace_that_changes_for_some_seconds_is_one_change() -> None:
    """Nine entries in six seconds, as the window began anew with each of a few steps; later ones are others."""
    log = EventLog()
    base = folded(frames(Job(num_ranks=2, num_steps=60))).view()
    base = replace(base, changes=(), pauses=(), findings=())
    steps = (1915, 1923, 1930, 1944, 1973, 3000, 3007)
    times = StepTimes(steps, (100.0, 101.0, 102.0, 104.0, 106.0, 300.0, 330.0))
    for step in steps:
        trend = replace(base.trend, marks=((step, NEW_PACE),))
        log.take(replace(base, trend=trend, step_times=times, last_step=step + 40))
    assert [1973, 3000, 3007] == [event.step for event in log.events if event.kind == CHANGE]


def test_a_pace_of_unknown_times_is_one_change_within_few_steps() -> None:
    log = EventLog()
    base = replace(folded(frames(Job(num_ranks=2, num_steps=60))).view(), changes=(), step_times=None)
    for step in (100, 104, 140):
        log.take(replace(base, trend=replace(base.trend, marks=((step, NEW_PACE),))))
    assert [104, 140] == [event.step for event in log.events if event.kind == CHANGE]


def test_a_bookmark_has_the_time_of_its_step() -> None:
    """It is read from a file that has none, before any picture was taken."""
    log = EventLog()
    log.bookmark(50, "note: slow here")
    view = folded(frames(Job(num_ranks=2, num_steps=60))).view()
    log.take(view)
    assert view.step_times is not None
    (marked,) = (event for event in log.events if event.kind == "bookmark")
    assert view.step_times.at(50) == marked.wall_s
    assert marked.wall_s is not None


def test_who_is_killed_in_a_stall_dies_after_it_in_its_step() -> None:
    """The list had: step 2,515 died, step 2,517 stalled. The ranks stood in 2,517 for 106 s before they were ended."""
    log, stalled = EventLog(), views.stalled(40.0)
    assert stalled.stall is not None
    times = StepTimes((341,), (1_700_000_000.0,))
    within = replace(stalled, stall=replace(stalled.stall, step=344), step_times=times)
    log.take(at(within, 140.0, 341, findings=()))
    killed = (replace(stalled.ranks[0], state="killed", state_detail="killed by SIGTERM"), *stalled.ranks[1:])
    for second in (140.0, 150.0):
        log.take(at(replace(within, ranks=killed), second, 341, findings=()))
    told = [(event.kind, event.step, event.wall_s) for event in log.events]
    assert told == [("stalled", 344, 1_700_000_000.0), ("died", 344, 1_700_000_040.0)]
    alone = EventLog()
    gone = replace(within, stall=replace(stalled.stall, step=344, held="gone"), ranks=killed)
    alone.take(at(gone, 140.0, 341, findings=()))
    assert [("died", 341), ("stalled", 344)] == [(event.kind, event.step) for event in alone.events]


def test_a_step_has_one_time_whichever_ranks_were_told_of_it_last() -> None:
    """By the rank with the most steps, all times moved by a checkpoint's 1.5 s while rank 0 wrote one."""
    job = Job(num_steps=200, ranks_per_host=1, faults=(Fault("checkpoint", (0,), 1.5, every=40),))
    advisor = folded([])
    seen: dict[int, set[float | None]] = {step: set() for step in (10, 40, 80, 120)}
    sequence = sorted(
        frames(job), key=lambda frame: (frame.kind != FrameKind.HELLO, frame.seq, -int(frame.source[4]))
    )
    for number, frame in enumerate(sequence):
        advisor.feed_frame(frame)
        held = advisor.view().step_times
        told_by_all = 40 * ((number + 1) // job.num_ranks - 1)
        for step, times in seen.items():
            if held is not None and step < told_by_all:
                times.add(held.at(step))
    assert dict.fromkeys(seen, 1) == {step: len(times) for step, times in seen.items()}
    last = advisor.view().step_times
    assert last is not None
    assert 1.5 < (last.at(80) or 0.0) - (last.at(79) or 0.0) < 1.6
    assert (last.at(81) or 0.0) - (last.at(80) or 0.0) < 0.1


def test_what_was_collected_twice_is_one_event_with_the_time_of_the_last_rank() -> None:
    """In a replay, from the whole file and on the way: it stood there twice, with two times."""
    log, whole = EventLog(), EventLog()
    for each, ended_s in ((log, 100.0), (whole, 101.5)):
        view = final_view(Job(faults=(Fault("checkpoint", (0,), 1.5, every=40),)))
        steps = tuple(step for pause in view.pauses for step in pause.steps)
        each.take(replace(view, step_times=StepTimes(steps, tuple(ended_s + step for step in steps))))
    log.join(whole)
    told = [event for event in log.events if event.kind == "checkpoint"]
    assert len(told) == len({event.step for event in told}) > 1
    assert all(event.wall_s == 101.5 + (event.step or 0) for event in told)
