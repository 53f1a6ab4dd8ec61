"""What pauses that recur, as checkpoints and evaluations do, cost a step: so many events, one more or less.

In: the steps of two runs.  Out: the interval of every step, pauses included, where in both runs they come at regular
distances or not at all. A draw of single steps takes them for chance, of which ten say next to nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tuiadvisor.advisor.steps.step_series import StepSeries
    from tuiadvisor.views.comparison import Change

MIN_EVENTS: Final = 5  # chosen: of fewer it is not known that they recur
MOST_UNEVEN: Final = 0.1  # of the mean distance, standard deviation of the distances: chosen
NUM_STANDARD_ERRORS: Final = 2.0  # of the mean length of so many


@dataclass(frozen=True, slots=True)
class Pauses:
    """Of a step, in seconds."""

    cost_s: float
    off_s: float  # where the recording begins and ends within a period, and by how pauses differ


def recurring(series: StepSeries) -> Pauses | None:
    """None where they do not come at regular distances; what is long before the first steady step is no pause."""
    steady = np.flatnonzero(series.steady_K)
    if not steady.size:
        return None
    step_s, is_pause = series.step_s_K[steady[0] :], ~series.steady_K[steady[0] :]
    starts = np.flatnonzero(is_pause & ~np.append(False, is_pause[:-1]))
    if not starts.size:
        return Pauses(0.0, 0.0)
    distances = np.diff(starts)
    if starts.size < MIN_EVENTS or distances.std() > MOST_UNEVEN * distances.mean():
        return None
    beyond = np.where(is_pause, step_s - step_s[~is_pause].mean(), 0.0)
    sizes = np.add.reduceat(beyond, starts)
    num, num_steps = starts.size, step_s.size
    off_s = float(sizes.mean() + NUM_STANDARD_ERRORS * sizes.std() * math.sqrt(num)) / num_steps
    return Pauses(float(sizes.sum()) / num_steps, off_s)


def narrowed(every: Change, steady: Change, pair: tuple[StepSeries, StepSeries], floor: float) -> Change:
    """The change of every step with the narrower one of its intervals. floor: what runs of the same code differ by."""
    found = [recurring(series) for series in pair]
    if None in found or every.ratio is None or every.low is None or every.high is None:
        return every
    if steady.ratio is None or steady.low is None or steady.high is None:
        return every
    reach = max(math.log(steady.high / steady.ratio), math.log(steady.ratio / steady.low))
    reach += sum(
        one.off_s / float(series.step_s_K.mean()) for one, series in zip(found, pair, strict=True) if one
    )
    low, high = max(every.low, every.ratio * math.exp(-reach)), min(every.high, every.ratio * math.exp(reach))
    return replace(every, low=low, high=high, significant=low > 1 + floor or high < 1 / (1 + floor))
