"""What real machines do to the evidence: ranks that leave one by one, stand still, stall now and then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import (
    MS,
    STEP_NAMES,
    Fault,
    Job,
    above_info,
    final_view,
    folded,
    frames,
    hello,
    on_devices,
    simulate,
)  # fmt: skip

from tuiadvisor.app.event_log import EventLog
from tuiadvisor.events import EXITING
from tuiadvisor.metrics.hang.detection import RankNow, standstill
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.views.event import RESOLVED
from tuiadvisor.views.run_view import RunView


def status(job: Job, seq: int, now_s: float, **of_rank: dict[int, object]) -> Frame:
    """A STATUS frame of node0; of_rank: name -> rank -> value, on top of a live rank in backward."""
    ranks = []
    for rank in range(job.num_ranks):
        entry: dict[str, object] = {"rank": rank, "state": "live", "detail": ""}
        entry.update({name: values[rank] for name, values in of_rank.items() if rank in values})
        ranks.append(entry)
    now_ns = round(now_s * 1e9)
    payload = {"host": "node0", "mono_ns": now_ns, "wall_ns": 1_700_000_000_000_000_000, "ranks": ranks}
    return Frame(FrameKind.STATUS, "node0/1/1", seq, now_ns, payload)


def without_last_steps(job: Job, rank: int, num_steps: int) -> list[Frame]:
    """The job's frames without the newest records of one rank."""
    run = simulate(job)
    return frames(job, simulated=replace(run, rows={**run.rows, rank: run.rows[rank][:-num_steps]}))


@pytest.mark.parametrize("num_missing", [1, 3])
def test_the_late_rank_is_named_although_its_probe_left_a_step_before_the_others(num_missing: int) -> None:
    """Probes leave one after the other; the slowest rank's newest records are the first to be missing."""
    job = Job(num_steps=120, faults=(Fault("optimizer", (1,), 12 * MS),))
    sequence = without_last_steps(job, 1, num_missing)
    sequence.append(status(job, 90, 60.0, state=dict.fromkeys(range(4), "detached")))
    assert [("straggler", (1,), "optimizer")] == above_info(folded(sequence).view())


def still(job: Job, seconds: float, phases: dict[int, str], **of_rank: dict[int, object]) -> RunView:
    """The view after healthy steps and `seconds` in which nothing moved."""
    last_s = 1.0 + 0.02 * job.num_steps
    now_s = last_s + seconds
    values: dict[str, dict[int, object]] = {
        "phase": dict(phases),
        "phase_since_ns": dict.fromkeys(range(job.num_ranks), round(last_s * 1e9)),
        "step": dict.fromkeys(range(job.num_ranks), job.num_steps),
        **of_rank,
    }
    return folded([*frames(job), status(job, 90, now_s, **values)]).view()


def still_on_devices(
    job: Job, seconds: float, phases: dict[int, str], **of_rank: dict[int, object]
) -> RunView:
    """The same on devices: collectives are launched, and waited for wherever the device is needed next."""
    last_s = 1.0 + 0.02 * job.num_steps
    values: dict[str, dict[int, object]] = {
        "phase": dict(phases),
        "phase_since_ns": dict.fromkeys(range(job.num_ranks), round(last_s * 1e9)),
        "step": dict.fromkeys(range(job.num_ranks), job.num_steps),
        **of_rank,
    }
    return folded([*on_devices(frames(job)), status(job, 500, last_s + seconds, **values)]).view()


def hangs(view: RunView) -> list[tuple[str, tuple[int, ...], str | None]]:
    """(severity, missing ranks, phase) of the findings on a standstill."""
    return [(f.severity, f.ranks, f.phase) for f in view.findings if f.id == "hang"]


def test_a_rank_that_loads_data_while_the_others_wait_is_the_one_that_has_not_come() -> None:
    """Nobody waits for others in the loader, so that rank is missing; it is said within ten seconds."""
    phases = {0: "backward", 1: "data_wait", 2: "backward", 3: "backward"}
    view = still(Job(), 6.0, phases)
    assert [("warning", (1,), "data_wait")] == hangs(view)
    assert view.verdict.sentence.startswith("Stalled: no step for 6 s: ranks 0, 2 and 3 wait for rank 1")
    # It is an event with a step of its own: the ribbon had it twice, "58 stalled" and "60 No rank makes progress".
    assert all(what != view.findings[0].title for _, what in view.trend.marks)
    assert view.findings[0].id == "hang"
    assert view.findings[0].onset_step is not None


