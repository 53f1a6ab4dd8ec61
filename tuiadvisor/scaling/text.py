"""The report of `tuiadvisor scale` for people: one line a size, a small chart, the decision last.

ASCII only, so that it survives every terminal and every pipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.scaling.batch import batch_words
from tuiadvisor.scaling.classic import classic_words
from tuiadvisor.scaling.cost import Aim, cost_unit
from tuiadvisor.scaling.decide import sized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.analysis import Measured, Predicted, Report
    from tuiadvisor.scaling.table import Table

BAR: Final = 16  # columns of a full-efficiency bar; the widest line stays below 100
THOUSAND: Final = 1000.0
LEAST_WEIGHT: Final = 0.005  # of a law that is named: 1 % when rounded


def text(table: Table, reports: Sequence[Report], aim: Aim) -> str:
    """All reports, a paragraph each."""
    unit = table.time_unit
    head = f"{table.name}: {table.quantity.column}, time in {unit.words}, cost in {cost_unit(aim, table.quantity)}"
    return "\n\n".join([head, *(_report(report, unit.factor) for report in reports), *table.notes]) + "\n"


def _report(report: Report, factor: float) -> str:
    choice = report.main.choice
    lines = [f"== {report.label}"] if report.label else []
    lines.append(heading(report))
    if choice is None:
        lines.append("no law fitted")
    else:
        laws = ", ".join(
            f"{fit.law.name} {100 * weight:.0f} %"
            for fit, weight in zip(choice.fits, choice.weights, strict=True)
            if weight >= LEAST_WEIGHT
        )
        loo = (
            f", each row from the others within {100 * choice.loo_error:.1f} %"
            if choice.loo_error is not None
            else ""
        )
        lines.append(f"laws averaged: {laws}; scatter {100 * choice.error:.1f} %{loo}")
    head = f"{'devices':>8} {'time':>10} {'90 % interval':>21} {'eff.':>5} {'serial':>7} {'cost':>10}"
    lines += ["", f"{head}{_hours_cell(report, 'hours')}"]
    marked = {flag.row.line for flag in report.flags}
    lines += [_row(report, one, factor, "!" if one.row.line in marked else " ") for one in report.rows]
    lines += [_prediction(report, one, factor) for one in report.predictions]
    lines += ["        # measured, . predicted, to the low end of its interval; ! flagged"]
    if any(one.karp_flatt is not None for one in report.rows):
        lines.append(
            "        serial: the part that did not speed up, by Karp and Flatt (1990), of that size alone"
        )
    lines.append("")
    lines += [f"flag: {sized(flag.row.devices)}: {flag.why}" for flag in report.flags]
    lines += [f"refused: {sized(one.devices)}: {one.why}" for one in report.refused]
    lines += [f"note: {note}" for note in report.notes]
    lines += answers(report)
    lines += lost_words(report)
    lines += classic_words(report.classic)
    lines += [batch_words(law) for law in report.batch_laws]
    lines.append(f"{decision_words(report)}: {report.decision.because}")
    return "\n".join(lines)


def heading(report: Report) -> str:
    """What was measured: the series that is fitted, and all batches of sizes that were measured at several."""
    series, laws = report.main.series, report.batch_laws
    line = f"{series.regime} scaling, {series.what()}"
    if not laws:
        return line
    if len({one.row.devices for one in report.rows}) > 1:
        return f"{line}; other batches beside it, at {_listed(sorted({law.devices for law in laws}))} devices"
    return "one size: " + "; ".join(
        f"batches of {_listed(law.batches)} at {sized(law.devices)}" for law in laws
    )


def _listed(numbers: Sequence[float]) -> str:
    """'64', '64, 128 and 256'."""
    names = [f"{number:g}" for number in numbers]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def figure(value: float) -> str:
    """Four digits at most, thousands separated: '32', '8.9', '454,827'; no exponent where people compare columns."""
    return f"{value:,.0f}" if abs(value) >= THOUSAND else f"{value:.4g}"


def lost_cost(one: Measured) -> float | None:
    """The part of a size's cost that bought no work, by its efficiency against the smallest size; 0: none of it."""
    if one.cost is None or one.efficiency is None:
        return None
    return one.cost * max(1.0 - one.efficiency, 0.0)


