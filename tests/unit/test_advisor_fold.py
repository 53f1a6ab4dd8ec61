"""The fold: a pure function of the frames, honest about what it has not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from snapshot import views
from synthetic_run import (
    MS,
    STEP_NAMES,
    Fault,
    Job,
    above_info,
    elastic,
    encoded,
    final_view,
    folded,
    frames,
    hello,
    simulate,
)

from tuiadvisor.advisor.assemble.picture import LET_GO
from tuiadvisor.advisor.fold import Advisor, diagnose
from tuiadvisor.advisor.judge.verdict import with_deaths
from tuiadvisor.agent.rank_link import WAITING_FOR_INTERPRETER
from tuiadvisor.app.attach_state import PASSES_S, REFUSED_S, HoldUp, why_stepless, why_unwatched
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EXITING
from tuiadvisor.report.document import document
from tuiadvisor.report.facts import nothing_found
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind, pack_columns
from tuiadvisor.text.wording import loss_notes
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.views.deaths import deaths_of
from tuiadvisor.views.run_view import RunView

FAULTY = Job(faults=(Fault("forward", (2,), 6 * MS, onset=60),))
SOURCE = "node0/1/1"


def status(mono_ns: int, ranks: list[dict[str, object]], seq: int = 900) -> Frame:
    """A STATUS frame of the simulated agent."""
    payload = {"host": "node0", "mono_ns": mono_ns, "wall_ns": mono_ns, "ranks": ranks}
    return Frame(FrameKind.STATUS, SOURCE, seq, mono_ns, payload)


def gap(what: str, source: str | None, num_frames: int | None, why: str) -> Frame:
    """A GAP frame of the hub."""
    payload: dict[str, object] = {"what": what, "source": source, "num_frames": num_frames, "why": why}
    return Frame(FrameKind.GAP, HUB_SOURCE, 0, 1, payload)


@pytest.mark.slow
def test_live_and_replay_give_the_same_sequence_of_views() -> None:
    """Two folds of the same frames agree after every frame, however often either was asked."""
    live, replay = Advisor(), Advisor()
    for number, frame in enumerate(frames(FAULTY, rows_per_frame=10)):
        live.feed(encoded(frame))
        replay.feed(encoded(frame))
        if number % 3 == 0:
            live.view()
        assert live.view() == replay.view()


def test_process_without_a_number_says_why_it_is_not_watched() -> None:
    """A training of one process has no rank before its probe is in: what holds the probe up is told all the same."""
    stopped = {
        "rank": None,
        "state": "waiting_to_attach",
        "detail": "it is stopped (state T); let it continue first",
    }
    waits = folded([status(1, [stopped])]).view()
    assert ("not watched yet: it is stopped (state T); let it continue first",) == waits.losses.notes
    assert "not watched yet: it is stopped (state T); let it continue first" == why_unwatched(waits)
    idle = folded([status(1, [{"rank": None, "state": "live", "detail": ""}])]).view()
    assert "not watched yet: attached, but no training step was seen" == why_unwatched(idle)
    told = [
        status(1, [{"rank": None, "state": "live", "no_step": "it is stopped"}]),
        status(2, [{"rank": None, "state": "detached", "detail": "probe taken out"}]),
    ]
    assert "not watched yet: attached, but no training step was seen: it is stopped" == why_unwatched(
        folded(told).view()
    )
    early = folded(
        [status(1, [{"rank": None, "state": "found", "detail": "has not imported torch yet"}])]
    ).view()
    assert "not watched yet: has not imported torch yet" == why_unwatched(early)
    live = folded([status(1, [stopped]), status(2, [{"rank": 0, "state": "live", "detail": ""}])]).view()
    assert () == live.losses.notes
    assert why_unwatched(live) is None


def test_the_verdict_names_the_rank_that_cannot_be_entered() -> None:
    """Of a rank that was stopped before the attach its row alone told; the verdict spoke of the one that waits."""
    held = {
        "rank": 0,
        "state": "waiting_to_attach",
        "detail": "it is stopped (state T); let it continue first: kill -CONT 4091",
    }
    waits = {"rank": 1, "state": "live", "no_step": "none of its threads is doing anything"}
    view = folded([status(1, [held, waits])]).view()
    told = "Rank 0: it is stopped (state T); let it continue first: kill -CONT 4091"
    assert view.verdict.sentence.endswith(told)  # no full stop: the command is pasted
    both = folded([status(1, [held, {**held, "rank": 1}])]).view()
    assert "Rank 0 (and 1 more): it is stopped" in both.verdict.sentence
    entering = {"rank": 0, "state": "waiting_to_attach", "detail": WAITING_FOR_INTERPRETER}
    assert "Rank 1: none of its threads" in folded([status(1, [entering, waits])]).view().verdict.sentence


def test_ranks_that_make_no_step_say_why_also_when_the_probe_has_left() -> None:
    """The reason stands once for all ranks that have it, until a step comes or is seen to come."""
    live = [{"rank": rank, "state": "live", "no_step": "it waits" if rank < 2 else ""} for rank in range(3)]
    left = [{"rank": rank, "state": "detached", "detail": "probe taken out"} for rank in range(3)]
    for frames_told in ([status(1, live)], [status(1, live), status(2, left)]):
        view = folded(frames_told).view()
        assert ("rank 0 and 1 more: no step is measured: it waits",) == view.losses.notes
        assert "rank 0 and 1 more: no step is measured: it waits" == why_stepless(view)
    better = folded([status(1, live), status(2, [{"rank": 0, "state": "live"}, live[1], live[2]])]).view()
    assert "rank 1: no step is measured: it waits" == why_stepless(better)
    killed = [{"rank": 0, "state": "killed", "detail": "killed by SIGKILL after step 0"}]
    assert "no training step was seen (rank 0: killed by SIGKILL after step 0)" == why_stepless(
        folded([status(1, killed)]).view()
    )
    in_one_call = [{"rank": 0, "state": "waiting_to_attach", "detail": WAITING_FOR_INTERPRETER}]
    assert f"no training step was seen (rank 0: {WAITING_FOR_INTERPRETER})" == why_stepless(
        folded([hello(Job(num_ranks=1), "node0"), status(1, in_one_call)]).view()
    )
    for too_early in ("has not imported torch yet", "torch is still being imported"):
        found = [{"rank": 0, "state": "found", "detail": too_early}]
        assert f"no training step was seen (rank 0: {too_early})" == why_stepless(
            folded([status(1, found)]).view()
        )
    assert why_stepless(folded([]).view()) is None
    waits = {"rank": 0, "state": "live", "no_step": "it waits"}
    stopped = {
        "rank": 1,
        "state": "waiting_to_attach",
        "detail": "it is stopped (state T); let it continue first",
    }
    assert "rank 1: it is stopped (state T); let it continue first" == why_stepless(
        folded([hello(Job(num_ranks=2), "node0"), status(1, [waits, stopped])]).view()
    )


def test_a_job_that_stood_before_anybody_came_is_told_as_such() -> None:
    """Its first screen asked for 20 more steady steps, no more; the command is for one rank, so it is left out."""
    ranks = [
        {
            "rank": rank,
            "state": "live",
            "no_step": f"it waits or hangs (tuiadvisor stacks --pid {rank} tells where)",
        }
        for rank in range(2)
    ]
    said = folded([status(1, ranks)]).view().verdict.sentence
    assert "Not enough yet: no step was seen. Each rank: it waits or hangs." == said
    (first, second) = ranks
    other = folded([status(1, [first, {**second, "no_step": "it is stopped"}])]).view().verdict.sentence
    assert "Not enough yet: no step was seen. Rank 0: it waits or hangs." == other
    # Beside one that is not attached yet it is not "the rank".
    beside = folded([status(1, [first, {"rank": 1, "state": "waiting_to_attach"}])]).view().verdict.sentence
    assert "Not enough yet: no step was seen. Rank 0: it waits or hangs." == beside
    unexplained = folded([status(1, [first, {"rank": 1, "state": "live"}])]).view().verdict.sentence
    assert "Not enough yet: 20 more steady steps." == unexplained


def test_a_process_without_a_rank_that_makes_no_step_is_told_as_such() -> None:
    """An idle notebook: its screen asked for 20 more steady steps, in the recording too; unexplained, it still does."""
    idle = {
        "rank": None,
        "state": "live",
        "no_step": "it waits, has finished or hangs (tuiadvisor stacks --pid 7)",
    }
    told = "Not enough yet: no step was seen. What was found: it waits, has finished or hangs."
    for entries in ([idle], [idle, {**idle, "pid": 8}]):
        assert told == folded([status(1, entries)]).view().verdict.sentence
    after = folded([status(1, [idle]), status(2, [{"rank": None, "state": "detached"}])])
    assert told == after.view().verdict.sentence
    asked = "Not enough yet: 20 more steady steps."
    for entries in ([idle, {**idle, "no_step": "it is stopped"}], [{"rank": None, "state": "live"}]):
        assert asked == folded([status(1, entries)]).view().verdict.sentence


def test_a_stopped_process_of_which_nothing_was_seen_is_told_what_lets_it_go_on() -> None:
    """Its recording asked for 20 more steady steps below the reason; what passes by itself is no reason yet."""
    why = "it is stopped (state T); let it continue first: kill -CONT 7"
    stopped: dict[str, object] = {"rank": None, "state": "waiting_to_attach", "detail": why}
    told = "Not enough yet: no step was seen."
    assert f"{told} What was found: {why}" == folded([status(1, [stopped])]).view().verdict.sentence
    ranked = [{**stopped, "rank": 0}, {**stopped, "rank": 1}]
    assert f"{told} Rank 0 (and 1 more): {why}" == folded([status(1, ranked)]).view().verdict.sentence
    for detail in (WAITING_FOR_INTERPRETER, "has not imported torch yet"):
        for rank in (None, 0):
            passing = folded([status(1, [{**stopped, "rank": rank, "detail": detail}])]).view()
            assert "Not enough yet: 20 more steady steps." == passing.verdict.sentence


def test_ranks_that_are_all_refused_are_a_failure_with_its_reason() -> None:
    """One that is live, or may become so, is none."""
    refused: list[dict[str, object]] = [
        {"rank": rank, "state": "refused", "detail": "the system forbids tracing it"} for rank in (0, 1)
    ]
    view = folded([status(1, refused)]).view()
    assert "not watched: none of 2 ranks, e.g. rank 0: the system forbids tracing it" == why_unwatched(view)
    view = folded([status(1, [refused[0], {"rank": 1, "state": "waiting_to_attach", "detail": ""}])]).view()
    assert why_unwatched(view) is None


def test_a_refusal_that_stands_ends_the_waiting() -> None:
    """Not at once: the ranks of another agent may be on their way; and not while a rank is missing."""
    now_s = 100.0
    hold_up = HoldUp("watch", lambda: now_s)
    refused: list[dict[str, object]] = [
        {"rank": rank, "state": "refused", "detail": "the system forbids tracing it"} for rank in (0, 1)
    ]
    for view in (
        folded([status(1, refused)]).view(),
        folded([status(1, [refused[0] | {"rank": None}])]).view(),
    ):
        assert not hold_up.is_final(view)
        now_s += REFUSED_S
        assert hold_up.is_final(view)
        assert not hold_up.is_final(folded([status(1, [refused[0], refused[1] | {"state": "live"}])]).view())


def test_what_is_waited_for_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Before patience is over, since whoever waits may be able to help; what passes by itself is not said."""
    now_s = 100.0
    hold_up = HoldUp("record", lambda: now_s)
    detail = "it is stopped (state T); let it continue first: kill -CONT 7"
    stopped: dict[str, object] = {"rank": 0, "state": "waiting_to_attach", "detail": detail}
    hold_up.say(folded([status(1, [stopped | {"detail": "another process is tracing it"}])]).view())
    for _ in range(4):
        hold_up.say(folded([status(1, [stopped])]).view())
        now_s += PASSES_S / 2
    assert capsys.readouterr().err == f"tuiadvisor record: waiting: rank 0: {detail}\n"
    assert why_unwatched(folded([status(1, [stopped])]).view()) == f"not watched yet: rank 0: {detail}"
    alone: dict[str, object] = {"rank": None, "state": "waiting_to_attach", "detail": WAITING_FOR_INTERPRETER}
    for _ in range(4):
        hold_up.say(folded([status(1, [alone])]).view())
        now_s += PASSES_S / 2
    assert capsys.readouterr().err == f"tuiadvisor record: {WAITING_FOR_INTERPRETER}\n"


