"""Other processes take the ranks: what is said while they have made no step, and what stays known of those before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from tests.unit.synthetic_run import Fault, Job, elastic, folded, hello
from tests.unit.test_advisor_oddities import host_frames
from tuiadvisor.advisor.cluster.run_delay import CoreWait
from tuiadvisor.app.event_log import EventLog
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.tui.contract.feed import FeedState
from tuiadvisor.tui.control.frame import badge

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView

MS = 0.001
JOB = Job(num_ranks=4, num_steps=100, faults=(Fault("backward", (2,), 6 * MS),))
HEAD, FIRST, SECOND = elastic(JOB, "whole lives")
WALL_SHIFT_NS = cast("int", HEAD.payload["wall_ns"]) - cast("int", HEAD.payload["mono_ns"])
LAST_NS = folded([HEAD, FIRST]).store.last_end(0)
SECONDS = 10**9


def greeting(start_ns: int, pid: int, ranks: tuple[int, ...] = (0, 1, 2, 3)) -> Frame:
    """HELLO of processes that started then on the host's clock; of the other ranks what was said before."""
    entries = cast("list[dict[str, object]]", hello(JOB, "node0").payload["ranks"])
    told = [
        {**entry, "start_wall_ns": WALL_SHIFT_NS + start_ns, "pid": pid + place}
        if place in ranks
        else {**entry, "start_wall_ns": WALL_SHIFT_NS, "pid": 100 + place}
        for place, entry in enumerate(entries)
    ]
    return replace(HEAD, payload={**HEAD.payload, "ranks": told})


def status(at_ns: int, states: dict[int, tuple[str, str]]) -> Frame:
    """STATUS at that moment."""
    entries = [{"rank": rank, "state": state, "detail": detail} for rank, (state, detail) in states.items()]
    return Frame(
        FrameKind.STATUS, HEAD.source, 9, at_ns, {"host": "node0", "mono_ns": at_ns, "ranks": entries}
    )


def last_end_ns() -> int:
    """When the first processes' last step ended."""
    assert LAST_NS is not None
    return LAST_NS[1]


ENDED = {
    0: ("killed", "killed by SIGTERM after step 99"),
    1: ("killed", "killed by SIGKILL after step 99"),
    2: ("killed", "killed by SIGTERM after step 99"),
    3: ("killed", "killed by SIGTERM after step 99"),
}
BEFORE = [greeting(0, 100), FIRST]
AGAIN = [
    *BEFORE,
    status(last_end_ns() + SECONDS, ENDED),
    greeting(
        last_end_ns() - SECONDS // 2, 200
    ),  # starts are told to the second: too early by half a one here
    status(last_end_ns() + 12 * SECONDS, dict.fromkeys(range(4), ("live", ""))),
]


def shown(view: RunView) -> str:
    """The badge of the header while it is watched."""
    return badge(FeedState(view, "live", "live", "", None, None, 1))[0].strip()


def test_new_processes_without_a_step_are_said_to_have_made_none() -> None:
    """The figures are of those before, so the badge is not LIVE and the verdict says of whom it is."""
    view = folded(AGAIN).view()
    (restart,) = view.restarts
    assert (restart.after_step, restart.ranks, restart.number) == (99, (0, 1, 2, 3), 1)
    assert restart.how_ended == "rank 1 was killed by SIGKILL after step 99 (3 more ranks ended with it)"
    assert restart.waits_s == pytest.approx(12.5)
    assert shown(view) == "◌ RESTARTED"
    was = folded(BEFORE).view().verdict
    assert view.verdict.decision == was.decision == "tune"
    assert view.verdict.sentence == (
        f"Restarted: {restart.how_ended}; no step yet, 12.5 s after the new start. Of the steps until then: "
        f"{was.sentence}"
    )


def test_a_start_that_comes_to_nothing_is_lost_time() -> None:
    """It was in no part: goodput looked as if the run had ended with its last step."""
    began, now = (folded(frames).view().wall for frames in (BEFORE, AGAIN))
    assert began is not None
    assert now is not None
    parts = {part.kind: part.seconds for part in now.waterfall}
    assert (began.num_restarts, now.num_restarts) == (0, 1)
    assert parts["restart"] == pytest.approx(12.0)
    assert now.span_s == pytest.approx(began.span_s + 12.0)
    assert now.ended_wall_s == pytest.approx((began.ended_wall_s or 0.0) + 12.0)
    assert now.end_to_end is not None
    assert began.end_to_end is not None
    assert now.end_to_end < began.end_to_end


def test_a_step_of_the_new_processes_ends_it() -> None:
    """From then on it is an event and a mark, and nothing more."""
    view = folded([*AGAIN, SECOND]).view()
    (restart,) = view.restarts
    assert (restart.after_step, restart.waits_s) == (99, None)
    assert shown(view) == "● LIVE"
    assert not view.verdict.sentence.startswith("Restarted")
    assert (99, "restart") in view.trend.marks
    log = EventLog()
    log.take(view)
    (event,) = [event for event in log.events if event.kind == "restart"]
    assert (event.step, event.ranks, event.words) == (
        99,
        (0, 1, 2, 3),
        f"{restart.how_ended}; 4 ranks started anew",
    )


