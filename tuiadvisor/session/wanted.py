"""Another number of devices that the user thinks of: what the rest of the run would take there, and whether it pays.

In: how fast another size would be, what is stated.  Out: Wanted, in the worst, the likely and the best case. It pays
only where the worst case does, and does not only where the best case does not; anything between is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tuiadvisor.scaling.decide import sized
from tuiadvisor.session.economics import move

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.scaling.onerun import Mode
    from tuiadvisor.scaling.predict import Range
    from tuiadvisor.session.economics import Move
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.session.remaining import Pace

Outcome = Literal["pays", "never", "open", ""]  # "": not asked, or nothing is known of that size

HELD: Final[dict[Outcome, str]] = {
    "pays": " On what was stated it pays, even in the worst case.",
    "never": " On what was stated it does not pay, even in the best case.",
    "open": " Whether it pays is open.",
    "": "",
}


@dataclass(frozen=True, slots=True)
class Speed:
    """Another size against the present one, in work a second. times None: nothing is known."""

    times: Range | None
    basis: str = ""  # what it rests on
    is_fitted: bool = False  # to several measured sizes; else bounds of one run
    why_unknown: str = ""


if TYPE_CHECKING:
    SpeedAt = Callable[[int, Mode], Speed]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One other size. cases: worst, likely, best; of one hour if hours_now is None; empty if its speed is unknown."""

    devices: int
    now: int
    hours_now: float | None
    speed: Speed
    cases: tuple[Move, ...] = ()


def wanted(
    answer: object,
    now: tuple[int | None, float | None, Pace],
    speed_at: SpeedAt | None,
    intent: Intent,
    mode: Mode,
) -> Wanted | None:
    """now: devices, steps that remain (None: not stated), pace of the rest. None where no other size was named."""
    num_devices, steps, pace = now
    if not isinstance(answer, int | float) or int(answer) < 1 or num_devices is None or speed_at is None:
        return None
    devices = int(answer)
    if devices == num_devices:
        return None
    speed = speed_at(devices, mode)
    if speed.times is None:
        return Wanted(devices, num_devices, None, speed)
    hours_now = None if steps is None else pace.hours(steps)
    restart_h, price = (intent.restart_min or 0.0) / 60, intent.price_per_device_hour
    cases = []
    for times in (speed.times.low, speed.times.expected, speed.times.high):
        then_h = None if steps is None else pace.hours(steps / times)
        if hours_now is None or then_h is None:
            # Of one hour of the present size: what an hour earlier costs follows from the ratio alone.
            cases.append(move((num_devices, 1.0), (devices, 1 / times), 0.0, price))
        else:
            sizes = (num_devices, hours_now), (devices, then_h)
            cases.append(move(*sizes, restart_h, price, intent.queue_h or 0.0))
    return Wanted(devices, num_devices, hours_now, speed, tuple(cases))


def outcome(found: Wanted | None, serves: Callable[[Move], bool | None]) -> Outcome:
    """serves: whether a move serves what was stated; None where nothing was stated that could tell."""
    if found is None or found.speed.times is None:
        return ""
    if found.hours_now is None:
        return "open"  # how much remains was not stated
    worst, _, best = (serves(one) for one in found.cases)
    if worst is None or best is None or (best and not worst):
        return "open"
    return "pays" if worst else "never"


def words(found: Wanted, held: Outcome) -> str:
    """What that size would bring, what each hour costs that it saves, and whether it pays on what was stated."""
    size, times = sized(found.devices), found.speed.times
    if times is None:
        return f"{size}: unknown, {found.speed.why_unknown}"
    worst, _, best = found.cases
    if found.hours_now is None:
        ratio = found.devices / found.now
        return (
            f"{size}: {_between(times.low, times.high)} x as fast at "
            f"{_between(ratio / times.high, ratio / times.low)} x the device-hours ({found.speed.basis}). "
            f"{_break_even(worst, best)}"
        )
    return (
        f"{size}: {_between(best.hours, worst.hours)} h for the rest instead of {found.hours_now:,.3g} h, "
        f"{_between(best.device_hours, worst.device_hours)} device-hours instead of "
        f"{found.now * found.hours_now:,.3g} ({found.speed.basis}). {_break_even(worst, best)}{HELD[held]}"
    )


def _break_even(worst: Move, best: Move) -> str:
    if best.hours_saved <= 0:
        is_cheaper = best.device_hours_saved > 0
        return "Not faster, but cheaper at best." if is_cheaper else "Not faster even in the best case."
    if worst.hours_saved > 0 and worst.device_hours_saved >= 0:
        return "Faster, and no more expensive even in the worst case."
    least, most = _price_of_hour(best), _price_of_hour(worst)
    unit = "" if best.cost is not None else " device-hours"
    if worst.hours_saved <= 0:
        return (
            f"In the best case an hour earlier costs {least:,.3g}{unit}, in the worst case it is no faster."
        )
    return f"An hour earlier costs {_between(least, most)}{unit}: break-even, it pays where it is worth more."


def _price_of_hour(one: Move) -> float:
    """What each hour saved costs, in money where devices have a price; 0 where it costs nothing."""
    spent = -one.device_hours_saved if one.cost_saved is None else -one.cost_saved
    return max(spent / one.hours_saved, 0.0)


def _between(low: float, high: float) -> str:
    first, last = f"{low:,.3g}", f"{high:,.3g}"
    return first if first == last else f"{first} to {last}"
