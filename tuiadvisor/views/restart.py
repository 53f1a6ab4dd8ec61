"""New processes that took the ranks of former ones: frozen, for events, the header and the verdict.

In: nothing.  Out: Restart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart of the job, or of some of its ranks."""

    number: int  # 1 is the run's first
    after_step: int | None  # newest job step of the processes before; None: no step of theirs was seen
    ranks: tuple[int, ...]  # ascending
    how_ended: str  # what is known of the end of those before: "rank 1 was killed by SIGKILL"; "": nothing
    began_wall_s: float  # when the first of the new processes started, since 1970
    waits_s: (
        float | None
    )  # how long the new ones have been running without a step; None: they have made one, or ended
    came_to_nothing: bool = False  # the new ones ended before their first step, and with them the run
