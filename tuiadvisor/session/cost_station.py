"""What the rest of a run costs: hours, money, energy, the queue and the limits that were stated. Pattern 6.

In: Material.  Out: evidence items and one conclusion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.session.economics import SECONDS_PER_HOUR
from tuiadvisor.session.intent import not_stated
from tuiadvisor.session.other_size import best_move, size_words
from tuiadvisor.session.remaining import device_power, samples_a_joule
from tuiadvisor.session.sums import sum_words
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.session.economics import Move
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.material import Item, Material

NOT_STATED: Final = "not stated"


def cost_evidence(material: Material) -> list[Item]:
    """Hours, device-hours, money and energy of the rest, and what each measured size would take."""
    run, case = material.run, material.case
    hours = case.hours_now
    devices = run.num_devices
    spent = None if hours is None or devices is None else hours * devices
    again = material.contradiction or "tuiadvisor intent --set remaining_steps=N"
    rows = [
        (
            "rest of the run",
            None if hours is None else f"{hours:.4g} h",
            again,
        ),
        (
            "device-hours",
            None if spent is None else f"{spent:.4g}",
            again,
        ),
        (
            "cost of the rest",
            None if spent is None or material.price is None else sum_words(spent * material.price),
            "tuiadvisor intent --set price_per_device_hour=X",
        ),
    ]
    if run.step_s and devices:
        rows.append(("device-hours of 1000 steps", f"{devices * run.step_s / 3.6:.3g}", ""))
    if devices and run.samples_per_step and run.step_s:
        rows.append(
            (
                "device-hours of a million samples",
                f"{devices * run.step_s / run.samples_per_step * 1e6 / 3600:.3g}",
                "",
            )
        )
    rows += _epoch(material)
    rows += _queue(material)
    rows += _energy(material, spent)
    items = [material.item(*row) for row in rows]
    for entry in case.moves:
        price = ""
        if entry.cost_saved is not None and entry.hours_saved > 0 > entry.cost_saved:
            price = f"; each hour saved costs {sum_words(-entry.cost_saved / entry.hours_saved)}"
        saved = f"{abs(entry.hours_saved):.3g} h {'sooner' if entry.hours_saved > 0 else 'later'}"
        items.append(
            material.item(
                f"{entry.num_devices} devices",
                f"{saved}, {entry.device_hours:.4g} device-hours{price}{_freed(entry, material)}",
            )
        )
    missing = [name for name in not_stated(material.intent) if name != "currency"]
    items.append(material.item(NOT_STATED, ", ".join(missing) or "nothing"))
    return items


def _queue(material: Material) -> list[tuple[str, str | None, str]]:
    """What waiting for other devices costs, where the wait was stated: no device-hour, but the result's time."""
    intent, wait_h = material.intent, material.intent.queue_h
    if wait_h is None:
        return []
    worth = "" if intent.price_of_time is None else f", worth {sum_words(wait_h * intent.price_of_time)}"
    hours = material.case.hours_now
    share = ""
    if hours:
        part = wait_h / hours
        share = f", {part:,.3g} times what remains" if part > 1 else f", {100 * part:.2g} % of what remains"
    return [("wait in the queue for another size", f"{wait_h:.3g} h{worth}{share}", "")]


def _freed(entry: Move, material: Material) -> str:
    """What a smaller size leaves to others, by the answer to who would use it."""
    said = material.answers.get("queue_and_others")
    if said is None or entry.device_hours_saved <= 0:
        return ""
    if said == "no":
        return "; the device-hours it frees are paid for anyway"
    priced = "" if entry.cost_saved is None else f" ({sum_words(entry.cost_saved)})"
    return f"; frees {entry.device_hours_saved:.4g} device-hours for others{priced}"


def _epoch(material: Material) -> list[tuple[str, str | None, str]]:
    """What one epoch takes, where its steps were stated."""
    num_steps = material.intent.steps_per_epoch
    spent = None if num_steps is None else device_hours(material.run, num_steps)
    if spent is None:
        return []
    cost = "" if material.price is None else f", cost {sum_words(spent * material.price)}"
    return [("device-hours of an epoch", f"{spent:.4g}{cost}", "")]


