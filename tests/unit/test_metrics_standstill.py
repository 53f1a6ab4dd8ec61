"""When a job stands still, and whom nothing but its place accuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tuiadvisor.metrics.hang.collective_evidence import CollectiveEvidence
from tuiadvisor.metrics.hang.detection import (
    ASKED_BY_S,
    LONGER_THAN_USUAL,
    MIN_STILL_S,
    OUTSIDE_PATIENCE_S,
    PATIENCE_S,
    STEPS_AFTER_DEATH,
    Departure,
    RankNow,
    awaited,
    departure,
    informed,
    standstill,
)
from tuiadvisor.metrics.hang.missing_ranks import Hang

STEP_S = 0.1


def places(*phases: str | None, for_s: float = 8.0, step: int | None = 120) -> list[RankNow]:
    """Live ranks in these phases, each for so long."""
    return [RankNow(rank, "live", phase, for_s, step) for rank, phase in enumerate(phases)]


def told(ranks: Sequence[RankNow], longest_step_s: float | None = STEP_S) -> tuple[tuple[int, ...], ...]:
    """(missing, waiting)."""
    found = standstill(ranks, longest_step_s)
    assert found is not None
    return found.missing, found.waiting


def with_threads(ranks: Sequence[RankNow], *threads: str | None, asleep: bool = True) -> list[RankNow]:
    return [
        replace(now, thread=thread, waits_asleep=asleep) for now, thread in zip(ranks, threads, strict=True)
    ]


def after(ranks: Sequence[RankNow], for_s: float) -> list[RankNow]:
    return [replace(now, for_s=for_s) for now in ranks]


@pytest.mark.parametrize(
    ("phases", "longest_step_s", "limit_s"),
    [
        (("backward", "forward"), STEP_S, MIN_STILL_S),
        (("backward", "forward"), 0.0, MIN_STILL_S),
        (("backward", "forward"), 20.0, LONGER_THAN_USUAL * 20.0),
        (("backward", "forward"), None, PATIENCE_S),
        (("checkpoint", "comm_exposed"), STEP_S, PATIENCE_S),
        (("eval", "eval"), STEP_S, PATIENCE_S),
    ],
)
def test_a_job_stands_still_once_it_has_for_longer_than_it_is_used_to(
    phases: tuple[str, ...], longest_step_s: float | None, limit_s: float
) -> None:
    """By its own longest step; before the first steps, and while it saves or evaluates, far longer."""
    ranks = places(*phases)
    assert standstill(after(ranks, limit_s - 0.01), longest_step_s) is None
    found = standstill(after(ranks, limit_s), longest_step_s)
    assert found is not None
    assert limit_s == found.for_s
    # One rank that has moved lately is enough: the job goes on.
    assert standstill([ranks[0], replace(ranks[1], for_s=limit_s - 0.01)], longest_step_s) is None


def test_outside_of_every_phase_only_several_devices_can_be_waiting() -> None:
    """The loop may be over: nothing is ever said of ranks on processors, or of one device alone."""
    ranks = places("other", "other", for_s=1e5)
    assert standstill(ranks, STEP_S) is None
    on_devices = [replace(now, on_device=True) for now in ranks]
    assert ((), (0, 1)) == told(on_devices)
    assert standstill(on_devices[:1], STEP_S) is None
    assert standstill(after(on_devices, OUTSIDE_PATIENCE_S - 0.01), STEP_S) is None


@pytest.mark.parametrize("unknown", [{"phase": None}, {"for_s": None}])
def test_of_a_rank_whose_place_is_unknown_nothing_is_said(unknown: dict[str, None]) -> None:
    """It may be the one that moves."""
    ranks = places("backward", "forward", for_s=1e5)
    assert standstill([ranks[0], replace(ranks[1], **unknown)], STEP_S) is None


@pytest.mark.parametrize("states", [(), ("killed", "killed"), ("exited", "found")])
def test_a_job_without_a_live_rank_does_not_stand_still(states: tuple[str, ...]) -> None:
    """It is over, or has not begun."""
    ranks = [RankNow(rank, state, "backward", 1e5, 120) for rank, state in enumerate(states)]
    assert standstill(ranks, STEP_S) is None


@pytest.mark.parametrize(
    ("steps_ago", "is_death"), [(0, True), (STEPS_AFTER_DEATH, True), (STEPS_AFTER_DEATH + 1, False)]
)
def test_the_others_wait_for_a_dead_rank_only_if_they_stopped_with_it(steps_ago: int, is_death: bool) -> None:
    """A smaller job that went on without it waits for somebody else, as does one whose rank has ended well."""
    ranks = places("backward", "backward", "forward")
    dead = RankNow(3, "killed", None, None, 120 - steps_ago)
    found = standstill([*ranks, dead], STEP_S)
    assert found is not None
    assert is_death == found.is_death
    assert ((3,) if is_death else (2,)) == found.missing
    assert ((0, 1, 2) if is_death else (0, 1)) == found.waiting
    assert ((2,), (0, 1)) == told([*ranks, replace(dead, state="exited")])


def test_who_evaluates_while_the_others_wait_is_awaited_however_long_it_takes() -> None:
    """Forwards without gradient that go on, for a quarter of an hour: no hang, and who waits for whom is said."""
    ranks = places("comm_exposed", "comm_exposed", "other", for_s=900.0)
    ranks[2] = replace(ranks[2], for_s=0.3, so_far_s={"eval": 800.0, "other": 99.0, "forward": 1.0})
    assert standstill(ranks, STEP_S) is None
    found = awaited(ranks, STEP_S)
    assert found is not None
    assert (900.0, (0, 1), (2,), True) == (found.for_s, found.waiting, found.missing, found.evaluates)
    assert ("eval", 800.0) == found.in_s[0]
    ranks[2] = replace(ranks[2], so_far_s={"other": 800.0, "eval": 99.0})
    found = awaited(ranks, STEP_S)
    assert found is not None
    assert not found.evaluates
    # What is not seen to work is not said to: it hangs, or may.
    for still in (
        replace(ranks[2], for_s=60.0),
        replace(ranks[2], thread="stopped"),
        replace(ranks[2], so_far_s={}),
    ):
        assert awaited([*ranks[:2], still], STEP_S) is None
    assert awaited([replace(now, on_device=True) for now in ranks], STEP_S) is None
    assert awaited(ranks, None) is None


def test_who_computes_in_an_evaluation_that_no_hook_sees_does_not_hang() -> None:
    """`model.module` in eval mode: asked inside it says so. Before it is asked it is given the time for that."""
    ranks = with_threads(
        places("comm_exposed", "comm_exposed", "other", for_s=41.0), "waiting", "waiting", "running"
    )
    found = standstill(ranks, STEP_S)
    assert found is not None
    assert ((2,), "running", False) == (found.missing, found.thread, found.is_at_work)
    young = standstill(after(ranks, ASKED_BY_S - 0.1), STEP_S)
    assert young is not None
    assert young.is_at_work
    told_so = [*ranks[:2], replace(ranks[2], evaluates=True, so_far_s={"other": 41.0})]
    asked = informed(found, CollectiveEvidence(Hang((), (), "", ""), ()), dict(enumerate(told_so)))
    assert asked.is_at_work
    assert awaited(told_so, STEP_S) is not None
    # Nor does it compute any more: that is a hang inside of an evaluation.
    for thread in ("asleep", "waiting", "stopped", None):
        stuck = [*told_so[:2], replace(told_so[2], thread=thread)]
        found = standstill(stuck, STEP_S)
        assert found is not None
        assert not informed(
            found, CollectiveEvidence(Hang((), (), "", ""), ()), dict(enumerate(stuck))
        ).is_at_work
        assert awaited(stuck, STEP_S) is None


def test_who_waits_inside_of_an_evaluation_is_told_after_a_minute() -> None:
    """A collective in the evaluation of one rank, which the others never enter: ten minutes went by in silence."""
    ranks = with_threads(places("comm_exposed", "eval"), "waiting", "waiting")
    assert standstill(after(ranks, OUTSIDE_PATIENCE_S - 0.1), STEP_S) is None
    assert standstill(after(ranks, OUTSIDE_PATIENCE_S), STEP_S) is not None
    assert standstill(with_threads(after(ranks, PATIENCE_S - 0.1), "waiting", "running"), STEP_S) is None


LEFT = RankNow(2, "exited", None, None, 119, how_ended="left with exit code 0 after step 119", vanished=True)


def test_who_ended_by_itself_is_waited_for_where_all_others_are_seen_to_wait() -> None:
    """Fewer batches than the others, or os._exit: they are in their next collective for ever."""
    ranks = places("backward", "comm_exposed")
    found = standstill([*ranks, LEFT], STEP_S)
    assert found is not None
    assert ((2,), True, LEFT.how_ended) == (found.missing, found.is_death, found.how_ended)
    gone_long_ago = replace(LEFT, step=119 - STEPS_AFTER_DEATH)
    assert ((), (0, 1)) == told([*places("backward", "backward"), gone_long_ago])


@pytest.mark.parametrize(
    ("phase", "stands"), [("checkpoint", ((), (0,))), ("optimizer", ((), (0,))), ("other", None)]
)
def test_who_works_on_at_the_end_of_a_job_waits_for_nobody_who_is_done(
    phase: str, stands: tuple[tuple[int, ...], tuple[int, ...]] | None
) -> None:
    """Rank 0 saves the model after all others have ended."""
    found = standstill([*places(phase, for_s=PATIENCE_S), replace(LEFT, vanished=False)], STEP_S)
    assert stands == (None if found is None else (found.missing, found.waiting))
    assert departure([*places(phase), replace(LEFT, vanished=False)], STEP_S) is None


def test_a_rank_that_vanished_is_told_though_nobody_sees_what_the_others_wait_in() -> None:
    """A store, a file, a socket: code without a hook."""
    ranks = places("other", "other")
    assert Departure(8.0, 2, LEFT.how_ended, (0, 1)) == departure([*ranks, LEFT], STEP_S)
    assert departure([*after(ranks, MIN_STILL_S - 0.01), LEFT], STEP_S) is None
    assert departure([*ranks, LEFT], 8.0 / LONGER_THAN_USUAL + 0.1) is None
    assert departure([*ranks, replace(LEFT, step=100)], STEP_S) is None
    assert departure([LEFT], STEP_S) is None


def test_a_dead_rank_of_unknown_step_is_waited_for() -> None:
    """Where its last step was not seen, or nobody's was; the dead have no phase to be named."""
    ranks = places("backward", "backward")
    assert ((2,), (0, 1)) == told([*ranks, RankNow(2, "killed", None, None, None)])
    unseen = [replace(now, step=None) for now in ranks]
    found = standstill([*unseen, RankNow(2, "killed", "forward", None, 7)], STEP_S)
    assert found is not None
    assert ((2,), None, "backward") == (found.missing, found.step, found.phase)


