"""A job that makes no progress now: what an alert says of it.

In: nothing.  Out: Stall; None in a RunView means that something moves, or that it was not observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HANG: Final = "hang"  # the finding that a stall is told as


@dataclass(frozen=True, slots=True)
class Stall:
    """Since when, who waits for whom, and what can be done at once."""

    for_s: float  # since any rank went from one phase to another
    waiting: tuple[int, ...]
    missing: tuple[int, ...]  # whom they wait for; empty where nothing observed tells
    words: str  # "ranks 0, 1 and 2 wait for rank 3, stopped by a signal or a debugger"
    held: str  # what the missing are: stopped | gone | missing
    command: str  # what lets them go on, or shows where they are: "kill -CONT 8812"
    where: str  # hosts to run it on, "" where there is one alone