def test_one_hang_has_one_length() -> None:
    """The sentence counts since the last rank moved; the waterfall counted since the last step had ended."""
    job = Job()
    moved_ns = round((1.0 + 0.02 * job.num_steps + 7.0) * 1e9)
    phases = {0: "backward", 1: "data_wait", 2: "backward", 3: "backward"}
    view = still(job, 40.0, phases, phase_since_ns=dict.fromkeys(range(4), moved_ns))
    assert view.wall is not None
    assert view.stall is not None
    (hang,) = [part.seconds for part in view.wall.waterfall if part.kind == "hang"]
    assert 33.0 == pytest.approx(hang)
    assert view.stall.for_s == pytest.approx(hang)


def test_a_rank_that_is_a_step_behind_has_not_come() -> None:
    """The others are in the next step's backward already: only the barrier can hold them."""
    steps: dict[int, object] = {0: 200, 1: 199, 2: 200, 3: 200}
    view = still(Job(), 40.0, {0: "backward", 1: "other", 2: "backward", 3: "backward"}, step=steps)
    assert [("critical", (1,), "other")] == hangs(view)


@pytest.mark.parametrize("of_rank", [{}, {"step": {0: 199, 1: 201, 2: 201, 3: 201}}])
def test_on_devices_no_phase_tells_who_has_not_come(of_rank: dict[str, dict[int, object]]) -> None:
    """Rank 0 logs, the others' launch queues are full: a collective hangs, and the threads are where they are."""
    view = still_on_devices(Job(), 20.0, {0: "other", 1: "forward", 2: "backward", 3: "forward"}, **of_rank)
    assert [()] == [ranks for _, ranks, _ in hangs(view)]
    assert "which rank is missing was not observed" in view.verdict.sentence


def test_on_devices_all_stand_outside_of_every_phase() -> None:
    """`.item()` waits for the collective: nothing for half a minute, for the loop may be over, then it is said."""
    phases = dict.fromkeys(range(4), "other")
    assert [] == hangs(still_on_devices(Job(), 30.0, phases))
    assert [()] == [ranks for _, ranks, _ in hangs(still_on_devices(Job(), 90.0, phases))]
    assert [] == hangs(still(Job(), 90.0, phases)), "on the processor a collective has a phase of its own"


def test_on_devices_a_stopped_process_is_named() -> None:
    """The kernel says so, whatever its device does."""
    threads: dict[int, object] = {0: "running", 1: "running", 2: "stopped", 3: "running"}
    view = still_on_devices(Job(), 20.0, dict.fromkeys(range(4), "backward"), thread=threads)
    assert [(2,)] == [ranks for _, ranks, _ in hangs(view)]


def test_all_in_backward_names_nobody() -> None:
    """Who waits at the barrier within backward and who still computes was not observed."""
    view = still(Job(), 8.0, dict.fromkeys(range(4), "backward"))
    assert [("warning", (), "backward")] == hangs(view)
    assert "which rank is missing was not observed" in view.verdict.sentence


@pytest.mark.parametrize(
    ("thread", "words"),
    [
        ("asleep", ", in backward and asleep in a system call"),
        ("running", ", in backward and still computing"),
        ("stopped", ", stopped by a signal or a debugger, at step 200"),
    ],
)
def test_within_backward_the_thread_tells_who_has_not_come(thread: str, words: str) -> None:
    """Whoever waits for gloo sleeps on a futex; the one rank that does something else has not arrived."""
    threads: dict[int, object] = {0: "waiting", 1: thread, 2: "waiting", 3: "waiting"}
    view = still(Job(), 8.0, dict.fromkeys(range(4), "backward"), thread=threads)
    severity = "critical" if "stopped" in words else "warning"  # that one is sure at once
    assert [(severity, (1,), "backward")] == hangs(view)
    assert f"ranks 0, 2 and 3 wait for rank 1{words}" in view.verdict.sentence
    assert "hang" == view.verdict.decision


