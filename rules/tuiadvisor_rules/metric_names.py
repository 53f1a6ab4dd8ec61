"""The metrics that rules may name: the vocabulary between measuring and judging.

One line a metric in metrics.txt beside this file: scope, name, unit, meaning, made of what the causes declare
(`python -m tuiadvisor.causes.names`). The advisor supplies exactly these (a test compares); a rule that names
another one is refused with the nearest valid name. Scopes: `job` metrics are known to every rule, the
others only to rules of their scope, which are judged once for each straggler group, kind of pause, group of heavy
pipeline stages, reason that keeps ranks from running, kind of placement or standstill. Rules of scope `serving` are
judged on a serving process's metrics page and know its metrics alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

SCOPES: Final = ("job", "straggler", "pause", "stage", "held", "placement", "standstill", "serving")
APART: Final = ("serving",)  # no training: metrics of the job mean nothing there
UNITS: Final = ("s", "share", "ratio", "steps", "count", "flag", "text")


@dataclass(frozen=True, slots=True)
class MetricName:
    """unit `text` is for messages only; `share` is 0..1; None values are unknown."""

    name: str
    scope: str
    unit: str
    meaning: str


_TABLE: Final = Path(__file__).with_name("metrics.txt").read_text(encoding="utf-8")


def fields(line: str) -> tuple[str, str, str, str]:
    """(name, scope, unit, meaning) of one line of the table."""
    scope, name, unit, meaning = line.split(" ", 3)
    return name, scope, unit, meaning


ALL: Final = tuple(MetricName(*fields(line)) for line in _TABLE.strip().splitlines())
METRICS: Final = {entry.name: entry for entry in ALL}  # a name keeps its unit in every scope


def names_for(scope: str) -> frozenset[str]:
    """Metrics that a rule of this scope may name."""
    scopes = {scope} if scope in APART else {"job", scope}
    return frozenset(entry.name for entry in ALL if entry.scope in scopes)
