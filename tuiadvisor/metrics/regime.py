"""The present level of the job: the steps that belong together, so that a fault is sized from its onset on.

In: work between barriers and cycle of the steady steps, no NaN.  Out: Regime: where the window begins, and every
verified change of level, of the job and of single ranks. Noise of a shared machine changes levels too, for ten or
twenty steps at a time: a change counts at once only if it is one rank's or one phase's, else when it has lasted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import PHASES
from tuiadvisor.metrics.arrays import Floats, Ints, column_median
from tuiadvisor.metrics.changes import MIN_SEGMENT_STEPS, Change, find_changes, split_scores
from tuiadvisor.metrics.steptable import PHASE_INDEX

if TYPE_CHECKING:
    from tuiadvisor.metrics.steptable import StepTable

MIN_SHIFT_SHARE: Final = 0.03  # of the cycle: smaller changes of level are not looked for
NEW_REGIME_SHARE: Final = 0.05  # of the cycle: smaller ones date an onset, but begin no new window
SETTLED_STEPS: Final = 20
ONE_PHASE: Final = 0.8  # of the growth in one phase: a change of the program, not of the machine
SCREEN_SCORE: Final = 6.0  # standard errors at which a rank's series is searched for changes
MAX_SEARCHED_RANKS: Final = 32
COMPARED_STEPS: Final = 64


@dataclass(frozen=True, slots=True)
class Regime:
    """Indices count the columns given."""

    start: int
    cycle_changes: tuple[Change, ...]
    rank_changes: dict[int, tuple[Change, ...]]
    intermittent_rows: frozenset[int]
    begun_by: Change | None = None  # the change at `start`
    begun_by_row: int | None = None  # whose it is; None: the whole job's


@dataclass(frozen=True, slots=True)
class LevelShift:
    """The job's step became longer at some step and stayed so."""

    since_step: int
    before_s: float
    after_s: float
    phase: str | None  # the phase that grew most, on the typical rank
    cover: float  # share of the growth that it holds
    num_steps: int  # seen since


WHOLE: Final = Regime(0, (), {}, frozenset())


def deviations(work_RK: Floats) -> Floats:
    """Each rank's work beyond the ranks' common level, step by step: what slows all together cancels out."""
    return work_RK - np.median(work_RK, axis=0)


def _alternates(changes: tuple[Change, ...]) -> bool:
    ups = sum(change.shift > 0 for change in changes)
    return ups >= 2 and len(changes) - ups >= 1


def _rank_changes(work_RK: Floats, min_shift: float) -> dict[int, tuple[Change, ...]]:
    if work_RK.shape[0] < 2:
        return {}
    deviation_RK = deviations(work_RK)
    scores, _ = split_scores(deviation_RK)
    suspects = np.argsort(-scores, kind="stable")[:MAX_SEARCHED_RANKS]
    found = {
        row: find_changes(deviation_RK[row], min_shift)
        for row in sorted(int(r) for r in suspects if scores[r] > SCREEN_SCORE)
    }
    return {row: changes for row, changes in found.items() if changes}


def find_regime(table: StepTable, columns: Ints, work_RK: Floats, cycle_K: Floats) -> Regime:
    """Changes of level of the job's cycle and of single ranks, and where the present level begins.

    work_RK and cycle_K: the table's columns `columns`, the ranks that can be compared.
    """
    if cycle_K.size < 2 * MIN_SEGMENT_STEPS:
        return WHOLE
    cycle_s = float(np.median(cycle_K))
    by_row = _rank_changes(work_RK, MIN_SHIFT_SHARE * cycle_s)
    cycle_changes = find_changes(cycle_K, MIN_SHIFT_SHARE * cycle_s)
    intermittent = frozenset(row for row, changes in by_row.items() if _alternates(changes))
    bursts = [change.index for row in intermittent for change in by_row[row]]
    # Two ranks deviate from their own middle: each by half of what is between them.
    large = NEW_REGIME_SHARE * cycle_s * (0.5 if work_RK.shape[0] == 2 else 1.0)
    starts: list[tuple[int | None, Change]] = [
        (row, change)
        for row, changes in by_row.items()
        if row not in intermittent
        for change in changes
        # A rank falls back among the others whenever those are held up for a moment: wait whether it lasts.
        if change.shift >= large or (change.shift <= -large and cycle_K.size - change.index >= SETTLED_STEPS)
    ]
    if not _alternates(cycle_changes):
        starts += [
            (None, change)
            for change in cycle_changes
            if abs(change.shift) >= NEW_REGIME_SHARE * cycle_s
            and _is_believed(table, columns, change.index, cycle_K.size)
        ]
    lasting = [
        (row, change)
        for row, change in starts
        if all(abs(change.index - index) > MIN_SEGMENT_STEPS for index in bursts)
    ]
    if not lasting:
        return Regime(0, cycle_changes, by_row, intermittent)
    row, latest = max(lasting, key=lambda entry: (entry[1].index, abs(entry[1].shift)))
    return Regime(latest.index, cycle_changes, by_row, intermittent, latest, row)


def _is_believed(table: StepTable, columns: Ints, index: int, num_steps: int) -> bool:
    if num_steps - index >= SETTLED_STEPS:
        return True
    phase, cover = growth_phase(table, columns, index)
    return phase != "comm_exposed" and cover >= ONE_PHASE


def growth_phase(table: StepTable, columns: Ints, index: int) -> tuple[str | None, float]:
    """(phase that grew most at a change, share of the growth that it holds), on the typical rank."""
    before = columns[max(0, index - COMPARED_STEPS) : index]
    after = columns[index : index + COMPARED_STEPS]
    growth: dict[str, float] = {}
    for name, layer in PHASE_INDEX.items():
        values = table.phase_s_PRK[layer]
        old, new = column_median(values[:, before]), column_median(values[:, after])
        if np.isfinite(old).any() and np.isfinite(new).any():
            growth[name] = float(np.nanmedian(new) - np.nanmedian(old))
    phase = max(growth, key=lambda name: (growth[name], -PHASES.index(name)), default=None)
    grown = sum(max(value, 0.0) for value in growth.values())
    return phase, max(growth[phase], 0.0) / grown if phase is not None and grown > 0 else 0.0


def level_shift(table: StepTable, regime: Regime, columns: Ints) -> LevelShift | None:
    """The latest change of the job's step, if it made the step longer."""
    if not regime.cycle_changes or regime.cycle_changes[-1].shift <= 0:
        return None
    change = regime.cycle_changes[-1]
    phase, cover = growth_phase(table, columns, change.index)
    num_steps = int(columns.size) - change.index
    since = table.step_of(columns[change.index])
    return LevelShift(since, change.before, change.after, phase, cover, num_steps)
