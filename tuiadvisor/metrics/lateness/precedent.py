"""Whether a rank is later now than any rank was for as long before: what the run's own past says of chance.

In: work between barriers, R ranks x K steps, where the present level begins.  Out: present lateness over the largest
of the past. Other tenants of a machine hold a rank up for 10 or 20 steps at a time: where the past knows no such
stretch, the present one need not be waited out. A past that was quieter on all ranks says as much less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS
from tuiadvisor.metrics.series.recent_noise import growth

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats, Ints

MIN_PAST_STEPS: Final = 60  # a shorter past has seen too little to be unlike anything
MIN_STRETCHES: Final = 4  # as long as the present, in the past
MAX_ROWS: Final = 64  # whose past is looked at


def beyond_past(deviation_RK: Floats, rows: Ints, start: int) -> list[float | None]:
    """For each row its mean lateness since `start` over the largest mean of as many steps on end of any rank before.

    deviation_RK: work beyond the ranks' common level, all steps. None where the past is too short to tell.
    """
    num_ranks, num_steps = deviation_RK.shape
    length = num_steps - start
    if start < max(MIN_PAST_STEPS, MIN_STRETCHES * length) or length < MIN_SEGMENT_STEPS or not rows.size:
        return [None] * rows.size
    others = np.setdiff1d(np.arange(num_ranks), rows)
    looked_at = np.concatenate((rows, others[:: max(1, -(-others.size // MAX_ROWS))]))
    past = deviation_RK[looked_at, :start]
    usual = np.median(past, axis=1, keepdims=True)
    sums = np.cumsum(np.concatenate((np.zeros((looked_at.size, 1)), past - usual), axis=1), axis=1)
    largest_s = float((sums[:, length:] - sums[:, :-length]).max()) / length
    largest_s *= growth(deviation_RK, start)
    if largest_s <= 0:
        return [None] * rows.size
    # The middle of the present steps, so that one long step is no lateness; the past's mean may well hold one.
    now = np.median(deviation_RK[rows, start:], axis=1) - usual[: rows.size, 0]
    return [float(value) / largest_s for value in now]
