"""Answers of standing ranks side by side: who has not entered which collective, in words."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from test_stall_dumps import call

from tuiadvisor.advisor.judge.hang import stall_of_answers
from tuiadvisor.agent.flight_recorder import cut
from tuiadvisor.causes.collectives import evidence_words, why_unknown
from tuiadvisor.causes.hang import measured, who_waits_words
from tuiadvisor.cli.stacks import _said_by_recorders
from tuiadvisor.metrics.hang.asked_recorder import Asked, asked
from tuiadvisor.metrics.hang.collective_evidence import collective_evidence, is_recorded
from tuiadvisor.metrics.hang.detection import RankNow, Standstill, informed

S = 10**9
BROADCAST = "gloo:broadcast"
WORLD = {"name": "0", "purpose": "default_pg", "backend": "gloo", "seq": 9, "spans": [[0, 1, 4]]}
PAIR = {"name": "1", "purpose": "undefined", "backend": "gloo", "seq": 3, "spans": [[0, 1, 2]]}
IN_BACKWARD = {rank: RankNow(rank, "live", "backward", 9.0, 120) for rank in range(4)}
UNKNOWN = Standstill(9.0, 120, (0, 1, 2, 3), (), "backward", is_death=False)


def answer(
    rank: int, *calls: dict[str, Any], groups: tuple[dict[str, Any], ...] = (WORLD,), **more: Any
) -> Asked:
    """As an agent sends it."""
    recorder = {"name": "fr", **cut(json.dumps({"entries": list(calls)}).encode())}
    told = {"pid": 100 + rank, "still_since_ns": 5, "wall_ns": 900 * S, "why": "", "groups": list(groups)}
    return asked({**told, "recorders": [recorder], **more}, rank)


def of(*answers: Asked, found: Standstill = UNKNOWN, silent: tuple[tuple[int, str], ...] = ()) -> Standstill:
    return informed(found, collective_evidence(answers, silent), IN_BACKWARD)


def test_the_missing_rank_is_named_with_the_collective() -> None:
    """Where phases named nobody."""
    found = of(*(answer(rank, call(8), call(9, done=False)) for rank in (0, 1, 3)), answer(2, call(8)))
    assert ((2,), (0, 1, 3)) == (found.missing, found.waiting)
    assert (
        "ranks 0, 1 and 3 wait for rank 2, which has not entered all_reduce (collective 9 of group default_pg)"
        == who_waits_words(found)
    )
    verdict = measured(found, dict.fromkeys(range(4), "node01"), 4, is_over=False)
    words = (
        "rank 2 has not entered all_reduce (collective 9 of group default_pg), in which ranks 0, 1 and 3 wait"
    )
    assert words == verdict.details["collectives"]
    assert str(verdict.values["still_words"]).endswith(f"; {words}")


def test_while_nobody_has_been_asked_the_phases_stand() -> None:
    """Without answers there is no evidence, whoever was silent."""
    by_phase = Standstill(9.0, 120, (1, 2, 3), (0,), "other", is_death=False)
    assert by_phase == of(found=by_phase, silent=((2, "no answer"),))


def test_recorders_that_agree_leave_what_is_known_of_the_missing_rank() -> None:
    """Its phase and what its thread does stand beside the collective."""
    by_thread = Standstill(9.0, 120, (0, 1, 3), (2,), "backward", is_death=False, thread="running")
    found = of(
        *(answer(rank, call(8), call(9, done=False)) for rank in (0, 1, 3)),
        answer(2, call(8)),
        found=by_thread,
    )
    assert found.evidence is not None
    assert (2,) == found.evidence.hang.missing
    assert by_thread == replace(found, evidence=None)


def test_recorders_win_over_phases() -> None:
    """Rank 0 stands in code without a hook, which called the collective that it is in; rank 2 has not entered it."""
    by_phase = Standstill(9.0, 120, (1, 2, 3), (0,), "other", is_death=False)
    inside = [answer(rank, call(9, done=False)) for rank in (0, 1, 3)]
    assert (2,) == of(*inside, answer(2, call(8)), found=by_phase).missing
    found = of(*inside, answer(2, call(9, done=False)), found=by_phase)
    assert ((), (0, 1, 2, 3)) == (found.missing, found.waiting)
    assert evidence_words(found).startswith("all ranks of group default_pg are in all_reduce (collective 9 ")


@pytest.mark.parametrize("held", [{"thread": "stopped"}, {"is_death": True}])
def test_who_could_not_be_asked_stays_named_and_nobody_else_is(held: dict[str, Any]) -> None:
    """A stopped rank, a dead one: the others say where they are."""
    by_thread = Standstill(9.0, 120, (0, 1, 3), (2,), "backward", **{"is_death": False, **held})
    inside = [answer(rank, call(9, done=False)) for rank in (0, 1, 3)]
    found = of(*inside, found=by_thread, silent=((2, "it is stopped"),))
    assert (2,) == found.missing
    assert "ranks 0, 1 and 3 are in all_reduce (collective 9 of group default_pg)" == evidence_words(found)
    assert who_waits_words(found).endswith("; they are in all_reduce (collective 9 of group default_pg)")


def test_a_rank_that_does_not_answer_is_not_accused() -> None:
    """It is said whose recorder could not be used, and why."""
    inside = [answer(rank, call(9, done=False)) for rank in (0, 1, 3)]
    found = of(*inside, silent=((2, "its interpreter does not answer: a thread is busy in C code"),))
    assert () == found.missing
    assert evidence_words(found).endswith(
        "; the flight recorder of rank 2 could not be used: its interpreter does not answer: a thread is busy in C code"
    )


def test_a_victim_is_not_named_and_the_smaller_group_comes_first() -> None:
    """Rank 0 waits for rank 1 in their pair; both are missing from the collective of all."""
    both = (WORLD, PAIR)
    found = of(
        answer(0, call(8), call(3, "1", done=False, process_group=["1", "undefined"]), groups=both),
        answer(1, call(8), groups=both),
        *(answer(rank, call(8), call(9, done=False)) for rank in (2, 3)),
    )
    # Of the pair rank 1's recorder, which does not go back to its first call, says nothing.
    assert ((1,), (0, 2, 3)) == (found.missing, found.waiting)
    assert who_waits_words(found).endswith(
        "which has not entered all_reduce (collective 9 of group default_pg)"
    )
    found = of(
        answer(0, call(8), call(1, "1", done=False, process_group=["1", "undefined"]), groups=both),
        answer(1, call(0), call(8), groups=both),
        *(answer(rank, call(8), call(9, done=False)) for rank in (2, 3)),
    )
    assert ((1,), (0, 2, 3)) == (found.missing, found.waiting)
    assert who_waits_words(found).endswith(
        "which has not entered all_reduce (collective 1 of group 1, ranks 0 and 1)"
    )


def test_different_operations_name_nobody() -> None:
    """The order of the programs differs."""
    found = of(
        answer(0, call(9, done=False, profiling_name="gloo:broadcast")),
        *(answer(rank, call(9, done=False)) for rank in (1, 2, 3)),
    )
    assert () == found.missing
    assert (
        "ranks 0, 1, 2 and 3 make no progress; ranks call different operations as collective 9 of group default_pg: "
        "rank 0 broadcast, ranks 1, 2 and 3 all_reduce" == who_waits_words(found)
    )


def test_numbers_that_still_move_name_nobody() -> None:
    """A call entered in the last two seconds is of ranks that go on where no phase shows it."""
    young = answer(0, call(8), call(9, done=False, time_created_ns=899 * S))
    found = of(young, *(answer(rank, call(8)) for rank in (1, 2, 3)))
    assert () == found.missing
    assert evidence_words(found).startswith("collectives were still being entered")


def test_answers_of_different_moments_name_nobody() -> None:
    """Rank 3, of another agent, was asked half a minute before rank 0 entered the call that it waits in."""
    inside = [answer(rank, call(8), call(9, done=False, time_created_ns=870 * S)) for rank in (0, 1, 2)]
    assert (3,) == of(*inside, answer(3, call(8))).missing
    found = of(*inside, answer(3, call(8), wall_ns=860 * S))
    assert () == found.missing
    assert evidence_words(found).startswith("collectives were still being entered")


@pytest.mark.parametrize(("stood_s", "named"), [(100, (2,)), (160, ())])
def test_calls_late_in_a_long_phase_name_nobody(stood_s: int, named: tuple[int, ...]) -> None:
    """An evaluation with a collective every half a minute; its last one was entered 30 s before all were asked."""
    when = {"still_since_ns": 5, "asked_ns": stood_s * S + 5}
    inside = [
        answer(rank, call(8), call(9, done=False, time_created_ns=870 * S), **when) for rank in (0, 1, 3)
    ]
    assert named == of(*inside, answer(2, call(8), **when)).missing


def test_a_rank_that_waits_for_a_message_is_a_victim() -> None:
    """Rank 1 receives from rank 0, of which Gloo's recorder knows nothing; rank 0 is what all wait for."""
    inside = [answer(rank, call(8), call(9, done=False)) for rank in (2, 3)]
    receives = answer(1, call(8), call="recv")
    found = of(*inside, receives, answer(0, call(8), call="backward"))
    assert ((0,), (1, 2, 3)) == (found.missing, found.waiting)
    by_phase = Standstill(9.0, 120, (0, 2, 3), (1,), "other", is_death=False)
    found = of(*inside, receives, answer(0, call(8), call(9, done=False)), found=by_phase)
    assert () == found.missing
    assert (
        "ranks 0, 2 and 3 are in all_reduce (collective 9 of group default_pg); rank 1 may itself wait in recv, of "
        "which no flight recorder tells" == evidence_words(found)
    )