@pytest.mark.parametrize(("stopped_before", "is_told"), [(True, True), (False, False)])
def test_a_stop_that_was_lifted_does_not_hide_the_next_hang(*, stopped_before: bool, is_told: bool) -> None:
    """Three times the longest step is patience for the run's own pattern, which a stop is no part of."""
    long = [Fault("backward", (1,), 60.0, onset=step, until=step + 1) for step in (40, 80, 120)]
    job = Job(num_steps=300, faults=tuple(long))
    rows = simulate(job).rows
    begin, end = (STEP_NAMES.index(name) for name in ("begin_ns", "end_ns"))
    last_s = max(each[-1][end] for each in rows.values()) / 1e9
    now_s = rows[1][120][begin] / 1e9 + 30.0
    seen = [status(job, 490, now_s, thread={1: "stopped"})] if stopped_before else []
    values: dict[str, dict[int, object]] = {
        "phase": dict.fromkeys(range(4), "backward"),
        "phase_since_ns": dict.fromkeys(range(4), round(last_s * 1e9)),
        "step": dict.fromkeys(range(4), job.num_steps),
    }
    view = folded([*frames(job), *seen, status(job, 500, last_s + 20.0, **values)]).view()
    assert bool(hangs(view)) == is_told


def test_a_rank_that_stands_stopped_is_told_however_long_a_step_has_taken() -> None:
    """Nothing but somebody else lets it go on: there is nothing to be patient for."""
    places = [
        RankNow(rank, "live", "backward", 8.0, 120, thread)
        for rank, thread in enumerate(("waiting", "stopped", "waiting"))
    ]
    found = standstill(places, 60.0)
    assert found is not None
    assert found.missing == (1,)
    assert standstill([replace(now, thread="waiting") for now in places], 60.0) is None


@pytest.mark.parametrize(
    "threads",
    [
        {0: "waiting", 1: "waiting", 2: "waiting", 3: "waiting"},
        {0: "waiting", 1: "asleep", 2: None, 3: "waiting"},
        {0: "waiting", 1: "asleep", 2: "running", 3: "waiting"},
        {0: "running", 1: "running", 2: "running", 3: "running"},
        {0: "waiting", 1: "having lunch", 2: "waiting", 3: "waiting"},
    ],
)
def test_threads_that_do_not_tell_name_nobody(threads: dict[int, object]) -> None:
    """All alike, one unknown, or two that differ each in its own way: who has not come stays unknown."""
    view = still(Job(), 8.0, dict.fromkeys(range(4), "backward"), thread=threads)
    assert [("warning", (), "backward")] == hangs(view)


def test_a_job_that_is_suspended_is_told_with_what_lets_it_go_on() -> None:
    """As by `scontrol suspend` or ^Z: nobody is missing, and no stack would tell more."""
    view = still(Job(), 8.0, dict.fromkeys(range(4), "backward"), thread=dict.fromkeys(range(4), "stopped"))
    assert [("critical", (0, 1, 2, 3), None)] == hangs(view)
    assert view.stall is not None
    assert "ranks 0, 1, 2 and 3 are stopped by a signal or a debugger" == view.stall.words
    assert view.stall.words in view.verdict.sentence
    assert "stopped" == view.stall.held
    assert {"stopped"} == {row.held for row in view.ranks}


def ended_after(
    seconds: float,
    state: str,
    detail: str,
    phases: dict[int, str] | None = None,
    **of_rank: dict[int, object],
) -> RunView:
    """The view of a job whose four processes end so after `seconds` in which nothing moved."""
    job = Job()
    last_s = 1.0 + 0.02 * job.num_steps
    values: dict[str, dict[int, object]] = {
        "phase": dict(phases or {0: "backward", 1: "data_wait", 2: "backward", 3: "backward"}),
        "phase_since_ns": dict.fromkeys(range(4), round(last_s * 1e9)),
        "step": dict.fromkeys(range(4), job.num_steps),
        **of_rank,
    }
    end = {
        "state": dict.fromkeys(range(4), state),
        "detail": dict.fromkeys(range(4), detail),
        "step": values["step"],
    }
    stood = status(job, 90, last_s + seconds, **values)
    return folded([*frames(job), stood, status(job, 91, last_s + seconds + 1, **end)]).view()


