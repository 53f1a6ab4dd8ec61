"""Measured rows that don't fit what the other rows say, or what physics allows.

In: one series.  Out: Flags, and which rows to keep out of the fit. A row between two others that the others
contradict is left out, and so is a smallest size that is too slow. The largest size is left out too, and nothing is
predicted beyond what is left: it may be a bad measurement or a knee, and the two promise opposite things.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.scaling.choose import choose
from tuiadvisor.scaling.predict import interval_sd

if TYPE_CHECKING:
    from tuiadvisor.scaling.series import Series
    from tuiadvisor.scaling.table import Row

DEVIATIONS: Final = 3.0  # standard deviations of a prediction from the other rows
LEAST: Final = 0.05  # and at least this much, whatever the scatter
SUPERLINEAR: Final = 1.05  # efficiency from one size to the next above this is more than scatter
REPEATS: Final = 1.10  # two measurements of one size further apart than this
UNTIL: Final = (
    "left out of the fit, and nothing is predicted beyond the other rows until it is measured again"
)
MAX_ROWS: Final = 60  # each candidate refits every law for every row


@dataclass(frozen=True, slots=True)
class Flag:
    """A row to look at again."""

    row: Row
    why: str
    is_excluded: bool = False
    is_contradicted: bool = True  # by other sizes; repeats of one size only scatter


def find_flags(series: Series) -> tuple[Flag, ...]:
    """All flags of a series, by devices."""
    flags = _repeats(series) + _outliers(series)
    seen = {flag.row.line for flag in flags}
    flags += [flag for flag in _superlinear(series, seen) if flag.row.line not in seen]
    return tuple(sorted(flags, key=lambda flag: (flag.row.devices, flag.row.line)))


def _repeats(series: Series) -> list[Flag]:
    flags = []
    for size in series.sizes:
        rows = [row for row in series.rows if row.devices == size]
        times = [series.time(row) for row in rows]
        if max(times) > REPEATS * min(times):
            slowest = rows[times.index(max(times))]
            flags.append(
                Flag(
                    slowest,
                    f"measured {len(rows)} times, {max(times) / min(times) - 1:.0%} apart: measure again",
                    is_contradicted=False,
                )
            )
    return flags


def _outliers(series: Series) -> list[Flag]:
    """Rows the others contradict, the worst first; at most one in three, at least one is looked for."""
    flags: list[Flag] = []
    rows = list(series.rows)
    while 3 <= len(rows) <= MAX_ROWS and len(flags) < max(1, (len(series.rows) - 1) // 3):
        flag = _worst(series, rows)
        if flag is None:
            break
        flags.append(flag)
        rows.remove(flag.row)
    return flags


def _worst(series: Series, rows: list[Row]) -> Flag | None:
    devices = np.array([float(row.devices) for row in rows])
    device_time = np.array([series.device_time(row) for row in rows])
    found: list[tuple[float, float, Row]] = []
    for index, row in enumerate(rows):
        rest = np.arange(len(rows)) != index
        if len(set(devices[rest].tolist())) < 2:
            continue
        others = choose(series.family, devices[rest], device_time[rest], with_loo=False)
        expected = float(others.device_time(devices[index : index + 1])[0])
        ratio = float(device_time[index]) / expected
        found.append((abs(log(ratio)) / interval_sd(others, row.devices), ratio, row))
    if not found:
        return None
    deviations, ratio, row = max(found, key=lambda item: item[0])
    inside = bool(devices.min() < row.devices < devices.max())
    # Of three rows the outer two say what lies between them; a line through two says little about a third.
    if deviations < DEVIATIONS or abs(log(ratio)) < LEAST or (len(rows) == 3 and not inside):
        return None
    # A slow smallest size would make all others look better than perfect: leaving it out promises less, not more.
    excluded = inside or (ratio > 1 and bool(row.devices == devices.min()))
    if row.devices == devices.max():
        return Flag(
            row, f"{_much(ratio)}: a limit reached there, or a bad measurement; {UNTIL}", is_excluded=True
        )
    return Flag(row, _why(ratio, excluded=excluded), is_excluded=excluded)


def _much(ratio: float) -> str:
    times = max(ratio, 1 / ratio)
    much = f"{times - 1:.0%}" if times < 3 else f"{times:.3g} times"
    return f"{much} {'slower' if ratio > 1 else 'faster'} than the other rows foretell"


def _why(ratio: float, *, excluded: bool) -> str:
    text = _much(ratio)
    if excluded:
        return f"{text}: left out of the fit; measure it again"
    return f"{text}: a limit reached there, or a bad measurement; kept in the fit, measure it again"


def _superlinear(series: Series, outliers: set[int]) -> list[Flag]:
    """Sizes that got more than their share of devices faster. An outlier explains its neighbours' jumps."""
    kept = [row for row in series.rows if row.line not in outliers]
    sizes = sorted({row.devices for row in kept})
    middle = {size: median(series.device_time(row) for row in kept if row.devices == size) for size in sizes}
    flags = []
    for small, large in pairwise(sizes):
        gain = middle[small] / middle[large]
        if gain > SUPERLINEAR:
            row = next(row for row in kept if row.devices == large)
            more = f"{gain - 1:.0%} more work per device than at {small} devices"
            why = f"{more}: faster than linear, so something else changed or one of the two is wrong"
            flags.append(Flag(row, why))
    return flags