def test_a_rank_whose_recorder_shows_it_waiting_is_not_named_by_its_phase() -> None:
    """Rank 0 stands in code without a hook, in a collective; rank 2, the one that is missing, did not answer."""
    by_phase = Standstill(9.0, 120, (1, 2, 3), (0,), "other", is_death=False)
    inside = [answer(rank, call(8), call(9, done=False)) for rank in (0, 1, 3)]
    assert () == of(*inside, found=by_phase, silent=((2, "it has not answered"),)).missing


def test_an_answer_of_another_rank_is_not_used() -> None:
    """The process that was asked as rank 2 says that it is rank 1: who is missing is not known."""
    inside = [answer(rank, call(8), call(9, done=False), own_rank=rank) for rank in (0, 1, 3)]
    assert (2,) == of(*inside, answer(2, call(8), own_rank=2)).missing
    found = of(*inside, answer(2, call(8), own_rank=1))
    assert () == found.missing
    assert evidence_words(found).endswith(
        "the flight recorder of rank 2 could not be used: its process group has it as rank 1"
    )


def test_calls_that_the_group_has_not_counted_are_of_an_earlier_one() -> None:
    """The groups were made anew; of the new one rank 0 has entered the first collective, the others none."""
    anew = {**WORLD, "seq": 0}
    old = [call(seq) for seq in (7, 8)]
    found = of(
        answer(0, call(1, done=False), groups=({**WORLD, "seq": 1},)),
        *(answer(rank, call(0), *old, groups=(anew,)) for rank in (1, 2, 3)),
    )
    assert (1, 2, 3) == found.missing


