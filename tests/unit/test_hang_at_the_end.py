"""Ranks on their way out: who is waited for behind the loop works until that took too long, and is named then."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from synthetic_run import Job, folded, frames
from test_advisor_oddities import HELD_BY_1, hangs, status
from test_stall_dumps import call

from tuiadvisor.advisor.cluster.leaving import END_GRACE_S
from tuiadvisor.agent.flight_recorder import cut
from tuiadvisor.app.event_log import EventLog
from tuiadvisor.events import EXITING
from tuiadvisor.metrics.hang.asked_recorder import asked
from tuiadvisor.metrics.hang.detection import ASKED_BY_S, OUTSIDE_PATIENCE_S
from tuiadvisor.views.event import NO_STEP, STALLED
from tuiadvisor.views.run_view import RunView

S = 10**9
WALL_NS = 900 * S
WORLD = {"name": "0", "purpose": "default_pg", "backend": "gloo", "seq": 9, "spans": [[0, 1, 4]]}
ENDING = "rank 1 is ending (KeyboardInterrupt or SystemExit) and has not finished"
AT_BARRIER: dict[int, object] = {0: "comm_exposed", 1: "other", 2: "comm_exposed", 3: "comm_exposed"}
BARRIER = "gloo:barrier"
FREE: dict[str, Any] = {"call": "", "ends": 0, "calls": (call(8),)}  # in code without a hook
IN_BACKWARD = {**FREE, "call": "backward", "calls": (call(8), call(9, done=False))}
IN_BARRIER = {**FREE, "call": "wait", "calls": (call(8), call(9, done=False, profiling_name=BARRIER))}
MONITORED = {**FREE, "call": "monitored_barrier"}


def said(rank: int, since_ns: int, *, ends: int, calls: tuple[dict[str, Any], ...], **more: Any) -> Any:
    """An entry of a STATUS, as an agent sends it."""
    recorder = {"name": "fr", **cut(json.dumps({"entries": list(calls)}).encode())}
    at = {"pid": 100 + rank, "still_since_ns": since_ns, "asked_ns": since_ns + 5 * S, "wall_ns": WALL_NS}
    told = {"rank": rank, "why": "", "groups": [WORLD], "recorders": [recorder], "ends": ends}
    return {**told, **at, **more}


def after(
    seconds: float,
    phases: dict[int, object],
    answers: dict[int, dict[str, Any]],
    **of_rank: dict[int, object],
) -> RunView:
    """The view of four ranks that stand for so long, asked 5 s after the last one moved."""
    job = Job()
    since_ns = round((1.0 + 0.02 * job.num_steps) * S)
    at: dict[str, dict[int, object]] = {
        "phase": phases,
        "phase_since_ns": dict.fromkeys(range(4), since_ns),
        "step": dict.fromkeys(range(4), job.num_steps),
        **of_rank,
    }
    told = status(job, 90, since_ns / S + seconds, **at)
    told.payload["recorders"] = [said(rank, since_ns, **answer) for rank, answer in answers.items()]
    return folded([*frames(job), told]).view()


def test_who_ends_for_longer_than_any_end_takes_is_what_the_others_wait_for() -> None:
    """The others in their all-reduce, rank 1 in its `finally`: "has not finished" was said for ever, and no hang."""
    answers = {rank: {**IN_BACKWARD} for rank in (0, 2, 3)} | {1: {**FREE, "ends": 1}}
    view = after(END_GRACE_S - 1, HELD_BY_1, answers)
    assert (None, []) == (view.stall, hangs(view))
    assert view.no_step is not None
    assert (ENDING, True) == (view.no_step.words, view.no_step.is_at_work)
    for seconds in (END_GRACE_S + 1, 3600.0):
        view = after(seconds, HELD_BY_1, answers)
        assert [("critical", (1,), "other")] == hangs(view)
        words = (
            "ranks 0, 2 and 3 wait for rank 1, which is ending (KeyboardInterrupt or SystemExit) and has not"
        )
        assert view.stall is not None
        assert view.stall.words.startswith(words)
        assert f": {words} finished, at step 200; " in view.verdict.sentence


def test_who_waits_in_a_barrier_of_its_finally_does_not_end() -> None:
    """Rank 1 alone called sys.exit: its barrier waits for the others, and their all-reduce for it."""
    answers = dict.fromkeys((0, 2, 3), IN_BACKWARD) | {1: {**IN_BARRIER, "ends": 1}}
    view = after(ASKED_BY_S, {**HELD_BY_1, 1: "comm_exposed"}, answers)
    assert [("warning", (1,), "comm_exposed")] == hangs(view)
    how = "which is ending (KeyboardInterrupt or SystemExit) and stands in barrier"
    assert f"ranks 0, 2 and 3 wait for rank 1, {how}, at step 200; " in view.verdict.sentence
    assert "rank 1 barrier" in view.verdict.sentence


def test_a_loop_that_goes_on_in_a_handler_of_an_interruption_can_hang() -> None:
    """`except KeyboardInterrupt:` around it: all ranks say for ever that they end, and rank 1 waits for its loader."""
    answers = {rank: {**IN_BACKWARD, "ends": 1} for rank in (0, 2, 3)} | {1: {**FREE, "ends": 1}}
    view = after(END_GRACE_S + 1, {**HELD_BY_1, 1: "data_wait"}, answers)
    assert [("critical", (1,), "data_wait")] == hangs(view)


def test_nobody_is_named_who_is_in_the_collective_that_all_are_in() -> None:
    """In such a handler, with a network that is gone: rank 1 has come as all others have."""
    answers = dict.fromkeys((0, 2, 3), IN_BACKWARD) | {1: {**IN_BACKWARD, "ends": 1}}
    view = after(40.0, dict.fromkeys(range(4), "backward"), answers)
    assert [("critical", (), "backward")] == hangs(view)


def test_a_process_that_exits_for_ever_is_named() -> None:
    """An exit hook or a thread that is no daemon: "which rank is missing was not observed"."""
    job = Job()
    since_ns = round((1.0 + 0.02 * job.num_steps) * S)
    told, seen = list(frames(job)), []
    for seq, seconds in enumerate((2.0, 20.0, 40.0), start=90):
        stands = status(
            job,
            seq,
            since_ns / S + seconds,
            phase=dict.fromkeys((0, 2, 3), "backward"),
            phase_since_ns=dict.fromkeys(range(4), since_ns),
            step=dict.fromkeys(range(4), job.num_steps),
            state={1: "detached"},
            detail={1: EXITING},
        )
        told.append(stands)
        view = folded(told).view()
        seen.append(hangs(view))
    assert [[], [], [("critical", (1,), None)]] == seen
    words = "ranks 0, 2 and 3 wait for rank 1, which is exiting and has not ended"
    assert view.verdict.sentence == f"Stalled: no step for 40 s: {words}, at step 200."


@pytest.mark.parametrize("at", [IN_BARRIER, MONITORED])
def test_who_uploads_behind_the_loop_while_the_others_wait_in_a_barrier_does_not_hang(
    at: dict[str, Any],
) -> None:
    """All left it by a common flag, as handlers of preemption do; rank 1 uploads for 25 s, and all end with code 0."""
    log, answers = EventLog(), dict.fromkeys((0, 2, 3), at) | {1: FREE}
    for seconds in (ASKED_BY_S + 1, OUTSIDE_PATIENCE_S - 1):
        view = after(seconds, AT_BARRIER, answers)
        log.take(view)
        assert (None, []) == (view.stall, hangs(view))
        words = "ranks 0, 2 and 3 wait at a barrier for rank 1, which is in code without a hook"
        assert view.no_step is not None
        assert (words, False) == (view.no_step.words, view.no_step.is_at_work)
        assert view.verdict.sentence.startswith(
            f"No step for {seconds:.0f} s: {words}; whether the job hangs"
        )
    assert [NO_STEP] == [event.kind for event in log.events if event.kind in {NO_STEP, STALLED}]
    assert [("critical", (1,), "other")] == hangs(after(OUTSIDE_PATIENCE_S + 1, AT_BARRIER, answers))


@pytest.mark.parametrize(
    ("phases", "answers", "of_rank"),
    [
        (HELD_BY_1, dict.fromkeys((0, 2, 3), IN_BACKWARD) | {1: FREE}, {}),  # the step's own collective
        (AT_BARRIER, dict.fromkeys((0, 2, 3), IN_BACKWARD) | {1: FREE}, {}),
        (AT_BARRIER, {0: IN_BACKWARD, 2: IN_BARRIER, 3: IN_BARRIER, 1: FREE}, {}),
        (AT_BARRIER, dict.fromkeys((0, 2), IN_BARRIER) | {1: FREE}, {}),  # rank 3 was not heard
        ({**AT_BARRIER, 1: "data_wait"}, dict.fromkeys((0, 2, 3), IN_BARRIER) | {1: FREE}, {}),
        (
            AT_BARRIER,
            dict.fromkeys((0, 2, 3), IN_BARRIER) | {1: FREE},
            {"thread": {0: "waiting", 1: "stopped", 2: "waiting", 3: "waiting"}},
        ),
    ],
)
def test_any_other_hang_is_said_as_early_as_before(
    phases: dict[int, object], answers: dict[int, dict[str, Any]], of_rank: dict[str, dict[int, object]]
) -> None:
    """Only a barrier of all the others, and who is free behind the loop."""
    view = after(ASKED_BY_S + 1, phases, answers, **of_rank)
    assert [(1,)] == [ranks for _, ranks, _ in hangs(view)]


def test_who_waits_for_somebody_itself_does_not_upload() -> None:
    """Rank 1 asks a store for what nobody sets."""
    answers = dict.fromkeys((0, 2, 3), IN_BARRIER) | {1: {**FREE, "call": "store.get"}}
    assert hangs(after(ASKED_BY_S + 1, AT_BARRIER, answers))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (IN_BARRIER, "barrier"),
        (IN_BACKWARD, "all_reduce"),
        (MONITORED, "monitored_barrier"),
        (FREE, ""),
        (
            {**IN_BARRIER, "call": ""},
            "",
        ),  # called earlier: it is on the device, or another thread waits for it
        ({**FREE, "call": "destroy_process_group"}, ""),
    ],
)
def test_what_a_thread_stands_in(more: dict[str, Any], expected: str) -> None:
    """By the call that it was met in, and what its recorder has under way."""
    found = asked(said(1, 5 * S, **more), 1)
    assert expected == found.stands_in
    assert "" == replace(found, dump=None, call="").stands_in
