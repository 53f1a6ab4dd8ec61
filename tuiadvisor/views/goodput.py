"""Where the wall time of a job went, from the start of its process to the last step seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Sort = Literal["useful", "lost", "unknown"]

USEFUL: Final = "useful"
# Time that nobody judged: neither useful nor lost, and outside the figure.
UNKNOWN_KINDS: Final = ("before_watcher", "unwatched", "not_judged")


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


def parts_of(seconds: dict[str, float]) -> tuple[WallPart, ...]:
    """Bars of these seconds, those of nothing left out."""
    total = sum(seconds.values())
    return tuple(WallPart(kind, value, value / total) for kind, value in seconds.items() if value > 0)
