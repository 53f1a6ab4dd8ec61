"""Whether the rest of the run is better off with another number of devices.

In: Case.  Out: the decision for a measured size, for one that was asked for, or for fewer by the bounds of this run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.scaling.decide import sized
from tuiadvisor.session.case import Decision, Interval
from tuiadvisor.session.economics import money
from tuiadvisor.session.fewer import NOISE
from tuiadvisor.session.limits import amount
from tuiadvisor.session.wanted import outcome, words

if TYPE_CHECKING:
    from tuiadvisor.session.case import Case
    from tuiadvisor.session.economics import Move
    from tuiadvisor.session.fewer import Fewer
    from tuiadvisor.session.wanted import Outcome, Wanted


def elsewhere(case: Case) -> Decision | None:
    """To another size: the one that was asked for, a measured one, or a smaller one by the bounds of this run."""
    best = best_move(case)
    if case.wanted is not None and _is_foretold(case, case.wanted, best):
        return _grown(case, case.wanted)
    if best is not None:
        return _moved(case, best)
    if case.fewer is not None and case.unpriced is None:
        return _shrunk(case, case.fewer)
    return None


def best_move(case: Case) -> Move | None:
    """The measured size that serves the stated objective and limits better than this one; None if none does."""
    if case.hours_now is None or case.num_devices is None:
        return None
    allowed = [entry for entry in case.moves if entry.num_devices != case.num_devices]
    allowed = [entry for entry in allowed if is_affordable(entry, case)]
    deadline = case.intent.deadline_h
    if deadline is not None:
        allowed = [entry for entry in allowed if entry.hours <= deadline]
        if case.hours_now > deadline:
            return min(allowed, key=lambda entry: (entry.device_hours, entry.num_devices), default=None)
    if case.intent.objective == "time":
        faster = [
            entry
            for entry in allowed
            if entry.hours_saved > NOISE * case.hours_now and _is_worth(entry, case)
        ]
        return min(faster, key=lambda entry: (entry.hours, entry.num_devices), default=None)
    if case.intent.objective in {"cost", "efficiency"} and not case.paid_anyway:
        least = NOISE * case.hours_now * case.num_devices
        cheaper = [entry for entry in allowed if entry.device_hours_saved > least]
        return min(cheaper, key=lambda entry: (entry.device_hours, entry.num_devices), default=None)
    return None  # without an objective no size is better than another


def wanted_outcome(case: Case) -> Outcome:
    """Whether the size that was asked for pays, in its worst case and in its best."""
    return outcome(case.wanted, lambda entry: _serves(entry, case))


def size_words(case: Case) -> str:
    """What the size that was asked for would bring; "" where none was."""
    return "" if case.wanted is None else words(case.wanted, wanted_outcome(case))


def not_more_words(case: Case) -> str:
    """Why more devices than now are not worth it; "" where nothing tells."""
    if case.not_more is None:
        return ""
    return f"Not worth more than {sized(case.num_devices or 0)}: {case.not_more.why}"


def wasted(case: Case) -> str | None:
    """Devices beyond a measured smaller size that bought no time."""
    hours, devices = case.hours_now, case.num_devices
    if hours is None or devices is None or case.intent.objective is None:
        return None
    same = [
        entry.num_devices
        for entry in case.moves
        if entry.num_devices < devices and entry.hours_saved >= -NOISE * hours
    ]
    if not same:
        return None
    return f"stop adding devices: {min(same)} finish the rest as soon as {devices} do"


def is_affordable(entry: Move, case: Case) -> bool:
    """A stated budget forbids what is dearer, and what cannot be priced."""
    if case.intent.budget is None:
        return True
    return entry.cost is not None and entry.cost <= case.intent.budget


def _is_worth(entry: Move, case: Case) -> bool:
    """Where time has a price, faster may not cost more than it is worth."""
    if case.intent.price_of_time is None or entry.cost_saved is None:
        return True
    return -entry.cost_saved <= case.intent.price_of_time * entry.hours_saved


def _serves(entry: Move, case: Case) -> bool | None:
    """Whether a size serves objective and limits; None where none was stated that could tell."""
    hours, devices, deadline = case.hours_now, case.num_devices, case.intent.deadline_h
    if hours is None or devices is None:
        return None
    if not is_affordable(entry, case) or (deadline is not None and entry.hours > deadline):
        return False
    if deadline is not None and hours > deadline:
        return True
    if case.intent.objective == "time":
        return entry.hours_saved > NOISE * hours and _is_worth(entry, case)
    if case.intent.objective in {"cost", "efficiency"}:
        return not case.paid_anyway and entry.device_hours_saved > NOISE * hours * devices
    return None


def _is_foretold(case: Case, found: Wanted, measured: Move | None) -> bool:
    """Whether the size that was asked for surely pays by several measured ones, and more than the best of these."""
    if not found.speed.is_fitted or wanted_outcome(case) != "pays":
        return False
    if measured is None:
        return True
    worst = found.cases[0]
    if case.intent.objective == "time":
        return worst.hours < measured.hours
    return worst.device_hours < measured.device_hours


def _grown(case: Case, found: Wanted) -> Decision:
    """To a size that was foretold from several measured ones, where the whole interval pays."""
    worst, likely, best = found.cases
    hours = case.hours_now or 0.0

    return Decision(
        "rescale",
        words(found, "pays"),
        Interval(*(hours / one.hours for one in (likely, worst, best))),
        _of_cases(found.cases, "hours_saved"),
        _of_cases(found.cases, "cost_saved"),
        None if case.intent.restart_min is None else case.intent.restart_min / 60,
        None,
        None,
        found.devices,
    )


def _shrunk(case: Case, found: Fewer) -> Decision:
    """To fewer devices, where even the worst case of this run's bounds saves."""
    saved = f"{100 * found.saved_low:.0f} to {100 * found.saved_high:.0f} % of the device-hours"
    why = f"{sized(found.devices)} instead of {found.instead_of} save {saved}"
    if not found.cases:
        return Decision("rescale", why, num_devices=found.devices)
    worst, likely, best = found.cases
    hours, deadline = case.hours_now or 0.0, case.intent.deadline_h
    why += f" and take {amount(worst.hours)} h at most instead of {amount(hours)}"
    if deadline is not None:
        why += f", before the deadline in {amount(deadline)} h"

    restart_h = case.restart_h or None
    return Decision(
        "rescale",
        why,
        Interval(*(hours / one.hours for one in (likely, worst, best))),
        _of_cases(found.cases, "hours_saved"),
        _of_cases(found.cases, "cost_saved"),
        restart_h,
        None if restart_h is None else money(restart_h * found.devices, case.price_per_device_hour),
        None,
        found.devices,
    )