@pytest.mark.parametrize(
    ("state", "detail", "then"),
    [
        ("killed", "killed by SIGTERM after step 200", ""),
        (
            "killed",
            "killed by SIGABRT after step 200",
            "; then rank 0 was killed by SIGABRT after step 200 (3 more ranks ended with it)",
        ),
        (
            "exited",
            "exited with code 1 after step 200",
            "; then rank 0 exited with code 1 after step 200 (3 more ranks ended with it)",
        ),
    ],
)
def test_whoever_ends_a_job_that_hangs_does_not_make_it_one_that_worked(
    state: str, detail: str, then: str
) -> None:
    """By hand, by NCCL's watchdog, by an error of a collective: the recording of the night says that it hung."""
    view = ended_after(40.0, state, detail)
    assert [("critical", (1,), "data_wait")] == hangs(view)
    assert "hang" == view.verdict.decision
    sentence = "Stalled: no step for 40 s until it was ended: ranks 0, 2 and 3 wait for rank 1"
    assert view.verdict.sentence.startswith(sentence)
    assert view.verdict.sentence.endswith(f"{then}.")
    assert view.stall is not None
    assert "" == view.stall.command, "there is no process any more"
    assert [state] * 4 == [row.state for row in view.ranks]
    assert {""} == {row.held for row in view.ranks}
    (hang,) = [one for one in view.findings if one.id == "hang"]
    assert "tuiadvisor stacks" not in [action.command for action in hang.actions]


def test_the_end_of_a_process_that_closes_its_step_does_not_hide_that_it_hung() -> None:
    """After Ctrl-C a job that hung behind its optimizer was one "not decided": each rank had one step more, of 40 s."""
    job = Job(num_steps=201)
    run = simulate(job)
    last_s = max(records[199][3] for records in run.rows.values()) / 1e9
    rows = {
        rank: [*records[:200], (*records[200][:3], records[200][3] + 40 * 10**9, *records[200][4:])]
        for rank, records in run.rows.items()
    }
    stood = status(
        job,
        90,
        last_s + 40,
        phase={0: "backward", 1: "data_wait", 2: "backward", 3: "backward"},
        phase_since_ns=dict.fromkeys(range(4), round(last_s * 1e9)),
        step=dict.fromkeys(range(4), 200),
    )
    end = {
        "state": dict.fromkeys(range(4), "killed"),
        "detail": dict.fromkeys(range(4), "killed by SIGINT"),
        "step": dict.fromkeys(range(4), 201),
    }
    told = [*frames(job, simulated=replace(run, rows=rows)), stood, status(job, 91, last_s + 41, **end)]
    assert [("critical", (1,), "data_wait")] == hangs(folded(told).view())


def test_a_job_that_was_ended_while_it_worked_did_not_hang() -> None:
    """Nor one that finished, whatever it did last, nor one of which a rank went first and the others waited for it."""
    assert [] == hangs(ended_after(1.0, "killed", "killed by SIGTERM after step 200"))
    assert [] == hangs(ended_after(90.0, "exited", "after step 200"))
    last_s = 1.0 + 0.02 * Job().num_steps
    since: dict[int, object] = dict.fromkeys(range(4), round(last_s * 1e9))
    since[1] = round((last_s + 39) * 1e9)
    assert [] == hangs(ended_after(40.0, "killed", "killed by SIGKILL after step 200", phase_since_ns=since))


HELD_BY_1: dict[int, object] = {0: "backward", 1: "other", 2: "backward", 3: "backward"}


def ending_slowly(stood_s: float, *, is_told: bool, says: tuple[int, ...] = (1,)) -> list[RunView]:
    """Four ranks of which rank 1 is interrupted: pictures while it cleans up, while it goes, and after the last one.

    stood_s: since the last of them moved, when rank 1 is gone; its peers meet its end in their all-reduce, and then
    clean up for 12 s. is_told: flight recorders were asked. says: ranks that said that they were on their way out.
    """
    job = Job()
    last_s = 1.0 + 0.02 * job.num_steps
    since_ns = round(last_s * 1e9)
    at: dict[str, dict[int, object]] = {
        "phase": dict(HELD_BY_1),
        "phase_since_ns": dict.fromkeys(range(4), since_ns),
        "step": dict.fromkeys(range(4), job.num_steps),
    }
    cleaning = status(job, 90, last_s + stood_s, **at)
    if is_told:
        cleaning.payload["recorders"] = [
            {
                "rank": rank,
                "pid": 100 + rank,
                "still_since_ns": since_ns,
                "asked_ns": since_ns + 5 * 10**9,
                "ends": int(rank in says),
            }
            for rank in range(4)
        ]
    leaving: dict[str, dict[int, object]] = {**at, "state": {1: "detached"}, "detail": {1: EXITING}}
    unwound_s = last_s + stood_s + 2
    later: dict[str, dict[int, object]] = {
        "phase": dict.fromkeys((0, 2, 3), "other"),
        "phase_since_ns": dict.fromkeys(range(4), round(unwound_s * 1e9)),
        "step": at["step"],
        "state": {1: "killed"},
        "detail": {1: "killed by SIGINT after step 200"},
    }
    gone: dict[str, dict[int, object]] = {
        "state": dict.fromkeys(range(4), "killed"),
        "detail": dict.fromkeys(range(4), "killed by SIGINT after step 200"),
        "step": at["step"],
    }
    told = [*frames(job), cleaning]
    views = [folded(told).view()]
    for seq, (seconds, of_rank) in enumerate(
        ((1.0, leaving), (2.0, later), (14.0, later), (15.0, gone)), start=91
    ):
        told.append(status(job, seq, last_s + stood_s + seconds, **of_rank))
        views.append(folded(told).view())
    return views


