"""Garbage that ranks collect at different steps: each time one does, all others wait for it.

In: work between barriers and seconds of Python's collector, R ranks x K steps.  Out: seconds lost a step, gone if all
collected at the same steps, None where no collection was observed, or one rank alone collects (a straggler).
Source: What-if analysis (OSDI'25, unplanned garbage collection of ranks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.what_if import Gain, gain, of_events
from tuiadvisor.metrics.window.rotating import MAX_SHARE_OF_ONE

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats

LARGE: Final = 0.5  # of the largest loss of a step; chosen: smaller ones are the small collections in between
MIN_EVENTS: Final = 4  # steps in which the others waited: fewer are pauses


@dataclass(frozen=True, slots=True)
class CollectionLoss:
    """length_s: typical collection that the others waited for; num_steps: of the steps in which they did."""

    gain: Gain
    length_s: float
    num_steps: int


def collection_loss(
    work_RK: Floats, gc_s_RK: Floats, cycle_K: Floats, follows_K: Bools
) -> CollectionLoss | None:
    """What unaligned collections cost; arrays R x K seconds, no NaN. follows_K: the step right after the one before.

    What follows a barrier delays the next arrival, so the step before counts too. A thread that is ahead of its device
    hides a collection: only what makes a rank later than one in time is lost.
    """
    num_ranks, num_steps = work_RK.shape
    if num_ranks < 2 or num_steps < 2:
        return None
    gc_RK = gc_s_RK.copy()
    gc_RK[:, 1:] = np.maximum(gc_RK[:, 1:], np.where(follows_K[1:], gc_s_RK[:, :-1], 0.0))
    place = (num_ranks - 1) // 4
    # What all collect in every step makes nobody late.
    gc_RK = np.maximum(gc_RK - np.partition(gc_RK, place, axis=0)[place], 0.0)
    in_time_K = np.partition(work_RK, place, axis=0)[place]
    healed_RK = work_RK - np.minimum(gc_RK, np.maximum(work_RK - in_time_K, 0.0))
    loss_K = work_RK.max(axis=0) - healed_RK.max(axis=0)
    by_row = np.bincount(np.argmax(work_RK, axis=0), weights=loss_K, minlength=num_ranks)
    total = float(loss_K.sum())
    waited_K = loss_K > 0
    large_K = loss_K >= LARGE * float(loss_K.max(initial=0.0))
    if total <= 0 or int(large_K.sum()) < MIN_EVENTS or float(by_row.max()) > MAX_SHARE_OF_ONE * total:
        return None
    # The collector itself was seen in each of them: how many will come is all that chance has a part in.
    begins_K = large_K & ~np.append(False, large_K[:-1])
    what_if = of_events(gain(cycle_K, np.minimum(loss_K, cycle_K)), int(begins_K.sum()))
    return CollectionLoss(what_if, float(np.median(loss_K[large_K & waited_K])), int(large_K.sum()))