def _of_cases(cases: tuple[Move, ...], name: str) -> Interval | None:
    """A figure of the likely, the worst and the best case; None where one of them lacks it."""
    worst, likely, best = (getattr(one, name) for one in cases)
    return None if None in (worst, likely, best) else Interval(likely, worst, best)


def _moved(case: Case, best: Move) -> Decision:
    hours = case.hours_now or 0.0
    restart = "restart included" if case.intent.restart_min is not None else "restart not stated, not counted"
    if case.intent.queue_h:
        restart += f", after {case.intent.queue_h:.3g} h in the queue"
    why = (
        f"{best.num_devices} devices finish in {amount(best.hours)} h and {amount(best.device_hours)} device-hours, "
        f"{restart}; {case.num_devices} would take {amount(hours)} h and {amount(hours * (case.num_devices or 0))}"
    )
    if case.intent.deadline_h is not None and hours > case.intent.deadline_h:
        why += f"; the deadline is in {amount(case.intent.deadline_h)} h"
    # Two runs of the same code differ by NOISE: so may what was measured at another size.
    slack_h = NOISE * hours
    steps = restart_h = None
    if case.intent.restart_min is not None:
        restart_h = case.intent.restart_min / 60
        if best.break_even_work is not None and case.remaining_steps is not None:
            steps = best.break_even_work * case.remaining_steps
    gain = None
    if best.hours > 0:
        gain = Interval(*(hours / (best.hours * factor) for factor in (1.0, 1 + NOISE, 1 - NOISE)))
    slack_money = money(slack_h * best.num_devices, case.price_per_device_hour) or 0.0
    return Decision(
        "rescale",
        why,
        gain,
        _around(best.hours_saved, slack_h),
        None if best.cost_saved is None else _around(best.cost_saved, slack_money),
        restart_h,
        None if restart_h is None else money(restart_h * best.num_devices, case.price_per_device_hour),
        steps,
        best.num_devices,
    )


def _around(value: float, slack: float) -> Interval:
    return Interval(value, value - slack, value + slack)