@pytest.mark.slow
def test_asking_for_a_view_changes_nothing() -> None:
    """The final view is the same whether or not views were taken on the way."""
    asked = Advisor()
    for frame in frames(FAULTY, rows_per_frame=7):
        asked.feed_frame(frame)
        asked.view()
    assert folded(frames(FAULTY, rows_per_frame=7)).view() == asked.view()


@pytest.mark.slow
@pytest.mark.parametrize("rows_per_frame", [1, 13, 200])
def test_how_rows_are_cut_into_frames_does_not_matter(rows_per_frame: int) -> None:
    """One step a frame or all in one: the same findings from the same steps."""
    job = replace(FAULTY, attach=(2, 0, 5, 9))
    usual, cut = final_view(job), final_view(job, rows_per_frame)
    assert usual.findings == cut.findings
    assert usual.window == cut.window
    assert usual.ranks == cut.ranks


def test_no_frames_is_no_verdict() -> None:
    """Nothing seen: nothing claimed."""
    view = Advisor().view()
    assert view.verdict.decision is None
    assert "20 more" in view.verdict.sentence
    assert () == view.ranks
    assert view.step.median_s is None
    assert view.step.shares["forward"] is None


@pytest.mark.slow
def test_too_few_steps_give_no_verdict_but_say_how_many_more() -> None:
    """Below 20 steady steps there is no finding and no decision, whatever the fault."""
    advisor = Advisor()
    for frame in frames(Job(num_steps=36, faults=(Fault("data", (1,), 30 * MS),)), rows_per_frame=1):
        advisor.feed_frame(frame)
        view = advisor.view()
        assert (view.window.num_missing_steps == 0) == (view.verdict.decision is not None)
        if view.window.num_missing_steps:
            assert () == view.findings
            assert f"{view.window.num_missing_steps} more" in view.verdict.sentence
    assert [("straggler", (1,), "data_wait")] == above_info(view)


