"""Which questions are worth asking: those whose answers would move a number, the order of changes or the decision.

In: a way to gather a session anew with other answers.  Out: ids. Tried with what is stated, and once more as if the
length of the run, its price and its failures were stated: a question may be the first of two that move something.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.session.decide import decide
from tuiadvisor.session.material import OTHER_REMAINS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tuiadvisor.session.intent import Intent
    from tuiadvisor.session.material import Material
    from tuiadvisor_rules.questions import Question

    Answers = dict[str, str | float]
    Gather = Callable[[Intent, Answers], Material]

ALWAYS: Final = frozenset({"objective", "purpose"})  # what the session is for: P3 and P6 conclude by it
NUMBERS: Final = (1.0, 45.0)
# As if stated, only to see whether an answer beside it would matter; nothing is concluded from it. What no question
# asks for is not among them: the answer would wait for it in vain.
SUPPOSED: Final = {
    "objective": "cost",
    "remaining_steps": 1e6,
    "price_per_device_hour": 1.0,
    "failures_per_day": 2.0,
    "restart_min": 5.0,
    "engineer_hour_price": 1.0,
}
SUPPOSED_ANSWERS: Final[dict[str, float]] = {"checkpoint_every": 30.0, "effort_hours": 1.0}
FIELDS: Final = {
    "remaining_steps": "remaining_steps",
    "time_worth": "price_of_time",
    "engineer_price": "engineer_hour_price",
    "price": "price_per_device_hour",
    "restart_min": "restart_min",
    "restarts_per_day": "failures_per_day",
}


def moving(
    questions: tuple[Question, ...], intent: Intent, answers: Answers, gather: Gather
) -> frozenset[str]:
    """Ids of the questions whose answers change an outcome."""
    is_stated = any(getattr(intent, name) is not None for name in OTHER_REMAINS)
    return frozenset(
        question.id
        for question in questions
        if not (is_stated and question.id == "remaining_steps")
        and not (question.id == "purpose" and intent.objective is not None)
        if question.id in ALWAYS
        or _moves(question, intent, answers, gather)
        or _moves(question, _supposed(question, intent), _with_supposed(question, answers), gather)
    )


def outcome(material: Material) -> Hashable:
    """Everything of a session that is computed: decision, hours, money, plans, alternatives, order of changes."""
    decision, case, plan = decide(material.case), material.case, material.checkpoints
    return (
        # When it pays follows from the rest of it and from prices: to know that alone better decides nothing.
        replace(decision, break_even_steps=None, worth_money=None),
        case.hours_now,
        case.moves,
        None if case.hours_now is None or material.price is None else case.hours_now * material.price,
        material.pace,
        plan,
        material.refused,
        tuple((one.finding.id, one.action.text) for one in material.levers),
    )


def choices(question: Question) -> tuple[str | float, ...]:
    """Answers to try."""
    if question.kind == "number":
        return NUMBERS
    return {"yes_no": ("yes", "no"), "choice": question.choices}.get(question.kind, ())


def _moves(question: Question, intent: Intent, answers: Answers, gather: Gather) -> bool:
    seen = {outcome(gather(intent, {**answers, question.id: answer})) for answer in choices(question)}
    return len(seen) > 1


def _supposed(question: Question, intent: Intent) -> Intent:
    own = FIELDS.get(question.id)
    missing = {
        name: value for name, value in SUPPOSED.items() if getattr(intent, name) is None and name != own
    }
    if any(getattr(intent, name) is not None for name in OTHER_REMAINS):
        missing.pop("remaining_steps", None)
    return replace(intent, **missing)  # type: ignore[arg-type]  # by the names of its own fields


def _with_supposed(question: Question, answers: Answers) -> Answers:
    return {**{name: value for name, value in SUPPOSED_ANSWERS.items() if name != question.id}, **answers}
