"""One training in the list of what runs: a row of the home screen; nothing computes after it.

In: nothing.  Out: JobEntry; None and "" mean that it was not observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import DecisionWord


@dataclass(frozen=True, slots=True)
class Watched:
    """What a recording that is being written says of a training; everything of its newest steps."""

    hub: str  # where viewers look along; "" while nothing is known yet
    recording: str  # its file; "" where it goes with its session
    share: float = 1.0  # of it that was read, 0..1; below 1 nothing else is known yet
    last_step: int | None = None
    step_s: float | None = None  # mean of the steady ones
    steps_s: float | None = (
        None  # steps a second, the pauses between them included; None: it stands, or unknown
    )
    decision: DecisionWord | None = None
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A row: a training of this machine, or a job of the user in Slurm."""

    key: str  # the same row in a later list
    label: str  # short name: the script's
    command: str
    owner: str  # "you", or the user's name
    num_ranks: int | None
    device: str  # "gpu", "cpu", ""
    since: str  # "2 h 14 m"
    pids: tuple[int, ...] = ()  # what --pid takes; of Slurm's jobs none
    slurm: str = ""  # its number there
    where: str = ""  # of Slurm's jobs: "8 nodes, running"
    is_ours: bool = True  # of the user who looks, so it can be attached to
    is_watched: bool = False  # probes are in it already
    is_running: bool = True
    rank_pids: tuple[int, ...] = ()
    watched: Watched | None = None  # by a hub of this user on this machine
    apart: str = ""  # what tells it from other trainings of the same script here
    num_hubs_not_read: int = 0  # hubs of this user, too many to read: one of them may watch it

    @property
    def target(self) -> tuple[str, ...]:
        """The options of `watch` that mean it: to look along where a hub of ours has it, else to attach."""
        if self.watched is not None and self.watched.hub:
            return (self.watched.hub,)
        return ("--slurm", self.slurm) if self.slurm else ("--pid", *map(str, self.pids))
