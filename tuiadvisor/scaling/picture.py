"""How a job scales as its screen shows it: curves with intervals, sizes, the decision in words, what is missing.

In: nothing.  Out: Picture, frozen; nothing computes after it. `curves` and `oneruncurves` make one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.predict import Range

NUM_SIZES: Final = 25  # of a curve: the eye sees no more, and each costs a column of draws
Meets = Literal["yes", "no", "perhaps", ""]  # a limit, at both ends of the interval; "": no such limit


@dataclass(frozen=True, slots=True)
class Point:
    """A size that was measured or asked for."""

    devices: int
    value: float
    is_measured: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """One quantity over device counts. The lists run together, devices ascending; empty where no law is known."""

    name: str
    unit: str
    devices: tuple[int, ...]
    expected: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    points: tuple[Point, ...]
    limit: float | None = None
    limit_name: str = ""


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One size with everything known of it. Measured values are ranges without width. None: not known."""

    devices: int
    is_measured: bool
    time: Range
    efficiency: Range | None
    cost: Range | None
    hours: Range | None
    in_time: Meets
    in_budget: Meets
    note: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something the user may state. The text is what was typed, "" where nothing was stated."""

    name: str
    label: str
    text: str
    hint: str  # what may be typed
    unstated: str  # what is taken where nothing was stated


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment."""

    source: str
    basis: str  # what was fitted, or which bounds were taken; "" where there is nothing
    decision: Literal["rescale", "stop", "keep"] | None = None
    words: str = ""
    because: str = ""
    yours: int | None = None  # devices in use
    chosen: int | None = None  # devices the decision names
    deadline_from: int | None = None  # the least devices that are surely done by the deadline
    deadline_note: str = ""
    curves: tuple[Curve, ...] = ()
    rows: tuple[SizeRow, ...] = ()
    entries: tuple[Entry, ...] = ()
    time_unit: str = ""
    cost_unit: str = ""
    answers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # what is not known, and what to do about it
    notes: tuple[str, ...] = ()

    @property
    def half(self) -> SizeRow | None:
        """Half the devices in use, where that size is on the picture."""
        if self.yours is None or self.yours % 2:
            return None
        return next((row for row in self.rows if row.devices == self.yours // 2), None)

    def with_entries(self, entries: tuple[Entry, ...], missing: tuple[str, ...] = ()) -> Picture:
        """The same with what may be stated, and more that is missing."""
        return replace(self, entries=entries, missing=(*missing, *self.missing))


def meets(value: Range | None, limit: float | None) -> Meets:
    """Whether a value is surely below a limit."""
    if value is None or limit is None:
        return ""
    if value.high <= limit:
        return "yes"
    return "no" if value.low > limit else "perhaps"


def surely_in_time(rows: Sequence[SizeRow], curves: Sequence[Curve], deadline_h: float | None) -> int | None:
    """The fewest devices that are done by then in the worst case, of the rows and of the curve of hours; None: none."""
    sure = [row.devices for row in rows if row.in_time == "yes"]
    for curve in curves:
        if curve.name == "hours" and deadline_h is not None:
            ends = zip(curve.devices, curve.high, strict=True)
            sure += [devices for devices, high in ends if high <= deadline_h]
    return min(sure, default=None)


def deadline_words(devices: int | None, deadline_h: float | None) -> str:
    """How many devices it takes to be surely done in time."""
    if deadline_h is None:
        return ""
    if devices is None:
        return f"no size shown is surely done within {deadline_h:g} h"
    return f"at least {devices} device{'' if devices == 1 else 's'} to be surely done within {deadline_h:g} h"