def test_a_bad_frame_is_counted_and_changes_nothing_else() -> None:
    """Damaged bytes reach the losses, not the statistics."""
    clean, dirty = Advisor(), Advisor()
    for frame in frames(FAULTY):
        data = encoded(frame)
        clean.feed(data)
        dirty.feed(data[:-3])
        dirty.feed(b"")
        dirty.feed(data)
    assert dirty.view().findings == clean.view().findings
    assert 2 * len(frames(FAULTY)) == dirty.view().losses.frames_bad
    assert 0 == clean.view().losses.frames_bad


def test_frames_missing_in_sequence_are_counted_once() -> None:
    """By the numbers themselves, or by the hub's own word for them."""
    sequence = frames(FAULTY, rows_per_frame=20)
    assert 2 == folded(sequence[:3] + sequence[5:]).view().losses.frames_lost
    told = [*sequence[:3], gap("frames missing", SOURCE, 2, "lost on the way"), *sequence[5:]]
    view = folded(told).view()
    assert 2 == view.losses.frames_lost
    assert "agent on node0: frames missing, lost on the way" in view.losses.notes


def test_a_gap_in_the_steps_leaves_the_axis_right() -> None:
    """Steps that were lost stay a gap: the onset keeps its number."""
    sequence = frames(FAULTY, rows_per_frame=10)
    view = folded(sequence[:3] + sequence[5:]).view()
    assert [("straggler", (2,), "forward")] == above_info(view)
    assert 60 == pytest.approx(view.stragglers[0].since_step, abs=3)


@pytest.mark.parametrize("state", ["live", "detached", "exited"])
def test_ranks_without_a_step_are_not_compared_also_when_the_watch_is_over(state: str) -> None:
    """A parameter server's workers: while they were watched "2 ranks may be late", at the recording's end "keep"."""
    two = [frame for frame in frames(Job(num_ranks=1)) if frame.kind != FrameKind.HELLO]
    live = {"rank": 1, "state": "live", "phase": "backward", "no_step": "no optimizer of torch.optim steps"}
    over = [status(9_500_000_000, [{"rank": 1, "state": state}])] if state != "live" else []
    view = folded([*two, status(9_000_000_000, [live]), *over]).view()
    assert view.verdict.decision is None
    assert "1 rank was not compared and may be late" in view.verdict.sentence


def test_a_killed_rank_is_shown_and_the_others_are_still_diagnosed() -> None:
    """Rank 3 dies: its row says so, the rest go on being compared."""
    steps = frames(FAULTY)
    dead = {"rank": 3, "state": "killed", "detail": "gone without its exit hooks after step 150"}
    view = folded([*steps, status(9_000_000_000, [dead])]).view()
    row = view.ranks[3]
    assert "killed" == row.state
    assert "gone without its exit hooks after step 150" == row.state_detail
    assert "rank 3: gone without its exit hooks after step 150" in view.losses.notes
    assert [("straggler", (2,), "forward")] == above_info(view)
    assert "" == view.ended


def _after_deaths(job: Job, **details: str) -> RunView:
    dead = [
        {
            "rank": int(rank.removeprefix("r")),
            "state": "exited" if detail.startswith("exited") else "killed",
            "detail": detail,
        }
        for rank, detail in details.items()
    ]
    return folded([*frames(job), status(9_000_000_000, dead)]).view()


def test_a_run_whose_rank_was_killed_is_not_kept() -> None:
    """The signal is in the verdict, the cause before those that the launcher ended; nothing is called healthy."""
    healthy = Job()
    assert "keep" == final_view(healthy).verdict.decision
    view = _after_deaths(healthy, r1="killed by SIGTERM after step 199", r2="killed by SIGBUS after step 198")
    assert "stop" == view.verdict.decision
    first = "Stop: rank 2 was killed by SIGBUS after step 198 (1 more rank ended with it). Of the steps until then: "
    assert view.verdict.sentence.startswith(f"{first}no loss")
    assert "dmesg" in view.verdict.because
    assert [] == [finding.id for finding in view.findings if finding.id == "healthy"]


