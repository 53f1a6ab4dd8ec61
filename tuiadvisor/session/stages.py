"""The six patterns as stations of a session: what the run says, what is asked, what follows.

In: Material.  Out: Stage, one a pattern, in order. Answers are shown as stated, evidence as measured; they never mix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.session.answers import checked_answer
from tuiadvisor.session.conclusions import CONCLUSIONS, EVIDENCE
from tuiadvisor.session.material import ANSWERS_OF_INTENT

if TYPE_CHECKING:
    from tuiadvisor.session.material import Item, Material
    from tuiadvisor_rules.questions import Question

Answer = str | float

TITLES: Final = {
    "P1": ("Bottlenecks are inevitable and they move", "Which stage sets the pace now, and which one is next?"),
    "P2": ("Amortized overheads define scalability", "What is paid per step, what once, what would more work buy?"),
    "P3": ("Throughput, efficiency and time differ", "What is the objective, and which configuration serves it?"),
    "P4": ("Bigger workloads scale better and cost more", "How much compute is there per communication, at what cost?"),
    "P5": ("Optimization costs more than performance", "Which change pays, with its effort and risk?"),
    "P6": ("Cost is a first-class constraint", "What does the rest cost, and when does more speed stop paying?"),
}  # fmt: skip
PATTERNS: Final = tuple(TITLES)
_ASKS_IT: Final = re.compile(r"\btuiadvisor (watch|stacks|capture)\b")  # the running job


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, its answer if there is one, and what follows from that."""

    id: str
    ask: str
    kind: str
    choices: tuple[str, ...]
    unit: str
    answer: Answer | None
    meaning: str
    suggests: str | None
    measure: str

    def refusal(self, typed: str) -> str:
        """Why this is no answer to it; "" where it is one."""
        try:
            checked_answer(self, typed)
        except TuiadvisorError as error:
            return str(error).removeprefix(f"{self.id}: ")
        return ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One pattern."""

    pattern: str
    title: str
    question: str
    evidence: tuple[Item, ...]
    unknown: tuple[tuple[str, str], ...]  # what, how to measure it
    asked: tuple[Asked, ...]
    not_asked: tuple[str, ...]  # questions that this run's evidence makes pointless
    conclusion: str


def stages(material: Material, questions: tuple[Question, ...], worth: frozenset[str]) -> tuple[Stage, ...]:
    """All six, in order. worth: ids of the questions whose answers would move something."""
    return tuple(
        _stage(pattern, material, [one for one in questions if one.pattern == pattern], worth)
        for pattern in PATTERNS
    )


def _stage(pattern: str, material: Material, questions: list[Question], worth: frozenset[str]) -> Stage:
    title, question = TITLES[pattern]
    items = EVIDENCE[pattern](material)
    concerned = [
        one
        for one in questions
        if _answer(one.id, material) is not None or (one.id in worth and one.concerns(material.values))
    ]
    ended, currency = material.run.has_ended, material.intent.currency
    asked = tuple(
        asked_of(one, _answer(one.id, material), is_over=ended, currency=currency) for one in concerned
    )
    unknown = [(item.name, item.measure) for item in items if item.text is None]
    unknown += [(one.ask, one.measure) for one in asked if one.answer is None]
    return Stage(
        pattern,
        title,
        question,
        tuple(items),
        tuple(unknown),
        asked,
        tuple(one.id for one in questions if one not in concerned),
        CONCLUSIONS[pattern](material),
    )


def _answer(name: str, material: Material) -> Answer | None:
    """What was answered here, or stated in the intent before."""
    if name in material.answers:
        return material.answers[name]
    stated: Answer | None = getattr(material.intent, ANSWERS_OF_INTENT.get(name, ""), None)
    return stated


def asked_of(
    question: Question, answer: Answer | None, *, is_over: bool, currency: str | None = None
) -> Asked:
    """A question with its answer, if there is one. is_over: no running job answers what it says to measure."""
    key = "any" if question.kind in {"number", "text"} else answer
    known = isinstance(key, str) and answer is not None
    return Asked(
        question.id,
        question.ask,
        question.kind,
        question.choices,
        question.unit.replace("money", currency) if currency else question.unit,
        answer,
        question.means.get(str(key), "") if known else "",
        question.suggests.get(str(key)) if known else None,
        f"when it runs again: {question.measure}"
        if is_over and _ASKS_IT.search(question.measure)
        else question.measure,
    )