def test_a_job_that_works_and_ends_slowly_did_not_stall() -> None:
    """Walk with three ranks and SIGTERM: "Stalled: ranks 1 and 2 wait for rank 0", which was in its `finally`.

    Before they are asked whether they are on their way out nothing is said, and after their end nothing stood.
    """
    for view in ending_slowly(14.0, is_told=True):
        assert (view.stall, []) == (None, hangs(view))
        assert view.verdict.decision != "hang"
    first, *_ = ending_slowly(14.0, is_told=True)
    assert first.no_step is not None
    assert first.no_step.is_at_work
    assert "rank 1 is ending (KeyboardInterrupt or SystemExit) and has not finished" == first.no_step.words
    assert all(view.stall is None for view in ending_slowly(4.0, is_told=False)), (
        "its peers stood only since then"
    )
    assert ending_slowly(8.0, is_told=False)[0].stall is None, "nobody was asked yet"


def test_a_hang_that_stood_before_it_was_ended_slowly_stays_one() -> None:
    """Walk: stalled for 29 s, then Ctrl-C; ranks unwound one by one, and the run that had hung said it moved again."""
    log = EventLog()
    for view in ending_slowly(40.0, is_told=True, says=()):
        log.take(view)
        assert [("critical", (1,), "other")] == hangs(view)
        assert view.verdict.decision == "hang"
    log.end(view)
    assert [] == [event.words for event in log.events if event.kind == RESOLVED]


def test_who_is_told_to_end_after_others_stood_is_no_reason_why_they_do() -> None:
    """A hang is asked about again: by then rank 1 was interrupted, and the first time it was not."""
    job, since_ns = Job(), round((1.0 + 0.02 * Job().num_steps) * 1e9)
    told = list(frames(job))
    for seq, ends in ((90, 0), (91, 1)):
        stood = status(
            job,
            seq,
            since_ns / 1e9 + 40.0,
            phase=dict(HELD_BY_1),
            phase_since_ns=dict.fromkeys(range(4), since_ns),
            step=dict.fromkeys(range(4), job.num_steps),
        )
        stood.payload["recorders"] = [
            {"rank": rank, "pid": 100 + rank, "still_since_ns": since_ns, "ends": ends} for rank in range(4)
        ]
        told.append(stood)
        assert [("critical", (1,), "other")] == hangs(folded(told).view())


def test_whoever_is_still_there_long_after_the_job_was_told_to_end_is_told_of() -> None:
    """One rank of four got SIGTERM by mistake, the others wait: after the 30 s that launchers leave it is no end."""
    job = Job()
    last_s = 1.0 + 0.02 * job.num_steps
    told = list(frames(job))
    seen = []
    for seq, seconds in enumerate((1.0, 20.0, 40.0), start=90):
        told.append(
            status(
                job,
                seq,
                last_s + seconds,
                phase=dict.fromkeys((0, 2, 3), "backward"),
                phase_since_ns=dict.fromkeys(range(4), round(last_s * 1e9)),
                step=dict.fromkeys(range(4), job.num_steps),
                state={1: "killed"},
                detail={1: "killed by SIGTERM after step 200"},
            )
        )
        seen.append(hangs(folded(told).view()))
    assert [[], [], [("critical", (1,), "backward")]] == seen


