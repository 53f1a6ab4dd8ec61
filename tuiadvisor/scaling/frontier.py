"""How far it pays to go: the sizes at which a fitted curve crosses the user's limits.

In: a series, its laws, the Aim.  Out: the last size within the efficiency floor, the last one whose next hour
saved is worth its price, and the size beyond which the run gets slower. None: not crossed up to REACH x the largest
measured size, where the laws say nothing anybody should act on.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.scaling.cost import Aim, cost, hours
from tuiadvisor.scaling.efficiency import baseline

if TYPE_CHECKING:
    from tuiadvisor.scaling.choose import Choice
    from tuiadvisor.scaling.series import Series

REACH: Final = 16  # times the largest measured size: beyond it nobody should act on what was measured
POINTS: Final = 200


@dataclass(frozen=True, slots=True)
class Frontier:
    """Device counts; None: not crossed within REACH x the largest measured size, or nothing to compare with."""

    efficiency_floor: int | None
    price_of_time: int | None
    fastest: int | None


def frontier(series: Series, choice: Choice, aim: Aim) -> Frontier:
    """The three crossings of the fitted curve, from the smallest measured size up."""
    ends = series.sizes[0], series.sizes[-1] * REACH
    sizes = np.unique(np.round(np.geomspace(*ends, POINTS)))
    device_time = choice.device_time(sizes)
    share = baseline(series) / device_time
    devices = [int(size) for size in sizes]
    times = [float(work) / series.factor(size) for work, size in zip(device_time, devices, strict=True)]
    pace = device_time / sizes  # time of the same work
    return Frontier(
        efficiency_floor=_last(devices, [bool(value >= aim.efficiency_floor) for value in share]),
        price_of_time=_worth(series, aim, devices, times),
        fastest=_last(
            devices, [True, *(bool(later < earlier) for earlier, later in itertools.pairwise(pace))]
        ),
    )


def _worth(series: Series, aim: Aim, devices: list[int], times: list[float]) -> int | None:
    if aim.price_of_time is None:
        return None
    totals = []
    for size, time in zip(devices, times, strict=True):
        hour = hours(series, aim, size, time)
        if hour is None:
            return None
        totals.append(cost(series, aim, size, time) + aim.price_of_time * hour)
    return _last(devices, [True, *(later < earlier for earlier, later in itertools.pairwise(totals))])


def _last(devices: list[int], holds: list[bool]) -> int | None:
    """The last size before the first that fails; None if none fails."""
    if all(holds):
        return None
    return devices[max(holds.index(False) - 1, 0)]
