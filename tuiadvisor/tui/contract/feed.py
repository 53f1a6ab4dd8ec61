"""What the screens are fed with: the newest frozen state, and the few commands they may send back.

The command line implements ViewFeed around its background thread; tests implement it with a list.
In: nothing.  Out: FeedState, ReplayState, ViewFeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView

Mode = Literal["live", "replay"]

# A phase: nothing will ever come, so the screens end; whoever fed them says why on the terminal they leave behind.
CLOSED = "closed"

# Every name a screen may pass to ViewFeed.command, with the type of its value.
COMMAND_VALUES: dict[str, type] = {
    "pause": type(None),
    "resume": type(None),
    "speed": float,  # the new factor
    "seek_step": int,  # the step to show
    "step": int,  # +1 or -1
    "stride": int,  # +1 or -1: a part of what can be looked at
    "next_finding": type(None),
    "prev_finding": type(None),
    "end": type(None),  # the live edge, or the end of the recording
    "capture": int,  # the rank whose next steps are to be profiled
    "detail": tuple,  # the ranks to see call by call for a while; empty: all
    "quit": type(None),
}


@dataclass(frozen=True, slots=True)
class ReplayState:
    """Where a replay stands."""

    position: float  # 0..1 of the recording's event time
    step: int | None
    first_step: int | None
    last_step: int | None
    speed: float
    paused: bool
    marks: tuple[tuple[float, str], ...]  # (position 0..1, "onset rank 2")


@dataclass(frozen=True, slots=True)
class PastState:
    """Where one looks in a live run, while it goes on."""

    step: int
    first_step: int  # the oldest that is still held
    last_step: int  # the newest, which the run has reached meanwhile
    position: float  # 0..1 between them


@dataclass(frozen=True, slots=True)
class FeedState:
    """One moment: what to show and where it comes from."""

    view: RunView | None
    mode: Mode
    phase: str  # "finding ranks", "attaching 2/4", "live", "paused", "ended", "hub lost", ...
    message: str
    progress: tuple[int, int] | None  # (done, all)
    replay: ReplayState | None
    version: int  # grows with every change: an equal version needs no redraw
    notice: str = ""  # what came of a command that takes time, until the next one
    past: PastState | None = None  # a live run is shown as it was at an earlier step


class ViewFeed(Protocol):
    """The source behind the screens."""

    def latest(self) -> FeedState:
        """Return the newest state; cheap and safe to call from any thread."""
        ...

    def command(self, name: str, value: object = None) -> None:
        """Take one of COMMAND_VALUES; returns at once, the answer is a later state."""
        ...