def test_a_killed_rank_is_the_one_the_others_wait_for() -> None:
    """Its phase is unknown, its end is not."""
    states: dict[int, object] = {2: "killed"}
    view = still(Job(), 8.0, dict.fromkeys((0, 1, 3), "backward"), state=states)
    assert [("warning", (2,), "backward")] == hangs(view)


@pytest.mark.parametrize(("died", "missing"), [(100, 1), (198, 3), (200, 3)])
def test_a_rank_without_which_the_others_went_on_is_not_what_they_wait_for(died: int, missing: int) -> None:
    """Rank 3 was killed at step 100 and the job went on with three ranks; at 200 rank 1 hangs in its loader."""
    job, steps = Job(num_steps=200), {0: 200, 1: 200, 2: 200, 3: died}
    run = simulate(job)
    rows = {**run.rows, 3: run.rows[3][:died]}
    last_s = max(row[3] for records in run.rows.values() for row in records) / 1e9
    end = status(
        job,
        90,
        last_s + 8,
        phase={0: "backward", 1: "data_wait", 2: "backward"},
        phase_since_ns=dict.fromkeys(range(3), round(last_s * 1e9)),
        state={3: "killed"},
        step=dict(steps),
    )
    view = folded([*frames(job, simulated=replace(run, rows=rows)), end]).view()
    assert [(missing,)] == [ranks for _, ranks, _ in hangs(view)]


@pytest.mark.parametrize(
    ("seconds", "phases"),
    [
        (3.0, dict.fromkeys(range(4), "backward")),
        (60.0, {0: "checkpoint", 1: "backward", 2: "backward", 3: "backward"}),
        (60.0, {0: "eval", 1: "eval", 2: "eval", 3: "eval"}),
        (60.0, dict.fromkeys(range(4), "other")),
    ],
)
def test_a_pause_is_no_hang(seconds: float, phases: dict[int, str]) -> None:
    """Short, or with a checkpoint or an evaluation under way, or after the training loop."""
    assert [] == hangs(still(Job(), seconds, phases))


def test_steps_of_minutes_are_no_hang() -> None:
    """The run's own pattern decides: 8 s in backward are nothing where steps take 6 s."""
    job = Job(num_steps=30, forward_s=2.0, backward_s=4.0)
    assert [] == hangs(still(job, 8.0, dict.fromkeys(range(4), "backward")))


def test_a_rank_that_moves_still_means_no_hang() -> None:
    """Rank 0 evaluates through hooks of its own: its phases change all the time."""
    since: dict[int, object] = {0: round(44.99e9), 1: round(5e9), 2: round(5e9), 3: round(5e9)}
    view = still(Job(), 40.0, dict.fromkeys(range(4), "backward"), phase_since_ns=since)
    assert [] == hangs(view)


def test_rare_long_stalls_of_one_rank_are_named() -> None:
    """A rank stopped for 300 ms every 60 to 80 steps costs a fifth of the time, in whatever phase it is caught."""
    kinds = ("forward", "backward", "data", "backward", "forward", "other")
    onsets = (40, 117, 178, 260, 321, 399)
    stalls = tuple(
        Fault(kind, (1,), 300 * MS, onset=onset, until=onset + 1)
        for kind, onset in zip(kinds, onsets, strict=True)
    )
    view = folded(frames(Job(num_steps=440, faults=stalls))).view()
    assert [("straggler", (1,), "host")] == above_info(view)
    (finding,) = [f for f in view.findings if f.id == "straggler"]
    assert 40 == finding.since_step
    assert 1.8 / 440 == pytest.approx(finding.loss_s_per_step, rel=0.1)


def test_rare_long_stalls_that_hit_ranks_by_turns_name_nobody() -> None:
    """As many, as long: noise of the machine, though one rank has two of them."""
    stalls = tuple(
        Fault("forward", (rank,), 300 * MS, onset=onset, until=onset + 1)
        for rank, onset in zip((1, 3, 0, 1, 2), (40, 117, 178, 260, 321), strict=True)
    )
    assert [] == above_info(folded(frames(Job(num_steps=380, faults=stalls))).view())


def test_one_burst_of_long_stalls_is_one_event() -> None:
    """A neighbour's work for a few steps is nobody's habit."""
    burst = Fault("forward", (1,), 100 * MS, onset=100, until=106)
    assert [] == above_info(folded(frames(Job(num_steps=380, faults=(burst,)))).view())


