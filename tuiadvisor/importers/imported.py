"""A run as another tool recorded it, ready to be written in our own format.

What the source did not observe is unknown in it, never 0: columns that no row has are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.arrays import Ints

    Progress = Callable[["Reading"], None]

Row = tuple[int, ...]
PART: Final = "part"  # kind of a run of which the source is still being read


class NoStepsError(TuiadvisorError):
    """The source is sound and has no steps; document: what the import says of it, where that was made."""

    def __init__(self, said: str, document: dict[str, Any] | None = None) -> None:
        super().__init__(said)
        self.document = document


class NotOneRunError(TuiadvisorError):
    """The source has steps, but not of the ranks of one run."""


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
    software: dict[str, str] = field(default_factory=dict)  # backend, cuda, nccl, as far as the source says
    compute_device: dict[str, int | str] = field(default_factory=dict)  # device_name, multiprocessors
    slices: Ints | None = None  # of a device's timeline: as events, a row each; many, so no tuples
    detail: str = "imported"  # what is said of it beside its state
    recorder: dict[str, Any] | None = (
        None  # of its flight recorder, as an entry of a STATUS frame's `recorders`
    )


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """late_ranks: whom the import's own comparison names; None where it could not compare.

    uncompared: ranks whose collectives end with no other rank's, so that they may be of other steps or another job.
    """

    kind: str
    source: str  # name of the file or folder
    words: str  # what it is and by which clock, a clause
    ranks: tuple[ImportedRank, ...]
    world_size: int | None
    late_ranks: tuple[int, ...] | None
    because: str  # the import's sentence on them
    says: str  # the one thing that the import would say first; "": nothing
    notes: tuple[str, ...] = ()  # what is not as it seems, or was left out
    parallel: dict[str, int] = field(default_factory=dict)
    schedule: str | None = None
    device: dict[str, Any] | None = None  # what the devices did: ranks, kinds, kernels, says
    arithmetic: dict[str, Any] | None = None  # FLOPs that were counted, and the peak: of tracework.arithmetic
    uncompared: tuple[int, ...] = ()
    steps_tell: bool = (
        False  # who is late, where the import's comparison does not: they are of one moment, on threads
    )
    last_wall_ns: int | None = None  # of the newest call, where no step tells when the run was
    waits_share: float | None = None  # of the time ranks wait for those that come last; None: not compared
    cause_ranks: tuple[int, ...] = ()  # with whom the first cause lies that the source's own what-if names


def _nothing() -> ImportedRun | None:
    return None


@dataclass(frozen=True, slots=True)
class Reading:
    """Where reading is, told before each file and now and then within one."""

    name: str  # of the file
    number: int  # its, from 1
    total: int  # how many files there are
    share: float | None = None  # of the bytes of all files, 0..1
    num_events: int = 0  # that were read
    part: Callable[[], ImportedRun | None] = _nothing  # the steps that were read so far; None: no step yet
