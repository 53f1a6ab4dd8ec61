"""Durations as people type them: 90, 90s, 15m, 12h, 3d."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Final

SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """Seconds of such a duration; an argparse type, so a bad one is a usage error."""
    unit = text[-1:].lower()
    number = text[:-1] if unit in SECONDS else text
    try:
        value = float(number) * SECONDS.get(unit, 1.0)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a duration; write 90s, 15m or 12h")
    return value
