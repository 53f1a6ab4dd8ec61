"""Values of an answer as the type that was promised: whoever answers is a stranger's process, or a program of others.

In: what JSON gave.  Out: a bounded text on one line, a count, or what stands for neither.
"""

from __future__ import annotations

from typing import Final

from tuiadvisor.errors import one_line

_MAX_COUNT: Final = 1 << 62


def text(value: object, max_chars: int) -> str:
    """Empty where it is none."""
    return one_line(value[:max_chars]) if isinstance(value, str) else ""


def count(value: object) -> int | None:
    """A whole number from 0 on, below 2**62; a bool is none."""
    return value if type(value) is int and 0 <= value < _MAX_COUNT else None