def test_who_left_is_said_before_what_is_not_decided() -> None:
    """It stood in the third line, behind why 800 steps decide nothing, and beside "too few steady steps"."""
    undecided = "Not decided: 20 ms of the mean step's 27 ms pass in code that no hook sees"
    why = replace(final_view(Job()).verdict, decision=None, sentence=f"{undecided}.", because=undecided)
    left = "rank 1 left with exit code 0 after step 798, without its exit hooks (os._exit)"
    told = with_deaths(why, (left,))
    assert told.sentence == f"Stop: {left}. Of the steps until then: n{undecided[1:]}."
    assert "signal" not in told.because
    assert "os._exit" in told.because
    few = with_deaths(replace(why, sentence="Not enough yet: 20 more steady steps.", because=""), (left,))
    assert few.sentence == f"Stop: {left}. Too few steady steps were seen until then to judge them."
    window = replace(views.healthy().window, enough=False, why_undecided=undecided)
    shown = sections.verdict(replace(views.healthy(), verdict=told, window=window), 80, 3)
    assert shown[0].text.split("STOP")[1].strip().startswith("rank 1 left with exit code 0")


def test_another_verdict_than_keep_stays_and_says_who_died() -> None:
    """What is found is still true; where no signal is known the words are those of the agent."""
    gone = "gone without its exit hooks after step 150: killed, or os._exit"
    view = _after_deaths(FAULTY, r3=gone, r1="killed by SIGTERM after step 151")
    assert "tune" == view.verdict.decision
    begin = f"Rank 3 is {gone} (1 more rank ended with it). Of the steps until then: Tune: "
    assert view.verdict.sentence.startswith(begin)


def test_a_death_before_there_is_a_verdict_is_the_verdict() -> None:
    """More steps will not come, so it does not ask for them."""
    view = _after_deaths(
        Job(num_steps=9), r1="killed by SIGSEGV after step 8", r0="killed by SIGTERM after step 8"
    )
    assert "stop" == view.verdict.decision
    assert view.verdict.sentence.startswith(
        "Stop: rank 1 was killed by SIGSEGV after step 8 (1 more rank ended"
    )
    assert "more steady steps" not in view.verdict.sentence


def test_a_rank_that_ended_by_an_error_is_what_ended_the_job() -> None:
    """A traceback in one rank, the others ended by the launcher: the most frequent end, and it was not said."""
    ends = dict.fromkeys(("r0", "r1", "r3"), "killed by SIGTERM after step 199")
    view = _after_deaths(Job(), r2="exited with code 1 after step 199", **ends)
    assert view.verdict.sentence.startswith(
        "Stop: rank 2 exited with code 1 after step 199 (3 more ranks ended with it). Of the steps until then: "
    )
    assert "traceback" in view.verdict.because
    assert view.ended == "all ranks ended, 3 of 4 by SIGTERM, 1 by an error"


@pytest.mark.parametrize(
    ("signals", "ended"),
    [
        (["SIGINT"] * 4, "all ranks ended, 4 of 4 by SIGINT"),  # Ctrl-C is no killing
        (["SIGKILL", "SIGTERM", "SIGTERM", "SIGTERM"], "all ranks ended, 1 of 4 killed, 3 by SIGTERM"),
        (
            ["SIGSEGV", "SIGKILL", "SIGTERM", "SIGHUP"],
            "all ranks ended, 2 of 4 killed, 1 by SIGTERM, 1 by SIGHUP",
        ),
    ],
)
def test_ranks_that_were_asked_to_end_are_not_counted_as_killed(signals: list[str], ended: str) -> None:
    """By whom each was ended."""
    ends = {f"r{rank}": f"killed by {name} after step 199" for rank, name in enumerate(signals)}
    assert ended == _after_deaths(Job(), **ends).ended


def test_of_two_that_were_killed_who_ended_first_is_said_where_it_was_seen() -> None:
    """One was killed, and mp.spawn ended the other: "2 of 2 killed", and the lower one was what had died."""
    job = Job(num_ranks=2)
    ends = [
        {"rank": rank, "state": "killed", "detail": f"killed by SIGKILL after step {199 - rank}"}
        for rank in (0, 1)
    ]
    steps = frames(job)
    view = folded([*steps, status(9_000_000_000, [ends[1]]), status(9_500_000_000, ends)]).view()
    assert view.ended == "all ranks ended, 2 of 2 killed (rank 1 first)"
    assert view.verdict.sentence.startswith("Stop: rank 1 was killed by SIGKILL after step 198 (1 more rank")
    died = deaths_of(view)
    assert died is not None
    assert died.rank == 1
    at_once = folded([*steps, status(9_000_000_000, ends)]).view()
    assert at_once.ended == "all ranks ended, 2 of 2 killed"
    gone = {"rank": 0, "state": "killed", "detail": "gone without its exit hooks after step 199"}
    died = deaths_of(folded([*steps, status(9_000_000_000, [gone, ends[1]])]).view())
    assert died is not None
    assert died.rank == 1  # as the verdict


def test_who_lost_a_peer_to_a_signal_and_ended_by_an_error_is_not_the_first() -> None:
    """Gloo raises in the others when a rank is killed."""
    view = _after_deaths(Job(), r0="exited with code 1 after step 199", r2="killed by SIGKILL after step 199")
    assert view.verdict.sentence.startswith("Stop: rank 2 was killed by SIGKILL after step 199 (1 more rank")
    assert "dmesg" in view.verdict.because


def test_who_left_before_the_others_raised_is_the_first() -> None:
    """os._exit(0) in one rank: Gloo raises in the others, which were told as the error that ended the job."""
    left = {
        "rank": 1,
        "state": "exited",
        "detail": "left with exit code 0 after step 199, without its exit hooks",
    }
    failed = {"rank": 0, "state": "exited", "detail": "exited with code 1 after step 199"}
    steps = frames(Job())
    view = folded([*steps, status(9_000_000_000, [left]), status(9_200_000_000, [left, failed])]).view()
    assert view.verdict.sentence.startswith(
        "Stop: rank 1 left with exit code 0 after step 199, without its exit"
    )
    view = folded([*steps, status(9_000_000_000, [failed]), status(9_200_000_000, [left, failed])]).view()
    assert view.verdict.sentence.startswith(
        "Stop: rank 0 exited with code 1 after step 199 (1 more rank ended"
    )


