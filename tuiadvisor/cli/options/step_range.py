"""Ranges of steps as people type them: 100:200, 100:, :200."""

from __future__ import annotations

from argparse import ArgumentTypeError

from tuiadvisor.events import OPEN_END


def step_range(text: str) -> tuple[int, int]:
    """First and last step, both included; an argparse type, so a bad one is a usage error."""
    first, colon, last = text.partition(":")
    try:
        steps = int(first or 0), int(last or OPEN_END)
    except ValueError:
        steps = (1, 0)
    if not colon or steps[0] > steps[1] or steps[0] < 0:
        raise ArgumentTypeError(f"{text!r} is not a range of steps; write 100:200, 100: or :200")
    return steps
