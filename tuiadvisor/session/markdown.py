"""A session as Markdown: readable in a terminal, fit for a pull request or a logbook.

In: Session.  Out: str. Text from the run or the user is escaped where Markdown would act on it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tuiadvisor.markdown import code, plain, with_commands
from tuiadvisor.session.sums import sum_words
from tuiadvisor.views.names import limit_name
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.session.answer import Why
    from tuiadvisor.session.case import Decision, Interval
    from tuiadvisor.session.conduct import Session
    from tuiadvisor.session.stages import Asked, Stage

UNKNOWN: Final = "unknown"
WHOLE_HOURS: Final = 1000.0


def markdown(session: Session) -> str:
    """The whole session; the decision first, then how it came about."""
    lines = [f"# Session on {plain(session.run)}", "", *decision_lines(session), "", *_loop(session), ""]
    for stage in session.stages:
        lines += [*stage_lines(stage), ""]
    lines += ["## Why, in plain words", ""]
    for entry in session.whys:
        lines += [*why_lines(entry), ""]
    return "\n".join(lines + _intent(session) + _history(session)) + "\n"


def decision_lines(session: Session) -> list[str]:
    """The decision with all that belongs to it."""
    decision = session.decision
    following = limit_name(session.next_constraint or UNKNOWN)
    lines = [
        f"## Decision: {'none yet' if decision.is_open else decision.decision}",
        "",
        f"- Why: {plain(decision.why)}",
        f"- Expected gain: {gain_words(decision, session.intent.currency)}",
        f"- Cost: {cost_words(decision, session.intent.currency)}",
        f"- Break-even: {steps_words(decision)}",
        f"- Next constraint: {plain(following)}",
    ]
    lines += [f"- Would change the verdict: {plain(entry)}" for entry in session.would_change]
    if session.verify:
        lines.append(f"- Verify: {plain(session.verify)}")
    return lines


def gain_words(decision: Decision, currency: str | None = None) -> str:
    """What the decision brings, with its interval, or what is missing to say it."""
    parts = []
    if decision.speedup is not None:
        best = "at best " if decision.at_best else ""
        parts.append(best + _interval(decision.speedup, ".2f", "x the speed"))
    if decision.saved_h is not None:
        parts.append(_interval(decision.saved_h, ".3g", " h of the remaining run"))
    if decision.saved_money is not None:
        parts.append(_interval(decision.saved_money, ",.2f", f" {currency or 'in money'}"))
    if not parts and decision.is_open:
        return UNKNOWN
    if not parts:
        return {"keep": "none", "hang": "the run itself"}.get(decision.decision, UNKNOWN)
    if decision.saved_h is None:
        parts.append("hours unknown, the remaining run is not stated")
    elif decision.saved_money is None:
        parts.append("money unknown, no price is stated")
    return "; ".join(parts)


def _interval(value: Interval, form: str, unit: str = "") -> str:
    if value.low == value.expected == value.high:
        return f"{value.expected:{form}}{unit}"
    low, high = sorted((value.low, value.high))
    return f"{value.expected:{form}}{unit} ({low:{form}} to {high:{form}})"


def _hours(hours: float) -> str:
    """Three figures; of many hours all of them, never an exponent."""
    return f"{hours:,.0f} h" if hours >= WHOLE_HOURS else f"{hours:.3g} h"


def cost_words(decision: Decision, currency: str | None = None) -> str:
    """What it costs in hours and money."""
    if decision.decision == "keep":
        return "none"
    if decision.cost_h is None and decision.cost_money is None:
        return UNKNOWN
    hours = UNKNOWN if decision.cost_h is None else _hours(decision.cost_h)
    paid = UNKNOWN if decision.cost_money is None else sum_words(decision.cost_money)
    return f"{hours}; {paid} {currency}" if currency and paid != UNKNOWN else f"{hours}; in money {paid}"


def steps_words(decision: Decision) -> str:
    """After how many steps it has paid for itself; without prices, until when it must be ready."""
    if decision.break_even_steps is not None:
        return f"after {decision.break_even_steps:,.0f} steps"
    if decision.ready_within_h is None:
        return UNKNOWN
    ready = f"if ready within {decision.ready_within_h:.3g} h"
    if decision.worth_money is None or decision.worth_money <= 0:
        return f"{ready}, prices aside"
    return f"while it costs less than {sum_words(decision.worth_money)}, {ready}"


def stage_lines(stage: Stage) -> list[str]:
    """One pattern: question, evidence, what is unknown, answers, conclusion."""
    lines = [f"## {stage.pattern} {stage.title}", "", f"*{stage.question}*", ""]
    if stage.evidence:
        window = stage.evidence[0]
        lines += [f"Evidence ({plain(window.window)}; confidence {plain(window.confidence)}):", ""]
    for item in stage.evidence:
        shown = (
            plain(item.text)
            if item.text is not None
            else f"{UNKNOWN}; measure: {with_commands(item.measure)}"
        )
        lines.append(f"- {plain(item.name)}: {shown}")
    if stage.asked:
        lines += ["", "Asked:", "", *(_asked(entry) for entry in stage.asked)]
    if stage.not_asked:
        lines += ["", f"Not asked, the evidence makes it pointless: {counted_words(len(stage.not_asked))}."]
    return [*lines, "", f"**Conclusion:** {plain(stage.conclusion)}"]


def counted_words(number: int) -> str:
    """How many questions; their ids are for machines and stand in the JSON."""
    return f"{number} question{'' if number == 1 else 's'}"


def _asked(entry: Asked) -> str:
    if entry.answer is None:
        return f"- {plain(entry.ask)} Not answered; measure: {with_commands(entry.measure)}"
    unit = f" {entry.unit}" if entry.unit and isinstance(entry.answer, float | int) else ""
    shown = f"{entry.answer:g}" if isinstance(entry.answer, float | int) else entry.answer
    return f"- {plain(entry.ask)} **{plain(shown)}{plain(unit)}** (stated). {plain(entry.meaning)}"


def why_lines(entry: Why) -> list[str]:
    """One of the four questions."""
    unknown = [f"  Not known from this: {plain(entry.unknown)}"] if entry.unknown else []
    return [f"- **{entry.question}** {plain(entry.answer)}", *unknown]


def _loop(session: Session) -> list[str]:
    loop = session.loop
    lines = [
        "## Loop",
        "",
        f"1. Baseline: {plain(loop.baseline)}",
        f"2. Hypothesis: {plain(loop.hypothesis)}",
        f"3. ONE change: {plain(loop.change)}",
        f"4. Rerun: {code(loop.commands[0])}",
        f"5. Compare: {code(loop.commands[1])}, then {code(loop.commands[2])}",
    ]
    return [*lines, "", plain(loop.last_time)] if loop.last_time else lines


def _intent(session: Session) -> list[str]:
    rows = [
        f"- {name}: {'not stated' if value is None else plain(value)}"
        for name, value in asdict(session.intent).items()
    ]
    return ["## Intent", "", *rows, ""]


def _history(session: Session) -> list[str]:
    rows = [
        f"{place}. {plain(entry.run)}: step {UNKNOWN if entry.step_s is None else seconds(entry.step_s)}, "
        f"{plain(entry.words)}"
        for place, entry in enumerate(session.history, 1)
    ]
    return ["## Bottlenecks so far", "", *rows]