@pytest.mark.parametrize(
    ("phases", "missing"),
    [
        (("backward", "data_wait", "backward"), (1,)),
        (("comm_exposed", "forward", "backward"), (1,)),
        (("pipeline_idle", "optimizer", "data_wait"), (1, 2)),
        # Whoever shows that it communicates waits; of the others in backward nobody has come so far.
        (("comm_exposed", "backward", "comm_exposed"), (1,)),
        (("comm_exposed", "comm_exposed", "comm_exposed"), ()),
        (("backward", "backward", "backward"), ()),
        (("forward", "forward", "forward"), ()),  # nobody waits: all compute, or none is known to
    ],
)
def test_a_rank_in_a_phase_in_which_nobody_waits_has_not_come(
    phases: tuple[str, ...], missing: tuple[int, ...]
) -> None:
    """And where all or none are in such a phase, nobody is named."""
    rest = tuple(rank for rank in range(3) if rank not in missing)
    assert (missing, rest) == told(places(*phases))


def test_a_rank_behind_in_steps_has_not_come_if_the_others_can_be_waiting() -> None:
    """One that is ahead and computes waits for nobody: then the step accuses nobody."""
    behind = replace(places("forward")[0], step=119)
    ahead = [replace(now, rank=now.rank + 1) for now in places("backward", "comm_exposed")]
    found = standstill([behind, *ahead], STEP_S)
    assert found is not None
    assert ((0,), (1, 2), 120, "forward") == (found.missing, found.waiting, found.step, found.phase)
    assert ((), (0, 1, 2)) == told([behind, ahead[0], replace(ahead[1], phase="data_wait")])
    # Of one the step is unknown: its place is all there is.
    assert ((0,), (1, 2)) == told([replace(behind, step=None), *ahead])