def test_ranks_that_are_not_watched_any_more_have_not_ended() -> None:
    """A recording that is over before its job: it said "all ranks ended, 1 of 4 killed"."""
    out = [{"rank": rank, "state": "detached", "detail": "probe taken out"} for rank in (0, 1, 3)]
    dead = {"rank": 2, "state": "killed", "detail": "killed by SIGKILL after step 199"}
    view = folded([*frames(Job()), status(9_000_000_000, [dead, *out])]).view()
    assert "no rank is watched any more, 1 of 4 killed" == view.ended


def test_who_raises_because_its_peer_was_interrupted_by_hand_is_nobodys_error() -> None:
    """Ctrl-C: Gloo may raise in one rank before its own interrupt is handled."""
    view = _after_deaths(Job(), r0="exited with code 1 after step 199", r1="killed by SIGINT after step 199")
    assert view.verdict.decision == "keep"


def test_all_ranks_that_end_by_an_error_did_not_finish() -> None:
    """It was "run finished"."""
    view = _after_deaths(Job(), **{f"r{rank}": "exited with code 2 after step 199" for rank in range(4)})
    assert view.ended == "all ranks ended, 4 of 4 by an error"
    assert view.verdict.sentence.startswith(
        "Stop: rank 0 exited with code 2 after step 199 (3 more ranks ended with it)"
    )
    assert (
        _after_deaths(Job(), **{f"r{rank}": "exited after step 199" for rank in range(4)}).ended
        == "run finished"
    )


@pytest.mark.parametrize("end", ["killed by SIGTERM after step 199", "gone without its exit hooks"])
def test_a_job_that_was_asked_to_end_is_judged_by_its_steps(end: str) -> None:
    """scancel, Ctrl-C, or a script that ends by os._exit: all ranks alike, and nobody's death."""
    view = _after_deaths(Job(), r0=end, r1=end, r2=end, r3=end)
    assert "keep" == view.verdict.decision


def test_what_a_rank_does_now_is_shown_with_its_duration() -> None:
    """The phase comes from STATUS; its length from the agent's own clock, not ours."""
    live = {"rank": 1, "state": "live", "phase": "comm_exposed", "phase_since_ns": 5_900_000_000, "step": 7}
    view = folded([hello(FAULTY, "node0"), status(9_000_000_000, [live])]).view()
    assert "comm_exposed 3.1 s" == view.ranks[1].now


def test_unknown_state_and_phase_names_are_not_believed() -> None:
    """A stranger's words do not reach the screen as states."""
    odd = {"rank": 1, "state": "on fire", "phase": "lunch", "phase_since_ns": 1}
    view = folded([hello(FAULTY, "node0"), status(9_000_000_000, [odd])]).view()
    assert "live" == view.ranks[1].state
    assert "" == view.ranks[1].now


def test_lost_events_and_disabled_hooks_reach_the_losses() -> None:
    """What the probes dropped is added up over the ranks."""
    ranks: list[dict[str, object]] = [
        {"rank": rank, "state": "live", "lost_steps": 1, "lost_events": 10, "hooks_disabled": rank}
        for rank in range(4)
    ]
    losses = folded([hello(FAULTY, "node0"), status(2_000_000_000, ranks)]).view().losses
    assert 44 == losses.events_dropped
    assert 6 == losses.hooks_disabled


def test_a_silent_agent_is_said_until_it_is_heard_again() -> None:
    """By the hub's word, and taken back by the next frame."""
    advisor = folded([hello(FAULTY, "node0"), gap("agent silent", SOURCE, None, "not heard for 3.2 s")])
    assert "agent on node0 silent" in advisor.view().losses.notes
    assert ["agent on node0 silent"] == [note for note in advisor.view().losses.notes if "node0" in note]
    advisor.feed_frame(status(3_000_000_000, []))
    assert "agent on node0 silent" not in advisor.view().losses.notes


def test_an_agent_that_comes_and_goes_is_one_note() -> None:
    """The newest word of it: over a bad link there would be one every few seconds."""
    advisor = folded([hello(FAULTY, "node0")])
    for second in range(4):
        advisor.feed_frame(gap("agent silent", SOURCE, None, f"not heard for 3.{second} s"))
        advisor.feed_frame(gap("agent returned", SOURCE, None, f"heard again after 4.{second} s"))
    notes = [note for note in advisor.view().losses.notes if "node0" in note]
    assert ["agent on node0: agent returned, heard again after 4.3 s"] == notes


def test_an_agent_far_behind_the_others_is_silent() -> None:
    """Without a hub's word, the other agents' frames tell the time."""
    job = Job(num_ranks=4, ranks_per_host=2)
    advisor = folded([hello(job, "node0"), hello(job, "node1")])
    late = Frame(FrameKind.STATUS, "node1/1/1", 1, 13_000_000_000, {"host": "node1", "ranks": []})
    advisor.feed_frame(late)
    assert "agent on node0 silent for 12 s" in advisor.view().losses.notes


@pytest.mark.parametrize(
    ("state", "detail", "ended"),
    [
        ("exited", "", "run finished"),
        ("detached", "probe taken out", LET_GO),
        ("detached", EXITING, "the ranks are exiting, and how they end is not known"),
        ("live", "", ""),
    ],
)
def test_the_end_of_a_run_is_told(state: str, detail: str, ended: str) -> None:
    """All ranks gone the same way."""
    ranks: list[dict[str, object]] = [{"rank": rank, "state": state, "detail": detail} for rank in range(4)]
    assert ended == folded([hello(FAULTY, "node0"), status(2_000_000_000, ranks)]).view().ended


def test_of_many_missing_ranks_the_rest_is_counted() -> None:
    """996 of 1,000 were told as ranks 4 to 67."""
    view = final_view(Job(num_ranks=4, world_size=1000))
    assert (64, 932) == (len(view.losses.ranks_missing), view.losses.ranks_missing_more)
    assert "ranks 4\u201367 and 932 more missing" in loss_notes(view.losses)


