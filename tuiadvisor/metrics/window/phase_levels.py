"""Phases that became longer or shorter on all ranks alike, whether or not the step did.

In: StepTable, the columns compared, transfer.  Out: verified changes of level by phase. A loader that slows down while
the model speeds up leaves the step as long as it was: only the phases' own series show that something else begins.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor import phases
from tuiadvisor.metrics.series.change_points import Change, find_changes
from tuiadvisor.metrics.series.mean_shift import find_mean_changes
from tuiadvisor.metrics.steps.arrays import Floats, Ints, medians
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX
from tuiadvisor.metrics.window.waves import job_comes_and_goes, new_levels

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.held_steps import HeldSteps
    from tuiadvisor.metrics.steps.step_table import StepTable

# What a rank waits for its neighbours says nothing of itself; the exchange's own part is the transfer.
OWN_PHASES: Final = phases.of_kind("input", "copy", "compute", "rest")
MAX_RANKS: Final = 64  # looked at: enough for what all have in common
ALIKE_SHARE: Final = 0.75  # of the ranks ...
ALIKE_SHIFT: Final = 0.5  # ... show so much of the change
SETTLED_STEPS: Final = (
    20  # measured: another tenant can hold a phase or one rank up for 10 to 19 (rule straggler)
)
SETTLED_S: Final = 1.0  # measured: of steps of 3 ms it does so for 30 to 90, bursts of 0.3 to 0.7 s
COMPARED_STEPS: Final = 64
MANY_LEVELS: Final = 5  # of fewer long ones the interval of their mean reaches down to zero


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """A phase takes another time from a step on, on all ranks; change.index counts the columns given."""

    phase: str
    change: Change


@dataclass(frozen=True, slots=True)
class Settled:
    """The last column at which a level may have begun that lasts until now, to be believed."""

    by_steps: int
    by_time: int  # of a series that changes more than once: a burst of another tenant's is over by then

    def since(self, changes: tuple[Change, ...]) -> int:
        """changes: those of the same series. One alone in all that is held is no restless host."""
        return self.by_steps if len(changes) < 2 else min(self.by_steps, self.by_time)


def settled(span_K: Floats) -> Settled:
    """span_K: seconds that each column stands for: of steps measured now and then those between them, too."""
    since_s_K = np.cumsum(np.nan_to_num(span_K)[::-1])[::-1]
    return Settled(span_K.size - SETTLED_STEPS, int(np.count_nonzero(since_s_K >= SETTLED_S)) - 1)


def alternates(changes: tuple[Change, ...]) -> bool:
    """Whether a series goes up and comes back, again and again: such levels begin nothing new.

    Levels that last are each the present one until there were so many that their mean is known.
    """
    ups = sum(change.shift > 0 for change in changes)
    if ups < 2 or len(changes) == ups:
        return False
    stretches = [later.index - earlier.index for earlier, later in itertools.pairwise(changes)]
    return ups >= MANY_LEVELS or sorted(stretches)[len(stretches) // 2] < SETTLED_STEPS


def common_changes(
    table: StepTable,
    rows: Ints,
    columns: Ints,
    transfer_K: Floats,
    min_shift: float,
    *,
    held: HeldSteps,
    since: Settled,
) -> tuple[PhaseChange, ...]:
    """Settled changes of single phases that all ranks share, in order of their steps.

    rows, columns: of the table, what is compared (no row: all). transfer_K: of these columns, NaN where arrivals are
    not seen. min_shift: seconds; smaller ones are of no interest. since: of `settled`, of these columns.
    """
    if not columns.size:
        return ()
    chosen = rows if rows.size else np.arange(table.num_ranks)
    chosen = chosen[:: max(1, -(-chosen.size // MAX_RANKS))]
    found = []
    for phase in OWN_PHASES:
        values = table.phase_s_PRK[PHASE_INDEX[phase]][np.ix_(chosen, columns)]
        values = values[np.isfinite(values).all(axis=1)]
        if values.shape[0]:
            found += [PhaseChange(phase, change) for change in _settled(values, min_shift, held, since)]
    if np.isfinite(transfer_K).all():
        changes = _settled(transfer_K[None], min_shift, held, since)
        found += [PhaseChange("comm_exposed", change) for change in changes]
    return tuple(sorted(found, key=lambda entry: entry.change.index))


def _settled(values_RK: Floats, min_shift: float, held: HeldSteps, since: Settled) -> list[Change]:
    typical_K = medians(values_RK, 0)
    all_changes = find_changes(typical_K, min_shift)
    if alternates(all_changes) or job_comes_and_goes(all_changes, typical_K.size, held):
        return []
    changes = new_levels(all_changes, typical_K.size)
    if all_changes and not changes:
        return []
    # Long in every third step: no level moves, but the mean does.
    middle = medians if changes else _means
    changes = changes or find_mean_changes(typical_K, min_shift)
    # A restless host may change each of six phases but once.
    latest = min(since.by_steps, since.by_time)
    return [change for change in changes if change.index <= latest and _is_common(values_RK, change, middle)]


def onset(series_K: Floats, min_shift: float) -> int | None:
    """Where a common loss rose last to what it is, in all steps or in some of them; None if it always was so."""
    changes = find_changes(series_K, min_shift) or find_mean_changes(series_K, min_shift)
    return next((change.index for change in reversed(changes) if change.shift > 0), None)


def _means(values_RK: Floats, axis: int) -> Floats:
    return np.asarray(values_RK.mean(axis=axis))


def _is_common(values_RK: Floats, change: Change, middle: Callable[[Floats, int], Floats]) -> bool:
    """Of two ranks the middle moves by half of what one of them does alone."""
    before = middle(values_RK[:, max(0, change.index - COMPARED_STEPS) : change.index], 1)
    after = middle(values_RK[:, change.index : change.index + COMPARED_STEPS], 1)
    alike = (after - before) / change.shift >= ALIKE_SHIFT
    return bool(alike.mean() >= ALIKE_SHARE)