def test_a_backend_without_an_answer_hides_what_its_ranks_wait_in() -> None:
    """Rank 2 may be in a collective of NCCL's, of whose recorder nothing is known; one never used hides nothing."""
    nccl = {"name": "1", "purpose": "tp", "backend": "nccl", "seq": 4, "spans": [[2, 1, 2]]}
    off = {"name": "nccl", "why": "its flight recorder is off, or has seen no call"}
    gloo = {"name": "fr", **cut(json.dumps({"entries": [call(8)]}).encode())}
    inside = [answer(rank, call(8), call(9, done=False)) for rank in (0, 1, 3)]
    found = of(*inside, answer(2, groups=(WORLD, nccl), recorders=[gloo, off]))
    assert () == found.missing
    assert evidence_words(found).endswith(
        "rank 2 may itself wait in a collective of nccl, of which no flight recorder tells"
    )
    found = of(*inside, answer(2, groups=(WORLD, {**nccl, "seq": 0}), recorders=[gloo, off]))
    assert (2,) == found.missing


def test_an_older_torch_is_said_to_tell_nothing() -> None:
    """Nobody is named, and the evidence says why."""
    why = "torch 2.9.0 hands out no flight recorder for Gloo"
    answers = [answer(rank, recorders=[{"name": "fr", "why": why}]) for rank in range(4)]
    found = of(*answers)
    assert ((), "", why) == (found.missing, evidence_words(found), why_unknown(found))
    assert f"unknown: {why}" == measured(found, {}, 4, is_over=False).details["collectives"]


