"""Over all situations: each question of the catalogue is asked somewhere and moves something, or is known not to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from synthetic_pipeline import Pipeline, pipeline_run
from synthetic_run import Job, final_view
from test_session_questions import BY_ID, QUESTIONS, RUNS, STATED, computed, held, open_questions, view

from tuiadvisor.session.intent import Intent
from tuiadvisor.session.relevance import FIELDS, choices
from tuiadvisor.views.run_view import RunView

pytestmark = pytest.mark.slow

# Their answers are explained and kept, and change no figure, no order and no decision of the six patterns: they are
# not asked there. Those that speak for a cause are asked in the dialogue, whose own test holds that they move it.
NOT_ASKED = {
    "memory_bound_kernels",
    "micro_batches",
    "profile_seen",
    "recompiles",
    "serving",
    "utilization_judged",
    "model_larger",
    "placement",
    "reproducible",
    "time_worth",  # asked in the dialogue, of who thinks of another number of devices
}


def on_device(found: RunView) -> RunView:
    return replace(found, run=replace(found.run, device="cuda:0"))


def ended(found: RunView) -> RunView:
    return replace(found, ranks=tuple(replace(row, state="exited") for row in found.ranks))


def without_samples(found: RunView) -> RunView:
    return replace(found, step=replace(found.step, throughput_samples_s=None))


# Where questions are asked that no run of RUNS brings up.
OTHERS: dict[str, Callable[[], tuple[RunView, ...]]] = {
    "devices": lambda: (on_device(view("late and slow")),),
    "an exchange on devices": lambda: (on_device(view("slow exchange")),),
    "a heavy stage": lambda: (pipeline_run(Pipeline(heavy=((3, 1.8),))),),
    "over, its start not seen": lambda: (ended(final_view(Job(num_steps=200, faults=RUNS["checkpoints"]))),),
    "two sizes": lambda: (view("healthy"), view("healthy", 2)),
    "two sizes, samples unknown": lambda: (without_samples(view("healthy")), view("healthy", 2)),
}


@cache
def asked(name: str) -> tuple[str, ...]:
    return tuple(open_questions(held(*OTHERS[name]())))


@cache
def asked_of_runs() -> frozenset[str]:
    return frozenset(one for name in RUNS for one in open_questions(held(view(name))))


@cache
def asked_where_simple() -> frozenset[str]:
    """Of who stated how complex a change may leave the program."""
    return frozenset(open_questions(held(view("late and slow"), intent=Intent(max_complexity="low"))))


def test_how_complex_a_change_is_is_asked_only_of_who_set_a_limit() -> None:
    """No question asks for the limit: without it the answer would change nothing."""
    assert "change_complexity" not in asked_of_runs()
    assert "change_complexity" in asked_where_simple()


def test_every_question_is_asked_somewhere_or_known_to_move_nothing() -> None:
    everywhere = asked_of_runs().union(asked_where_simple(), *(asked(name) for name in OTHERS))
    assert everywhere.isdisjoint(NOT_ASKED)
    assert everywhere | NOT_ASKED == {question.id for question in QUESTIONS}


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_other_situations_ask_moves_something_there(name: str) -> None:
    new = [one for one in asked(name) if one not in asked_of_runs()]
    assert new
    for question in new:
        field = FIELDS.get(question, "")
        intent = replace(STATED, objective="cost", **({field: None} if field else {}))  # type: ignore[arg-type]
        given: dict[str, str | float] = {"checkpoint_every": 20.0, "effort_hours": 2.0}
        outcomes = [
            computed(held(*OTHERS[name](), intent=intent, answers={**given, question: answer}))
            for answer in choices(BY_ID[question])
        ]
        assert any(one != other for one, other in pairwise(outcomes)), question
