"""The job's whole history in a bounded number of buckets: what a sparkline shows.

In: durations of job steps as they arrive.  Out: mean step per bucket. When all buckets are used, neighbours are
merged and each bucket stands for twice as many steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import UNKNOWN
from tuiadvisor.views.run_view import Trend

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.metrics.steps.step_table import StepTable

NUM_BUCKETS: Final = 240
MAX_STEP: Final = 1 << 50
NS: Final = 10**9
STEPS_AS_GOOD: Final = 32
MAX_GAPS: Final = 0.1  # of the buckets


class TrendHistory:
    """Mutable: add steps, ask for a Trend."""

    def __init__(self) -> None:
        self.first_step: int | None = None
        self.steps_per_bucket = 1
        # Whole numbers, so that the order in which steps come does not show in the last digit of a mean.
        self._seconds = np.zeros(NUM_BUCKETS, dtype=np.int64)
        self._rest_ns = np.zeros(NUM_BUCKETS, dtype=np.int64)
        self._counts = np.zeros(NUM_BUCKETS, dtype=np.int64)

    def add(self, job_steps: Ints, durations_ns: Ints) -> None:
        """Steps of any ranks, in any order; steps before the first one ever added are left out.

        One whose duration is UNKNOWN has its place and no length: the run begins with it.
        """
        if job_steps.size == 0:
            return
        if self.first_step is None:
            self.first_step = int(job_steps[0])
        relative = job_steps - self.first_step
        known = (relative >= 0) & (relative < MAX_STEP) & (durations_ns != UNKNOWN)
        relative, durations_ns = relative[known], durations_ns[known]
        if relative.size == 0:
            return
        while int(relative.max()) // self.steps_per_bucket >= NUM_BUCKETS:
            self.merge()
        bucket = relative // self.steps_per_bucket
        seconds, rest_ns = np.divmod(durations_ns, NS)
        self._seconds += np.bincount(bucket, weights=seconds, minlength=NUM_BUCKETS).astype(np.int64)
        self._rest_ns += np.bincount(bucket, weights=rest_ns, minlength=NUM_BUCKETS).astype(np.int64)
        self._counts += np.bincount(bucket, minlength=NUM_BUCKETS)

    @property
    def gap_share(self) -> float:
        """Share of the buckets from the first with a step to the newest in which no step was seen."""
        used = np.flatnonzero(self._counts)
        return 1 - used.size / int(used[-1] - used[0] + 1) if used.size else 0.0

    def merge(self) -> None:
        """Each bucket stands for twice as many steps."""
        half = NUM_BUCKETS // 2
        for values in (self._seconds, self._rest_ns, self._counts):
            values[:half] = values.reshape(half, 2).sum(axis=1)
            values[half:] = 0
        self.steps_per_bucket *= 2

    def trend(self, axis_shift: int, marks: tuple[tuple[int, str], ...]) -> Trend:
        """One value a bucket up to the newest one; None where no step was seen."""
        used = int(np.flatnonzero(self._counts)[-1]) + 1 if self._counts.any() else 0
        totals = self._seconds[:used] + self._rest_ns[:used] * 1e-9
        means = [
            float(total) / int(count) if count else None
            for total, count in zip(totals, self._counts[:used], strict=True)
        ]
        return Trend(
            first_step=(self.first_step or 0) - axis_shift,
            steps_per_bucket=self.steps_per_bucket,
            step_s=tuple(means),
            throughput_steps_s=tuple(1 / mean if mean else None for mean in means),
            marks=marks,
        )


def of_steps(table: StepTable, steps: tuple[int, int], marks: tuple[tuple[int, str], ...]) -> Trend:
    """The steps of a table within these bounds, on the clock of the table."""
    history = TrendHistory()
    history.first_step = steps[0]
    rank, column = np.nonzero(table.is_whole_RK)
    job_steps = table.steps_of(column)
    inside = (job_steps >= steps[0]) & (job_steps <= steps[1])
    seconds = table.step_s_RK[rank[inside], column[inside]]
    history.add(job_steps[inside], np.rint(seconds * NS).astype(np.int64))
    return history.trend(0, tuple(mark for mark in marks if steps[0] <= mark[0] <= steps[1]))


def of_devices(
    timed: StepTable, history: TrendHistory, axis_shift: int, marks: tuple[tuple[int, str], ...]
) -> Trend | None:
    """The measured steps by the devices' clocks; None where the history's buckets are long enough to be as good.

    From the run's first step on, of which there may be no measure. A thread that runs ahead has short steps and one
    that waits for all of them: only many together are as long as on the device. axis_shift: as of `TrendHistory.trend`.
    """
    if history.steps_per_bucket >= STEPS_AS_GOOD or not timed.num_steps:
        return None
    measured = TrendHistory()
    if history.first_step is not None:
        measured.first_step = history.first_step - axis_shift
    rank, column = np.nonzero(timed.is_whole_RK)
    order = np.argsort(column, kind="stable")
    steps = timed.steps_of(column[order])
    measured.add(steps, np.rint(timed.step_s_RK[rank[order], column[order]] * NS).astype(np.int64))
    while measured.gap_share > MAX_GAPS and measured.steps_per_bucket < STEPS_AS_GOOD:
        measured.merge()
    return measured.trend(0, marks)


def until(trend: Trend, step: int) -> Trend:
    """The trend without the buckets and marks that begin after a step."""
    used = max((step - trend.first_step) // trend.steps_per_bucket + 1, 0)
    return replace(
        trend,
        step_s=trend.step_s[:used],
        throughput_steps_s=trend.throughput_steps_s[:used],
        marks=tuple(mark for mark in trend.marks if mark[0] <= step),
    )