def test_backends_of_one_group_count_for_themselves() -> None:
    """All ranks wait in NCCL's call 4 of the group; that rank 2 made fewer calls of Gloo's there is no matter."""
    group = {**WORLD, "backend": "cpu:gloo,cuda:nccl"}
    nccl = {
        "name": "nccl",
        **cut(json.dumps({"entries": [call(4, done=False, profiling_name="nccl:all_reduce")]}).encode()),
    }
    answers = [
        answer(
            rank,
            groups=(group,),
            recorders=[
                {
                    "name": "fr",
                    **cut(
                        json.dumps({"entries": [call(3 - (rank == 2), profiling_name=BROADCAST)]}).encode()
                    ),
                },
                nccl,
            ],
        )
        for rank in range(4)
    ]
    found = of(*answers)
    assert () == found.missing
    assert evidence_words(found).startswith("all ranks of group default_pg are in all_reduce (collective 4 ")


@pytest.mark.parametrize("spans", [[[0, 1, 1 << 40]], [[0, 0, 4]], [[1 << 60, 1, 1]], [[0, 1]], [3], "x"])
def test_members_that_cannot_be_true_are_none(spans: Any) -> None:
    """Of such a group nobody is missing."""
    inside = [answer(rank, call(9, done=False), groups=({**WORLD, "spans": spans},)) for rank in (0, 1, 3)]
    assert () == of(*inside).missing


def test_names_of_strangers_are_letters() -> None:
    """A group's purpose, an operation, a reason: no terminal is told anything by them."""
    evil = "\x1b]0;x\x07\n" + "a" * 999
    group = {**WORLD, "purpose": evil}
    call_of = call(9, done=False, profiling_name=f"gloo:{evil}", process_group=["0", evil])
    entry = {"name": "fr", "why": "", "entries": [call_of], "from_first": 1, "num_entries": 1}
    said = {
        "pid": 1,
        "still_since_ns": 5,
        "wall_ns": 900 * S,
        "why": evil,
        "groups": [group],
        "recorders": [entry],
    }
    found = of(asked(said, 0), asked({**said, "recorders": []}, 1))
    words = evidence_words(found) + why_unknown(found) + "".join(why for _, why in found.evidence.unasked)  # type: ignore[union-attr]
    assert words.isprintable()
    assert "aaa" in words
    assert len(words) < 1500


