"""One table, fully judged: rows, fits, predictions, flags, refusals, answers, decision.

In: a Table, the sizes to predict, the Aim.  Out: one Report per label of the table, the main one first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.batch import BatchLaw, batch_laws, batch_words
from tuiadvisor.scaling.choose import Choice, choose
from tuiadvisor.scaling.classic import Classic, classic
from tuiadvisor.scaling.cost import Aim, check, cost, hours, step_words
from tuiadvisor.scaling.cost_of_batch import batch_factor_to_keep_efficiency, statistical_efficiency
from tuiadvisor.scaling.decide import (
    Candidate,
    SizeDecision,
    Unjudged,
    cheapest_by,
    decide,
    fastest_within,
    sized,
)
from tuiadvisor.scaling.efficiency import baseline, efficiency, karp_flatt, row_efficiency
from tuiadvisor.scaling.flags import Flag, find_flags
from tuiadvisor.scaling.frontier import REACH, Frontier, frontier
from tuiadvisor.scaling.predict import Range, predict
from tuiadvisor.scaling.series import Series, Subject, Target, governing, subjects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.table import Row, Table


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured row with what follows from it."""

    row: Row
    series: Series
    time: float
    efficiency: float | None
    karp_flatt: float | None
    cost: float
    hours: float | None  # of the whole run; None where its length is not known
    statistical_efficiency: float | None


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted size. `time` and `cost` in the units of the measured ones."""

    target: Target
    series: Series
    time: Range
    efficiency: Range
    cost: Range
    hours: Range | None
    marginal_price: float | None  # cost of an hour saved against the largest measured size
    batch_factor: float | None  # how many times the batch keeps the largest measured size's efficiency
    statistical_efficiency: float | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A size that was not predicted, or a row that was not used, and why."""

    devices: int
    why: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """A series without its outliers, and the laws fitted to it. choice is None with a single size."""

    series: Series
    choice: Choice | None
    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything about one label of the table; `main` is the series the decision is about."""

    label: str | None
    main: Fitted
    rows: tuple[Measured, ...]
    predictions: tuple[Predicted, ...]
    flags: tuple[Flag, ...]
    refused: tuple[Refusal, ...]
    fastest_within_budget: int | None
    cheapest_by_deadline: int | None
    frontier: Frontier | None
    decision: SizeDecision
    notes: tuple[str, ...]
    classic: Classic
    batch_laws: tuple[BatchLaw, ...]
    unjudged: tuple[Unjudged, ...]  # measured sizes that the decision is not about
    efficiency_floor: float  # as it was stated, or the usual one


def analyse(table: Table, targets: Sequence[Target], aim: Aim) -> tuple[Report, ...]:
    """A report per label; the one with the most sizes first. TuiadvisorError when a limit can't be judged."""
    check(aim, table.quantity)
    all_subjects = [subject for subject in subjects(table) if subject.series]
    reports = [_report(subject, targets, aim, table) for subject in all_subjects]
    # Python's sort is stable: of equals, the first of the file.
    return tuple(sorted(reports, key=lambda report: -len(report.main.series.sizes)))


def _report(subject: Subject, targets: Sequence[Target], aim: Aim, table: Table) -> Report:
    doubt, unit = table.doubt, table.time_unit
    fitted = {id(series): _fit(series) for series in subject.series}
    wanted = [*subject.targets, *targets] or [Target(2 * max(series.sizes[-1] for series in subject.series))]
    predictions, refused = _predict_all(subject, wanted, fitted, aim)
    main = _main(subject, predictions)
    mine = [one for one in predictions if one.series is main]
    candidates = _candidates(fitted[id(main)].series, mine, aim)
    with_flagged = _candidates(fitted[id(main)].series, mine, aim, main)
    laws = batch_laws([row for _, row in subject.rows], main.quantity)
    unjudged = _unjudged(subject, fitted[id(main)], main, {law.devices for law in laws}, aim)
    if main.is_regime_guessed:
        doubt = f"{main.note}; add the column global_batch"
    flags = fitted[id(main)].flags
    largest_refusal = max(refused, key=lambda one: one.devices).why if refused else None
    used = {id(one.series) for one in predictions} or {id(main)}
    choice = fitted[id(main)].choice
    is_open = _last_left_out(fitted[id(main)]) is not None
    if choice is None and laws and largest_refusal:
        largest_refusal = f"{largest_refusal}; {batch_words(laws[-1])}"
    return Report(
        label=subject.label,
        main=fitted[id(main)],
        rows=tuple(_measured(fitted[id(series)].series, row, aim) for series, row in subject.rows),
        predictions=tuple(predictions),
        flags=tuple(flag for series in subject.series for flag in fitted[id(series)].flags),
        refused=(*refused, *_unused_rows(subject, main, used, {law.devices for law in laws})),
        fastest_within_budget=_devices(fastest_within(candidates, aim.budget)) if aim.budget else None,
        cheapest_by_deadline=_devices(cheapest_by(candidates, aim.deadline_h)) if aim.deadline_h else None,
        frontier=frontier(fitted[id(main)].series, choice, aim) if choice and not is_open else None,
        decision=_unless_contradicted(
            decide(candidates, aim, unit, largest_refusal, doubt, unjudged=unjudged),
            decide(with_flagged, aim, unit, largest_refusal, doubt),
            main,
            flags,
            aim,
        ),
        notes=tuple(
            dict.fromkeys(
                note
                for series in subject.series
                if id(series) in used
                for note in (series.note, step_words(series, aim))
                if note
            )
        ),
        classic=classic(fitted[id(main)].series, choice, subject, is_open=is_open),
        batch_laws=laws,
        unjudged=unjudged,
        efficiency_floor=aim.efficiency_floor,
    )


