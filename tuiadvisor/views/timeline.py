"""A stretch of time of an imported trace: what each stream of each rank did, a letter a cell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """One stream of a rank. cells: C compute, N communication, M copies, ? of no known kind, in lower case where less
    than half of the cell is taken; a dot where nothing is.
    """

    rank: int
    stream: int
    cells: str
    busy: float  # share of the stretch
    longest: tuple[tuple[str, float], ...]  # names that take most of it, with seconds


@dataclass(frozen=True, slots=True)
class Timeline:
    """Seconds from the first event of the trace."""

    begin_s: float
    end_s: float
    whole_s: float  # of the trace
    lanes: tuple[TimelineLane, ...]
    steps: tuple[tuple[int, int], ...] = ()  # (cell, step) where one begins
    resolution_s: float = 0.0  # what is shorter than this is joined with its neighbours; 0: nothing is
    num_left_out: int = 0  # lanes beyond those that are shown
