"""Fields of a frame's payload as the type that was promised, or None: frames come from strangers."""

from __future__ import annotations

from typing import Final

from tuiadvisor.errors import one_line

MAX_TEXT_CHARS: Final = 2000
MAX_NAME_CHARS: Final = 100
MAX_RANKS: Final = 1 << 17  # a higher number is no rank's
# Whose samples are kept, 75 MB of them at most; of the ranks beyond nothing is said.
MAX_WATCHED_RANKS: Final = 1 << 13
Payload = dict[str, object]


def text(payload: Payload, name: str) -> str | None:
    """A printable text, control characters as spaces, bounded."""
    value = payload.get(name)
    return one_line(value[:MAX_TEXT_CHARS], " ") if isinstance(value, str) else None


def integer(payload: Payload, name: str) -> int | None:
    """An integer of at most 64 bits that is not negative (negative means unknown)."""
    value = payload.get(name)
    if type(value) is not int:  # a bool is none either
        return None
    return value if 0 <= value < 1 << 63 else None


def number(payload: Payload, name: str) -> float | None:
    """A finite number that is not negative."""
    value = payload.get(name)
    if type(value) is not float and type(value) is not int:  # a bool is none either
        return None
    return float(value) if 0 <= value < 1e30 else None  # NaN and infinity are not below


def objects(payload: Payload, name: str) -> list[Payload]:
    """The objects of a list."""
    value = payload.get(name)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def counts(payload: Payload, name: str) -> dict[str, int]:
    """A map of printable names to non-negative integers."""
    value = payload.get(name)
    if not isinstance(value, dict):
        return {}
    return {
        key: entry
        for key, entry in value.items()
        if isinstance(key, str)
        and key.isprintable()
        and len(key) <= MAX_NAME_CHARS
        and isinstance(entry, int)
        and not isinstance(entry, bool)
        and 0 <= entry < 1 << 31
    }
