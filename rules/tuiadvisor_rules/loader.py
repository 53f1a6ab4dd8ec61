"""Read rule files: TOML in, Rule out, every mistake named with file, line and the nearest valid name.

A rule file is data: conditions are parsed into a whitelisted tree, never executed, and unknown keys are refused
(in TOML a key written after [thresholds] silently joins that table).
"""

from __future__ import annotations

import re
import stat
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor_rules.condition import Condition, RuleError, nearest
from tuiadvisor_rules.message import check_template
from tuiadvisor_rules.metric_names import SCOPES, names_for

if TYPE_CHECKING:
    from collections.abc import Mapping

PATTERNS: Final = ("P1", "P2", "P3", "P4", "P5", "P6")
LENSES: Final = ("L-AMORT", "L-CODESIGN", "L-BALANCE", "L-PURPOSE")
LAYERS: Final = (
    "gpu-compute",
    "gpu-memory",
    "cpu-os",
    "network",
    "storage",
    "runtime",
    "scheduler",
    "application",
)
SITUATIONS: Final = (
    *(f"B{i}" for i in range(1, 10)),
    *(f"G{i}" for i in range(1, 6)),
    *(f"F{i}" for i in range(1, 8)),
)
DECISIONS: Final = ("tune", "rescale", "stop", "keep")
HANG: Final = "hang"  # of a job that stands still: nothing can be decided of its steps
RISKS: Final = ("low", "medium", "high")
LEVELS: Final = ("info", "warning", "critical")
MAX_FILE_BYTES: Final = 64 << 10
MAX_TEXT: Final = 2000
LARGEST: Final = 1e18
ID: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_KEYS: Final = {
    "id",
    "title",
    "pattern",
    "lens",
    "secondary_lenses",
    "layer",
    "situations",
    "scope",
    "phase",
    "decision",
    "loss",
    "own_loss",
    "since",
    "final",
    "condition",
    "severity",
    "thresholds",
    "headline",
    "message",
    "why",
    "verify",
    "evidence",
    "measure_next",
    "actions",
    "variants",
    "cases",
}
_FILLED: Final = ("title", "headline", "message")  # templates: with metrics in braces
_SPOKEN: Final = ("title", "headline", "message", "why", "verify", "measure_next", "actions")
_REQUIRED: Final = (
    "id",
    "title",
    "pattern",
    "lens",
    "layer",
    "decision",
    "condition",
    "headline",
    "message",
    "why",
    "verify",
    "measure_next",
    "cases",
)


@dataclass(frozen=True, slots=True)
class RuleAction:
    """One thing to do."""

    text: str
    command: str | None
    risk: str
    effort: str
    upkeep: str = ""  # what it goes on asking for; "" where none is known
    ties: str = ""  # what it binds the program to
    last_resort: bool = False  # where no other action fits: it takes nothing off the step


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number a condition uses, and who says so."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Case:
    """A rule's own test: metric values and the level it must reach ("silent" or "unknown" included)."""

    name: str
    expect: str
    metrics: dict[str, object]


@dataclass(frozen=True, slots=True)
class Variant:
    """What a rule says instead in one case (another framework), and when; None: as the rule."""

    when: Condition
    title: str | None
    headline: str | None
    message: str | None
    why: str | None
    verify: str | None
    measure_next: tuple[str, ...] | None
    actions: tuple[RuleAction, ...] | None


@dataclass(frozen=True, slots=True)
class Rule:
    """One file of the catalogue."""

    id: str
    title: str
    pattern: str
    lens: str
    secondary_lenses: tuple[str, ...]
    layer: str
    situations: tuple[str, ...]
    scope: str
    phase: str | None
    decision: str
    loss: str | None  # metric: seconds a step that the finding costs
    own_loss: bool  # goodput has this loss as a kind of its own, under the rule's id
    since: str | None  # metric: job step of its onset
    final: bool  # judged after all others: may use num_findings_above_info
    condition: Condition
    levels: tuple[tuple[str, Condition], ...]  # highest first
    thresholds: dict[str, Threshold]
    headline: str  # for the verdict: what is wrong, in half a sentence
    message: str
    why: str
    verify: str
    evidence: tuple[str, ...]
    measure_next: tuple[str, ...]
    actions: tuple[RuleAction, ...]
    cases: tuple[Case, ...]
    path: str
    variants: tuple[Variant, ...] = ()

    def spoken(self, values: Mapping[str, object]) -> Rule:
        """With the texts of the first variant that holds on these metric values."""
        for variant in self.variants:
            if variant.when(values):
                said = {name: text for name in _SPOKEN if (text := getattr(variant, name)) is not None}
                return replace(self, **said)
        return self


def catalog_dir() -> Path:
    """The catalogue shipped with the package, installed or in a checkout."""
    here = Path(__file__).resolve().parent
    installed = here / "catalog"
    return installed if installed.is_dir() else here.parent / "catalog"


def load_catalog(directory: str | Path | None = None) -> tuple[Rule, ...]:
    """A folder's rules, by file name; the shipped ones (default) are read once. RuleError at the first mistake."""
    return _shipped() if directory is None else _rules_in(Path(directory))


