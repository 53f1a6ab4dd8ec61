"""What the run as a whole tells of its present pace: steps that became longer before those that are looked at.

In: mean steps of buckets that grow with age.  Out: LevelShift, None where the present steps are as long as earlier
ones. A window of the newest steps forgets: a change of level scrolls out of it, and growth by a tenth in an hour is
none in a minute.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS, find_changes
from tuiadvisor.metrics.series.drift import MIN_PART_STEPS, NUM_PARTS, find_drift
from tuiadvisor.metrics.steps.arrays import median, median_or_none
from tuiadvisor.metrics.window.level_shift import LevelShift
from tuiadvisor.metrics.window.regime import MIN_SHIFT_SHARE, NEW_REGIME_SHARE, ONE_PHASE
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from tuiadvisor.metrics.series.change_points import Change
    from tuiadvisor.metrics.steps.arrays import Floats, Ints

GRID: Final = NUM_PARTS * 16  # even spans of the run in which growth is looked for
COMPARED: Final = 16  # buckets before and after a change
NEWEST: Final = 4  # buckets that have to be on the present level: 128 steps of a short run
AS_LONG: Final = 0.25  # of the present level: an earlier one as slow and so long shows that it comes and goes
HEAD_SHARE: Final = 0.1  # of the step: what is told of the first few buckets alone (Greyhound: above 10 %)
WAITING: Final = ("comm_exposed", "pipeline_idle")  # for other ranks or for the exchange: which was not kept


@dataclass(frozen=True, slots=True)
class RunCourse:
    """B buckets in order, oldest first; seconds; NaN where nothing was seen or told."""

    first_B: Ints  # job step
    end_B: Ints  # the first job step behind it
    step_s_B: Floats  # mean over steps and ranks
    phase_s_PB: Floats
    work_WB: Floats  # tokens a step, samples a step

    @property
    def known(self) -> RunCourse:
        """The buckets with steps in them alone."""
        is_known = np.isfinite(self.step_s_B) & (self.step_s_B > 0)
        return RunCourse(
            self.first_B[is_known],
            self.end_B[is_known],
            self.step_s_B[is_known],
            self.phase_s_PB[:, is_known],
            self.work_WB[:, is_known],
        )


def run_shift(
    course: RunCourse, window_first: int, cycle_K: Floats, *, of_launches: bool
) -> LevelShift | None:
    """How much longer steps are than they were, if that began before the window or grows too slowly for it.

    window_first: job step; cycle_K: the window's steady steps, seconds. of_launches: phases are of threads that
    launch work, which say nothing of the step.
    """
    run = course.known
    if run.step_s_B.size < 2 * MIN_SEGMENT_STEPS or int(run.first_B[0]) >= window_first:
        return None
    found = _gradual(run) or _level(run)
    if found is None:
        return None
    before, after, at, is_gradual = found
    since = int(run.first_B[at])
    growth = median(run.step_s_B[after]) / median(run.step_s_B[before]) - 1
    if growth < NEW_REGIME_SHARE or (since >= window_first and not is_gradual):
        return None
    present_s = median(cycle_K)  # by the window's clock, which leaves pauses out
    phase, cover, waits = (None, 0.0, None) if of_launches else _grown_phase(run, before, after)
    return LevelShift(
        since_step=since,
        before_s=present_s / (1 + growth),
        after_s=present_s,
        phase=phase,
        cover=cover,
        num_steps=int(run.end_B[-1]) - since,
        is_gradual=is_gradual,
        work_growth=_work_growth(run, before, after),
        within=int(run.end_B[at] - run.first_B[at]),
        waits=waits,
    )


def _gradual(run: RunCourse) -> tuple[slice, slice, int, bool] | None:
    """(the first and the last part of the run, 0, True) where steps grow little by little."""
    if run.step_s_B.size < NUM_PARTS * MIN_PART_STEPS or find_drift(_evenly(run)) is None:
        return None
    begin, end = int(run.first_B[0]), int(run.end_B[-1])
    span = (end - begin) // NUM_PARTS
    first = int(np.searchsorted(run.first_B, begin + span))
    last = int(np.searchsorted(run.first_B, end - span))
    return slice(0, max(first, 1)), slice(min(last, run.first_B.size - 1), None), 0, True


def _evenly(run: RunCourse) -> Floats:
    """Mean step of each of GRID even spans; the old buckets are longer than the new ones."""
    size_B = run.end_B - run.first_B
    done = np.concatenate(([0.0], np.cumsum(size_B * run.step_s_B)))
    at = np.concatenate(([0], np.cumsum(size_B)))  # spans without a step left out
    grid = np.linspace(0, at[-1], GRID + 1)
    return np.asarray(np.diff(np.interp(grid, at, done)) / np.diff(grid))


def _level(run: RunCourse) -> tuple[slice, slice, int, bool] | None:
    """(the buckets before, the newest, where they change, False) for the change that steps have grown by most since.

    Not of a run that was as slow before: that comes and goes, or has come back to what it was.
    """
    values = run.step_s_B
    changes = find_changes(values, MIN_SHIFT_SHARE * median(values))
    edges = [0, *(change.index for change in changes), values.size]
    levels = [median(values[begin:end]) for begin, end in itertools.pairwise(edges)]
    newest = slice(max(edges[-2], values.size - COMPARED), None)
    present = median(values[newest])
    staying = [
        number
        for number, change in enumerate(changes)
        if change.shift > 0
        and _stays(change, levels[number + 1 :], values, present)
        and not _is_more_work(run, edges[number : number + 3], levels[number + 1] / levels[number] - 1)
    ]
    if not staying:
        found = _head(values)
        return None if found is None else (slice(0, found), newest, found, False)
    number = min(staying, key=lambda number: levels[number])
    middle = (levels[number] + present) / 2
    at = _edge(values, edges[number], edges[number + 1], middle)
    begin, end = run.first_B, run.end_B
    least = AS_LONG * int(end[-1] - begin[at])
    as_slow = [
        int(end[stop - 1] - begin[start])
        for (start, stop), level in zip(
            itertools.pairwise(edges[: number + 2]), levels[:number], strict=False
        )
        if level >= middle
    ]
    if any(steps >= least for steps in as_slow):
        return None
    return slice(max(edges[number], at - COMPARED), at), newest, at, False


def _stays(change: Change, later: list[float], values: Floats, present: float) -> bool:
    """Whether no level since, and not the newest steps, are nearer to what it was before."""
    middle = (change.before + present) / 2
    return present > change.before and min([*later, median(values[-NEWEST:])]) >= middle


def _is_more_work(run: RunCourse, edges: list[int], growth: float) -> bool:
    """Whether steps became longer there for holding more tokens or samples; edges: of the levels on both sides."""
    before = slice(max(edges[0], edges[1] - COMPARED), edges[1])
    after = slice(edges[1], min(edges[2], edges[1] + COMPARED))
    return (_work_growth(run, before, after) or 0.0) >= ONE_PHASE * growth


def _edge(values: Floats, begin: int, at: int, middle: float) -> int:
    """Where the series passes the middle next to a change: near its ends a change is not seen where it is.

    begin: of the level before, of which at least one bucket stays.
    """
    while at > begin + 1 and values[at - 1] >= middle:
        at -= 1
    while at < values.size - NEWEST and values[at] < middle:
        at += 1
    return at


def _head(values: Floats) -> int | None:
    """How many buckets at the beginning, too few for a level, were quicker than all that came after them."""
    rest = median(values[MIN_SEGMENT_STEPS:])
    at = int(np.argmax(values >= (float(values[0]) + rest) / 2))
    first = median(values[: max(at, 1)])
    middle = (first + rest) / 2
    is_over = 0 < at < MIN_SEGMENT_STEPS and rest >= (1 + HEAD_SHARE) * first
    return at if is_over and bool((values[at:] >= middle).all()) else None


def _grown_phase(run: RunCourse, before: slice, after: slice) -> tuple[str | None, float, float | None]:
    """(phase that grew most, share of the growth that it holds, share in which ranks wait)."""
    growth = {}
    for name, values_B in zip(PHASES, run.phase_s_PB, strict=True):
        old, new = median_or_none(values_B[before]), median_or_none(values_B[after])
        if old is not None and new is not None:
            growth[name] = max(new - old, 0.0)
    grown = sum(growth.values())
    if grown <= 0:
        return None, 0.0, None
    phase = max(growth, key=lambda name: growth[name])
    waits = sum(growth.get(name, 0.0) for name in WAITING) / grown
    return (None, 0.0, waits) if phase in WAITING else (phase, growth[phase] / grown, waits)


def _work_growth(run: RunCourse, before: slice, after: slice) -> float | None:
    """By what share a step has more tokens, or samples where these were not told at both times."""
    for work_B in run.work_WB:
        old, new = median_or_none(work_B[before]), median_or_none(work_B[after])
        if old and new:
            return new / old - 1
    return None