def test_steps_that_lie_in_one_batch_with_the_greeting_are_of_those_before() -> None:
    """However frames are cut into batches."""
    one_by_one = folded(AGAIN)
    (restart,) = one_by_one.view().restarts
    together = folded([])
    together._take(AGAIN)
    assert together.view().restarts == (restart,)


@pytest.mark.parametrize("later_s", [0.0, 1.0])
def test_the_same_process_attached_to_again_is_no_restart(later_s: float) -> None:
    """Its start is told to the second: one more or less is the same."""
    view = folded([*BEFORE, greeting(round(later_s * SECONDS), 100), SECOND]).view()
    assert view.restarts == ()


def test_ranks_that_start_seconds_apart_are_one_restart_and_a_later_one_is_another() -> None:
    """The nodes of one rendezvous do not start in the same moment."""
    start_ns = last_end_ns() + SECONDS
    told = [*BEFORE, greeting(start_ns, 200, (0, 1)), greeting(start_ns + 9 * SECONDS, 200, (2, 3))]
    (restart,) = folded(told).view().restarts
    assert restart.ranks == (0, 1, 2, 3)
    again = folded([*told, SECOND, greeting(start_ns + 90 * SECONDS, 300)]).view().restarts
    assert [(one.number, one.after_step, one.ranks) for one in again] == [
        (1, 99, (0, 1, 2, 3)),
        (2, 199, (0, 1, 2, 3)),
    ]  # fmt: skip


def test_an_exit_code_is_told_and_an_end_that_nobody_saw_is_not() -> None:
    ends = {0: ("exited", "exited with code 1 after step 99")}
    (told,) = (
        folded([*BEFORE, status(last_end_ns() + 1, ends), greeting(last_end_ns() + 1, 200)]).view().restarts
    )
    assert told.how_ended == "rank 0 exited with code 1 after step 99"
    (unseen,) = folded([*BEFORE, greeting(last_end_ns() + 2 * SECONDS, 200)]).view().restarts
    assert unseen.how_ended == ""


@pytest.mark.slow
def test_who_was_late_stays_named_while_others_have_the_ranks() -> None:
    """What a new process waits for at its start says nothing of the steps of the one before.

    Its counts begin at 0: what was known of the rank's waiting was forgotten then, and the verdict became undecided.
    """
    job = replace(JOB, num_steps=600)
    first = elastic(job, "whole lives")[:2]
    waits = host_frames(job, dict.fromkeys(range(4), 0.02))
    was = folded([*first, *waits]).view().verdict
    assert was.decision == "tune"
    assert "rank 2 late" in was.sentence
    end_s = len(waits)
    later = [
        Frame(
            FrameKind.HOST,
            HEAD.source,
            1000 + second,
            (end_s + 1 + second) * SECONDS,
            {
                "host": "node0",
                "mono_ns": (end_s + 1 + second) * SECONDS,
                "ranks": [{"rank": rank, "run_delay_s": 0.9 * second, "cpu_s": 1.0} for rank in range(4)],
            },
        )
        for second in range(8)
    ]
    for num in (1, 3, 8):
        found = folded([*first, *waits, *later[:num]]).view().verdict
        assert found.sentence == was.sentence, num


def test_a_count_that_begins_anew_goes_on_from_the_former_process() -> None:
    """0.5 s of waiting a second, then another process with the same share."""
    wait = CoreWait()
    for second in range(12):
        told_s = 0.5 * (second if second < 6 else second - 6)
        wait.take({"mono_ns": second * SECONDS, "ranks": [{"rank": 0, "run_delay_s": told_s}]})
    assert wait.shares([0], 4.0, [5 * SECONDS]) == [pytest.approx(0.5)]
    assert wait.shares([0], 4.0) == [pytest.approx(0.5)]


def test_a_restart_that_comes_to_nothing_does_not_hide_what_ended_the_job() -> None:
    """Rank 1 failed, the launcher started anew, and that ended too: it was told as a run to tune and no more."""
    end = status(last_end_ns() + 20 * SECONDS, dict.fromkeys(range(4), ("exited", "")))
    view = folded([*AGAIN, end]).view()
    (restart,) = view.restarts
    assert view.ended
    assert restart.came_to_nothing
    assert restart.waits_s is None, "nobody waits for a step of it any more"
    was = folded(BEFORE).view().verdict
    assert view.verdict.sentence.startswith(
        "Rank 1 was killed by SIGKILL after step 99 (3 more ranks ended with it); started anew, they ended before "
        "their first step. Of the steps until then: Tune: "
    )
    assert view.verdict.decision == was.decision == "tune"


def test_a_restart_that_went_on_is_over_by_the_end() -> None:
    """Steps of the new processes, and then a regular end: nothing of it stands in the verdict."""
    view = folded(
        [*AGAIN, SECOND, status(last_end_ns() + 60 * SECONDS, dict.fromkeys(range(4), ("exited", "")))]
    ).view()
    assert not view.restarts[-1].came_to_nothing
    assert "started anew" not in view.verdict.sentence
