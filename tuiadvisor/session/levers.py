"""The changes that may be tried, in the order in which to try them: by what answers say of their cause, gain and risk.

In: findings, answers, questions.  Out: Levers. An answer moves a change up or down; it adds no gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuiadvisor.session.measured import with_measured
from tuiadvisor.views.measured import is_looked_into, line_of
from tuiadvisor_rules.loader import RISKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.views.run_view import Action, Finding
    from tuiadvisor_rules.questions import Question


@dataclass(frozen=True, slots=True)
class Lever:
    """One change for one finding."""

    finding: Finding
    action: Action
    score: int  # answers for it less answers against it
    why: tuple[str, ...]  # "“Is ... full?” (yes) speaks against it"


def levers(
    run: Facts, answers: Mapping[str, str | float], questions: tuple[Question, ...]
) -> tuple[Lever, ...]:
    """Best first: what answers speak for, the largest loss, the rule's order; last resorts last.

    The overview names a finding's first action, and what was measured has ordered them there already: no risk moves
    another before it. Nor does an answer that was measured where looks chose the actions or named the line of code,
    for they are of what is slow itself. Where a line of the rank's own explains its lateness no answer moves any: that
    was seen, and an answer tells what else may be.
    """
    every = with_measured(run, answers)
    found = []
    for finding in run.findings:
        is_named = run.look is not None and run.look.rank in finding.ranks
        heard = answers if is_named or is_looked_into(finding) else every
        heard = {} if line_of(finding)[0] else heard
        for action in finding.actions:
            said = list(_said(action, heard, questions))
            score = sum(sign for sign, _ in said)
            found.append(Lever(finding, action, score, tuple(text for _, text in said)))
    return tuple(
        sorted(
            found,
            key=lambda one: (
                one.action.last_resort,
                -one.score,
                -(one.finding.loss_s_per_step or 0.0),
            ),
        )
    )


def _said(
    action: Action, answers: Mapping[str, str | float], questions: tuple[Question, ...]
) -> Iterator[tuple[int, str]]:
    for question in questions:
        if question.id not in answers:
            continue
        answer = answers[question.id]
        for sign in question.speaks(answer, action.text, action.risk):
            yield sign, f"“{question.ask}” ({answer}) speaks {'for' if sign > 0 else 'against'} it"


def risk_order(risk: str) -> int:
    """The smaller the safer; a word of a user's own catalogue comes last."""
    return RISKS.index(risk) if risk in RISKS else len(RISKS)