def host_frames(job: Job, wait_share: dict[int, float], begin_s: int = 1) -> list[Frame]:
    """HOST frames once a second of the run: each rank's run delay grows by its share of the time."""
    num_seconds = int(job.num_steps * 0.02) + 2
    result = []
    for second in range(num_seconds):
        now_ns = (begin_s + second) * 10**9
        ranks = [{"rank": rank, "run_delay_s": 5.0 + share * second} for rank, share in wait_share.items()]
        payload = {
            "host": "node0",
            "mono_ns": now_ns,
            "wall_ns": 1_700_000_000_000_000_000 + now_ns,
            "ranks": ranks,
        }
        result.append(Frame(FrameKind.HOST, "node0/1/1", 100 + second, now_ns, payload))
    return result


@pytest.mark.parametrize(
    ("of_the_late", "of_its_peers", "cause"),
    [
        (0.32, 0.02, "host"),  # 0.3 of a 22 ms step: all of the 6 ms
        (0.32, 0.30, "backward"),  # all ranks wait for cores alike
        (0.07, 0.02, "backward"),  # a little more than the others
    ],
)
def test_a_rank_that_waits_for_a_core_is_late_for_its_host(
    of_the_late: float, of_its_peers: float, cause: str
) -> None:
    """Its time passes in backward, but the kernel says that it was ready and had no core."""
    job = Job(num_steps=400, faults=(Fault("backward", (1,), 6 * MS),))
    shares = {**dict.fromkeys(range(4), of_its_peers), 1: of_the_late}
    view = folded([*frames(job), *host_frames(job, shares)]).view()
    crowd = [("crowded_host", (), None)] if of_its_peers >= 0.2 else []
    assert [("straggler", (1,), cause), *crowd] == above_info(view)
    (finding,) = [f for f in view.findings if f.id == "straggler"]
    excess_s = (of_the_late - of_its_peers) * (view.step.median_s or 0.0)
    assert excess_s == pytest.approx(finding.evidence["excess_core_wait_s"], rel=0.15)


def test_without_the_kernels_counts_of_every_peer_nothing_is_said_about_cores() -> None:
    """Unknown is not zero."""
    job = Job(num_steps=400, faults=(Fault("backward", (1,), 6 * MS),))
    view = folded([*frames(job), *host_frames(job, {0: 0.02, 1: 0.32})]).view()
    assert [("straggler", (1,), "backward")] == above_info(view)
    assert "excess_core_wait_s" not in next(f for f in view.findings if f.id == "straggler").evidence


def crowd_frames(job: Job, run_queue: int, wait_share: float, begin_s: int = 1) -> list[Frame]:
    """HOST frames of two cores with so many threads ready, all ranks waiting for a core alike."""
    found = host_frames(job, dict.fromkeys(range(job.num_ranks), wait_share), begin_s)
    return [
        replace(frame, payload={**frame.payload, "run_queue": run_queue, "num_cpus": 2}) for frame in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        (Fault("data", None, 2 * MS), "input_bound"),
        (Fault("comm", None, 4 * MS), "communication_bound"),
    ],
)
def test_what_all_ranks_lose_to_a_crowded_host_is_neither_the_loaders_nor_the_networks(
    fault: Fault, finding: str
) -> None:
    """A tenth of the step in data, or a fifth in the exchange: with six threads ready for each core a remark."""
    job = Job(num_ranks=2, num_steps=400, faults=(fault,))
    assert [finding] == [entry[0] for entry in above_info(folded(frames(job)).view())]
    roomy = folded([*frames(job), *crowd_frames(job, run_queue=3, wait_share=0.01)]).view()
    assert [finding] == [entry[0] for entry in above_info(roomy)]

    view = folded([*frames(job), *crowd_frames(job, run_queue=13, wait_share=0.19)]).view()

    assert [] == above_info(view)
    found = {entry.id: entry for entry in view.findings}
    assert "6.0 runnable threads per core, ranks wait for a core 19 %" in found[finding].message
    assert 6.0 == found[finding].evidence["ready_per_core"]
    assert "19 % of the time" in found["crowded_host"].message


