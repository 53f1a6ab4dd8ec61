"""Several recordings of one job, restarts between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.views.goodput import Goodput
    from tuiadvisor.views.run_view import RunView


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recording of the job."""

    name: str
    view: RunView
    gap_s: float | None  # from the end of the one before to the start of this one's process; None: the first
    steps_again: int | None  # of it, how many later ones did again; None where a count is not known


@dataclass(frozen=True, slots=True)
class JobView:
    """The job from the start of its first process that was seen to the last step of its last recording."""

    recordings: tuple[Recorded, ...]  # in the order in which they ran
    goodput: Goodput
    notes: tuple[str, ...]  # what is not known, and why
