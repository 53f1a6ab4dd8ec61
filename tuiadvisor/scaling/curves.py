"""A judged table as the picture its screen shows.

In: Table, Aim, sizes to predict, the report of `analysis`.  Out: Picture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.scaling.analysis import analyse
from tuiadvisor.scaling.cost import Aim, cost, cost_unit, hours, run_length_known
from tuiadvisor.scaling.decide import sized
from tuiadvisor.scaling.efficiency import baseline
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
from tuiadvisor.scaling.predict import Range, predict
from tuiadvisor.scaling.series import Target
from tuiadvisor.scaling.text import answers, decision_words, heading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.analysis import Measured, Predicted, Report
    from tuiadvisor.scaling.series import Series
    from tuiadvisor.scaling.table import Table

MAX_ROWS: Final = 60


def picture(table: Table, aim: Aim, candidates: Sequence[int], line: int | None = None) -> Picture:
    """The picture of the report that holds the row of this line, else of the first.

    A limit that cannot be judged is left out and said to be missing. TuiadvisorError where no law can be fitted.
    """
    missing: tuple[str, ...] = ()
    if not run_length_known(aim, table.quantity):
        named = [
            name
            for name, value in (("deadline", aim.deadline_h), ("budget", aim.budget))
            if value is not None
        ]
        left = "steps left" if table.quantity.kind == "step" else "samples left"
        if named:
            missing = (
                f"the {' and the '.join(named)} cannot be judged without the length of the run: state {left}",
            )
        else:
            missing = (f"cost and hours of the whole run need its length: state {left}",)
        aim = replace(aim, deadline_h=None, budget=None, price_of_time=None)
    reports = analyse(table, [Target(devices) for devices in candidates], aim)
    held = (one for one in reports if any(row.row.line == line for row in one.rows))
    report = next(held, reports[0])
    return _picture(table, report, aim, missing)


def _picture(table: Table, report: Report, aim: Aim, missing: tuple[str, ...]) -> Picture:
    series = report.main.series
    yours = _yours(series, aim)
    rows = _rows(report, aim)
    curves = _curves(report, aim, table)
    first = surely_in_time(rows, curves, aim.deadline_h)
    if report.main.choice is None:
        missing = (*missing, f"no curve: {report.decision.because}")
    return Picture(
        source=f"{table.name}{f', {report.label}' if report.label else ''}",
        basis=_basis(report),
        decision=report.decision.decision,
        words=decision_words(report),
        because=report.decision.because,
        yours=yours,
        chosen=report.decision.devices,
        deadline_from=first,
        deadline_note=deadline_words(first, aim.deadline_h),
        curves=curves,
        rows=rows,
        time_unit=series.quantity.words,
        cost_unit=cost_unit(aim, series.quantity),
        answers=tuple(answers(report)),
        missing=missing,
        notes=(
            *(f"{sized(flag.row.devices)}: {flag.why}" for flag in report.flags),
            *(f"not predicted: {sized(one.devices)}: {one.why}" for one in report.refused),
            *report.notes,
            *table.notes,
        ),
    )


def _basis(report: Report) -> str:
    choice = report.main.choice
    if choice is None:
        series = report.main.series
        return heading(report) if report.batch_laws else f"{series.what()}, one size"
    loo = (
        f"; each size predicted from the others to within {100 * choice.loo_error:.1f} %"
        if choice.loo_error is not None
        else ""
    )
    return f"{heading(report)}; {len(choice.fits)} scaling laws averaged{loo}"


def _yours(series: Series, aim: Aim) -> int:
    at_most = [size for size in series.sizes if aim.current is None or size <= aim.current]
    return (at_most or series.sizes)[-1]


def _rows(report: Report, aim: Aim) -> tuple[SizeRow, ...]:
    flagged = {flag.row.line: flag.why for flag in report.flags}
    rows = [_measured(one, aim, flagged.get(one.row.line, "")) for one in report.rows]
    rows += [_predicted(one, aim) for one in report.predictions]
    rows.sort(key=lambda one: (one.devices, not one.is_measured))
    return tuple(rows[:MAX_ROWS])


def _measured(one: Measured, aim: Aim, note: str) -> SizeRow:
    spent, time = _exact(one.cost), None if one.hours is None else _exact(one.hours)
    return SizeRow(
        one.row.devices,
        is_measured=True,
        time=_exact(one.time),
        efficiency=None if one.efficiency is None else _exact(one.efficiency),
        cost=spent,
        hours=time,
        in_time=meets(time, aim.deadline_h),
        in_budget=meets(spent, aim.budget),
        note=note,
    )


def _predicted(one: Predicted, aim: Aim) -> SizeRow:
    return SizeRow(
        one.target.devices,
        is_measured=False,
        time=one.time,
        efficiency=one.efficiency,
        cost=one.cost,
        hours=one.hours,
        in_time=meets(one.hours, aim.deadline_h),
        in_budget=meets(one.cost, aim.budget),
    )


def _exact(value: float) -> Range:
    return Range(value, value, value)


def _curves(report: Report, aim: Aim, table: Table) -> tuple[Curve, ...]:
    """Efficiency, cost and, where the run's length is known, hours."""
    series, choice = report.main.series, report.main.choice
    mine = [one for one in report.predictions if _is_same(one.series, series)]
    sizes: list[int] = []
    if choice is not None:
        ends = [*series.sizes, *(one.target.devices for one in mine)]
        between = np.unique(np.round(np.geomspace(min(ends), max(ends), NUM_SIZES))).astype(int).tolist()
        sizes = sorted({*between, *ends})
    work = predict(choice, tuple(sizes)) if choice is not None else []
    times = [one.times(1 / series.factor(size)) for one, size in zip(work, sizes, strict=True)]
    best = baseline(series)
    shares = [one.into(best) for one in work]
    costs = [one.times(cost(series, aim, size, 1.0)) for one, size in zip(times, sizes, strict=True)]
    measured = [one for one in report.rows if _is_same(one.series, series)]
    unit = cost_unit(aim, table.quantity)
    found = [
        _curve(
            ("efficiency", ""),
            sizes,
            shares,
            [
                *(Point(one.row.devices, one.efficiency or 1.0, is_measured=True) for one in measured),
                *(Point(one.target.devices, one.efficiency.expected, is_measured=False) for one in mine),
            ],
            (aim.efficiency_floor, f"floor {aim.efficiency_floor:g}"),
        ),
        _curve(
            ("cost", unit),
            sizes,
            costs,
            [
                *(Point(one.row.devices, one.cost, is_measured=True) for one in measured),
                *(Point(one.target.devices, one.cost.expected, is_measured=False) for one in mine),
            ],
            (aim.budget, "" if aim.budget is None else f"budget {aim.budget:,g}"),
        ),
    ]
    if run_length_known(aim, table.quantity):
        whole = [hours(series, aim, size, 1.0) or 0.0 for size in sizes]
        lasts = [(one.row.devices, hours(series, aim, one.row.devices, one.time)) for one in measured]
        found.append(
            _curve(
                ("hours", "h per run"),
                sizes,
                [one.times(each) for one, each in zip(times, whole, strict=True)],
                [
                    *(Point(devices, hour or 0.0, is_measured=True) for devices, hour in lasts),
                    *(
                        Point(one.target.devices, one.hours.expected, is_measured=False)
                        for one in mine
                        if one.hours
                    ),
                ],
                (aim.deadline_h, "" if aim.deadline_h is None else f"deadline {aim.deadline_h:g} h"),
            )
        )
    return tuple(found)


def _is_same(one: Series, other: Series) -> bool:
    """Whether two are of one setting; without their outliers they are other objects."""
    return one is other or (one.what(), one.regime) == (other.what(), other.regime)


def _curve(
    named: tuple[str, str],
    sizes: list[int],
    values: list[Range],
    points: list[Point],
    limit: tuple[float | None, str],
) -> Curve:
    seen = {one.devices for one in points if one.is_measured}
    return Curve(
        *named,
        tuple(sizes),
        tuple(one.expected for one in values),
        tuple(one.low for one in values),
        tuple(one.high for one in values),
        tuple(one for one in points if one.is_measured or one.devices not in seen),
        *limit,
    )
