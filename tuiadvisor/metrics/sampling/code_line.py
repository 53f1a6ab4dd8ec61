"""A frame of a stack, and the line of code that a sample counts for."""

from __future__ import annotations

from typing import NamedTuple


class CodeFrame(NamedTuple):
    """One frame of a stack."""

    name: str
    file: str  # its last parts
    line: int
    is_own: bool  # of the training's own code


class CodeLine(NamedTuple):
    """Where a sample counts."""

    file: str
    line: int
    name: str
