"""What a decision may use, and what it is.

In: nothing.  Out: Case, Decision. What is unknown is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tuiadvisor.session.economics import SECONDS_PER_HOUR
from tuiadvisor.session.limits import NOTHING_FOUND, Least

if TYPE_CHECKING:
    from tuiadvisor.session.economics import Move
    from tuiadvisor.session.fewer import Fewer, NotMore
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.session.limits import Missed
    from tuiadvisor.session.remaining import Pace
    from tuiadvisor.session.wanted import Wanted

Kind = Literal["tune", "rescale", "stop", "keep", "hang"]
COMPLEXITY: Final = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class Prospect:
    """What relieving the dominant constraint would bring: a measured loss, as a ratio of step times."""

    finding: str
    headline: str
    expected: float
    low: float
    high: float
    at_best: bool = False  # an upper bound: what others could do meanwhile was not seen


@dataclass(frozen=True, slots=True)
class Unpriced:
    """The dominant constraint where it was seen and what it costs was not: a job on cores that others want."""

    finding: str
    headline: str


@dataclass(frozen=True, slots=True)
class Case:
    """All that a decision may use."""

    enough: bool  # to decide on
    step_s: float | None
    num_devices: int | None
    remaining_steps: float | None
    price_per_device_hour: float | None
    intent: Intent
    prospect: Prospect | None
    moves: tuple[Move, ...] = ()  # measured sizes, same unit of work
    effort_hours: float | None = None
    change_complexity: str | None = None
    result_as_good_now: bool = False
    paid_anyway: bool = False  # nobody else can use the devices that a smaller size would free
    why_undecided: str = ""  # although there were steps enough
    on_device_clock: bool = (
        False  # all figures are by it; so they are where the device is the host's own processor
    )
    step_slack: float = 0.0  # share by which the mean step may be shorter than it was seen
    pace: Pace | None = None  # with start-up, restarts and checkpoints; None: steps alone
    wanted: Wanted | None = None  # a size that was asked for and not measured
    is_imported: bool = False  # from a trace or a log of what is over
    hang: str = ""  # who waits for whom; "" while steps complete
    is_over: bool = False  # its processes have ended
    unpriced: Unpriced | None = None  # never beside a prospect
    fewer: Fewer | None = None  # by bounds of this run, where no other size was measured
    not_more: NotMore | None = None  # by the same bounds
    restart_h: float = 0.0  # of going on at another size: as stated, else the start-up of a live run
    kept_because: str = ""  # what was found of steps that are to be kept, in the words of their own verdict
    least: Least = NOTHING_FOUND  # of the step by all that was found
    held: str = ""  # what was decided of these steps before: it stays until it is likelier not to hold

    @property
    def dominant(self) -> str | None:
        """The finding that the decision rests on."""
        found = self.prospect or self.unpriced
        return None if found is None else found.finding

    @property
    def hours_now(self) -> float | None:
        """Hours of the remaining run as it is."""
        if self.remaining_steps is None or self.step_s is None:
            return None
        if self.pace is not None:
            return self.pace.hours(self.remaining_steps)
        return self.remaining_steps * self.step_s / SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Interval:
    """A gain with its uncertainty."""

    expected: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do. Hours and money are of the remaining run; None: unknown."""

    decision: Kind
    why: str
    speedup: Interval | None = None
    saved_h: Interval | None = None
    saved_money: Interval | None = None
    cost_h: float | None = None  # an engineer's hours, or the restart's
    cost_money: float | None = None
    break_even_steps: float | None = None
    num_devices: int | None = None  # to move to
    ready_within_h: float | None = None  # a change that is ready later serves nothing of the rest
    is_open: bool = False  # nothing is decided yet: until more is seen it runs on as it is
    at_best: bool = False  # its gain is an upper bound
    worth_money: float | None = None  # what is saved: device-hours, and time where a price of it was stated
    missed: Missed | None = None  # limits that the rest misses as it is, and that end nothing