def test_ranks_that_were_never_heard_of_are_missing() -> None:
    """The world size tells how many there should be."""
    view = final_view(Job(num_ranks=4, world_size=6))
    assert (4, 5) == view.losses.ranks_missing
    assert "ranks 4, 5 missing" in loss_notes(view.losses)
    assert view.overlap.transfer_s is None


def test_a_probe_that_is_installed_again_counts_on() -> None:
    """Local steps start from 0 again; the job's axis does not."""
    job = Job(num_steps=300, faults=(Fault("forward", (2,), 6 * MS),))
    first = list(frames(replace(job, num_steps=100), rows_per_frame=10))
    again = frames(replace(job, attach=(150, 150, 150, 150)), rows_per_frame=10)
    advisor = folded(first)
    for frame in again[1:]:
        advisor.feed_frame(frame)
    view = advisor.view()
    assert 100 <= (view.last_step or 0)
    assert [("straggler", (2,), "forward")] == above_info(view)


def test_one_rank_attached_again_keeps_its_place_on_the_axis() -> None:
    """Rank 1's probe is reinstalled at step 80: it is aligned with the others anew."""
    whole = Job(num_steps=200, faults=(Fault("backward", (1,), 6 * MS, onset=120),))
    later = frames(replace(whole, attach=(0, 80, 0, 0)), rows_per_frame=10)
    early = frames(replace(whole, num_steps=60), rows_per_frame=10)
    advisor = folded(early)
    for frame in later[7:]:
        advisor.feed_frame(frame)
    view = advisor.view()
    assert [("straggler", (1,), "backward")] == above_info(view)
    assert 120 == pytest.approx(view.stragglers[0].since_step, abs=3)
    assert {199} == {row.last_step for row in view.ranks}


def test_ranks_that_do_not_step_together_are_not_compared() -> None:
    """Sequence and clock disagree by five steps: the rank is left out, with the reason."""
    rows = simulate(FAULTY).rows
    seq = STEP_NAMES.index("group_seq")
    wrong = [(*row[:seq], row[seq] + 15, *row[seq + 1 :]) for row in rows[3]]
    advisor = folded([hello(FAULTY, "node0")])
    for number, batch in enumerate((rows[0], rows[1], rows[2], wrong), 1):
        advisor.feed_frame(Frame(FrameKind.STEPS, SOURCE, number, 1, pack_columns(batch, STEP_NAMES)))
    view = advisor.view()
    assert any("rank 3 is not compared" in note and "disagree" in note for note in view.losses.notes)
    assert [("straggler", (2,), "forward")] == above_info(view)
    assert view.ranks[3].step_s is None
    # It has made 200 steps: "no step seen" stood in its row.
    assert view.ranks[3].why_apart.startswith("not compared with the others: its collectives")
    said = plain_summary(view)
    assert "no step seen" not in said
    assert {""} == {row.why_no_figures for row in view.ranks[:3]}
    assert [False, False, False, True] == [row.is_apart for row in view.ranks]


def test_diagnose_reads_encoded_frames_and_can_be_limited_to_steps() -> None:
    """The steps before the onset alone show nothing; the steps after it show the fault."""
    data = [encoded(frame) for frame in frames(FAULTY)]
    assert [("straggler", (2,), "forward")] == above_info(diagnose(data))
    before = diagnose(data, (5, 50))
    assert [] == above_info(before)
    assert (5, 50) == (before.window.first_step, before.window.last_step)
    assert [("straggler", (2,), "forward")] == above_info(diagnose(data, (100, 180)))


def test_steps_outside_the_recording_are_one_clear_line() -> None:
    """What was asked, and what the recording holds."""
    data = [encoded(frame) for frame in frames(FAULTY)]
    with pytest.raises(TuiadvisorError, match=r"--steps 900:950: nothing there; .* holds steps 0:199"):
        diagnose(data, (900, 950))


def restarted_run(*, is_told: bool) -> list[bytes]:
    """100 steps, a restart, 100 more; told: by a second introduction whose processes began later."""
    job = replace(FAULTY, num_steps=100, faults=(Fault("data", (2,), 0.02),))
    sequence = elastic(job, "ten steps of one rank a frame")
    head = [frame for frame in sequence if frame.kind == FrameKind.HELLO]
    rest = [frame for frame in sequence if frame.kind != FrameKind.HELLO]

    def at(start_s: float, place: int) -> list[Frame]:
        return [
            replace(
                frame,
                seq=place + frame.seq,
                payload={
                    **frame.payload,
                    "ranks": [
                        {**entry, "start_wall_ns": round((1_700_000_000 + start_s) * 1e9)}
                        for entry in cast("list[dict[str, object]]", frame.payload["ranks"])
                    ],
                },
            )
            for frame in head
        ]

    half = len(rest) // 2
    again = at(60.0, half) if is_told else []
    return [encoded(frame) for frame in (*at(-60.0, 0), *rest[:half], *again, *rest[half:])]


@pytest.mark.slow
@pytest.mark.parametrize("is_told", [True, False])
def test_a_range_over_a_restart_says_which_of_its_steps_it_has_no_figures_of(*, is_told: bool) -> None:
    """The processes before it are held no more, as steps beyond what one view holds are; that looked like the range."""
    view = diagnose(restarted_run(is_told=is_told), (60, 150))
    assert view.window.first_step == 101
    assert view.window.excluded["before_restart"] == 40
    assert "40 of the processes before a restart" in sections.window(view)
    whole = diagnose(restarted_run(is_told=is_told), (110, 150))
    assert whole.window.first_step == 110
    assert set(whole.window.excluded) <= {"partial"}


@pytest.mark.slow
def test_a_range_longer_than_a_view_says_so() -> None:
    """Its last steps alone are in the figures."""
    job = Job(num_ranks=8, num_steps=2300)
    sequence = list(map(encoded, frames(job)))
    view = diagnose(sequence, (100, 2299))
    width = (view.window.last_step or 0) - (view.window.first_step or 0) + 1
    assert width < 2200
    assert view.window.excluded["beyond_view"] == pytest.approx(2200 - width, abs=2)
    assert "more than one view holds" in sections.window(view)


