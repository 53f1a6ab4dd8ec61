"""Efficiency and Karp-Flatt of measured rows, relative to the smallest size of their series.

strong N0·T0/(N·T), weak T0/T: both are W0/W in device-time per unit of work.
Karp-Flatt e = (1/S - 1/p)/(1 - 1/p), p = N/N0: a rising e is overhead that grows with the devices.
Sources: textbook; Karp & Flatt 1990.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.scaling.series import Series


def baseline(series: Series) -> float:
    """Device-time per unit of work at the smallest size; the median when it was measured several times."""
    smallest = series.rows[0].devices
    return median(series.device_time(row) for row in series.rows if row.devices == smallest)


def efficiency(series: Series, device_time: float) -> float:
    """1 at the smallest size, below it when devices are lost to overhead."""
    return baseline(series) / device_time


def row_efficiency(series: Series, device_time: float) -> float | None:
    """The same for a measured row; None where its series has one size, so that there is nothing to compare with."""
    return efficiency(series, device_time) if series.can_fit else None


def karp_flatt(share: float | None, devices: int, smallest: int) -> float | None:
    """The serial fraction a row alone implies from its efficiency; None at the smallest size, not defined there."""
    if share is None or devices <= smallest:
        return None
    p = devices / smallest
    speedup = share * p
    return (1 / speedup - 1 / p) / (1 - 1 / p)
