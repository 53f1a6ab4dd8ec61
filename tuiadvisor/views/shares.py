"""A number for each phase of a step."""

from __future__ import annotations

from tuiadvisor.phases import PHASES

# Phase name (phases.PHASES) -> share of the step, or seconds; None: not observed.
Shares = dict[str, float | None]


def known_phases(shares: Shares) -> list[tuple[str, float]]:
    """The phases with an observed share above zero, in the order of a step."""
    return [(phase, value) for phase in PHASES if (value := shares.get(phase)) is not None and value > 0]
