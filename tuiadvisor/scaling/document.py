"""The JSON document of `tuiadvisor scale`, schema 1. Times are in the table's own unit (1/throughput for rates)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tuiadvisor.scaling.cost import Aim, cost_unit
from tuiadvisor.scaling.text import lost_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.analysis import Measured, Predicted, Report
    from tuiadvisor.scaling.batch import BatchLaw
    from tuiadvisor.scaling.predict import Range
    from tuiadvisor.scaling.series import Series
    from tuiadvisor.scaling.table import Table


def document(table: Table, reports: Sequence[Report], aim: Aim) -> dict[str, Any]:
    """The main report at the top level; where labels make several, all of them under "series" too."""
    head = {
        "schema": 1,
        "table": {
            "column": table.quantity.column,
            "time_unit": table.quantity.unit,
            "cost_unit": cost_unit(aim, table.quantity),
            "interval": 0.9,
            "notes": list(table.notes),
        },
    }
    several = {"series": [_report(report, aim) for report in reports]} if len(reports) > 1 else {}
    return {**head, **_report(reports[0], aim), **several}


def _report(report: Report, aim: Aim) -> dict[str, Any]:
    return {
        "label": report.label,
        "fit": _fit(report),
        "rows": [_row(one) for one in report.rows],
        "predictions": [_prediction(one) for one in report.predictions],
        "flags": [
            {"devices": flag.row.devices, "why": flag.why, "excluded": flag.is_excluded}
            for flag in report.flags
        ],
        "refused": [{"devices": one.devices, "why": one.why} for one in report.refused],
        "answers": {
            "fastest_within_budget": report.fastest_within_budget,
            "cheapest_by_deadline": report.cheapest_by_deadline,
            "efficiency_floor": aim.efficiency_floor,
            "most_devices_above_floor": report.frontier.efficiency_floor if report.frontier else None,
            "most_devices_worth_their_price": report.frontier.price_of_time if report.frontier else None,
            "fastest_devices": report.frontier.fastest if report.frontier else None,
        },
        "laws": {
            name: number(value) if isinstance(value, float) else value
            for name, value in asdict(report.classic).items()
        },
        "batch_law": _batch_law(report),
        "batch_laws": [_one_batch_law(law) for law in report.batch_laws],
        "decision": asdict(report.decision),
        "notes": list(report.notes),
    }


def _batch_law(report: Report) -> dict[str, Any] | None:
    """The law of the largest size that was measured at several batches; None where no size was."""
    return _one_batch_law(report.batch_laws[-1]) if report.batch_laws else None


def _one_batch_law(law: BatchLaw) -> dict[str, Any]:
    return {
        "devices": law.devices,
        "layout": law.layout,
        "fixed_s": number(law.fixed_s),
        "per_sample_s": number(law.per_sample_s),
        "plateau": number(law.plateau),
        "why": law.why,
    }


def _fit(report: Report) -> dict[str, Any]:
    series, choice = report.main.series, report.main.choice
    common = {"regime": series.regime, **_setting(series), "sizes": list(series.sizes)}
    if choice is None:
        return {"model": None, "error": None, "loo_error": None, "averaged": {}, "parameters": {}, **common}
    return {
        "model": choice.fits[0].law.name,
        "error": number(choice.error),
        "loo_error": number(choice.loo_error),
        "averaged": {
            fit.law.name: number(weight) for fit, weight in zip(choice.fits, choice.weights, strict=True)
        },
        "parameters": {
            fit.law.name: {name: number(value) for name, value in fit.parameters().items()}
            for fit in choice.fits
            if fit.parameters()
        },
        **common,
    }


def _row(one: Measured) -> dict[str, Any]:
    rate = {"throughput": one.row.value} if one.series.quantity.kind == "throughput" else {}
    return {
        "devices": one.row.devices,
        "time": number(one.time),
        **rate,
        "efficiency": number(one.efficiency),
        "karp_flatt": number(one.karp_flatt),
        "cost": number(one.cost),
        "lost_cost": number(lost_cost(one)),
        "global_batch": one.row.global_batch,
        "layout": one.row.layout,
        "statistical_efficiency": number(one.statistical_efficiency),
    }


def _prediction(one: Predicted) -> dict[str, Any]:
    rate = {}
    if one.series.quantity.kind == "throughput":
        rate["throughput"] = bounds(one.time.into(1.0))
    return {
        "devices": one.target.devices,
        "time": bounds(one.time),
        **rate,
        "efficiency": number(one.efficiency.expected),
        "efficiency_range": bounds(one.efficiency),
        "cost": number(one.cost.expected),
        "cost_range": bounds(one.cost),
        "marginal_price_per_hour": number(one.marginal_price),
        "batch_factor_to_keep_efficiency": number(one.batch_factor),
        "statistical_efficiency": number(one.statistical_efficiency),
        **_setting(one.series, one.target.devices),
    }


def _setting(series: Series, devices: int | None = None) -> dict[str, Any]:
    batch = series.global_batch if devices is None else series.batch_at(devices)
    return {
        "global_batch": number(batch),
        "batch_per_device": number(series.batch_per_device),
        "layout": series.layout,
    }


def bounds(value: Range) -> dict[str, float | None]:
    """As in every document: what is expected, and its interval."""
    return {"expected": number(value.expected), "low": number(value.low), "high": number(value.high)}


def number(value: float | None) -> float | None:
    """Six digits: more would pretend."""
    return None if value is None else float(f"{value:.6g}")
