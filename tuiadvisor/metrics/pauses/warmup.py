"""The slow first steps of a run: compilation, allocation, cold caches.

In: seconds a step, median over ranks, from the first step ever seen.  Out: Warmup, None where there is none. Steps that
are slow for long and then fast from one to the next are no warm-up: the run became faster there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import median, medians

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats

WARMUP_FACTOR: Final = 1.5  # slower than this times the later median is not steady yet
WARMUP_SPIKE: Final = 3.0  # a single first step this slow is a warm-up of one step
MIN_STEPS_TO_TELL: Final = 12  # with fewer the median is one of the warm-up itself
MAX_LEVEL_STEPS: Final = 20  # a level held for longer is one of its own (the rules call it settled then) ...
MAX_DROP: Final = 0.5  # ... if so much of what is slow goes at once; warming up, it goes little by little
NEAR_STEPS: Final = 8  # on either side, whose medians are the two levels


@dataclass(frozen=True, slots=True)
class Warmup:
    """Slow first steps."""

    num_steps: int
    loss_s: float  # beyond what the same steps take later
    steady_step_s: float


def find_warmup(step_K: Floats, compiling_K: Bools) -> Warmup | None:
    """Slow first steps of a run watched from its beginning; NaN where a step is not known."""
    known = np.isfinite(step_K)
    values = step_K[known]
    if values.size < MIN_STEPS_TO_TELL:
        return None
    later = median(values[values.size // 2 :])
    if later <= 0:
        return None
    length = _slow_steps(values, later)
    if MAX_LEVEL_STEPS < length < values.size - NEAR_STEPS and _ends_at_once(values, length, later):
        return find_warmup(values[:length], compiling_K[known][:length])
    for at in np.flatnonzero(compiling_K[known]).tolist():
        if at <= length + (MAX_LEVEL_STEPS if length else 0):  # a later one is a pause of its own
            length = max(length, at + 1)
    if length == 0 or length > values.size // 2:
        return None
    loss_s = float((values[:length] - later).sum())
    if loss_s <= (WARMUP_FACTOR - 1) * later:
        return None
    return Warmup(length, loss_s, later)


def _slow_steps(values: Floats, later: float) -> int:
    """How many steps pass until three on end are as fast as later ones; single fast or slow steps do not count."""
    padded = np.concatenate((values[:1], values, values[-1:]))
    smooth = medians(np.stack((padded[:-2], padded[1:-1], padded[2:])), 0)
    fast = smooth <= WARMUP_FACTOR * later
    settled = np.flatnonzero(fast[:-2] & fast[1:-1] & fast[2:])
    length = int(settled[0]) if settled.size else values.size
    return 1 if length == 0 and values[0] > WARMUP_SPIKE * later else length


def _ends_at_once(values: Floats, length: int, later: float) -> bool:
    drop = median(values[length - NEAR_STEPS : length]) - median(values[length : length + NEAR_STEPS])
    return drop >= MAX_DROP * (median(values[:length]) - later)
