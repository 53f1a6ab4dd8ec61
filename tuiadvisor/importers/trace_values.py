"""Values of a trace, which are strangers' JSON, as whole numbers within bounds.

In: anything.  Out: integers, nanoseconds, ranks; what is none of these is said to be none.
"""

from __future__ import annotations

import re
from typing import Any, Final

LARGEST_NS: Final = (1 << 62) - 1
# ASCII alone: digits of other scripts and superscripts are digits, too, and int() reads only some of them.
TIME_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]+)\.?(?P<fraction>[0-9]*)(?P<power>[eE][+-]?[0-9]{1,3})?"
)


def arguments_of(event: dict[str, Any]) -> dict[str, Any]:
    """An event's arguments; {} where it has none."""
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def integer(value: Any, otherwise: int) -> int:
    """A number or its text, from -1 to LARGEST_NS."""
    if type(value) is int:
        return value if -1 <= value <= LARGEST_NS else otherwise
    if not isinstance(value, str):
        return otherwise
    try:
        number = int(value) if len(value) < 20 else otherwise
    except ValueError:
        return otherwise
    return number if -1 <= number <= LARGEST_NS else otherwise


def nanoseconds(value: Any) -> int | None:
    """Microseconds, number or text, as whole nanoseconds; None for what is no time."""
    if type(value) is int:  # a bool is none
        time_ns = value * 1000
    elif type(value) is float:
        if not abs(value) <= LARGEST_NS:  # NaN is not, either; a thousand times 1e308 would be infinite
            return None
        time_ns = round(value * 1000)
    elif isinstance(value, str) and len(value) < 40:
        found = TIME_TEXT.fullmatch(value)
        if found is None:
            return None
        if found["power"]:
            return nanoseconds(float(value))
        time_ns = int(found["whole"]) * 1000 + int((found["fraction"] + "000")[:3])
        time_ns = -time_ns if found["sign"] == "-" else time_ns
    else:
        return None
    return time_ns if -LARGEST_NS <= time_ns <= LARGEST_NS // 2 else None


def members_of(value: Any) -> tuple[int, ...]:
    """The list "[0, 1, 2]" as written by the profiler; empty when it is cut ("[0, 1, ...]") or anything else."""
    if not isinstance(value, str) or len(value) > 1 << 16 or not re.fullmatch(r"\[\d+(, ?\d+)*\]", value):
        return ()
    return tuple(sorted({int(part) for part in value[1:-1].split(",") if len(part) < 10}))
