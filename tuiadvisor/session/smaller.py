"""Fewer devices, and no more of them, by the bounds of one run: for decisions where no other size was measured.

In: Parts of one run, Case.  Out: Fewer, or why growing cannot pay. The step's own scatter widens the bounds: what a
short recording shows by chance is no saving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.decide import sized
from tuiadvisor.scaling.onerun import FLOOR, MODES, sized_at, why_not
from tuiadvisor.session.economics import move
from tuiadvisor.session.fewer import NOISE, SAVING, Fewer, NotMore
from tuiadvisor.session.recordedsizes import parts_of

if TYPE_CHECKING:
    from tuiadvisor.scaling.onerun import Parts
    from tuiadvisor.session.case import Case
    from tuiadvisor.session.machine import Machine
    from tuiadvisor.session.recorded import Recorded

SMALLER: Final = (2, 4, 8)  # parts of today's size
ROUNDING: Final = 1e-9
GROWING: Final = "A batch that may grow with the devices."


def parts_or_none(run: Recorded, machine: Machine | None) -> Parts | None:
    """The parts of the run's step; None where they say nothing about other sizes."""
    try:
        return parts_of(run, machine)
    except TuiadvisorError:
        return None


def fewer(parts: Parts, case: Case) -> Fewer | None:
    """The size that surely saves device-hours: the smallest that surely keeps the deadline, without one only the next.

    Fewer devices nearly always save something, and take longer: without a deadline it must be more than what is
    acceptable to lose to parallel work. Measured sizes come before bounds.
    """
    intent = case.intent
    if intent.objective not in SAVING or case.paid_anyway or case.moves or not case.enough:
        return None
    if case.remaining_steps and case.hours_now is None:
        return None  # with so many restarts as stated nothing would ever finish, at any size
    least = NOISE if intent.deadline_h is not None else 1 - FLOOR
    least = least / 2 if case.held == "rescale" else least
    best = None
    for divisor in SMALLER:
        devices = parts.devices // divisor
        if devices < 2 or parts.devices % divisor or why_not(parts, devices):
            continue
        found = _at(parts, devices, case)
        hours = found.cases[0].hours if found.cases else None
        is_late = intent.deadline_h is not None and (hours is None or hours > intent.deadline_h)
        if found.saved_low > least and not is_late and _is_affordable(found, case):
            best = found
        if intent.deadline_h is None:
            break
    return best


def _at(parts: Parts, devices: int, case: Case) -> Fewer:
    step = sized_at(parts, devices, "strong").step_s  # the same batch in all, so the same steps
    slack = 0.0 if case.held == "rescale" else case.step_slack
    ratio, shortest_s = devices / parts.devices, parts.step_s * max(1 - slack, NOISE)
    low, high = 1 - ratio * step.high / shortest_s, 1 - ratio * step.low / parts.step_s
    now_h, steps, pace = case.hours_now, case.remaining_steps, case.pace
    if now_h is None or not steps or pace is None:
        return Fewer(devices, parts.devices, low, high)
    then = [
        pace.hours(steps * factor)
        for factor in (step.high / shortest_s, step.expected / parts.step_s, step.low / parts.step_s)
    ]
    queue_h = case.intent.queue_h or 0.0
    cases = tuple(
        move((parts.devices, now_h), (devices, hours), case.restart_h, case.price_per_device_hour, queue_h)
        for hours in then
        if hours is not None
    )
    if len(cases) < len(then) or not now_h:
        return Fewer(devices, parts.devices, low, high)
    spent_h = parts.devices * now_h  # with restart and start-up in it the saving of a short rest is smaller
    shares = [one.device_hours_saved / spent_h for one in cases]
    return Fewer(devices, parts.devices, shares[0], shares[-1], cases)


def _is_affordable(found: Fewer, case: Case) -> bool:
    """A stated budget forbids what may be dearer."""
    if case.intent.budget is None:
        return True
    return bool(found.cases) and found.cases[0].cost is not None and found.cases[0].cost <= case.intent.budget


def not_more(parts: Parts, case: Case) -> NotMore | None:
    """Why growing cannot pay, even at best, for who decides as was stated; None where this run does not tell."""
    twice = 2 * parts.devices
    if why_not(parts, twice):
        return None
    sizes = {mode: sized_at(parts, twice, mode) for mode in MODES}
    if max(one.throughput.high for one in sizes.values()) <= 1 + NOISE:
        return NotMore(f"{sized(twice)} are no faster, even at best", "More work for each exchange.")
    intent, hours = case.intent, case.hours_now
    if intent.objective in SAVING:
        is_late = intent.deadline_h is not None and (hours is None or hours > intent.deadline_h)
        # Two runs of one size differ by NOISE: with that taken off, the best case is what the parts allow.
        if is_late or (1 - NOISE) * max(one.efficiency.high for one in sizes.values()) > 1 + ROUNDING:
            return None
        least = 1 / sizes["strong"].efficiency.high
        same = f" (at the same total batch at least {least:.2f} times as many)" if least > 1 + NOISE else ""
        why = f"{sized(twice)} take no fewer device-hours even at best{same}, and you decide by {intent.objective}"
        return NotMore(why, f"Time as the objective, or a deadline that {sized(parts.devices)} miss.")
    return _too_dear(parts, twice, sizes["strong"].throughput.high, case)


def _too_dear(parts: Parts, devices: int, most: float, case: Case) -> NotMore | None:
    """Where time has a price: an hour earlier costs more than it is worth, at most times the speed of now."""
    price, worth, hours = case.price_per_device_hour, case.intent.price_of_time, case.hours_now
    if case.intent.objective != "time" or not price or worth is None or hours is None:
        return None
    if case.intent.deadline_h is not None and hours > case.intent.deadline_h:
        return None
    then_h = hours / most
    dearer = price * (devices * then_h - parts.devices * hours)
    if dearer <= worth * (hours - then_h):
        return None
    if most <= 1 + NOISE:
        return NotMore(f"{sized(devices)} are no faster at the same total batch, even at best", GROWING)
    why = (
        f"at {sized(devices)} and the same total batch an hour earlier costs at least {dearer / (hours - then_h):.3g}, "
        f"and is worth {worth:.3g}"
    )
    return NotMore(
        why, f"A higher price_of_time, a lower price of a device, or {GROWING[0].lower()}{GROWING[1:]}"
    )
