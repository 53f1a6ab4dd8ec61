"""For what a job that stands is given time, and for what not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import MS, STEP_NAMES, Fault, Job, folded, frames, simulate
from test_advisor_oddities import crowd_frames, hangs, status
from test_hang_at_the_end import FREE, IN_BACKWARD, IN_BARRIER, said

from tuiadvisor.advisor.steps import step_store
from tuiadvisor.app.event_log import EventLog
from tuiadvisor.metrics.hang.detection import LONGER_THAN_USUAL, MIN_STILL_S
from tuiadvisor.metrics.hang.used_to import used_to_s
from tuiadvisor.stream.frames import FrameKind
from tuiadvisor.views.event import NO_STEP
from tuiadvisor.views.run_view import RunView

S = 10**9
PAUSE_S = 17.0
BACKWARD: dict[int, object] = dict.fromkeys(range(4), "backward")


def paused(*at: int, pause_s: float = PAUSE_S) -> Job:
    """A healthy job whose rank 1 took so much longer in these steps."""
    faults = tuple(Fault("backward", (1,), pause_s, onset=step, until=step + 1) for step in at)
    return Job(num_steps=300, faults=faults)


def standing(
    job: Job,
    for_s: float,
    answers: dict[int, dict[str, object]] | None = None,
    phases: dict[int, object] = BACKWARD,
) -> RunView:
    """The view after all its steps and so many seconds in which nothing moved; answers: of the flight recorders."""
    end = STEP_NAMES.index("end_ns")
    last_ns = max(int(rows[-1][end]) for rows in simulate(job).rows.values())
    told = status(
        job,
        500,
        last_ns / S + for_s,
        phase=phases,
        phase_since_ns=dict.fromkeys(range(4), last_ns),
        step=dict.fromkeys(range(4), job.num_steps),
    )
    told.payload["recorders"] = [said(rank, last_ns, **one) for rank, one in (answers or {}).items()]
    return folded([*frames(job), told]).view()


@pytest.mark.parametrize("phase", ["comm_exposed", "eval", "checkpoint", "other"])
def test_ranks_that_call_different_collectives_are_told_whatever_the_run_is_used_to(phase: str) -> None:
    """Rank 1 alone entered a barrier: no time of the world lets them go on. It was told after 51 s."""
    answers = dict.fromkeys((0, 2, 3), IN_BACKWARD) | {1: IN_BARRIER}
    job = paused(50, 100, 150, 200)
    view = standing(job, MIN_STILL_S + 2, answers, {**BACKWARD, 1: phase})
    assert view.stall is not None
    assert "rank 1 barrier, ranks 0, 2 and 3 all_reduce" in view.stall.words
    assert standing(job, MIN_STILL_S - 1, answers, {**BACKWARD, 1: phase}).stall is None


def test_a_rank_that_has_not_come_is_given_the_time_that_it_takes_again_and_again() -> None:
    """Rank 1 writes for 17 s every 50 steps, by no hook that we have: the others' recorders tell as much of it."""
    answers = dict.fromkeys((0, 2, 3), IN_BACKWARD) | {1: FREE}
    job, phases = paused(50, 100, 150, 200), {**BACKWARD, 1: "other"}
    assert [] == hangs(standing(job, PAUSE_S, answers, phases))
    (hang,) = hangs(standing(job, LONGER_THAN_USUAL * PAUSE_S + 1, answers, phases))
    assert hang[1:] == ((1,), "other")


@pytest.mark.parametrize(
    ("at", "is_told"), [((), True), ((150,), True), ((100, 200), True), ((50, 150, 250), False)]
)
def test_a_pause_that_does_not_come_back_teaches_no_patience(at: tuple[int, ...], is_told: bool) -> None:
    """It was told as a stall itself; the next hang went unreported for three times its length."""
    assert is_told == bool(hangs(standing(paused(*at), MIN_STILL_S + 3)))
    assert hangs(standing(paused(*at), LONGER_THAN_USUAL * PAUSE_S + 1))


def test_one_pause_that_is_in_two_steps_is_one() -> None:
    """Rank 0 was held up behind its optimizer, so the others in their next step: both took 17 s."""
    steps = np.full(300, 0.05)
    steps[[100, 101, 200, 201]] = PAUSE_S
    assert 0.05 == used_to_s(steps, lambda _: False)
    steps[250] = PAUSE_S
    assert PAUSE_S == used_to_s(steps, lambda _: False)


def test_what_a_run_is_used_to_needs_no_second_step_of_its_kind_while_it_is_young() -> None:
    """Steps of very different lengths, as of rollouts: of a few of them the longest may be usual. Stops never are."""
    steps = np.array([5.0, 40.0, 8.0, 6.0])
    assert 40.0 == used_to_s(steps, lambda _: False)
    assert 8.0 == used_to_s(steps, lambda column: column == 1)
    assert None is used_to_s(np.array([-1.0, 20.0]), lambda _: True)
    assert None is used_to_s(np.array([-1.0]), lambda _: False)


def test_long_steps_that_are_held_no_more_count() -> None:
    """Of a thousand ranks 256 steps are looked at: one checkpoint of the run is among them, or none."""
    steps = np.full(256, 0.05)
    assert 0.05 == used_to_s(steps, lambda _: False, (17.0, 16.0))
    assert 16.0 == used_to_s(steps, lambda _: False, (17.0, 16.5, 16.0, 3.0))
    steps[100] = 17.0
    assert 16.0 == used_to_s(steps, lambda _: False, (16.0, 16.5))


