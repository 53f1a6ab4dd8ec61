"""What a change saved: the difference of two runs' steps over what remains, in hours, device-hours and money.

In: Comparison, Intent.  Out: a sentence, "" where nothing changed beyond noise. What was not stated is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.session.economics import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.views.comparison import Comparison

PER: Final = 1000  # steps, where nobody stated how many remain
UNITS: Final = (("hours", 1.0), ("minutes", 60.0), ("seconds", SECONDS_PER_HOUR))


def saved_words(comparison: Comparison, intent: Intent) -> str:
    """In hours, device-hours and money of the steps that remain; of a thousand where their number is not stated."""
    change, devices = comparison.change, comparison.after.unit.world_size
    known = (comparison.before.step_s, change.low, change.high)  # the ratio is of one unit of work
    if comparison.basis is None or comparison.verdict not in {"improved", "regressed"} or None in known:
        return ""
    before_s, low, high = (value or 0.0 for value in known)
    num_steps = intent.remaining_steps or PER
    least_h, most_h = sorted(
        abs(before_s * (1 - ratio)) * num_steps / SECONDS_PER_HOUR for ratio in (low, high)
    )
    of = f"the {num_steps:,.0f} steps that remain" if intent.remaining_steps else f"every {PER:,} steps"
    parts = []
    missing = [] if intent.remaining_steps else ["remaining_steps"]
    if devices:
        parts.append(_time(least_h * devices, most_h * devices, "device-"))
        price = intent.price_per_device_hour
        if price is None:
            missing.append("price_per_device_hour")
        else:
            parts.append(
                _range(least_h * devices * price, most_h * devices * price, intent.currency or "in money")
            )
    verb, more = ("Saves", "") if comparison.verdict == "improved" else ("Costs", " more")
    beside = f" ({', '.join(parts)})" if parts else ""
    ask = (
        f" To say more: tuiadvisor intent --set {' '.join(f'{name}=…' for name in missing)}"
        if missing
        else ""
    )
    return f"{verb} {_time(least_h, most_h)}{more} over {of}{beside}.{ask}"


def _time(low_h: float, high_h: float, of: str = "") -> str:
    """In the unit in which the figures are read best."""
    unit, factor = next((one for one in UNITS if high_h * one[1] >= 1), UNITS[-1])
    return _range(low_h * factor, high_h * factor, of + unit)


def _range(low: float, high: float, unit: str) -> str:
    return f"{low:.3g} to {high:.3g} {unit}"
