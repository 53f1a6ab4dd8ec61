"""Latencies as people type them: 500ms, 0.5, 0.5s, 2m."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Final

UNITS: Final = (("ms", 1e-3), ("s", 1.0), ("m", 60.0))
LARGEST_S: Final = 1e6


def latency(text: str) -> float:
    """Seconds; an argparse type, so a bad one is a usage error."""
    number, factor = text.strip().lower(), 1.0
    for unit, seconds in UNITS:
        if number.endswith(unit):
            number, factor = number.removesuffix(unit), seconds
            break
    try:
        value = float(number) * factor
    except ValueError:
        value = -1.0
    if not 0 < value < LARGEST_S:
        raise ArgumentTypeError(f"{text!r} is not a latency; write 500ms, 0.5s or 2m")
    return value
