"""The mark of each kind of event: one table for the ribbon above the screens, the list of events and charts of steps.

In: an event's kind.  Out: glyph and role; letters double the colours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tuiadvisor.views.event import (
    ALERT,
    BOOKMARK,
    CAPTURE,
    CHANGE,
    DETAIL,
    DIED,
    NO_STEP,
    ONSET,
    PAUSE_KINDS,
    RESOLVED,
    RESTART,
    STALLED,
)


@dataclass(frozen=True, slots=True)
class Mark:
    """How a kind of event is drawn."""

    glyph: str
    role: str
    is_on_ribbon: bool = True  # False: it has a row in the list alone


# A later row covers the ones before it where they share a column: a finding's beginning is what one looks for.
MARKS: Final = {
    ALERT: Mark("!", "bad", is_on_ribbon=False),  # rings for what has its own mark
    RESOLVED: Mark("✓", "good", is_on_ribbon=False),
    CHANGE: Mark("~", "accent"),
    "pause": Mark("P", "phase:checkpoint"),
    "evaluation": Mark("E", "phase:checkpoint"),
    "checkpoint": Mark("C", "phase:checkpoint"),
    DETAIL: Mark("d", "accent"),
    CAPTURE: Mark("*", "accent"),
    BOOKMARK: Mark("b", "accent"),
    DIED: Mark("x", "bad"),
    RESTART: Mark("+", "warn"),
    NO_STEP: Mark("n", "warn"),
    STALLED: Mark("■", "bad"),
    ONSET: Mark("▲", "mark"),
}
RANKED: Final = tuple(MARKS)


def cell(kind: str) -> tuple[str, str]:
    """Return glyph and role of a kind of event. KeyError for one that has no mark."""
    mark = MARKS[kind]
    return mark.glyph, mark.role


def on_ribbon(kind: str) -> bool:
    """Return whether events of this kind are drawn over the run's steps."""
    return kind in MARKS and MARKS[kind].is_on_ribbon


def pause_kind(kind: str) -> str:
    """Return the kind of event that a pause is listed as. kind: of the pause."""
    return PAUSE_KINDS.get(kind, "pause")
