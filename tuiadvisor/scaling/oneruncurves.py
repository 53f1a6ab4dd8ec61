"""What one run says about other sizes, as the picture its screen shows: bounds instead of intervals.

In: Parts of one run, Aim, sizes to ask for, weak or strong.  Out: Picture. The present size is exact; cost and
hours of another follow from its efficiency, because cost is device-time and efficiency compares device-times of the
same work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.scaling.columns import STEP
from tuiadvisor.scaling.cost import Aim, cost_unit
from tuiadvisor.scaling.decide import sized
from tuiadvisor.scaling.frontier import REACH
from tuiadvisor.scaling.onerun import Mode, Parts, one_run, sized_at, why_not
from tuiadvisor.scaling.picture import (
    NUM_SIZES,
    Curve,
    Picture,
    Point,
    SizeRow,
    deadline_words,
    meets,
    surely_in_time,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.onerun import Sized
    from tuiadvisor.scaling.predict import Range

FARTHEST: Final = 4  # times the devices, where nobody asked for more
MODES: Final[dict[Mode, str]] = {
    "weak": "the batch a device stays (weak scaling)",
    "strong": "the total batch stays (strong scaling)",
}


def one_run_picture(name: str, parts: Parts, aim: Aim, candidates: Sequence[int], mode: Mode) -> Picture:
    """Bounds at the sizes this run can speak for; what it refuses is said with the reason."""
    found = one_run(parts, tuple(candidates), aim)
    sizes = [one for one in found.sizes if one.mode == mode and one.devices != parts.devices]
    here = sized_at(parts, parts.devices, mode) if parts.devices > 1 else None
    whole = aim.remaining_steps
    hours_now = parts.step_s * (whole or 1.0) / 3600
    spent_now = parts.devices * hours_now * (aim.price_per_device_hour or 1.0)
    limits = aim if whole is not None else Aim(efficiency_floor=aim.efficiency_floor)
    rows = [
        _row(one, parts, spent_now, hours_now if whole else None, limits) for one in [here, *sizes] if one
    ]
    unit = cost_unit(aim, STEP)
    curves = _curves(parts, rows, mode, (spent_now, hours_now if whole else None, unit), limits)
    first = surely_in_time(rows, curves, limits.deadline_h)
    decision = found.decision
    return Picture(
        source=f"{name} alone, {sized(parts.devices)}",
        basis=f"bounds from the parts of one run's step; {MODES[mode]}",
        decision=decision.decision,
        words=f"{decision.decision.upper()} {sized(decision.devices or parts.devices)}",
        because=decision.because,
        yours=parts.devices,
        chosen=decision.devices,
        deadline_from=first,
        deadline_note=deadline_words(first, limits.deadline_h),
        curves=curves,
        rows=tuple(sorted(rows, key=lambda one: one.devices)),
        time_unit="s",
        cost_unit=unit,
        missing=_missing(aim),
        notes=(
            *(f"not bounded: {sized(devices)}: {why}" for devices, why in found.refused),
            *(f"assumed: {text}" for text in found.assumed),
        ),
    )


def _missing(aim: Aim) -> tuple[str, ...]:
    second = "a statistical prediction needs a second size: record one beside this one, or tuiadvisor scale --table CSV"
    if aim.remaining_steps is None:
        return (
            "cost and hours of the whole run, deadline and budget need its length: state steps left",
            second,
        )
    return (second,)


def _row(one: Sized, parts: Parts, spent_now: float, hours_now: float | None, limits: Aim) -> SizeRow:
    is_measured = one.devices == parts.devices
    cost = one.efficiency.into(spent_now)
    time = None if hours_now is None else one.throughput.into(hours_now)
    return SizeRow(
        one.devices,
        is_measured,
        one.step_s,
        one.efficiency,
        cost,
        time,
        in_time=meets(time, limits.deadline_h),
        in_budget=meets(cost, limits.budget),
    )


def _curves(
    parts: Parts, rows: list[SizeRow], mode: Mode, now: tuple[float, float | None, str], limits: Aim
) -> tuple[Curve, ...]:
    """now: cost and hours at the present size, and what the cost is of."""
    spent_now, hours_now, unit = now
    if not rows:
        return ()
    asked = [one.devices for one in rows]
    low, high = max(1, parts.devices // FARTHEST), max(FARTHEST * parts.devices, *asked)
    between = (
        np.unique(np.round(np.geomspace(low, min(high, REACH * parts.devices), NUM_SIZES)))
        .astype(int)
        .tolist()
    )
    # The present size has a row even where nothing is said of others.
    sizes = [size for size in sorted({*between, *asked}) if size in asked or not why_not(parts, size)]
    there = [sized_at(parts, size, mode) for size in sizes]
    floor = limits.efficiency_floor

    def curve(name: str, unit: str, values: list[Range], limit: float | None, limit_name: str) -> Curve:
        place = {size: value.expected for size, value in zip(sizes, values, strict=True)}
        points = tuple(Point(one.devices, place[one.devices], one.is_measured) for one in rows)
        return Curve(
            name,
            unit,
            tuple(sizes),
            tuple(one.expected for one in values),
            tuple(one.low for one in values),
            tuple(one.high for one in values),
            points,
            limit,
            limit_name if limit is not None else "",
        )

    found = [
        curve("efficiency", "", [one.efficiency for one in there], floor, f"floor {floor:g}"),
        curve(
            "cost",
            unit,
            [one.efficiency.into(spent_now) for one in there],
            limits.budget,
            f"budget {limits.budget or 0:g}",
        ),
    ]
    if hours_now is not None:
        values = [one.throughput.into(hours_now) for one in there]
        found.append(
            curve("hours", "h per run", values, limits.deadline_h, f"deadline {limits.deadline_h or 0:g} h")
        )
    return tuple(found)
