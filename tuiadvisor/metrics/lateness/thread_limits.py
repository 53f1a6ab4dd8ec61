"""What training threads take for a step by themselves: however fast its devices are, a step takes no less.

In: StepTable of device times, what each thread waits for data, seconds of its steps.  Out: ThreadLimits. A thread that
launches ahead reads its next batch and launches while its device still works. Behind a late rank that hides what limits
the step next; and a late device that is idle for data as well is not what its step waits for. How long a thread takes
by itself shows in steps in which it neither waits for its device nor for room in its queue: they are shorter than the
device's, and as long as each other. Those that wait now more, now less, are of any length. Where a thread has none its
wait for data alone is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import medians, row_mean
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.steps.step_table import StepTable

MIN_IDLE: Final = 0.02  # of a step, as rule straggler's worth_a_word: less is its noise
MIN_HIDDEN: Final = 0.05  # of a step, as verdict's MIN_NEXT_SHARE: less comes next to nothing
# Percentiles of a thread's steps, between which they are alike if those are free of waits: as where one in ten looks
# at the loss, or the queue is full after two of ten.
FREE_QUANTILES: Final = (5, 25)
MAX_UNLIKE: Final = 0.05  # of the higher one. Measured: free ones 0.3 to 1.6 %, behind full queues 16 to 19 %
MAX_FREE: Final = (
    0.9  # of the same percentile of the devices' steps. Chosen: nearer, and a thread waits in each
)
LAST_STEPS: Final = 64  # that are looked at, as of devices


@dataclass(frozen=True, slots=True)
class ThreadLimit:
    """Of those threads the one that takes longest."""

    step_s: float  # a step, at least
    data_s: float  # of it, that it waits for data
    is_open: bool  # what one of them does behind its device was not seen whole: it may take longer


@dataclass(frozen=True, slots=True)
class ThreadLimits:
    """Of each rank, by row of the table; NaN where it was not seen. Seconds a step."""

    data_s_R: Floats  # that the thread waits for data
    own_s_R: Floats  # that it takes in steps in which it waits for nobody
    idle_s_R: Floats  # that its device has no work while it waits for data
    is_idle_R: Bools  # whether that is so in most steps: the thread is what its device waits for
    idle_K: Floats  # that no device has work meanwhile, in each step
    step_s: float  # of the job

    def of(self, rows: Ints) -> ThreadLimit | None:
        """None where nobody saw one of them."""
        waits_s = self.data_s_R[rows]
        if not np.isfinite(waits_s).any():
            return None
        waits_s = np.where(np.isfinite(waits_s), waits_s, 0.0)
        own_s = self.own_s_R[rows]
        least_s = np.fmax(waits_s, own_s)
        longest = int(least_s.argmax())
        is_hiding = waits_s - np.nan_to_num(self.idle_s_R[rows]) >= MIN_HIDDEN * self.step_s
        return ThreadLimit(
            float(least_s[longest]), float(waits_s[longest]), bool((is_hiding & np.isnan(own_s)).any())
        )

    def with_launches(self, free_R: Bools, launch_s_R: Floats) -> ThreadLimits:
        """With what free threads, which wait for no queue, take to read and to launch; seconds a step of each row."""
        reads_s_R = np.nan_to_num(self.data_s_R) + launch_s_R
        return replace(self, own_s_R=np.where(free_R & np.isnan(self.own_s_R), reads_s_R, self.own_s_R))

    def is_bound(self, row: int) -> bool:
        """Whether a row's thread waits for data for long while its device works, and yet this is idle for data."""
        hidden_s = float(self.data_s_R[row] - self.idle_s_R[row])
        return bool(self.is_idle_R[row]) and hidden_s >= MIN_HIDDEN * self.step_s

    def leave(self, rows: Ints, late: Iterable[int], step_s: float) -> bool:
        """Whether a step of these rows may take so few seconds once the late ones are like the others."""
        limit = self.of(rows)
        return not any(map(self.is_bound, late)) and (limit is None or limit.step_s <= step_s)


def thread_limits(
    table: StepTable, rows: Ints, cycle_K: Floats, data_s_R: Floats, step_s_RN: Floats
) -> ThreadLimits | None:
    """What the threads of these rows take by themselves.

    table: of the steps that are compared, cycle_K: their seconds by the devices. data_s_R: a step, that each row's
    thread waits for data. step_s_RN: of each of these rows' latest steps.
    """
    if not cycle_K.size or not rows.size:
        return None
    idle_RK = table.phase_s_PRK[PHASE_INDEX["data_wait"]]
    step_s = float(cycle_K.mean())
    own_s_R = np.full(table.num_ranks, np.nan)
    own_s_R[rows] = _free_s(step_s_RN, float(np.percentile(cycle_K, FREE_QUANTILES[1])))
    return ThreadLimits(
        data_s_R=data_s_R,
        own_s_R=own_s_R,
        idle_s_R=row_mean(idle_RK),
        is_idle_R=medians(np.nan_to_num(idle_RK), 1) >= MIN_IDLE * step_s,
        idle_K=np.nan_to_num(idle_RK[rows]).min(axis=0),
        step_s=step_s,
    )


def _free_s(step_s_RN: Floats, device_s: float) -> Floats:
    """Seconds of a step in which a thread waits for nobody, of each row; NaN where it has none, or too few."""
    if not step_s_RN.shape[1]:
        return np.full(step_s_RN.shape[0], np.nan)
    known_R = np.isfinite(step_s_RN).sum(axis=1)
    # What is not known comes last.
    ascending_RN, row = np.sort(step_s_RN, axis=1), np.arange(known_R.size)
    low_R, own_s_R = (
        ascending_RN[row, np.maximum(known_R - 1, 0) * quantile // 100] for quantile in FREE_QUANTILES
    )
    is_free_R = (own_s_R <= MAX_FREE * device_s) & (own_s_R - low_R <= MAX_UNLIKE * own_s_R)
    return np.where(is_free_R, own_s_R, np.nan)