@pytest.mark.slow
def test_thousands_of_ranks_are_told_by_few_comparisons() -> None:
    """2,048 ranks in a group of all and groups of eight: each looked at a few times, not each against each other."""
    num = 2048
    world = {**WORLD, "spans": [[0, 1, num]]}
    answers = tuple(
        answer(
            rank,
            call(8),
            *([call(9, done=False)] if rank != 1000 else []),
            groups=(world, {**PAIR, "name": str(1 + rank // 8), "spans": [[rank // 8 * 8, 1, 8]]}),
        )
        for rank in range(num)
    )
    num_calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal num_calls
        num_calls += event == "call"

    sys.setprofile(count)
    try:
        found = collective_evidence(answers, ())
    finally:
        sys.setprofile(None)
    assert found is not None
    assert (1000,) == found.hang.missing
    assert num_calls < 100 * num


def test_a_group_without_a_name_is_none() -> None:
    """Nor is a call without a group one of its calls."""
    nameless = call(9, done=False)
    del nameless["process_group"]
    found = of(answer(0, nameless, groups=({**WORLD, "name": ""},)))
    assert () == found.missing
    assert "no collective is under way on any rank" == evidence_words(found)


def test_groups_of_one_name_and_many_members_are_told_apart_in_few_words() -> None:
    """Two ranks give the group members that differ in one of a hundred thousand."""
    answers = [
        answer(rank, call(3, "1", done=False), groups=({**PAIR, "spans": [[0, 1, 100_000 - rank]]},))
        for rank in (0, 1)
    ]
    found = of(*answers)
    assert found.evidence is not None
    assert 2 == len(found.evidence.hang.waits)
    assert len(who_waits_words(found)) < 400


def test_a_rank_that_is_missing_beside_a_stopped_one_is_missing_too() -> None:
    """Somebody stopped rank 1 of a job that waits for rank 2: words and numbers say the same."""
    answers = [answer(0, call(9, done=False)), answer(2, call(8))]
    found = stall_of_answers([*answers, answer(1, recorders=[], why="it is stopped")], [1])
    assert ((1, 2), (0,)) == (found.missing, found.waiting)
    assert found.evidence.startswith("rank 2 has not entered all_reduce (collective 9 of group default_pg)")


def test_stacks_says_why_no_flight_recorder_tells_anything() -> None:
    """Once a reason, whoever gave it; nothing where nobody has a number."""
    why = "torch 2.9.0 hands out no flight recorder for Gloo"
    answers = [answer(rank, recorders=[{"name": "fr", "why": why}]) for rank in range(4)]
    assert [f"unknown: flight recorders: {why}"] == _said_by_recorders(stall_of_answers(answers, []))
    assert [] == _said_by_recorders(None)


@pytest.mark.parametrize(("later_s", "missing"), [(0.0, (0,)), (1.0, (0,)), (3.0, ())])
def test_who_was_asked_before_the_others_had_completed_its_call_has_no_device_that_stopped(
    later_s: float, missing: tuple[int, ...]
) -> None:
    """Another host's ranks came to stand later and were asked later: the call may have ended between."""
    group = {**WORLD, "backend": "nccl"}
    calls = {rank: call(9, done=rank > 0, profiling_name="nccl:all_reduce") for rank in range(4)}
    answers = [
        answer(
            rank,
            groups=(group,),
            wall_ns=900 * S + (round(later_s * S) if rank else 0),
            recorders=[{"name": "nccl", **cut(json.dumps({"entries": [calls[rank]]}).encode())}],
        )
        for rank in range(4)
    ]
    found = of(*answers)
    assert missing == found.missing
    assert bool(missing) == bool(found.evidence and found.evidence.hang.waits)


@pytest.mark.parametrize(
    ("operation", "call_met", "holds"),
    [("nccl:all_reduce", "", True), ("gloo:gather", "", False), ("gloo:gather", "gather_object", True)],
)
def test_only_what_the_training_thread_can_be_in_holds_it(
    operation: str, call_met: str, *, holds: bool
) -> None:
    """A save that began just before a report gathers in a thread of its own; a device's call holds every thread."""
    backend = operation.partition(":")[0]
    group = {**WORLD, "backend": backend}
    recorder = {"gloo": "fr", "nccl": "nccl"}[backend]
    answers = []
    for rank in range(4):
        one = call(9, done=False) if rank else call(8)
        told = json.dumps({"entries": [{**one, "profiling_name": operation, "time_created_ns": 893 * S}]})
        answers.append(
            answer(
                rank,
                groups=(group,),
                recorders=[{"name": recorder, **cut(told.encode())}],
                still_since_ns=894 * S,
                asked_ns=900 * S,
                call=call_met if rank else "",
            )
        )
    assert holds == is_recorded(tuple(answers), 5.0)