@cache
def _shipped() -> tuple[Rule, ...]:
    return _rules_in(catalog_dir())


def _rules_in(folder: Path) -> tuple[Rule, ...]:
    rules = [load_rule(path) for path in sorted(folder.glob("*.toml"))]
    if not rules:
        raise RuleError(f"{folder}: no rule files (*.toml) in it")
    seen: dict[str, str] = {}
    for rule in rules:
        if rule.id in seen:
            raise RuleError(f"{rule.path}: id {rule.id!r} is already used by {seen[rule.id]}")
        seen[rule.id] = rule.path
    return tuple(rules)


def load_rule(path: str | Path) -> Rule:
    """One rule file. RuleError: what is wrong, in which line, what would be right."""
    document, text = read_document(path)
    return rule_of(document, text, str(path))


def read_document(path: str | Path) -> tuple[dict[str, Any], str]:
    """(table, text) of a TOML file. RuleError: why it cannot be read."""
    where = Path(path)
    try:
        # A pipe or a device in the folder would be read for ever.
        if not stat.S_ISREG(where.stat().st_mode):
            raise RuleError(f"{where}: not a file")
        with where.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise RuleError(f"{where}: cannot be read: {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise RuleError(f"{where}: exceeds {MAX_FILE_BYTES} bytes")
    try:
        text = raw.decode()
        return tomllib.loads(text), text
    except (ValueError, RecursionError) as error:
        raise RuleError(f"{where}: not TOML: {error}") from error


def rule_of(document: dict[str, Any], text: str, path: str) -> Rule:
    """The rule in a table. text: of the file that is to blame for a mistake, for the line number."""
    try:
        return _rule(document, path)
    except RuleError as error:
        raise RuleError(f"{path}:{_line_of(text, str(error))}: {error}") from error


def _line_of(text: str, message: str) -> int:
    """The line that holds the first quoted word of the message; 1 if none does."""
    quoted = message.split("'")[1::2]
    for word in quoted[:1]:
        for number, line in enumerate(text.splitlines(), 1):
            if word and word in line and not line.lstrip().startswith("#"):
                return number
    return 1


def _rule(document: dict[str, Any], path: str) -> Rule:
    for key in document:
        if key not in _KEYS:
            raise RuleError(f"unknown key {key!r}{nearest(key, _KEYS)}")
    if missing := [key for key in _REQUIRED if key not in document]:
        raise RuleError(f"missing key{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}")
    scope = _one_of(document, "scope", SCOPES, default="job")
    names = names_for(scope)
    thresholds = {name: _threshold(name, value) for name, value in _table(document, "thresholds").items()}
    numbers = {name: threshold.value for name, threshold in thresholds.items()}
    levels = _table(document, "severity")
    for level in levels:
        if level not in LEVELS[1:]:
            raise RuleError(f"unknown severity {level!r}{nearest(level, LEVELS[1:])}")
    title, headline, message = (_text(document, name) for name in _FILLED)
    for template in (title, headline, message):
        check_template(template, names)
    rule = Rule(
        id=rule_id(document),
        title=title,
        pattern=_one_of(document, "pattern", PATTERNS),
        lens=_one_of(document, "lens", LENSES),
        secondary_lenses=_all_of(document, "secondary_lenses", LENSES),
        layer=_one_of(document, "layer", LAYERS),
        situations=_all_of(document, "situations", SITUATIONS),
        scope=scope,
        phase=_text(document, "phase") if "phase" in document else None,
        decision=_one_of(document, "decision", (*DECISIONS, HANG)),
        loss=_one_of(document, "loss", tuple(sorted(names))) if "loss" in document else None,
        own_loss=_own_loss(document, scope),
        since=_one_of(document, "since", tuple(sorted(names))) if "since" in document else None,
        final=document.get("final", False) is True,
        condition=Condition(_text(document, "condition"), names, numbers),
        levels=tuple(
            (level, Condition(str(levels[level]), names, numbers))
            for level in ("critical", "warning")
            if level in levels
        ),
        thresholds=thresholds,
        headline=headline,
        message=message,
        why=_text(document, "why"),
        verify=_text(document, "verify"),
        evidence=_all_of(document, "evidence", tuple(sorted(names))),
        measure_next=_texts(document, "measure_next"),
        actions=_actions(document, names),
        cases=tuple(_case(entry, names) for entry in _tables(document, "cases")),
        path=path,
        variants=tuple(_variant(entry, names, numbers) for entry in _tables(document, "variants")),
    )
    outcomes = {case.expect for case in rule.cases}
    if not outcomes & set(LEVELS) or not outcomes & {"silent", "unknown"}:
        raise RuleError("'cases' needs at least one case that fires and one that stays silent")
    return rule


def _own_loss(document: dict[str, Any], scope: str) -> bool:
    value = document.get("own_loss", False)
    if not isinstance(value, bool):
        raise RuleError("'own_loss' must be true or false")
    if value and (scope != "job" or "loss" not in document):
        raise RuleError("'own_loss' needs scope \"job\" and 'loss', a metric of seconds a step")
    return value


def rule_id(document: dict[str, Any]) -> str:
    """The id, as tests, reports and JSON use it."""
    name = _text(document, "id")
    if not ID.fullmatch(name):
        raise RuleError(f"'id' is {name!r}; write lower-case letters, digits and _")
    return name


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value.strip():
        raise RuleError(f"{key!r} must be a text")
    return _one_line(key, value.strip())


def _one_line(key: str, text: str) -> str:
    """Texts go to terminals: nothing in them may be obeyed there."""
    if not text.isprintable() or len(text) > MAX_TEXT:
        raise RuleError(f"{key!r} must be one printable line of at most {MAX_TEXT} characters")
    return text


def _texts(document: dict[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise RuleError(f"{key!r} must be a list of texts")
    return tuple(_one_line(key, entry) for entry in value)


def _one_of(document: dict[str, Any], key: str, valid: tuple[str, ...], default: str | None = None) -> str:
    value = document.get(key, default)
    if value not in valid:
        raise RuleError(f"{key!r} is {value!r}{nearest(str(value), valid) or '; valid: ' + ', '.join(valid)}")
    return str(value)


def _all_of(document: dict[str, Any], key: str, valid: tuple[str, ...]) -> tuple[str, ...]:
    values = _texts(document, key)
    for value in values:
        if value not in valid:
            raise RuleError(f"{key!r} names {value!r}{nearest(value, valid)}")
    return values


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise RuleError(f"{key!r} must be a table")
    return value


def _tables(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = document.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise RuleError(f"{key!r} must be tables, [[{key}]]")
    return value


def _threshold(name: str, value: object) -> Threshold:
    if not isinstance(value, dict) or set(value) != {"value", "source"}:
        raise RuleError(f'threshold {name!r} must be {{ value = number, source = "who says so" }}')
    number, source = value["value"], value["source"]
    if not name.isidentifier():
        raise RuleError(f"threshold {name!r} has no name that a condition could use")
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise RuleError(f"threshold {name!r} is not a number")
    if not -LARGEST <= number <= LARGEST:  # also what is no number: nan compares with nothing
        raise RuleError(f"threshold {name!r} is not between -1e18 and 1e18")
    if not isinstance(source, str) or not source.strip():
        raise RuleError(f"threshold {name!r} has no source")
    return Threshold(float(number), _one_line(name, source))


_ACTION_KEYS: Final = ("text", "command", "risk", "effort", "upkeep", "ties", "last_resort")


def _actions(document: dict[str, Any], names: frozenset[str]) -> tuple[RuleAction, ...]:
    actions = tuple(map(_action, _tables(document, "actions")))
    for action in actions:
        check_template(action.text, names)
    return actions


def _action(entry: dict[str, Any]) -> RuleAction:
    for key in entry:
        if key not in _ACTION_KEYS:
            raise RuleError(f"unknown key {key!r} in [[actions]]{nearest(key, _ACTION_KEYS)}")
    command = entry.get("command")
    if command is not None and not isinstance(command, str):
        raise RuleError("'command' must be a text")
    if command is not None:
        _one_line("command", command)
    more = {name: _text(entry, name) for name in ("upkeep", "ties") if name in entry}
    risk = _one_of(entry, "risk", RISKS)
    last_resort = entry.get("last_resort", False)
    if not isinstance(last_resort, bool):
        raise RuleError("'last_resort' must be true or false")
    return RuleAction(
        _text(entry, "text"), command, risk, _text(entry, "effort"), **more, last_resort=last_resort
    )


def _variant(entry: dict[str, Any], names: frozenset[str], numbers: dict[str, float]) -> Variant:
    for key in entry:
        if key not in {"when", *_SPOKEN}:
            raise RuleError(f"unknown key {key!r} in [[variants]]{nearest(key, ('when', *_SPOKEN))}")
    if len(entry) < 2:
        raise RuleError("a variant needs 'when' and what it says instead")
    texts = {name: _text(entry, name) if name in entry else None for name in _SPOKEN[:5]}
    for name in _FILLED:
        check_template(texts[name] or "", names)
    return Variant(
        when=Condition(_text(entry, "when"), names, numbers),
        **texts,
        measure_next=_texts(entry, "measure_next") if "measure_next" in entry else None,
        actions=_actions(entry, names) if "actions" in entry else None,
    )


def _case(entry: dict[str, Any], names: frozenset[str]) -> Case:
    metrics = entry.get("metrics")
    if not isinstance(metrics, dict):
        raise RuleError("'metrics' of a case must be a table of metric values")
    for name in metrics:
        if name not in names:
            raise RuleError(f"no metric {name!r} for a case{nearest(name, names)}")
        value = metrics[name]
        if isinstance(value, str):
            _one_line(name, value)
        elif isinstance(value, int | float) and not -LARGEST <= value <= LARGEST:
            raise RuleError(f"metric {name!r} of a case is not between -1e18 and 1e18")
    expect = _one_of(entry, "expect", (*LEVELS, "silent", "unknown"))
    return Case(_text(entry, "name"), expect, dict(metrics))
