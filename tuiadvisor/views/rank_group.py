"""Ranks that belong together, as one row: frozen, for the screens. `groups` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.views.shares import Shares


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The ranks of one host, stage or replica. Seconds a step; None: not observed of any of them."""

    name: str  # "node01", "stage 2", "replica 3"
    ranks: tuple[int, ...]  # ascending
    num_live: int | None  # None: they are heard no more
    num_lost: int  # killed or refused
    step_s: float | None  # mean over its ranks
    wait_s: float | None  # mean over its ranks
    caused_wait_s: float | None  # sum over its ranks
    last_arrivals: float | None  # share of the steps in which one of its ranks arrived last
    shares: Shares  # of the means below
    seconds: Shares  # means over its ranks
    lateness_levels: bytes  # its latest rank, step by step, as RankRow.lateness_levels
    phase_levels: bytes  # its worst rank, phase by phase, as RankRow.phase_levels
    outliers: tuple[int, ...]  # ranks that stand out, the most waited for first; at most MAX_OUTLIERS
    num_outliers: int
    num_culprits: int
    caused_each_s: float | None = None  # sum over its ranks; one comes last in a step, so at most the step


@dataclass(frozen=True, slots=True)
class Grouping:
    """One way to put the ranks together; every rank is in one of its groups."""

    by: str  # "host", "stage", "replica"
    groups: tuple[RankGroup, ...]
