"""Judge rules on metrics: which fire, how severe, what stays unknown; and check a catalogue by its own cases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor_rules.condition import RuleError, nearest, one_line
from tuiadvisor_rules.loader import Rule, catalog_dir, load_catalog
from tuiadvisor_rules.message import fill, generalize, without_figures
from tuiadvisor_rules.metric_names import METRICS
from tuiadvisor_rules.questions import load_questions
from tuiadvisor_rules.user import is_shipped, overlay, user_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor_rules.loader import RuleAction


@dataclass(frozen=True, slots=True)
class Outcome:
    """level: "info", "warning", "critical", "silent" or "unknown"."""

    rule: Rule
    level: str
    title: str
    headline: str
    message: str
    unknown: tuple[str, ...]  # metrics without a value that the condition needed

    @property
    def fires(self) -> bool:
        """Whether it is a finding."""
        return self.level not in {"silent", "unknown"}


def judge(rule: Rule, values: Mapping[str, object]) -> Outcome:
    """The rule's level on these metric values; missing names count as unknown."""
    holds = rule.condition(values)
    if holds is None:
        return Outcome(rule, "unknown", "", "", "", tuple(rule.condition.unknown(values)))
    if not holds:
        return Outcome(rule, "silent", "", "", "", ())
    level = next((name for name, condition in rule.levels if condition(values)), "info")
    rule = rule.spoken(values)
    title, message = (_sentence(fill(text, values)) for text in (rule.title, rule.message))
    if any("{" in each.text for each in rule.actions):
        actions = tuple(replace(each, text=fill(each.text, values)) for each in rule.actions)
        rule = replace(rule, actions=actions)
    return Outcome(rule, level, title, fill(rule.headline, values), message, ())


def _sentence(text: str) -> str:
    """It begins with a capital letter, whichever value it begins with."""
    return text[:1].upper() + text[1:]


def check(directory: str | Path | None = None) -> list[str]:
    """Every problem in one line each: files that do not load and cases that come out wrong.

    directory: rules that extend or override the shipped ones. None: the shipped rules and the user's own.
    """
    if directory is not None:
        found = overlay(directory)
        nothing = not (found.rules or found.disabled or found.problems)
        why = "no rule files (*.toml) in it" if Path(directory).is_dir() else "no such folder of rules"
        alone = [f"{directory}: {why}"] if nothing else []
        return [*alone, *found.problems, *_wrong_cases(found.rules), *_wrong_questions(Path(directory))]
    problems = [*_wrong_cases(load_catalog()), *_wrong_questions(catalog_dir())]
    mine = user_dir()
    return problems if mine is None else problems + check_if_any(mine)


def check_if_any(directory: Path) -> list[str]:
    """The problems of a folder that need not hold any rule."""
    found = overlay(directory)
    return [*found.problems, *_wrong_cases(found.rules)]


def _wrong_cases(rules: tuple[Rule, ...]) -> list[str]:
    problems = []
    for rule in rules:
        for case in rule.cases:
            level = judge(rule, case.metrics).level
            if level != case.expect:
                wrong = f"case {case.name!r} expects {case.expect}, the rule says {level}"
                problems.append(one_line(f"{rule.path}: {wrong}"))
    return problems


def _wrong_questions(folder: Path) -> list[str]:
    if not (folder / "questions").is_dir():
        return []
    try:
        load_questions(folder / "questions")
    except RuleError as error:
        return [str(error)]
    return []


def general_title(rule: Rule) -> str:
    """A rule's title where no case is meant: without names of ranks to put in."""
    return generalize(rule.title)


def show(rule_id: str, rules: tuple[Rule, ...]) -> str:
    """What a rule finds, why it matters, its thresholds and what to do, as plain text. RuleError if unknown."""
    found = {rule.id: rule for rule in rules}
    if rule_id not in found:
        raise RuleError(f"no rule {rule_id!r}{nearest(rule_id, found)}")
    rule = found[rule_id]
    lines = [
        f"{rule.id}: {general_title(rule)}" + ("" if is_shipped(rule) else f"  [{one_line(rule.path)}]"),
        f"pattern {rule.pattern}, lens {', '.join((rule.lens, *rule.secondary_lenses))}, layer {rule.layer}"
        + (f", seen as {', '.join(rule.situations)}" if rule.situations else ""),
        "",
        f"Fires when  {rule.condition.text}",
        *(f"  {level:<9} {condition.text}" for level, condition in rule.levels),
        *(f"  {name} = {entry.value:g} ({entry.source})" for name, entry in rule.thresholds.items()),
        *(f"  {name}: {METRICS[name].meaning}" for name in sorted(rule.condition.names)),
        "",
        f"Why         {rule.why}",
        f"Verify      {rule.verify}",
        *(f"Measure     {entry}" for entry in rule.measure_next),
    ]
    lines += _to_do(rule.actions)
    for variant in rule.variants:
        lines += ["", f"Where {variant.when.text}:"]
        lines += [f"Why         {variant.why}"] if variant.why else []
        lines += [f"Verify      {variant.verify}"] if variant.verify else []
        lines += [f"Measure     {entry}" for entry in variant.measure_next or ()]
        lines += _to_do(variant.actions or ())
    example = next(case for case in rule.cases if case.expect not in {"silent", "unknown"})
    lines += ["", f"Example     {example.name}: {judge(rule, example.metrics).message}"]
    return "\n".join(lines)


def _to_do(actions: tuple[RuleAction, ...]) -> list[str]:
    lines = []
    for action in actions:
        lines.append(
            f"Do          {without_figures(action.text)} (risk {action.risk}, effort {action.effort})"
        )
        if action.command:
            lines.append(f"            {action.command}")
    return lines
