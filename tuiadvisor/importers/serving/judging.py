"""Rules of scope serving judged on a model's figures: findings, and the one decision that follows from them.

In: ServedModel, rules.  Out: the same with findings, decision and its sentence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.serving.figures import rule_metrics
from tuiadvisor.views.run_view import Action, Finding
from tuiadvisor.views.serving import OBJECTIVES
from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.evaluate import judge
from tuiadvisor_rules.user import load_rules

if TYPE_CHECKING:
    from tuiadvisor.importers.serving.figures import Judged
    from tuiadvisor.views.run_view import DecisionWord, Severity
    from tuiadvisor.views.serving import ServedModel
    from tuiadvisor_rules.evaluate import Outcome
    from tuiadvisor_rules.loader import Rule

# That requests miss their objective is a symptom: what is behind it decides and has the lever, the likeliest first.
SYMPTOMS: Final = frozenset({"serving_slow_start", "serving_slow_requests"})
BEHIND: Final = (
    "serving_engines_uneven",  # the queue of one engine: nothing has to be bought
    "serving_kv_full",
    "serving_queue_room",
    "serving_preemptions",
    "serving_queue_time",
)
ORDER: Final = {"critical": 0, "warning": 1, "info": 2}


def serving_rules() -> tuple[Rule, ...]:
    """The shipped ones as the user's folder changes them. TuiadvisorError if one of them is wrong."""
    try:
        return tuple(rule for rule in load_rules() if rule.scope == "serving")
    except RuleError as error:
        raise TuiadvisorError(str(error)) from error


def judged(model: ServedModel, rules: tuple[Rule, ...]) -> ServedModel:
    """With what was found, most severe first, but for the cause of a symptom, which stands before it."""
    values = rule_metrics(model)
    outcomes = [outcome for rule in rules if (outcome := judge(rule, values)).fires]
    outcomes.sort(key=lambda outcome: (ORDER[outcome.level], outcome.rule.id))
    decisive = [outcome.rule.verify for outcome in outcomes if outcome.level != "info"]
    cause = _behind(outcomes)
    decision, sentence = _decided(outcomes, cause, values)
    if cause is not None:
        outcomes = [cause, *(outcome for outcome in outcomes if outcome is not cause)]
    return replace(
        model,
        findings=tuple(_finding(outcome, values) for outcome in outcomes),
        decision=decision,
        sentence=sentence,
        verify=decisive[0] if decisive else "",
    )


def _finding(outcome: Outcome, values: Judged) -> Finding:
    rule = outcome.rule
    return Finding(
        id=rule.id,
        title=rule.title,
        pattern=rule.pattern,
        lens=rule.lens,
        layer=rule.layer,
        severity=cast("Severity", outcome.level),
        ranks=(),
        hosts=(),
        phase=None,
        since_step=None,
        evidence={name: values.get(name) for name in rule.evidence},
        loss_s_per_step=None,
        message=outcome.message,
        measure_next=rule.measure_next,
        actions=tuple(Action(entry.text, entry.command, entry.risk, entry.effort) for entry in rule.actions),
    )


def _behind(outcomes: list[Outcome]) -> Outcome | None:
    """The finding above info that explains the most severe one, where that is a symptom only."""
    above = [outcome for outcome in outcomes if outcome.level != "info"]
    if not above or above[0].rule.id not in SYMPTOMS:
        return None
    found = {outcome.rule.id: outcome for outcome in above}
    return next((found[name] for name in BEHIND if name in found), None)


def _decided(
    outcomes: list[Outcome], cause: Outcome | None, values: Judged
) -> tuple[DecisionWord | None, str]:
    """That of the most severe finding above info, or of its cause; keep only where what is stated is surely met."""
    found = next((outcome for outcome in outcomes if outcome.level != "info"), None)
    if found is not None and cause is not None:
        return cast("DecisionWord", cause.rule.decision), _sentence(f"{found.headline}: {cause.headline}")
    if found is not None:
        return cast("DecisionWord", found.rule.decision), _sentence(found.headline)
    if values["objectives_met"] == 1:
        return "keep", "All objectives stated are met and nothing stands out."
    if values["objectives_met"] == 0:
        return "tune", "An objective is missed, and no rule says by what."
    if any(values[f"{signal}_slo_s"] is not None for signal in OBJECTIVES):
        return None, "Whether an objective is met lies between the edges of a bucket."
    return None, "Nothing stands out, and no objective is stated for a latency that the page reports."


def _sentence(headline: str) -> str:
    return f"{headline[:1].upper()}{headline[1:]}."
