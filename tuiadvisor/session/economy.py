"""Cost and break-even of one run's verdict against what remains: the economics part of `diagnose`.

In: RunView, Intent.  Out: a JSON table and a few lines of text; what was not stated stays null and is named.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.session.evidence import facts
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.material import gather
from tuiadvisor.session.remaining import device_power, samples_a_joule, startup
from tuiadvisor.session.sums import sum_words
from tuiadvisor.session.tuning import tuning

if TYPE_CHECKING:
    from tuiadvisor.session.material import Material
    from tuiadvisor.views.run_view import RunView

ASKED: Final = ("objective", "price_per_device_hour", "deadline_h", "budget", "remaining_steps")

NOTHING_OF: Final = {
    "startup": "starting again (this run is over)",
    "failures": "failures (state failures_per_day)",
}


def economy(view: RunView, intent: Intent) -> dict[str, Any]:
    """What the rest of the run takes and costs, and what the verdict would save of it.

    view: with the verdict against the intent.
    """
    material = gather(facts("run", view), (), view.verdict, intent, {})
    case = material.case
    hours, devices, price = case.hours_now, case.num_devices, material.price
    spent = None if hours is None or devices is None else hours * devices
    cost = None if spent is None or price is None else spent * price
    # Of what is to end, or to go on at another size, no change saves anything.
    is_tuned = view.decided.decision not in {"stop", "rescale"}
    tuned = tuning(case) if case.enough and is_tuned else None
    pace = material.pace
    unknown = _counted_as_nothing(material)
    an_hour = None if devices is None or price is None else devices * price
    return {
        "objective": material.intent.objective,
        "remaining_steps": material.remaining_steps,
        "remaining_h": hours,
        "remaining_goodput": pace.goodput(material.remaining_steps),
        "startup_s": None if "startup" in unknown else pace.startup_s,
        "lost_share": None if "failures" in unknown else pace.lost,
        "counted_as_nothing": unknown,
        "remaining_device_hours": spent,
        "remaining_cost": cost,
        "cost_per_hour": an_hour,
        "saved_h": _interval(tuned.saved_h if tuned else None),
        "saved_cost": _interval(tuned.saved_money if tuned else None),
        # The most the change may cost, in money, to pay: what it is worth by every price that was stated.
        "break_even_cost": tuned.worth_money if tuned else None,
        "meets_deadline": None if hours is None or intent.deadline_h is None else hours <= intent.deadline_h,
        "within_budget": None if cost is None or intent.budget is None else cost <= intent.budget,
        **_energy(material, spent),
        "contradiction": material.contradiction or None,
        "not_stated": [name for name in ASKED if getattr(intent, name) is None],
    }


def _counted_as_nothing(material: Material) -> list[str]:
    """What the hours of the rest hold nothing of, for it was neither observed nor stated."""
    found = []
    if material.run.is_over and startup(material.run, material.answers) is None:
        found.append("startup")
    if material.intent.failures_per_day is None and not material.pace.lost:
        found.append("failures")
    return found


def _energy(material: Material, spent_h: float | None) -> dict[str, Any]:
    """Of the rest, and what a sample takes; by the devices' own meters, else by the power that was stated."""
    run, price = material.run, material.intent.energy_price_per_kwh
    power_w = device_power(run, material.intent)
    kwh = None if spent_h is None or power_w is None else spent_h * power_w / 1000
    return {
        "device_power_w": power_w,
        "remaining_kwh": kwh,
        "remaining_energy_cost": None if kwh is None or price is None else kwh * price,
        "samples_per_joule": samples_a_joule(run, power_w),
    }


def _interval(value: Any) -> dict[str, float] | None:
    return None if value is None else asdict(value)


def _nothing_lines(table: dict[str, Any]) -> list[str]:
    names = " and ".join(NOTHING_OF[name] for name in table["counted_as_nothing"])
    return (
        [f"that counts nothing for {names}: not known"] if names and table["remaining_h"] is not None else []
    )


def economy_lines(table: dict[str, Any], intent: Intent) -> list[str]:
    """For people; nothing when nothing was stated."""
    if intent == Intent():
        return []
    lines = [""]
    hours, cost = table["remaining_h"], table["remaining_cost"]
    shown = "unknown" if hours is None else f"{hours:.4g} h"
    if table["remaining_device_hours"] is not None:
        shown += f", {table['remaining_device_hours']:.4g} device-hours"
    lines.append(f"rest of the run: {shown}, cost {'unknown' if cost is None else format(cost, ',.2f')}")
    lines += _nothing_lines(table)
    if table["remaining_kwh"] is not None:
        money = table["remaining_energy_cost"]
        lines.append(
            f"energy of the rest: {table['remaining_kwh']:.4g} kWh"
            + (f", {sum_words(money)}" if money else "")
        )
    if (saved := table["saved_h"]) is not None:
        lines.append(
            f"the verdict saves: {saved['expected']:.3g} h ({saved['low']:.3g} to {saved['high']:.3g})"
        )
    if table["break_even_cost"] is not None:
        lines.append(
            f"break-even: the change pays while it costs less than {sum_words(table['break_even_cost'])}"
        )
    for name, yes, no in (
        ("meets_deadline", "deadline: met at this speed", "deadline: missed at this speed"),
        ("within_budget", "budget: enough", "budget: exceeded"),
    ):
        if table[name] is not None:
            lines.append(yes if table[name] else no)
    if table["contradiction"]:
        lines.append(table["contradiction"])
    if table["not_stated"]:
        lines.append(f"not stated: {', '.join(table['not_stated'])}")
    return lines
