"""What happened in a run, one entry each: frozen, for the list of events. `app/event_log.py` collects them.

In: nothing.  Out: Event, Alert, StepTimes.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

ONSET: Final = "onset"
RESOLVED: Final = "resolved"
STALLED: Final = "stalled"
NO_STEP: Final = "no step"  # and whether that is a stall was not seen
RESTART: Final = "restart"
DIED: Final = "died"
CAPTURE: Final = "capture"
DETAIL: Final = "detail"
ALERT: Final = "alert"
CHANGE: Final = "change"
BOOKMARK: Final = "bookmark"
SETTLE_S: Final = 2.0  # that a finding has to stand, as the verdict of `watch --once` has
GONE_S: Final = 10.0  # that it has to be gone
SAME_STEPS: Final = 8  # a beginning is dated anew as steps come: within so many it is the same one
# Chosen: less than anybody reads one after another. A window that is judged begins anew with each of a few steps.
ONE_CHANGE_S: Final = 10.0
PAUSE_KINDS: Final = {
    "checkpoint": "checkpoint",
    "eval": "evaluation",
    "periodic": "pause",
    "irregular": "pause",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One entry."""

    kind: str  # one of the words above
    step: int | None
    ranks: tuple[int, ...]  # empty: all of them, or nobody in particular
    words: str
    wall_s: float | None = None  # since 1970; None: the time of that step is not known any more
    by_then: bool = False  # it was seen at this step, and happened there or before
    last_step: int | None = None  # of what lasts for steps that are known


@dataclass(frozen=True, slots=True)
class Alert:
    """What the terminal was rung for."""

    words: str
    ranks: tuple[int, ...] = ()  # that it is about; empty: all of them, or nobody in particular


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When the last rank ended each of the steps that are held, by the hosts' wall clocks."""

    steps: tuple[int, ...]  # ascending
    wall_s: tuple[float, ...]

    def at(self, step: int | None) -> float | None:
        """The end of a step; None where it is not held."""
        if step is None:
            return None
        place = bisect_left(self.steps, step)
        return self.wall_s[place] if place < len(self.steps) and self.steps[place] == step else None


@dataclass(frozen=True, slots=True)
class Captured:
    """Steps in a row that were looked at more closely at our wish: by torch's profiler, or call by call."""

    first_step: int
    last_step: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A step from which on the job, or one rank of it, takes longer or shorter."""

    step: int
    ranks: tuple[int, ...]  # empty: the whole job
    words: str