@pytest.mark.parametrize(("at", "is_told"), [((400, 800, 1200), False), ((400, 1200), True)])
def test_pauses_far_apart_are_remembered_beyond_the_steps_that_are_looked_at(
    at: tuple[int, ...], is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 steps are looked at here, as of the ranks of a large job."""
    monkeypatch.setattr(step_store, "MAX_TABLE_CELLS", 1200)
    job = replace(paused(*at), num_steps=1600)
    assert is_told == bool(hangs(standing(job, MIN_STILL_S + 3)))


@pytest.mark.parametrize(
    ("at", "phases", "says"),
    [
        ((50, 150, 250), BACKWARD, "no rank was seen to move since; some steps of this run take 17 s"),
        ((), dict.fromkeys(range(4), "other"), "ranks 0, 1, 2 and 3 are in code without a hook"),
        ((), {**BACKWARD, 0: "checkpoint"}, "rank 0 is writing a checkpoint"),
    ],
)
def test_while_patience_lasts_no_rate_is_shown_as_if_the_job_went_on(
    at: tuple[int, ...], phases: dict[int, object], says: str
) -> None:
    """A rate of 34 steps a second stood there for a minute beside ranks that had been 29 s in one backward."""
    view = standing(paused(*at), 12.0, phases=phases)
    assert ([], 12.0) == (hangs(view), view.without_step_s)
    assert view.no_step is not None
    assert (says, True) == (view.no_step.words, view.no_step.is_at_work)
    assert view.verdict.sentence.startswith(f"No step for 12 s: {says}. Of the steps until then: ")
    assert standing(paused(*at), MIN_STILL_S - 1, phases=phases).without_step_s is None


def test_steps_that_take_long_are_no_pause() -> None:
    """7 s in one backward, where each takes 4 s."""
    job = Job(num_steps=30, forward_s=2.0, backward_s=4.0)
    assert standing(job, 7.0).without_step_s is None
    assert standing(job, LONGER_THAN_USUAL * 6.5).without_step_s is not None


def from_the_start(for_s: float, answers: dict[int, dict[str, object]]) -> RunView:
    """Four ranks that have done nothing since the attach, asked then; no step was seen."""
    job, since_ns = Job(), 30 * S
    told = status(
        job, 500, since_ns / S + for_s, phase=dict.fromkeys(range(4)), thread=dict.fromkeys(range(4))
    )
    told.payload["recorders"] = [said(rank, since_ns, **one) for rank, one in answers.items()]
    hellos = [frame for frame in frames(job) if frame.kind == FrameKind.HELLO]
    return folded([*hellos, told]).view()


def test_a_job_that_hung_before_anybody_came_is_told_by_its_flight_recorders() -> None:
    """For 45 s: "none of its threads is doing anything: it waits, has finished or hangs", and nobody asked."""
    answers = dict.fromkeys((0, 2, 3), IN_BACKWARD) | {1: FREE}
    view = from_the_start(12.0, answers)
    words = "ranks 0, 2 and 3 wait for rank 1, which has not entered all_reduce (collective 9 of group default_pg)"
    sentence = f"No step since the attach 12 s ago: {words}; whether the job hangs is not decided."
    assert (None, sentence, None) == (view.stall, view.verdict.sentence, view.verdict.decision)
    assert 12.0 == view.without_step_s
    log = EventLog()
    log.take(view)
    assert [words] == [event.words for event in log.events if event.kind == NO_STEP]


def test_of_a_job_without_a_step_nothing_is_told_that_its_recorders_do_not_tell() -> None:
    """One of its ranks was not asked, as it works at something; or none of them is in a collective."""
    assert None is from_the_start(12.0, dict.fromkeys((0, 2, 3), IN_BACKWARD)).no_step
    assert None is from_the_start(12.0, dict.fromkeys(range(4), FREE)).no_step


@pytest.mark.parametrize("stood_s", [70, 200])
def test_what_was_found_of_the_steps_stays_as_long_as_the_job_stands(stood_s: int) -> None:
    """A remark became a warning after 84 s without a step: samples of the stall had pushed out those of the steps."""
    job = Job(num_ranks=2, num_steps=400, faults=(Fault("comm", None, 4 * MS),))
    sequence = [*frames(job), *crowd_frames(job, run_queue=13, wait_share=0.19)]
    last_ns = max(int(rows[-1][STEP_NAMES.index("end_ns")]) for rows in simulate(job).rows.values())
    found = []
    quiet = crowd_frames(replace(job, num_steps=50 * stood_s), 1, 0.0, last_ns // S + 1)
    for second in range(1, stood_s):
        told = status(
            job,
            500 + second,
            last_ns / S + second,
            phase=dict.fromkeys(range(2), "backward"),
            phase_since_ns=dict.fromkeys(range(2), last_ns),
            step=dict.fromkeys(range(2), job.num_steps),
        )
        sequence += [told, replace(quiet[second], seq=1500 + second)]
        if second in {int(MIN_STILL_S) + 1, stood_s - 1}:
            found.append(
                {one.id: one.severity for one in folded(sequence).view().findings if one.id != "hang"}
            )
    assert found[0] == found[1]
    assert "info" == found[0]["communication_bound"]