@pytest.mark.parametrize("steps", [(0, 99), (10, 60), (40, 95)])
def test_steps_before_a_restart_are_those_of_the_processes_before_it(steps: tuple[int, int]) -> None:
    """Nothing there, was said, and that the recording held the first steps after it alone."""
    view = diagnose(restarted_run(is_told=True), steps)
    assert view.window.last_step is not None
    assert steps[1] - 1 <= view.window.last_step <= steps[1]
    assert [("straggler", (2,), "data_wait")] == above_info(view)


@pytest.mark.slow
def test_steps_that_are_no_longer_held_say_why_and_the_range_is_the_recordings() -> None:
    """The probes were attached anew, which nothing announced before their first step."""
    data = restarted_run(is_told=False)
    with pytest.raises(TuiadvisorError, match=r"--steps 10:60: no longer held: since step 100 .* trim"):
        diagnose(data, (10, 60))
    with pytest.raises(TuiadvisorError, match=r"--steps 900:950: nothing there; .* holds steps 0:199"):
        diagnose(data, (900, 950))


def test_the_error_names_what_the_recording_holds_not_the_window_after_a_change() -> None:
    """The statistics rest on the steps after the onset at 60; the steps before it are in the recording all the same."""
    data = [encoded(frame) for frame in frames(FAULTY)]
    assert 60 <= (diagnose(data).window.first_step or 0)
    with pytest.raises(TuiadvisorError, match=r"holds steps 0:199$"):
        diagnose(data, (300, 310))
    with pytest.raises(TuiadvisorError, match=r"--steps 0:0: no steady step in that range"):
        diagnose(data, (0, 0))


def test_early_steps_of_a_long_recording_can_be_asked_for() -> None:
    """The window holds 2,048 steps; those asked for are looked at before later ones push them out."""
    job = Job(num_ranks=2, num_steps=4000, faults=(Fault("forward", (1,), 6 * MS, until=1000),))
    data = [encoded(frame) for frame in frames(job, rows_per_frame=200)]
    view = diagnose(data, (100, 300))
    assert (100, 300) == (view.window.first_step, view.window.last_step)
    assert [("straggler", (1,), "forward")] == above_info(view)
    assert 0 == view.losses.frames_lost


def test_a_window_that_begins_at_a_change_says_why() -> None:
    """Steps before rank 2 became slow are left out of the statistics, and the view says since when and whose."""
    view = final_view(FAULTY)
    assert view.window.excluded["before_change"] > 30
    assert view.window.change.startswith("since step 6")
    assert "rank 2 works" in view.window.change
    assert view.window.change.endswith("more a step")
    assert "" == final_view(Job()).window.change


def test_the_verdict_is_about_the_first_finding() -> None:
    """A surer finding goes before a costlier one, in the list and in the headline."""
    job = replace(FAULTY, faults=(Fault("forward", (2,), 9 * MS), Fault("comm", None, 15.5 * MS)))
    view = final_view(job)
    first, second = view.findings[:2]
    assert [("straggler", "critical"), ("communication_bound", "warning")] == [
        (entry.id, entry.severity) for entry in (first, second)
    ]
    assert (first.loss_s_per_step or 0.0) < (second.loss_s_per_step or 0.0)
    assert "straggler" == view.verdict.finding


@pytest.mark.slow
def test_memory_stays_bounded() -> None:
    """After 5,000 steps two ranks hold 2,048 each, and the trend 240 buckets for all of them."""
    view = final_view(Job(num_ranks=2, num_steps=5000), rows_per_frame=500)
    assert view.window.num_steps <= 2048
    assert 4999 == view.last_step
    assert len(view.trend.step_s) <= 240
    assert 5000 <= view.trend.steps_per_bucket * len(view.trend.step_s) < 5100


def test_heat_map_marks_the_late_rank_only() -> None:
    """Victims are in time; the culprit's level shows its lateness; the bytes cover the latest 120 steps."""
    view = final_view(Job(faults=(Fault("data", (2,), 20 * MS),)))
    levels = [row.lateness_levels for row in view.ranks]
    assert {120} == {len(row) for row in levels}
    assert 80 == view.heat_first_step
    assert 5 == sorted(levels[2])[60]  # 20 ms of a 38 ms step: between a third and two thirds
    assert {0} == {sorted(levels[rank])[60] for rank in (0, 1, 3)}


def test_shares_sum_to_one_and_losses_never_exceed_the_time() -> None:
    """Several faults at once: the parts of a step make the step, goodput and losses make the time."""
    job = Job(num_steps=400, faults=(
        Fault("data", None, 4 * MS), Fault("forward", (1,), 8 * MS), Fault("comm", None, 10 * MS),
        Fault("checkpoint", (0,), 100 * MS, every=50),
    ))  # fmt: skip
    view = final_view(job)
    assert 1 == pytest.approx(sum(share for share in view.step.shares.values() if share is not None))
    for row in view.ranks:
        assert 1 == pytest.approx(sum(share for share in row.shares.values() if share is not None))
    assert view.goodput is not None
    assert 1 == pytest.approx(view.goodput + sum(view.goodput_losses.values()))
    assert {"checkpoint", "straggler", "data_wait", "comm_exposed"} <= set(view.goodput_losses)
    mean_s = 1 / (view.step.throughput_steps_s or 1)
    assert sum(finding.loss_s_per_step or 0 for finding in view.findings) < mean_s


@pytest.mark.parametrize(
    "cut", ["all ranks a frame", "one rank a frame", "ten steps of one rank a frame", "both in one frame"]
)
def test_an_elastic_restart_goes_on_counting(cut: str) -> None:
    """All probes are installed anew: however the records are cut, 100 steps and 100 more are steps 0 to 199."""
    job = Job(num_steps=100, faults=(Fault("forward", (2,), 6 * MS),))
    view = folded(elastic(job, cut)).view()
    assert 199 == view.last_step
    assert {199} == {row.last_step for row in view.ranks}
    assert 0 == view.losses.frames_bad
    assert [] == [note for note in view.losses.notes if "contradicted" in note]
    assert [("straggler", (2,), "forward")] == above_info(view)