def test_the_phase_is_that_of_the_missing_if_they_agree() -> None:
    """Else of all ranks, if those agree."""
    for phases, named in (
        (("backward", "forward", "forward"), "forward"),
        (("backward", "forward", "data_wait"), None),
        (("backward", "backward", "backward"), "backward"),
    ):
        found = standstill(places(*phases), STEP_S)
        assert found is not None
        assert named == found.phase


@pytest.mark.parametrize(
    ("threads", "missing", "thread"),
    [
        (("waiting", "running", "waiting"), (1,), "running"),
        (("waiting", "blocked", "blocked"), (1, 2), "blocked"),
        (("waiting", "running", "blocked"), (), None),  # two kinds: either may be the cause of the other
        (("waiting", "waiting", "waiting"), (), None),
        (("running", "running", "running"), (), None),
        (("waiting", None, "running"), (), None),  # the unknown one may be it
        (("waiting", "stopped", "running"), (1,), "stopped"),
    ],
)
def test_where_the_phase_tells_nothing_the_thread_may(
    threads: tuple[str | None, ...], missing: tuple[int, ...], thread: str | None
) -> None:
    """All are in backward; those that do what nobody does in a collective have not come to it."""
    found = standstill(with_threads(places("backward", "backward", "backward"), *threads), STEP_S)
    assert found is not None
    assert (missing, thread) == (found.missing, found.thread)