def _unless_contradicted(
    decision: SizeDecision, with_flagged: SizeDecision, main: Series, flags: Sequence[Flag], aim: Aim
) -> SizeDecision:
    """Nothing is decided on a row that the other rows contradict, nor on a step to or from it.

    Nor against such a row: where it, as it was measured, would be chosen, whether it is right decides.
    """
    at_most = [size for size in main.sizes if aim.current is None or size <= aim.current]
    current = (at_most or main.sizes)[-1]
    chosen = decision.devices or current
    for flag in flags:
        is_between = min(chosen, current) <= flag.row.devices <= max(chosen, current)
        is_chosen = flag.row.devices == with_flagged.devices != decision.devices
        if flag.is_contradicted and (is_between or is_chosen):
            why = f"nothing is decided on a row that the others contradict: {sized(flag.row.devices)}: {flag.why}"
            return SizeDecision("keep", current, why)
    return decision


def _last_left_out(fitted: Fitted) -> Flag | None:
    """The largest row, if it was left out: nobody knows what lies beyond the rows that agree."""
    largest = fitted.series.sizes[-1]
    left_out = [flag for flag in fitted.flags if flag.is_excluded and flag.row.devices > largest]
    return max(left_out, key=lambda one: one.row.devices, default=None)


def _beyond_flagged(fitted: Fitted, target: Target) -> str:
    """Why a size beyond a largest row that was left out is not predicted; empty if it may be."""
    flag = _last_left_out(fitted)
    if flag is None or target.devices <= fitted.series.sizes[-1]:
        return ""
    return (
        f"the row at {sized(flag.row.devices)} is {flag.why.split(':')[0]}: whether that is a limit or a bad "
        "measurement decides what lies beyond; measure it again"
    )


def _fit(series: Series) -> Fitted:
    flags = find_flags(series) if series.can_fit else ()
    left_out = {flag.row.line for flag in flags if flag.is_excluded}
    clean = replace(series, rows=tuple(row for row in series.rows if row.line not in left_out))
    if not clean.can_fit:
        return Fitted(series, None, flags)
    devices = np.array([float(row.devices) for row in clean.rows])
    device_time = np.array([clean.device_time(row) for row in clean.rows])
    return Fitted(clean, choose(clean.family, devices, device_time), flags)


def _predict_all(
    subject: Subject, wanted: Sequence[Target], fitted: dict[int, Fitted], aim: Aim
) -> tuple[list[Predicted], list[Refusal]]:
    predictions: list[Predicted] = []
    refused: list[Refusal] = []
    for target in dict.fromkeys(wanted):
        speakers, why = governing(subject, target)
        if not speakers:
            refused.append(Refusal(target.devices, why))
        for series in speakers:
            doubted = _beyond_flagged(fitted[id(series)], target)
            if doubted:
                refused.append(Refusal(target.devices, doubted))
            else:
                predictions.append(_predicted(fitted[id(series)], series, target, aim))
    return sorted(predictions, key=lambda one: (one.target.devices, one.time.expected)), refused


def _predicted(fitted: Fitted, series: Series, target: Target, aim: Aim) -> Predicted:
    assert fitted.choice is not None  # noqa: S101 - only series with two sizes may speak, and outliers leave two
    devices, largest = target.devices, series.sizes[-1]
    device_time = predict(fitted.choice, (devices,))[0]
    time = device_time.times(1 / series.factor(devices))
    reference = baseline(fitted.series)
    price = cost(series, aim, devices, 1.0)
    hour = hours(series, aim, devices, 1.0)
    return Predicted(
        target=target,
        series=series,
        time=time,
        efficiency=device_time.into(reference),
        cost=time.times(price),
        hours=None if hour is None else time.times(hour),
        marginal_price=_marginal_price(series, aim, devices, time.expected),
        batch_factor=(
            batch_factor_to_keep_efficiency(fitted.choice, largest, devices)
            if series.regime == "strong"
            else None
        ),
        statistical_efficiency=_statistical(series, devices, aim),
    )


def _marginal_price(series: Series, aim: Aim, devices: int, time: float) -> float | None:
    """Price of an hour saved against the largest measured size; None where no hour is saved or hours are unknown."""
    largest = series.rows[-1]
    then, now = (
        hours(series, aim, devices, time),
        hours(series, aim, largest.devices, series.time(largest)),
    )
    if then is None or now is None or then >= now or devices <= largest.devices:
        return None
    dearer = cost(series, aim, devices, time) - cost(series, aim, largest.devices, series.time(largest))
    return max(dearer, 0.0) / (now - then)


