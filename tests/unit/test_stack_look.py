"""Whom a request for stacks asks, how long it looks, and what is said of its answer, late or never."""

from __future__ import annotations

from dataclasses import replace

import pytest
from snapshot import views

from tuiadvisor.advisor.cluster.stack_looks import Look, StackLooks
from tuiadvisor.app import stack_look
from tuiadvisor.app.stack_look import (
    MAX_HANGING,
    PATIENCE_S,
    StackLook,
    peer_of,
    ranks_to_look_at,
    why_no_stacks,
)
from tuiadvisor.stream.probe_request import MAX_SAMPLING_MS
from tuiadvisor.views.rank_group import Grouping, RankGroup
from tuiadvisor.views.run_view import RunView
from tuiadvisor.views.stall import Stall

LATE = 2


class Clock:
    """Stands unless a test moves it."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stack_look.time, "monotonic", made.monotonic)
    return made


def placed(*hosts: str, view: RunView | None = None) -> RunView:
    """Rank 2 is late; a host for each rank."""
    shown = view or views.straggler()
    return replace(
        shown, ranks=tuple(replace(row, host=host) for row, host in zip(shown.ranks, hosts, strict=True))
    )


def staged(view: RunView, *stages: tuple[int, ...]) -> RunView:
    groups = tuple(
        RankGroup(f"stage {number}", ranks, len(ranks), 0, *[None] * 4, {}, {}, b"", b"", (), 0, 0)
        for number, ranks in enumerate(stages)
    )
    return replace(view, groupings=(Grouping("stage", groups),))


def test_a_late_rank_is_held_against_its_neighbour_on_its_host() -> None:
    """The nearest number that is not late itself; on another host only where its own has nobody."""
    assert 1 == peer_of(placed("a", "a", "a", "a"), LATE)
    assert 3 == peer_of(placed("a", "a", "b", "b"), LATE)
    assert 1 == peer_of(placed("a", "a", "b", "a"), LATE)


def test_a_peer_does_the_same_work_and_lives() -> None:
    """Another stage has another program; the dead and the late are no measure."""
    view = placed("a", "a", "a", "a")
    assert 0 == peer_of(staged(view, (0, 2), (1, 3)), LATE)
    assert None is peer_of(staged(view, (2,), (0, 1, 3)), LATE)
    assert 0 == peer_of(placed("a", "a", "a", "a", view=views.lost_ranks()), LATE)  # 1 killed, 3 refused
    late_too = replace(view, stragglers=(*view.stragglers, replace(view.stragglers[0], rank=1)))
    assert 3 == peer_of(late_too, LATE)


def test_all_that_hang_are_asked_the_missing_first() -> None:
    view = views.stalled()
    assert (3, 0, 1, 2) == ranks_to_look_at(view, 3, "hang")
    assert (0, 3, 1, 2) == ranks_to_look_at(view, 0, "hang")
    assert (1, 0, 2, 3) == ranks_to_look_at(views.standing(), 1, "hang")  # from before anybody came
    crowd = replace(view, stall=Stall(9.0, tuple(range(1, 900)), (900,), "", "", "", ""))
    asked = ranks_to_look_at(crowd, 5, "hang")
    assert (5, 900) == asked[:2]
    assert MAX_HANGING == len(asked)


@pytest.mark.parametrize(
    ("subject", "ranks"), [("straggler", (LATE, 1)), ("rank", (LATE,)), ("hang", (LATE,))]
)
def test_only_a_late_rank_has_a_peer(subject: str, ranks: tuple[int, ...]) -> None:
    """A rank somebody is curious about is looked at alone; so is one of a hang that is over."""
    assert ranks == StackLook(views.straggler(), LATE, subject).request.ranks


def test_long_steps_are_looked_at_for_longer_within_a_bound() -> None:
    """Six steps, whole seconds, ten at most; where no step is known two seconds."""

    def window_ms(step_s: float | None) -> int:
        view = views.straggler()
        return StackLook(
            replace(view, step=replace(view.step, mean_s=step_s, median_s=step_s)), LATE, "rank"
        ).request.window_ms

    assert [2000, 2000, 4000, MAX_SAMPLING_MS] == [window_ms(s) for s in (None, 0.03, 0.6, 60.0)]


@pytest.mark.parametrize(
    ("view", "rank", "why"),
    [
        (views.lost_ranks(), 1, "rank 1 has no stacks to look at: killed by SIGKILL after step 341"),
        (views.lost_ranks(), 9, "rank 9 is not in this run any more"),
        (views.lost_ranks(), 0, ""),
    ],
)
def test_who_has_no_stacks_is_said_before_anybody_is_asked(view: RunView, rank: int, why: str) -> None:
    said = why_no_stacks(view, rank)
    assert said.startswith(why)
    assert bool(why) == bool(said)


def looked(look: StackLook, *ranks: int) -> list[Look]:
    """An answer of these ranks, by the way it takes from the agents."""
    looks = StackLooks()
    for rank in ranks:
        looks.take(
            {
                "rank": rank, "look": look.request.look, "subject": look.request.subject, "of": LATE, "pid": 7,
                "frames": [{"name": "step", "file": "train.py", "line": 3}], "stacks": [[0]], "samples": [9],
            }
        )  # fmt: skip
    return looks.newest_first()


def test_nothing_is_said_until_all_have_answered(clock: Clock) -> None:
    look = StackLook(views.straggler(), LATE, "straggler")
    assert "looking where rank 2 and its peer rank 1 spend their time: 2 s …" == look.doing
    assert "" == look.answer([])
    assert "" == look.answer(looked(look, LATE))
    assert "rank 2: the lines of code where it spends its time are on its page (2, enter)" == look.answer(
        looked(look, LATE, 1)
    )


def test_who_did_not_answer_is_said_after_the_patience(clock: Clock) -> None:
    """Of the two that were asked; an answer to another request is none."""
    look = StackLook(views.straggler(), LATE, "straggler")
    others = [replace_number(one) for one in looked(look, LATE, 1)]
    clock.now_s += 2 + PATIENCE_S
    assert "no stacks of rank 1: no agent answers for it" == look.answer(looked(look, LATE))
    assert "no stacks of ranks 1, 2: no agent answers for it" == look.answer(others)


def replace_number(look: Look) -> Look:
    return replace(look, number=look.number + 1)
