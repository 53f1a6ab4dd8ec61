"""What the screens are fed with: the newest frozen state, and the few commands they may send back.

The command line implements ViewFeed around its background thread; tests implement it with a list.
In: nothing.  Out: FeedState, ReplayState, FeedCommand, ViewFeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from tuiadvisor.views.event import Event
    from tuiadvisor.views.run_view import RunView, Trend

Mode = Literal["live", "replay"]

# A phase: nothing will ever come, so the screens end; whoever fed them says why on the terminal they leave behind.
CLOSED = "closed"

# --- what the screens may send back: whoever takes a command matches its class, and mypy names one that is not handled


@dataclass(frozen=True, slots=True)
class Pause:
    """Freeze what is shown."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Replay at another speed."""

    factor: float


@dataclass(frozen=True, slots=True)
class SeekStep:
    """Show a step."""

    step: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step on or back."""

    by: int  # +1 or -1


@dataclass(frozen=True, slots=True)
class Stride:
    """A part of what can be looked at, on or back."""

    by: int  # +1 or -1


@dataclass(frozen=True, slots=True)
class Zoom:
    """Figures of a shorter stretch of steps, or of a longer one."""

    by: int  # +1 or -1


@dataclass(frozen=True, slots=True)
class ChooseSteps:
    """Figures of these steps, both included."""

    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True)
class NextFinding:
    """To where the next finding begins."""


@dataclass(frozen=True, slots=True)
class PreviousFinding:
    """To where the finding before begins."""


@dataclass(frozen=True, slots=True)
class End:
    """To the live edge, or the end of the recording."""


@dataclass(frozen=True, slots=True)
class Capture:
    """Profile the next steps of a rank."""

    rank: int


@dataclass(frozen=True, slots=True)
class Detail:
    """See ranks call by call for a while."""

    ranks: tuple[int, ...]  # empty: all


@dataclass(frozen=True, slots=True)
class Stacks:
    """Sample the stacks of a rank and of a peer for a second or two."""

    rank: int
    subject: str  # straggler | input | host | hang


@dataclass(frozen=True, slots=True)
class Quit:
    """Nobody looks any more."""


FeedCommand = (
    Pause
    | Resume
    | Speed
    | SeekStep
    | Step
    | Stride
    | Zoom
    | ChooseSteps
    | NextFinding
    | PreviousFinding
    | End
    | Capture
    | Detail
    | Stacks
    | Quit
)


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
    share_read: float = 1.0  # of the recording, 0..1: what lies beyond is not known yet


@dataclass(frozen=True, slots=True)
class PastState:
    """Where one looks in a live run, while it goes on."""

    step: int
    first_step: int  # the oldest that is still held
    last_step: int  # the newest, which the run has reached meanwhile
    position: float  # 0..1 between them


@dataclass(frozen=True, slots=True)
class StretchState:
    """The steps that were chosen for the figures, both ends included."""

    first_step: int
    last_step: int
    run_first_step: int  # those that may be chosen
    run_last_step: int
    run: Trend  # of all of it, for the ribbon above the figures


@dataclass(frozen=True, slots=True)
class FeedState:
    """One moment: what to show and where it comes from."""

    view: RunView | None
    mode: Mode
    phase: (
        str  # "finding ranks", "attaching 2/4", "live", "paused", "ended", "recording ended", "hub lost", ...
    )
    message: str
    progress: tuple[int, int] | None  # (done, all)
    replay: ReplayState | None
    version: int  # grows with every change: an equal version needs no redraw
    notice: str = ""  # what came of a command that takes time, until the next one
    notice_card: tuple[int, str] | None = None  # rank and subject of the stacks that it announces
    past: PastState | None = None  # a live run is shown as it was at an earlier step
    stretch: StretchState | None = None  # the figures are of these steps alone
    events: tuple[Event, ...] = ()  # what has happened, by step
    next_run: tuple[
        str, ...
    ] = ()  # options of `watch` for the job of a run that has ended, where it trains again


class ViewFeed(Protocol):
    """The source behind the screens."""

    def latest(self) -> FeedState:
        """Return the newest state; cheap and safe to call from any thread."""
        ...

    def command(self, command: FeedCommand) -> None:
        """Take a command; returns at once, the answer is a later state."""
        ...