def _measured(series: Series, row: Row, aim: Aim) -> Measured:
    share = row_efficiency(series, series.device_time(row))
    return Measured(
        row=row,
        series=series,
        time=series.time(row),
        efficiency=share,
        karp_flatt=karp_flatt(share, row.devices, series.sizes[0]),
        cost=cost(series, aim, row.devices, series.time(row)),
        hours=hours(series, aim, row.devices, series.time(row)),
        statistical_efficiency=_statistical(series, row.devices, aim),
    )


def _statistical(series: Series, devices: int, aim: Aim) -> float | None:
    batch, reference = series.batch_at(devices), series.batch_at(series.sizes[0])
    if aim.noise_scale is None or batch is None or reference is None:
        return None
    return statistical_efficiency(aim.noise_scale, reference, batch)


def _main(subject: Subject, predictions: Sequence[Predicted]) -> Series:
    """The series the decision is about: one that predicts, with the most sizes, and of equals the fastest."""
    speaking = [series for series in subject.series if any(one.series is series for one in predictions)]
    able = speaking or [series for series in subject.series if series.can_fit] or list(subject.series)
    return max(
        able, key=lambda series: (len(series.sizes), series.sizes[-1], -series.device_time(series.rows[-1]))
    )


def _candidates(
    series: Series, predictions: Sequence[Predicted], aim: Aim, measured: Series | None = None
) -> list[Candidate]:
    """measured: the series with the rows that were left out of `series`, where they shall be candidates, too."""
    found = []
    whole = measured or series
    for size in whole.sizes:
        time = median(series.time(row) for row in whole.rows if row.devices == size)
        spent, hour = cost(series, aim, size, time), hours(series, aim, size, time)
        share = efficiency(series, time * series.factor(size))
        found.append(Candidate(size, time, time, share, spent, spent, hour, hour, is_predicted=False))
    # Far outside the measured sizes a number may be asked for, but nobody should be sent there.
    low, high = series.sizes[0] / REACH, series.sizes[-1] * REACH
    return found + [
        _as_candidate(one)
        for one in predictions
        if one.target.devices not in series.sizes and low <= one.target.devices <= high
    ]


def _unjudged(
    subject: Subject, main: Fitted, whole: Series, in_batches: set[int], aim: Aim
) -> tuple[Unjudged, ...]:
    """Measured rows beside those that are judged, but those that a law of batches rests on.

    whole: the judged series with the rows that were left out of it.
    """
    left_out = [
        Unjudged(
            flag.row.devices, whole.time(flag.row), flag.why.split(":")[0], _alike(main, whole, flag.row, aim)
        )
        for flag in main.flags
        if flag.is_excluded
    ]
    others = [
        Unjudged(
            row.devices,
            series.time(row),
            f"it has {series.what()}, the judged rows have {whole.what()}",
            _alike(main, series, row, aim),
        )
        for series, row in subject.rows
        if series is not whole and row.devices not in in_batches
    ]
    return tuple(sorted([*left_out, *others], key=lambda one: one.devices))


def _alike(main: Fitted, own: Series, row: Row, aim: Aim) -> Candidate | None:
    """The row as a candidate: its time for the work of a judged row; None where the two are of unlike work."""
    judged = main.series
    batch, reference = own.batch_at(row.devices), judged.batch_at(row.devices)
    work = 1.0
    if judged.quantity.kind == "step" and batch != reference:
        if batch is None or reference is None:
            return None
        work = reference / batch
    time = own.time(row) * work
    spent, hour = cost(judged, aim, row.devices, time), hours(judged, aim, row.devices, time)
    share = efficiency(judged, time * judged.factor(row.devices))
    return Candidate(row.devices, time, time, share, spent, spent, hour, hour, is_predicted=False)


def _as_candidate(one: Predicted) -> Candidate:
    return Candidate(
        one.target.devices,
        one.time.expected,
        one.time.high,
        one.efficiency.expected,
        one.cost.expected,
        one.cost.high,
        one.hours.expected if one.hours else None,
        one.hours.high if one.hours else None,
        is_predicted=True,
        best_efficiency=one.efficiency.high,
    )


def _unused_rows(subject: Subject, main: Series, used: set[int], in_batches: set[int]) -> list[Refusal]:
    """Rows of another setting, but those that a law of batches rests on."""
    return [
        Refusal(row.devices, f"row not used: it has {series.what()}, the fitted rows have {main.what()}")
        for series, row in subject.rows
        if id(series) not in used and row.devices not in in_batches
    ]


def _devices(candidate: Candidate | None) -> int | None:
    return candidate.devices if candidate else None


def pick(reports: Sequence[Report], label: str | None) -> tuple[Report, ...]:
    """Only the report of one label. TuiadvisorError naming the labels there are."""
    if label is None:
        return tuple(reports)
    chosen = tuple(report for report in reports if report.label == label)
    if not chosen:
        known = ", ".join(repr(report.label) for report in reports[:8] if report.label)
        raise TuiadvisorError(
            f"no rows labelled {label!r}; the table has {known or 'no labels that group rows'}"
        )
    return chosen
