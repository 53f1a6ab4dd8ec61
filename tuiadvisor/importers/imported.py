"""A run as another tool recorded it, ready to be written in our own format.

What the source did not observe is unknown in it, never 0: columns that no row has are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.arrays import Ints

    # (path that is read next, its number from 1, how many there are)
    Progress = Callable[[str, int, int], None]

Row = tuple[int, ...]


class NoStepsError(TuiadvisorError):
    """The source is sound and has no steps."""


@dataclass(frozen=True, slots=True)
class ImportedRank:
    """steps: rows of STEP_COLUMNS; events: a kind and a row of EVENT_COLUMNS. shift_ns: to the clock of all ranks."""

    rank: int
    steps: tuple[Row, ...]
    events: tuple[Row, ...]
    device: str | None
    shift_ns: int | None = 0  # None: its clock is its own
    pipeline: dict[str, int] = field(default_factory=dict)
    host: str = ""  # "": the source does not say
    slices: Ints | None = None  # of a device's timeline: as events, a row each; many, so no tuples


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """late_ranks: whom the import's own comparison names; None where it could not compare."""

    kind: str
    source: str  # name of the file or folder
    words: str  # what it is and by which clock, a clause
    ranks: tuple[ImportedRank, ...]
    world_size: int | None
    late_ranks: tuple[int, ...] | None
    because: str  # the import's sentence on them
    notes: tuple[str, ...] = ()  # what is not as it seems, or was left out
    parallel: dict[str, int] = field(default_factory=dict)
    schedule: str | None = None
    device: dict[str, Any] | None = None  # what the devices did: ranks, kinds, kernels, says
