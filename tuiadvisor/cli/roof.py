"""The roofline of a trace under its table, for commands that read traces."""

from __future__ import annotations

from typing import Any

from tuiadvisor.importers.kinetoreport import kineto_summary
from tuiadvisor.importers.tracework import roofline_of
from tuiadvisor.text.roofline import letters


def summary_with_roof(document: dict[str, Any]) -> str:
    """The table, and the roofline where the trace has shapes."""
    return "\n".join([kineto_summary(document), *roof_lines(document["efficiency"])])


def roof_lines(found: dict[str, Any]) -> list[str]:
    """Empty without shapes."""
    return letters(roofline_of(found)) if found["roofline"]["dots"] else []
