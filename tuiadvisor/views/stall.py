"""A job that makes no progress now: what an alert says of it.

In: nothing.  Out: Stall, NoStep; None in a RunView means that something moves, or that it was not observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HANG: Final = "hang"  # the finding that a stall is told as


@dataclass(frozen=True, slots=True)
class StalledCollective:
    """A collective that ranks wait in, by their flight recorders."""

    group: str  # as the backend numbers it
    description: str  # "default_pg", "tp"; "" where it was given none
    members: tuple[int, ...]
    operation: str  # "gloo:all_reduce"
    seq: int  # the group's collectives are counted from 1
    size: str  # of its first input, "8x4"
    dtype: str
    waiting: tuple[int, ...]
    missing: tuple[int, ...]  # have not entered it
    unknown: tuple[int, ...]  # members whose recorder could not be read
    is_origin: bool  # its missing ranks wait for nobody themselves
    stopped: tuple[
        tuple[int, int], ...
    ] = ()  # of those that wait: (rank whose device stands, who has completed it)


@dataclass(frozen=True, slots=True)
class Stall:
    """Since when, who waits for whom, and what can be done at once."""

    for_s: float | None  # since any rank went from one phase to another; None where nothing tells, as dumps
    waiting: tuple[int, ...]
    missing: tuple[int, ...]  # whom they wait for; empty where nothing observed tells
    words: str  # "ranks 0, 1 and 2 wait for rank 3, stopped by a signal or a debugger"
    held: str  # what the missing are: stopped | gone | missing
    command: str  # what lets them go on, or shows where they are: "kill -CONT 8812"
    where: str  # hosts to run it on, "" where there is one alone
    evidence: str = ""  # what the flight recorders say, one sentence; "" where they were not asked
    collectives: tuple[StalledCollective, ...] = ()  # those first that the others wait for
    different: str = ""  # who calls what, where ranks call different collectives under one number
    unasked: tuple[tuple[int, str], ...] = ()  # ranks whose recorder could not be read, and why
    step: int | None = None  # in which they stand; the last ones before it may not have been told yet


@dataclass(frozen=True, slots=True)
class NoStep:
    """A job that makes no step and is not seen to hang."""

    for_s: float
    words: str  # why, as far as it is known
    is_at_work: bool  # whom the others wait for was seen to work: the job goes on as before
