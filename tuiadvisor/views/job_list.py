"""One training in the list of what runs: a row of the home screen; nothing computes after it.

In: nothing.  Out: JobEntry; None and "" mean that it was not observed.
"""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def target(self) -> tuple[str, ...]:
        """The options of `watch` that mean it."""
        return ("--slurm", self.slurm) if self.slurm else ("--pid", *map(str, self.pids))
