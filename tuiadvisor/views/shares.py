"""A number for each phase of a step."""

from __future__ import annotations

Shares = dict[
    str, float | None
]  # phase name (events.PHASES) -> share of the step, or seconds; None: not observed
