"""Judge rules on metrics: which fire, how severe, what stays unknown; and check a catalogue by its own cases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor_rules.condition import RuleError, nearest
from tuiadvisor_rules.loader import Rule, catalog_dir, load_catalog, load_rule
from tuiadvisor_rules.message import fill
from tuiadvisor_rules.metric_names import METRICS
from tuiadvisor_rules.questions import load_questions

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Outcome:
    """level: "info", "warning", "critical", "silent" or "unknown"."""

    rule: Rule
    level: str
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
        return Outcome(rule, "unknown", "", "", tuple(rule.condition.unknown(values)))
    if not holds:
        return Outcome(rule, "silent", "", "", ())
    level = next((name for name, condition in rule.levels if condition(values)), "info")
    return Outcome(rule, level, fill(rule.headline, values), fill(rule.message, values), ())


def check(directory: str | Path | None = None) -> list[str]:
    """Every problem of a catalogue in one line each: files that do not load and cases that come out wrong."""
    folder = catalog_dir() if directory is None else directory
    try:
        rules = load_catalog(folder)
    except RuleError as first:
        rules, problems = _load_each(folder, first)
    else:
        problems = []
    for rule in rules:
        for case in rule.cases:
            level = judge(rule, case.metrics).level
            if level != case.expect:
                problems.append(
                    f"{rule.path}: case {case.name!r} expects {case.expect}, the rule says {level}"
                )
    if (Path(folder) / "questions").is_dir():
        try:
            load_questions(Path(folder) / "questions")
        except RuleError as error:
            problems.append(str(error))
    return problems


def _load_each(folder: str | Path, first: RuleError) -> tuple[tuple[Rule, ...], list[str]]:
    rules, problems = [], []
    for path in sorted(Path(folder).glob("*.toml")):
        try:
            rules.append(load_rule(path))
        except RuleError as error:
            problems.append(str(error))
    return tuple(rules), problems or [str(first)]


def show(rule_id: str, rules: tuple[Rule, ...]) -> str:
    """What a rule finds, why it matters, its thresholds and what to do, as plain text. RuleError if unknown."""
    found = {rule.id: rule for rule in rules}
    if rule_id not in found:
        raise RuleError(f"no rule {rule_id!r}{nearest(rule_id, found)}")
    rule = found[rule_id]
    lines = [
        f"{rule.id}: {rule.title}",
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
    for action in rule.actions:
        lines.append(f"Do          {action.text} (risk {action.risk}, effort {action.effort})")
        if action.command:
            lines.append(f"            {action.command}")
    example = next(case for case in rule.cases if case.expect not in {"silent", "unknown"})
    lines += ["", f"Example     {example.name}: {judge(rule, example.metrics).message}"]
    return "\n".join(lines)