def test_a_window_that_has_just_begun_anew_is_no_less_crowded() -> None:
    """Others' work changes the job's pace, so its window is short just when the cores are wanted most."""
    job = Job(num_ranks=2, num_steps=400, faults=(Fault("comm", None, 4 * MS, onset=350),))
    alone = folded(frames(job)).view()
    assert ["communication_bound"] == [entry[0] for entry in above_info(alone)]
    assert (alone.window.first_step, alone.window.num_steps * (alone.step.median_s or 9.0) < 1.5) == (
        350,
        True,
    )
    assert [] == above_info(folded([*frames(job), *crowd_frames(job, run_queue=13, wait_share=0.19)]).view())


def test_a_host_that_is_crowded_once_the_last_step_has_ended_says_nothing_of_the_steps() -> None:
    """As while a job's next processes start: nobody waited for a core in any step."""
    job = Job(num_ranks=2, num_steps=400)
    end_ns = max(row[STEP_NAMES.index("end_ns")] for rows in simulate(job).rows.values() for row in rows)
    later = crowd_frames(job, run_queue=13, wait_share=0.6, begin_s=end_ns // 10**9 + 3)
    view = folded([*frames(job), *later]).view()
    assert "crowded_host" not in {entry.id for entry in view.findings}
    assert ("keep", []) == (view.verdict.decision, above_info(view))


def test_a_crowded_host_does_not_excuse_input_that_takes_half_of_the_step() -> None:
    """Six threads a core explain a tenth."""
    job = Job(num_ranks=2, num_steps=400, faults=(Fault("data", None, 16 * MS),))
    view = folded([*frames(job), *crowd_frames(job, run_queue=13, wait_share=0.19)]).view()
    assert ("input_bound", "critical") == (view.findings[0].id, view.findings[0].severity)


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, "many", -3, 1e400, True])
def test_a_run_queue_that_is_no_number_says_nothing(value: object) -> None:
    """Outside data: ignored, and the finding stands as without it."""
    job = Job(num_ranks=2, num_steps=400, faults=(Fault("data", None, 2 * MS),))
    found = [
        replace(frame, payload={**frame.payload, "run_queue": value}) for frame in crowd_frames(job, 13, 0.0)
    ]
    assert ["input_bound"] == [entry[0] for entry in above_info(folded([*frames(job), *found]).view())]


@pytest.mark.parametrize("joins", [312, 315, 318])
def test_a_rank_that_has_just_joined_was_not_compared(joins: int) -> None:
    """Rank 1 is late; two to eight of 320 steps are all that was seen of it: no slow exchange, no praise."""
    job = Job(num_steps=320, attach=(0, joins, 0, 0), faults=(Fault("forward", (1,), 5 * MS),))
    view = final_view(job)
    assert [] == above_info(view)
    assert "communication_bound" not in {finding.id for finding in view.findings}
    assert "transfer" in {entry.metric for entry in view.unknown}
    assert view.verdict.decision is None  # the others wait: for the network, or for the rank that joined
    assert view.verdict.sentence.endswith("1 rank was not compared and may be late.")


def test_a_rank_that_was_not_compared_changes_nothing_where_nobody_waits() -> None:
    """Whoever is not seen cannot be late where no time is spent waiting."""
    job = Job(num_steps=320, attach=(0, 315, 0, 0), transfer_s=0.05 * MS)
    view = final_view(job)
    assert view.verdict.decision == "keep"
    assert "1 rank was not compared" in view.verdict.sentence


def test_a_rank_that_was_announced_but_sent_no_step_is_not_taken_for_a_slow_exchange() -> None:
    """Rank 2 of 4 is late, and its steps never come: the others' waiting is no exchange, and nobody is named."""
    job = Job(num_ranks=4, missing=(2,), faults=(Fault("forward", (2,), 10 * MS),))
    advisor = folded([hello(replace(job, missing=()), "node0"), *frames(job)[1:]])
    view = advisor.view()
    assert [] == above_info(view)
    assert "1 rank was not compared and may be late" in view.verdict.sentence


@pytest.mark.parametrize(("other_ms", "decision"), [(30, None), (8, "keep")])
def test_a_step_that_mostly_passes_where_no_hook_sees_is_not_kept(
    other_ms: float, decision: str | None
) -> None:
    """It may be the work itself, an environment's steps say, or the loss: 83 % of a step were kept as they were."""
    view = final_view(Job(num_ranks=2, other_s=other_ms * MS))
    assert [] == above_info(view)
    assert decision == view.verdict.decision
    assert ("healthy" in {finding.id for finding in view.findings}) == (decision == "keep")
    assert ("in code that no hook sees" in view.verdict.sentence) == (decision is None)
