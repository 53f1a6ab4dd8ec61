"""Where the wall time of a job went, from the start of its process to the last step seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Sort = Literal["useful", "lost", "unknown"]

USEFUL: Final = "useful"
# Time that nobody judged: neither useful nor lost, and outside the figure.
UNKNOWN_KINDS: Final = ("before_watcher", "unwatched", "between", "not_judged")

LEAST_S: Final = 0.5e-6  # seconds; what rounding leaves of a difference is no part
LEAST_SAID: Final = 0.005  # a smaller share is 0 % in words
NAMES: Final = {
    "useful": "useful steps",
    "startup": "start-up",
    "warmup": "warm-up",
    "before_watcher": "before the watcher came",
    "unwatched": "between two watchers",
    "not_judged": "not judged",
    "done_again": "steps done again",
    "gap": "at rest between recordings",
    "between": "between recordings",
    "before_change": "slower before the change",
    "unnamed": "slower, not explained",
    "data_wait": "data wait",
    "comm_exposed": "exposed communication",
    "taking_turns": "varying stragglers",
    "eval": "evaluation, rollout",
    "checkpoint_in_step": "checkpoints within steps",
    "h2d": "copies to the device",
    "crowded_host": "ready to run without a core",
    "cpu_limit": "held back by a CPU limit",
}


@dataclass(frozen=True, slots=True)
class WallPart:
    """One bar of the waterfall."""

    kind: str  # useful, startup, warmup, a loss or pause of goodput, hang, restart, ..., or one of UNKNOWN_KINDS
    seconds: float
    share: float  # of the span: all of them sum to 1

    @property
    def sort(self) -> Sort:
        """What the figure counts it as."""
        if self.kind == USEFUL:
            return "useful"
        return "unknown" if self.kind in UNKNOWN_KINDS else "lost"


@dataclass(frozen=True, slots=True)
class Goodput:
    """The waterfall and its figure. Seconds of the clock of one rank's host: all ranks pass them together."""

    end_to_end: float | None  # useful share of the time that could be judged; None where too little could
    steady: float | None  # of the steady steps alone, without start-up, warm-up and pauses
    span_s: float
    unknown_s: float  # of the span
    from_start: bool  # the probe was there before the first step, so that start-up is known
    startup_s: float | None
    num_restarts: int  # that the watcher saw
    waterfall: tuple[WallPart, ...]  # in the order of time and size; never empty
    steps_done_again: int | None = (
        None  # after restarts from a checkpoint; None: the training's count is not known
    )
    own_steps: tuple[int, int] | None = None  # first and last by the training's own count, of the last life
    own_last: int | None = None  # the highest of any life, where all are known
    began_wall_s: float | None = None  # of the span
    ended_wall_s: float | None = None
    num_stepless: int = 0  # starts after the last step that have made none
    unseen: float | None = (
        None  # share of the steady steps in code that no hook sees: called useful, and may be waiting
    )

    @property
    def known_again(self) -> int | None:
        """Steps done again; None also before a step after a restart tells from which on it goes on."""
        return None if self.num_stepless else self.steps_done_again


def parts_of(seconds: dict[str, float]) -> tuple[WallPart, ...]:
    """Bars of these seconds, those of nothing left out: no row and no sentence names them."""
    total = sum(seconds.values())
    return tuple(WallPart(kind, value, value / total) for kind, value in seconds.items() if value >= LEAST_S)


def kind_words(kind: str) -> str:
    """A part's name for people."""
    return NAMES.get(kind, kind.replace("_", " "))


def _part_words(part: WallPart) -> str:
    said = f"{kind_words(part.kind)} {100 * part.share:.0f} %"
    return f"{said} (unknown)" if part.sort == "unknown" else said


def waterfall_words(found: Goodput, most: int = 6) -> str:
    """The parts as one line, largest first after the useful one."""
    known = [part for part in found.waterfall if part.share >= LEAST_SAID]
    told = [_part_words(part) for part in known[:most]]
    left = sum(part.share for part in found.waterfall) - sum(part.share for part in known[:most])
    return ", ".join([*told, f"rest {100 * left:.0f} %"] if left >= LEAST_SAID else told)
