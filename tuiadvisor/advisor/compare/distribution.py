"""How the steps of two runs are distributed over their lengths, on one scale.

In: durations of each run's steps, pauses included.  Out: StepDistribution; None where a run has no step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.views.comparison import DistributionSide, StepDistribution

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats

NUM_BINS: Final = 64
MARGIN: Final = 0.15  # of the range, on either side: the first and the last bar stand free
# One checkpoint of seconds would leave all steps in one bin: what is beyond is counted, not drawn (presentation alone).
LARGEST_PERCENT: Final = 95
MIDDLE: Final = (5, 25, 50, 75, 95)


def distribution(before: Floats, after: Floats) -> StepDistribution | None:
    """Shares of each run's steps in bins of equal width that are the same for both."""
    if not before.size or not after.size:
        return None
    least = min(float(before.min()), float(after.min()))
    most = max(float(np.percentile(each, LARGEST_PERCENT)) for each in (before, after))
    room = max(most - least, 1e-3 * most) * MARGIN
    edges = np.linspace(max(least - room, 0.0), most + room, NUM_BINS + 1)
    return StepDistribution(float(edges[0]), float(edges[-1]), _side(before, edges), _side(after, edges))


def _side(step_s: Floats, edges: Floats) -> DistributionSide:
    counts, _ = np.histogram(step_s, edges)
    beyond = step_s[step_s > edges[-1]]
    return DistributionSide(
        shares=tuple((counts / step_s.size).tolist()),
        beyond=float(beyond.size / step_s.size),
        longest_s=float(step_s.max()),
        quantiles_s=tuple(float(value) for value in np.percentile(step_s, MIDDLE)),
    )
