"""Slow steps of one series of step times, as found in training logs.

In: seconds, one a step.  Out: median, tail, lost seconds, the steps that stand out, and what comes again or stays:
slow ones at a fixed distance, lengths that grow little by little or have a new level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import Change, find_changes
from tuiadvisor.metrics.series.drift import Drift, find_drift
from tuiadvisor.metrics.steps.arrays import median

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats, Ints

SLOW: Final = 1.25  # of the median: a step worth naming
LOST: Final = 1.05  # of the median: beyond that the excess counts as lost
MIN_TIMES: Final = 4  # as stragglers' MIN_STALLS: three equal distances are hardly chance
MIN_STEPS: Final = 8  # fewer have no median worth its name


@dataclass(frozen=True, slots=True)
class SlowSteps:
    """Seconds. slow: (index, seconds) of steps longer than 1.25 medians."""

    num_steps: int
    median_s: float
    p95_s: float
    max_s: float
    variation: float  # standard deviation / mean
    lost_s: float
    slow: tuple[tuple[int, float], ...]


def slow_steps(step_s: Floats) -> SlowSteps | None:
    """What stands out; None when there are too few steps for a median to mean anything."""
    if step_s.size < MIN_STEPS:
        return None
    usual_s = median(step_s)
    over = step_s > LOST * usual_s
    return SlowSteps(
        num_steps=int(step_s.size),
        median_s=usual_s,
        p95_s=float(np.sort(step_s)[int(0.95 * step_s.size)]),
        max_s=float(step_s.max()),
        variation=float(step_s.std() / step_s.mean()),
        lost_s=float((step_s[over] - usual_s).sum()),
        slow=tuple((int(i), float(step_s[i])) for i in np.flatnonzero(step_s > SLOW * usual_s)),
    )


@dataclass(frozen=True, slots=True)
class Course:
    """What of a series comes again or stays; drift: seconds; change: its index is one of the series."""

    period: int | None  # every so many steps one is slow
    drift: Drift | None
    change: Change | None  # the last one, where no drift explains it


def course(step_s: Floats, number: Ints) -> Course:
    """number: of each step, rising. Nothing of a series that is too short for `slow_steps`."""
    found = slow_steps(step_s)
    if found is None:
        return Course(None, None, None)
    gaps = np.diff(number[[at for at, _ in found.slow]])
    is_periodic = gaps.size >= MIN_TIMES - 1 and bool((gaps == gaps[0]).all()) and gaps[0] > 1
    least_s = (LOST - 1) * found.median_s
    drift, changes = find_drift(step_s), find_changes(step_s, least_s)
    if drift is not None and drift.growth_s < least_s:
        drift = None
    if (
        drift is None and len(changes) > 1 and all(change.shift > 0 for change in changes)
    ):  # too few steps for one
        drift = Drift(changes[0].before, changes[-1].after, changes[-1].index - changes[0].index)
    change = changes[-1] if changes and drift is None else None
    return Course(int(gaps[0]) if is_periodic else None, drift, change)
