"""The verdict against what the run is for: fewer devices, or the end of it, where bounds of this one run suffice.

In: RunView, Intent.  Out: the same view, beside its verdict the one that the guided session comes to unanswered. Only
where the whole interval is a gain: a loss that can surely be removed comes first, and one run never decides to grow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuiadvisor.session.decide import decide, decided_limits, verified
from tuiadvisor.session.evidence import facts
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.material import gather
from tuiadvisor.session.other_size import not_more_words
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.smaller import parts_or_none
from tuiadvisor.views.run_view import Saving, Verdict

if TYPE_CHECKING:
    from tuiadvisor.session.case import Case, Decision
    from tuiadvisor.session.machine import Machine
    from tuiadvisor.views.run_view import RunView


def with_intent(
    view: RunView, intent: Intent, machine: Machine | None = None, former: RunView | None = None
) -> RunView:
    """The view with the verdict that follows from what was stated beside its own.

    former: what was shown of the same run before. What it says stays until it is likelier not to hold: at its border
    a figure that moves by chance would have it come and go.
    """
    found = view.verdict
    if (
        intent == Intent()
        or found.decision not in {"tune", "keep"}
        or any(one.id == "hang" for one in view.findings)
    ):
        return view
    parts = parts_or_none(Recorded("run", view), machine)
    case = gather(
        facts("run", view), (), found, intent, {}, machine=machine, parts=parts, held=_held(view, former)
    ).case
    verdict = _verdict(case, decide(case), found)
    return view if verdict is None else replace(view, against_intent=verdict)


def _held(view: RunView, former: RunView | None) -> str:
    if former is None or former.against_intent is None:
        return ""
    is_later = (former.last_step or 0) <= (view.last_step or 0)
    return former.against_intent.decision or "" if is_later else ""


def _verdict(case: Case, decision: Decision, found: Verdict) -> Verdict | None:
    """The same decision as a verdict; None where that of the steps says it already."""
    limits = decided_limits(case, decision)
    if decision.decision in {"rescale", "stop"}:
        fewer = case.fewer if decision.decision == "rescale" else None
        return Verdict(
            decision=decision.decision,
            sentence=f"{decision.decision.capitalize()}: {decision.why}.",
            finding=None,
            pattern="P6",
            speedup=None,
            next_constraint=found.next_constraint,
            because=_because(case, decision, found, limits),
            verify=verified(case, decision, found.verify),
            saving=None if fewer is None else Saving(fewer.saved_low, fewer.saved_high),
            would_change=limits,
        )
    if decision.missed is not None:
        return _with_missed(case, decision, found, limits)
    if decision.decision == "keep" and found.decision == "keep" and case.not_more is not None:
        not_more = not_more_words(case)
        return replace(
            found,
            sentence=_led_by(not_more, found.sentence),
            because=f"{found.because} {not_more}.",
            would_change=limits,
        )
    return None


def _with_missed(case: Case, decision: Decision, found: Verdict, limits: str) -> Verdict | None:
    """The verdict of the steps with the limits that they miss; to tune where only that could keep them."""
    if decision.missed is None:
        return None
    words = decision.missed.words
    if decision.decision == found.decision:
        return replace(found, sentence=_led_by(words, found.sentence), would_change=limits)
    named = case.least.finding
    return replace(
        found,
        decision="tune",
        sentence=f"Tune: {words}.",
        finding=None if named is None else named.id,
        pattern=None if named is None else named.pattern,
        because=f"Of the steps themselves: {found.sentence}",
        at_best=True,
        would_change=limits,
    )


def _because(case: Case, decision: Decision, found: Verdict, limits: str) -> str:
    """On what it rests, what would change it, and what was found of the steps themselves."""
    said = [f"{limits.rstrip('.')} would change it."] if limits else []
    if decision.decision == "rescale":
        by = f"you decide by {case.intent.objective}"
        said.insert(0, f"Bounds from this run alone, the total batch as now; {by}.")
    if found.decision == "tune" or decision.decision == "stop":
        said.append(f"Of the steps themselves: {found.sentence}")
    return " ".join(said)


def _led_by(first: str, sentence: str) -> str:
    """The same verdict with this before its reason: where a screen has no room for all, it has it for the answer."""
    word, _, rest = sentence.partition(": ")
    return (
        f"{word}: {first[0].lower()}{first[1:]}. {rest[:1].upper()}{rest[1:]}"
        if rest
        else f"{sentence} {first}."
    )