def test_an_elastic_restart_on_two_hosts_goes_on_counting() -> None:
    """Hosts whose clocks are apart, and whose sequence numbers begin anew: still one axis."""
    job = Job(num_steps=100, num_ranks=4, ranks_per_host=2, host_clock_s={1: 5.0})
    view = folded(elastic(job, "ten steps of one rank a frame")).view()
    assert {199} == {row.last_step for row in view.ranks}


def test_ranks_that_nobody_named_are_told_while_they_are_missing() -> None:
    """They run on the same machine, below another launcher: said with what names all of the job."""
    first, *others = frames(Job(num_ranks=2, world_size=4))
    left_out = {"left_out": [{"rank": 2, "pid": 210}, {"rank": 3, "pid": 211}]}
    said = {**left_out, "job_pids": [{"pid": 100}, {"pid": 200}]}
    view = folded([replace(first, payload={**first.payload, **said}), *others]).view()
    sentence = "ranks 2 and 3 of the same job run on node0, too, and are not watched: --pid 100 200 names all"
    assert (sentence,) == view.losses.notes
    whole, *others = frames(Job(num_ranks=4))
    assert () == folded([replace(whole, payload={**whole.payload, **said}), *others]).view().losses.notes
    assert () == folded([replace(first, payload={**first.payload, **left_out}), *others]).view().losses.notes


def test_the_software_is_told_as_far_as_it_was() -> None:
    """Commit, CUDA and NCCL of the ranks, the hosts' driver; what nobody said is not there."""
    first = hello(Job(), "node0")
    ranks = [{**entry, "git_commit": "c0ffee", "nccl": "2.27.5"} for entry in first.payload["ranks"]]  # type: ignore[attr-defined]
    advisor = Advisor()
    advisor.feed_frame(replace(first, payload={**first.payload, "ranks": ranks, "driver": "550.54.15"}))
    assert {"git_commit": "c0ffee", "nccl": "2.27.5", "driver": "550.54.15"} == advisor.view().run.software


def test_where_no_step_was_seen_the_reason_stands_instead_of_a_number_of_steps() -> None:
    """The verdict said that both ranks wait, the list of findings and the document "20 more steps"."""
    ranks = [{"rank": rank, "state": "live", "no_step": "it is stopped"} for rank in range(2)]
    view = folded([status(1, ranks)]).view()
    said = "Each rank: it is stopped"
    assert f"Not enough yet: no step was seen. {said}" == nothing_found(view)
    assert f"not enough yet: no step was seen. {said}" == sections.not_enough(view)
    assert f"no step was seen. {said}" == view.window.why_not_enough
    told = document(view)["window"]
    assert (None, said) == (told["missing_steps"], told["why_no_step"])
    unexplained = folded([status(1, [*ranks, {"rank": 2, "state": "live"}])]).view()
    told = document(unexplained)["window"]
    assert (20, None) == (told["missing_steps"], told["why_no_step"])
    assert "20 more steps" in nothing_found(unexplained)


def test_the_end_of_a_rank_has_the_jobs_step_numbers() -> None:
    """A rank whose probe was put in later counts from 0 of its own: "killed after step 159" of a job at 199."""
    run = simulate(Job(num_ranks=2))
    place = STEP_NAMES.index("step")
    late = [(*row[:place], row[place] - 40, *row[place + 1 :]) for row in run.rows[1][40:]]
    ends = [
        {"rank": 0, "state": "exited", "detail": "exited with code 1 after step 199"},
        {"rank": 1, "state": "killed", "detail": "killed by SIGKILL after step 159"},
    ]
    job = Job(num_ranks=2)
    view = folded(
        [*frames(job, simulated=replace(run, rows={**run.rows, 1: late})), status(9_000_000_000, ends)]
    ).view()
    assert [199, 199] == [row.last_step for row in view.ranks]
    said = "killed by SIGKILL after step 199"
    assert said == view.ranks[1].state_detail
    assert f"rank 1 was {said}" in view.verdict.sentence
    assert f"rank 1: {said}" in view.losses.notes
    assert deaths_of(view) is not None
    assert said in str(deaths_of(view))


def test_greeting_an_agent_costs_nothing_of_the_ranks_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all ranks were was counted anew with each agent: of 8,192 agents that took three quarters of the fold."""
    counted: list[None] = []
    whole = Advisor.number_alike
    monkeypatch.setattr(Advisor, "number_alike", lambda advisor: (counted.append(None), whole(advisor)))
    job = Job()
    folded([hello(job, "node0"), hello(job, "node1")])
    assert not counted
    anew = hello(job, "node0")
    entries = cast("list[dict[str, int]]", anew.payload["ranks"])
    later = [{**entry, "pid": entry["pid"] + 1, "start_wall_ns": 10**18} for entry in entries]
    earlier = [{**entry, "start_wall_ns": 10**17} for entry in entries]
    folded([replace(anew, payload={**anew.payload, "ranks": entry}) for entry in (earlier, later)])
    assert counted  # a restart tells what was


def test_what_missing_steps_take_is_told_by_steady_ones() -> None:
    """At step 1 nineteen more took "about 59 s", 6 s at the step's 310 ms: the first step had taken six seconds."""
    advisor = Advisor()
    for frame in frames(
        Job(num_ranks=2, num_steps=24, faults=(Fault("warmup", None, 6.0, until=1),)), rows_per_frame=1
    ):
        advisor.feed_frame(frame)
        window = advisor.view().window
        if window.num_steps and window.num_missing_steps and window.missing_s is not None:
            assert window.missing_s < 0.1 * window.num_missing_steps


def test_of_a_part_of_the_ranks_the_jobs_throughput_is_unknown() -> None:
    """It was their sum: 103 samples a second while one of three ranks had sent nothing, 155 with it."""
    whole = final_view(Job(num_ranks=3, num_steps=60))
    part = final_view(Job(num_ranks=3, num_steps=60, missing=(2,)))
    assert whole.step.throughput_samples_s is not None
    assert part.step.throughput_samples_s is None
    assert part.step.throughput_steps_s is not None
