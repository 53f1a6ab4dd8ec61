"""Whether the change that would remove the dominant loss is worth making: what it saves, costs, and when it pays.

In: Case.  Out: the decision for it, and why not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.session.case import COMPLEXITY, Decision, Interval
from tuiadvisor.session.economics import SECONDS_PER_HOUR
from tuiadvisor.session.limits import amount

if TYPE_CHECKING:
    from tuiadvisor.session.case import Case, Prospect


def tuning(case: Case) -> Decision | None:
    """The tuning decision, if it were taken."""
    prospect = case.prospect
    if prospect is None or case.step_s is None:
        return None
    speedup = _ordered(prospect)
    saved = None
    if case.hours_now is not None:
        # Only what still runs when the change is ready can profit from it.
        left_h = max(case.hours_now - (case.effort_hours or 0.0), 0.0)
        saved = Interval(
            *(left_h * (1 - 1 / ratio) for ratio in (speedup.expected, speedup.low, speedup.high))
        )
    saved_money = priced(saved, case)
    return Decision(
        "tune",
        prospect.headline,
        speedup,
        saved,
        saved_money,
        case.effort_hours,
        _effort_money(case),
        _break_even(case, speedup),
        ready_within_h=case.hours_now,
        at_best=prospect.at_best,
        worth_money=_worth(case, speedup, saved, saved_money),
    )


def why_not(case: Case, tuned: Decision | None) -> str | None:
    """Why the change is not worth making; None: nothing speaks against it."""
    if tuned is None or tuned.speedup is None:
        return "no measured loss to remove"
    if tuned.speedup.low <= 1.0:
        return "its gain may be nothing: the interval of the measured loss reaches zero"
    limit, given = case.intent.max_complexity, case.change_complexity
    if limit is not None and given is not None and COMPLEXITY.index(given) > COMPLEXITY.index(limit):
        return f"the change leaves {given} complexity and you accept at most {limit}"
    if tuned.saved_h is not None and tuned.saved_h.expected <= 0 and not case.intent.planned_runs:
        return "the remaining run is over before the change is ready"
    worth = tuned.worth_money
    # Whoever wants the result early and has put no price on time has not asked for money to decide.
    prices_decide = case.intent.objective != "time" or case.intent.price_of_time is not None
    if prices_decide and worth is not None and tuned.cost_money is not None and tuned.cost_money >= worth:
        return f"the change costs {amount(tuned.cost_money)} and {_giving(case)} back {amount(worth)}"
    return None


def _ordered(prospect: Prospect) -> Interval:
    """Relieving a loss never makes the prediction worse than now."""
    expected = max(prospect.expected, 1.0)
    return Interval(expected, min(max(prospect.low, 1.0), expected), max(prospect.high, expected))


def priced(saved: Interval | None, case: Case) -> Interval | None:
    """Hours of all devices as money; None where a price is unknown."""
    if saved is None or case.num_devices is None or case.price_per_device_hour is None:
        return None
    factor = case.num_devices * case.price_per_device_hour
    return Interval(saved.expected * factor, saved.low * factor, saved.high * factor)


def _effort_money(case: Case) -> float | None:
    if case.effort_hours is None or case.intent.engineer_hour_price is None:
        return None
    return case.effort_hours * case.intent.engineer_hour_price


def _break_even(case: Case, speedup: Interval) -> float | None:
    """Steps that give back what the change costs, by the prices that its worth is counted by."""
    cost, hour_price = _effort_money(case), _hour_price(case)
    if cost is None or hour_price is None or case.step_s is None:
        return None
    saved_s = case.step_s * (1 - 1 / speedup.expected)
    saved = saved_s / SECONDS_PER_HOUR * (hour_price + (case.intent.price_of_time or 0.0))
    return cost / saved if saved > 0 else None


def _hour_price(case: Case) -> float | None:
    """Of all devices; None where they have none, or cost nothing."""
    return (case.num_devices or 0) * (case.price_per_device_hour or 0.0) or None


def _giving(case: Case) -> str:
    more = case.intent.planned_runs
    return f"the remaining run and {more:g} planned give" if more else "the remaining run gives"


def _worth(
    case: Case, speedup: Interval, saved_h: Interval | None, saved_money: Interval | None
) -> float | None:
    """Money that the change is worth: device-hours, and time where it has a price."""
    if saved_money is None or saved_h is None:
        return None
    worth = saved_money.expected + saved_h.expected * (case.intent.price_of_time or 0.0)
    if not case.intent.planned_runs or case.hours_now is None:
        return worth
    # Runs to come are served whole; how early they end has no price here.
    planned_h = case.intent.planned_runs * case.hours_now * (1 - 1 / speedup.expected)
    return worth + planned_h * (_hour_price(case) or 0.0)