def test_a_rank_that_spins_in_its_collectives_is_not_accused_of_computing() -> None:
    """Only of ranks that wait asleep does a running thread tell; a stopped one is stopped anywhere."""
    ranks = places("backward", "backward")
    assert ((), (0, 1)) == told(with_threads(ranks, "waiting", "running", asleep=False))
    assert ((1,), (0,)) == told(with_threads(ranks, "waiting", "stopped", asleep=False))


@pytest.mark.parametrize("phase", ["backward", "other", "checkpoint", "forward"])
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_where_all_are_stopped_all_of_them_have_to_go_on(phase: str, num_ranks: int) -> None:
    """Suspended by the scheduler or by ^Z, wherever it met them: nobody waits for anybody."""
    ranks = with_threads(places(*[phase] * num_ranks, for_s=MIN_STILL_S), *["stopped"] * num_ranks)
    found = standstill(ranks, None)
    assert found is not None
    assert (tuple(range(num_ranks)), (), "stopped") == (found.missing, found.waiting, found.thread)
    assert standstill(after(ranks, MIN_STILL_S - 0.01), None) is None
    if num_ranks > 1:
        assert standstill([replace(ranks[0], thread="running"), *ranks[1:]], None) is None


@pytest.mark.parametrize("phase", ["eval", "checkpoint"])
def test_who_is_stopped_in_a_pause_does_not_work_at_it(phase: str) -> None:
    """The others wait for it as for one that is stopped in a step; while one of them is at work it may be that one."""
    ranks = with_threads(places(phase, "comm_exposed", for_s=MIN_STILL_S), "stopped", "waiting")
    found = standstill(ranks, STEP_S)
    assert found is not None
    assert ((0,), (1,), "stopped") == (found.missing, found.waiting, found.thread)
    assert standstill(after(ranks, MIN_STILL_S - 0.01), STEP_S) is None
    at_work = with_threads(places(phase, phase, "comm_exposed"), "stopped", "running", "waiting")
    assert standstill(after(at_work, OUTSIDE_PATIENCE_S), STEP_S) is None
    all_there = with_threads(places(phase, phase, for_s=OUTSIDE_PATIENCE_S), "stopped", "waiting")
    assert ((0,), (1,)) == told(all_there)
    assert standstill(after(all_there, OUTSIDE_PATIENCE_S - 0.01), STEP_S) is None


def test_a_stopped_rank_that_its_phase_names_is_called_stopped() -> None:
    """All of those that are missing have to be; what the waiting ones do is not said."""
    ranks = places("backward", "forward", "forward")
    for threads, thread in (
        (("running", "stopped", "stopped"), "stopped"),
        (("running", "stopped", "running"), None),
        (("stopped", "running", "running"), "running"),
    ):
        found = standstill(with_threads(ranks, *threads), STEP_S)
        assert found is not None
        assert ((1, 2), thread) == (found.missing, found.thread)


def test_a_device_tells_by_no_phase_who_has_not_come() -> None:
    """A thread goes on launching while a collective waits, so that rank may be in any phase."""
    ranks = [replace(now, on_device=True) for now in places("backward", "data_wait", "comm_exposed")]
    assert ((), (0, 1, 2)) == told(ranks)
    assert ((1,), (0, 2)) == told(with_threads(ranks, "running", "stopped", "running", asleep=False))