def lost_words(report: Report) -> list[str]:
    """What the largest measured size pays for work that was not done, in the unit of the costs."""
    largest = max(report.rows, key=lambda one: one.row.devices, default=None)
    if largest is None or largest.cost is None or largest.efficiency is None or largest.efficiency >= 1:
        return []
    lost = f"{figure(lost_cost(largest) or 0.0)} of a cost of {figure(largest.cost)}"
    return [f"at {sized(largest.row.devices)} {lost} buy no work: efficiency {largest.efficiency:.2f}"]


def decision_words(report: Report) -> str:
    """What to do in a few words: 'KEEP 4 devices', 'STOP growing at 8 devices', 'STOP: back to 1 device'."""
    decision, devices = report.decision.decision, report.decision.devices
    if devices is None:
        return decision.upper()
    size = sized(devices)
    largest = max((one.row.devices for one in report.rows), default=devices)
    if decision == "rescale":
        return f"RESCALE to {size}"
    if decision == "keep":
        return f"KEEP {size}"
    return f"STOP growing at {size}" if devices >= largest else f"STOP: go back to {size}"


def _hours_cell(report: Report, text: str) -> str:
    """Of the whole run, which limits are about; no column where its length is not known."""
    return f" {text:>8}" if any(one.hours is not None for one in report.rows) else ""


def _row(report: Report, one: Measured, factor: float, mark: str) -> str:
    share = "" if one.efficiency is None else f"{one.efficiency:.2f}"
    serial = "" if one.karp_flatt is None else f"{one.karp_flatt:.4f}"
    hours = _hours_cell(report, "" if one.hours is None else figure(one.hours))
    return (
        f"{one.row.devices:>8,} {figure(one.time * factor):>10} {'':>21} {share:>5} {serial:>7} {figure(one.cost):>10}"
        f"{hours} {mark}{_bar(one.efficiency or 0.0, '#')}"
    ).rstrip()


def _prediction(report: Report, one: Predicted, factor: float) -> str:
    interval, share = (
        f"{figure(one.time.low * factor)} .. {figure(one.time.high * factor)}",
        one.efficiency.expected,
    )
    hours = _hours_cell(report, "" if one.hours is None else figure(one.hours.expected))
    sure, likely = _bar(one.efficiency.low, "."), _bar(one.efficiency.expected, ".")
    return (
        f"{one.target.devices:>8,} {figure(one.time.expected * factor):>10} {interval:>21} {share:>5.2f} {'':>7} "
        f"{figure(one.cost.expected):>10}{hours}  {sure}{'-' * (len(likely) - len(sure))}"
    ).rstrip()


def _bar(share: float, character: str) -> str:
    return character * min(round(share * BAR), BAR + 4)


def answers(report: Report) -> list[str]:
    """What the limits and the fitted curve answer, a line each."""
    frontier = report.frontier
    judged = ", of the sizes that can be judged" if report.unjudged else ""
    found = [
        (report.fastest_within_budget, f"fastest within the budget{judged}:"),
        (report.cheapest_by_deadline, f"cheapest by the deadline{judged}:"),
        (
            frontier.efficiency_floor if frontier else None,
            f"most devices above the efficiency floor of {report.efficiency_floor:g}: about",
        ),
        (
            frontier.price_of_time if frontier else None,
            "most devices whose next hour saved is worth its price: about",
        ),
        (frontier.fastest if frontier else None, "beyond this the run gets slower: about"),
    ]
    return [f"{what} {sized(devices)}" for devices, what in found if devices is not None]