def _energy(material: Material, spent_h: float | None) -> list[tuple[str, str | None, str]]:
    """Of the rest and of a sample, by the devices' own meters, else by the power that was stated."""
    run, intent = material.run, material.intent
    power_w = device_power(run, intent)
    if power_w is None:
        return []
    whose = "measured" if run.device_power_w is not None else "stated"
    rows: list[tuple[str, str | None, str]] = [("power of a device", f"{power_w:.4g} W, {whose}", "")]
    if spent_h is not None:
        kwh = spent_h * power_w / 1000
        price = intent.energy_price_per_kwh
        rows.append(
            (
                "energy of the rest",
                f"{kwh:.4g} kWh" + (f", cost {sum_words(kwh * price)}" if price is not None else ""),
                "",
            )
        )
    a_joule = samples_a_joule(run, power_w)
    if a_joule is not None:
        rows.append(("samples a joule", f"{a_joule:.3g}", ""))
    return rows


def cost_conclusion(material: Material) -> str:
    """Deadline, budget and the best measured size, on what was stated."""
    case, intent = material.case, material.intent
    size = [size_words(case)] if case.wanted is not None else []
    if material.contradiction:
        return " ".join([f"Open: {material.contradiction}.", *size])
    if case.hours_now is None:
        is_open = (
            "Open: how much of the run remains is not stated, so neither cost nor break-even can be told."
        )
        return " ".join([is_open, *size])
    said = []
    if intent.deadline_h is not None:
        met = "met" if case.hours_now <= intent.deadline_h else "missed"
        said.append(
            f"At this speed the deadline in {intent.deadline_h:.3g} h is {met} ({case.hours_now:.3g} h)."
        )
    else:
        said.append(f"The rest takes {case.hours_now:.3g} h; no deadline is stated.")
    said += _reckoning(material)
    if material.price is None:
        said.append("Without a price costs stay in device-hours.")
    said += _within_limits(material)
    best = best_move(case)
    if best is not None:
        said.append(f"Of the measured sizes {best.num_devices} devices serve the objective best.")
    elif not case.moves:
        said.append("The price of more speed needs a recording at another size.")
    return " ".join([*said, *size])


def _reckoning(material: Material) -> list[str]:
    """What the hours hold beside the steps."""
    pace, steps = material.pace, material.remaining_steps
    parts = []
    if pace.startup_s:
        parts.append(f"{seconds(pace.startup_s)} to start again")
    if pace.lost:
        parts.append(f"{100 * pace.lost:.2g} % lost to {lost_to(material)}")
    if not parts or steps is None or pace.step_s is None:
        return []
    alone = steps * pace.step_s / SECONDS_PER_HOUR
    return [f"That is {alone:.3g} h of steps and {', '.join(parts)}."]


def _within_limits(material: Material) -> list[str]:
    """The cheapest measured size in time, and the fastest within the budget; where a limit is stated."""
    case, intent, said = material.case, material.intent, []
    if case.hours_now is None or case.num_devices is None:
        return []
    sizes_now = [(case.num_devices, case.hours_now, case.num_devices * case.hours_now)]
    rows = sizes_now + [(entry.num_devices, entry.hours, entry.device_hours) for entry in case.moves]
    if intent.deadline_h is not None:
        met = [row for row in rows if row[1] <= intent.deadline_h]
        cheapest = min(met, key=lambda row: (row[2], row[0]), default=None)
        size = "none of the measured ones" if cheapest is None else f"{cheapest[0]} devices"
        said.append(f"Cheapest size that meets the deadline: {size}.")
    if intent.budget is not None and material.price is not None:
        met = [row for row in rows if row[2] * material.price <= intent.budget]
        fastest = min(met, key=lambda row: (row[1], row[0]), default=None)
        size = "none of the measured ones" if fastest is None else f"{fastest[0]} devices"
        said.append(f"Fastest size within the budget: {size}.")
    return said


def device_hours(run: Facts, num_steps: float) -> float | None:
    """What so many steps of the run as it is take of all its devices."""
    if run.step_s is None or run.num_devices is None:
        return None
    return run.num_devices * run.step_s * num_steps / SECONDS_PER_HOUR


def lost_to(material: Material) -> str:
    """What the share that restarts lose is made of."""
    fails = bool(material.intent.failures_per_day)
    if material.pace.has_checkpoints:
        return "restarts, work done again and checkpoints" if fails else "checkpoints"
    return "restarts (work done again not counted: the checkpoint interval is unknown)"
