"""The whole run in buckets that grow with age: how long its steps took long ago, and what of them.

In: records of steps as they are aligned, in any order.  Out: RunCourse. A view looks at the newest 256 to 2,048 steps
in full; what happened before those, or grows too slowly for them, shows only here. The newest steps lie in buckets of
BASE steps; of each size there are SHARE to twice as many, and then the older half of them is merged in pairs, so that
a bucket is never longer than a small part of its age. Sums of whole numbers: the order of the steps does not show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import StepFlag
from tuiadvisor.metrics.window.course import RunCourse
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Ints

COURSE_RANKS: Final = 64  # the first ones heard of stand for all: what all ranks have in common shows in them
PART_PHASES: Final = tuple(name for name in PHASES if name != "other")  # which is what they leave of a step
# Rows of what is added, beside each record's job step.
PARTS: Final = ("begin_ns", "end_ns", *(f"{name}_ns" for name in PART_PHASES), "samples", "tokens")
BASE: Final = 32  # steps: on a device only so many together are as long as the threads' clocks say
SHARE: Final = 32  # buckets of one size, at least
MOST: Final = 1 << 37  # of one record: whatever is told, sums of them stay numbers
US: Final = 1000  # ns: sums of microseconds stay whole numbers for as long as anybody trains
SECONDS: Final = 1e-6
UNLIKE: Final = (  # steps that are made of something else than the usual ones
    StepFlag.FIRST | StepFlag.COMPILE | StepFlag.CHECKPOINT | StepFlag.EVAL | StepFlag.CAPTURE
)
_NUM: Final = len(PARTS) - 1  # the step, its phases, samples, tokens


class CourseHistory:
    """Mutable: add records, ask for a RunCourse."""

    def __init__(self) -> None:
        self._origin: int | None = None  # job step of the first bucket
        self._bounds = np.zeros(1, dtype=np.int64)  # where buckets begin, counted from there, and the end
        self._sums = np.zeros((_NUM, 0), dtype=np.int64)
        self._counts = np.zeros((_NUM, 0), dtype=np.int64)

    def add(self, job_steps: Ints, parts: Ints) -> None:
        """Records of any ranks; parts: PARTS x as many. Those before the first one ever added are left out."""
        if job_steps.size == 0:
            return
        if self._origin is None:
            self._origin = int(job_steps.min()) // BASE * BASE
        relative = job_steps - self._origin
        if relative.min() < 0:
            known = relative >= 0
            relative, parts = relative[known], parts[:, known]
            if relative.size == 0:
                return
        self._grow(int(relative.max()))
        bucket = np.searchsorted(self._bounds, relative, side="right") - 1
        values = np.concatenate(((parts[1] - parts[0])[None] // US, parts[2:-2] // US, parts[-2:]))
        np.minimum(values, MOST, out=values)
        is_told = parts[1:] >= 0
        place = (np.arange(_NUM)[:, None] * self._counts.shape[1] + bucket)[is_told]
        sums = np.bincount(place, weights=values[is_told], minlength=self._sums.size)
        self._sums += sums.astype(np.int64).reshape(_NUM, -1)
        self._counts += np.bincount(place, minlength=self._counts.size).reshape(_NUM, -1)

    def _grow(self, last: int) -> None:
        """Buckets up to this step."""
        if last < self._bounds[-1]:
            return
        bounds = bounds_of(last // BASE + 1)
        if self._bounds.size > 1:
            place = np.searchsorted(bounds, self._bounds[:-1], side="right") - 1
            first = np.flatnonzero(np.diff(place, prepend=-1))
            self._sums = _together(self._sums, first, place[first], bounds.size - 1)
            self._counts = _together(self._counts, first, place[first], bounds.size - 1)
        else:
            self._sums = np.zeros((_NUM, bounds.size - 1), dtype=np.int64)
            self._counts = np.zeros_like(self._sums)
        self._bounds = bounds

    def course(self, axis_shift: int, first_step: int, last_step: int) -> RunCourse:
        """The buckets that lie within these job steps, as the axis counts them, but for the newest one of all."""
        bounds = self._bounds + ((self._origin or 0) - axis_shift)
        inside = np.flatnonzero((bounds[:-1] >= first_step) & (bounds[1:] <= last_step + 1))
        inside = inside[inside < self._counts.shape[1] - 1]
        counts = self._counts[:, inside]
        means = self._sums[:, inside] / np.where(counts > 0, counts, np.nan)
        means[:-2] *= SECONDS
        phases = np.full((len(PHASES), inside.size), np.nan)
        phases[[PHASES.index(name) for name in PART_PHASES]] = means[1:-2]
        phases[PHASES.index("other")] = np.maximum(means[0] - np.nansum(means[1:-2], axis=0), 0.0)
        return RunCourse(bounds[inside], bounds[inside + 1], means[0], phases, means[:-3:-1])


def bounds_of(num_base: int) -> Ints:
    """Where the buckets of so many times BASE steps begin, and the end: the oldest and largest first.

    Of each size the older SHARE of twice as many have become half as many of twice the size.
    """
    widths: list[int] = []
    numbers: list[int] = []
    width, num = BASE, num_base
    while num:
        num_merged = max(num // SHARE - 1, 0) * SHARE
        widths.append(width)
        numbers.append(num - num_merged)
        width, num = 2 * width, num_merged // 2
    return np.concatenate(([0], np.cumsum(np.repeat(widths[::-1], numbers[::-1]))))


def _together(values: Ints, first: Ints, place: Ints, num: int) -> Ints:
    """The sums of those from each first one to the next, at their places among so many."""
    result = np.zeros((values.shape[0], num), dtype=np.int64)
    result[:, place] = np.add.reduceat(values, first, axis=1)
    return result
