"""Rules of the user: a folder of files that extend the shipped rules or override them by id.

In: ~/.config/tuiadvisor/rules/*.toml.  Out: all rules to judge by. A file with a new id is a rule of its own. A file
with the id of a shipped rule says only what differs: its keys replace the shipped ones, in [thresholds] and [severity]
name by name. `disabled = true` beside the id switches a shipped rule off.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor_rules.condition import RuleError, nearest
from tuiadvisor_rules.loader import Rule, catalog_dir, load_catalog, read_document, rule_id, rule_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FILES: Final = 200
MERGED: Final = ("thresholds", "severity")


@dataclass(frozen=True, slots=True)
class Overlay:
    """A folder's rules, the ids it switches off, and a line for each file that is wrong."""

    rules: tuple[Rule, ...]
    disabled: tuple[str, ...]
    problems: tuple[str, ...]


def user_dir(environ: Mapping[str, str] | None = None) -> Path | None:
    """The user's folder of rules, by the XDG convention; None where there is no home."""
    settings = os.environ if environ is None else environ
    config, home = Path(settings.get("XDG_CONFIG_HOME", "")), Path(settings.get("HOME", ""))
    if not config.is_absolute():  # the convention: a relative path is ignored
        config = home / ".config"
    return config / "tuiadvisor" / "rules" if config.is_absolute() else None


def load_rules(directory: str | Path | None = None) -> tuple[Rule, ...]:
    """The shipped rules as the user's folder changes them. RuleError at a wrong file: no rule is dropped silently.

    directory: None for the user's own folder, which need not exist.
    """
    shipped = load_catalog()
    folder = user_dir() if directory is None else Path(directory)
    if folder is None:
        return shipped
    mine = overlay(folder, shipped)
    if mine.problems:
        more = f" (and {len(mine.problems) - 1} more)" if len(mine.problems) > 1 else ""
        raise RuleError(f"{mine.problems[0]}{more}; see tuiadvisor rules check")
    by_id = {rule.id: rule for rule in shipped} | {rule.id: rule for rule in mine.rules}
    return tuple(rule for rule in by_id.values() if rule.id not in mine.disabled)


def overlay(directory: str | Path, shipped: tuple[Rule, ...] | None = None) -> Overlay:
    """Everything in a folder, good and bad; nothing where there is no folder."""
    base = {rule.id: rule for rule in (load_catalog() if shipped is None else shipped)}
    rules: dict[str, Rule] = {}
    disabled: dict[str, str] = {}
    problems: list[str] = []
    for path in _files(directory, problems):
        try:
            _take(path, base, rules, disabled)
        except RuleError as error:
            problems.append(str(error))
    return Overlay(tuple(rules.values()), tuple(disabled), tuple(problems))


def is_shipped(rule: Rule) -> bool:
    """Whether a rule is as it came with the package."""
    return Path(rule.path).parent == catalog_dir()


def _files(directory: str | Path, problems: list[str]) -> list[Path]:
    try:
        paths = sorted(path for path in Path(directory).iterdir() if path.suffix == ".toml")
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(str(RuleError(f"{directory}: cannot be read: {error.strerror}")))
        return []
    if len(paths) > MAX_FILES:
        problems.append(str(RuleError(f"{directory}: {len(paths)} rule files; at most {MAX_FILES} are read")))
    return paths[:MAX_FILES]


def _take(path: Path, base: Mapping[str, Rule], rules: dict[str, Rule], disabled: dict[str, str]) -> None:
    document, text = read_document(path)
    try:
        name = rule_id(document)
    except RuleError as error:
        raise RuleError(f"{path}: {error}") from error
    if name in rules or name in disabled:
        other = rules[name].path if name in rules else disabled[name]
        raise RuleError(f"{path}: id {name!r} is already used by {other}")
    if "disabled" in document:
        _check_disabled(document, name, base, path)
        disabled[name] = str(path)
        return
    if name in base:
        document = merged(read_document(base[name].path)[0], document)
    try:
        rules[name] = rule_of(document, text, str(path))
    except RuleError as error:
        near = nearest(name, base)
        # Most likely meant to override: then only what differs would have been enough.
        if name not in base and near and ": missing key" in str(error):
            raise RuleError(f"{error} (no shipped rule {name!r}{near})") from error
        raise


def merged(shipped: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    """The shipped table with the user's keys; a wrong kind of value is left to the loader."""
    result = shipped | mine
    for key in MERGED:
        if isinstance(shipped.get(key), dict) and isinstance(mine.get(key), dict):
            result[key] = shipped[key] | mine[key]
    return result


def _check_disabled(document: dict[str, Any], name: str, base: Mapping[str, Rule], path: Path) -> None:
    if document["disabled"] is not True or set(document) != {"id", "disabled"}:
        raise RuleError(f"{path}: 'disabled' is true or absent, and stands beside the id alone")
    if name not in base:
        raise RuleError(f"{path}: no shipped rule {name!r} to switch off{nearest(name, base)}")
