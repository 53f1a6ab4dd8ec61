"""Every step of a recording as one value of the job, bounded in memory: what two runs are compared on.

In: an Advisor's store while frames are fed.  Out: StepSeries, the job's step and phases in seconds, oldest first.
The store keeps only a recent window at full detail, so the series is taken out of it piece by piece before steps
scroll away. Warm-up and partial steps are left out; steady tells the rest from checkpoints and other pauses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.steps.step_store import USUAL_TABLE_STEPS
from tuiadvisor.events import StepFlag
from tuiadvisor.metrics.pauses.first_evaluation import with_first_evaluation
from tuiadvisor.metrics.pauses.steady_steps import find_steady
from tuiadvisor.metrics.steps.barrier import find_barrier
from tuiadvisor.metrics.steps.step_table import COMM
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.steps.arrays import Bools, Floats
    from tuiadvisor.metrics.steps.step_table import StepTable

    # (first, last job step) -> as StepStore.table
    TableOf = Callable[[int, int], tuple[StepTable, bool] | None]

MAX_STEPS: Final = 1 << 17  # 14 MB of series; of longer recordings the newest steps count


@dataclass(frozen=True, slots=True)
class StepSeries:
    """K job steps in order; seconds; NaN in phase_s_PK where no rank observed the phase."""

    step_s_K: Floats
    steady_K: Bools
    phase_s_PK: Floats  # mean over ranks
    comm_s: dict[
        int, float
    ]  # of each rank: exposed communication in a steady step, where all of them are known

    @property
    def steady_s(self) -> Floats:
        """The steady steps alone."""
        return self.step_s_K[self.steady_K]


class SeriesCollector:
    """Mutable: call `advance` after every frame, `finish` at the end."""

    def __init__(self, store: StepStore, table_of: TableOf | None = None) -> None:
        """table_of: what to take instead of the store's own tables, as where devices have clocks of their own."""
        self._store = store
        self._table_of = store.table if table_of is None else table_of
        self._next: int | None = None  # first internal job step not yet taken
        self._taken: list[StepSeries] = []
        self._num_taken = 0

    def advance(self) -> None:
        """Take a piece once half a window is complete; late records of a rank have a quarter of it to come."""
        span = self._store.span()
        if span is None:
            return
        oldest, newest = span
        if self._next is None:
            self._next = oldest
        self._next = max(self._next, newest - self._store.capacity + 2)
        width = min(self._store.capacity, USUAL_TABLE_STEPS)  # of a table at least, however the pace changes
        last = newest - width // 4
        if last - self._next + 1 >= width // 2:
            self._take(self._next, last)

    def finish(self) -> StepSeries:
        """Everything there was."""
        span = self._store.span()
        if span is not None:
            self.advance()
            if self._next is not None and span[1] >= self._next:
                self._take(self._next, span[1])
        if not self._taken:
            empty = np.zeros(0)
            return StepSeries(empty, empty.astype(np.bool_), np.zeros((len(PHASES), 0)), {})
        return StepSeries(
            np.concatenate([piece.step_s_K for piece in self._taken])[-MAX_STEPS:],
            np.concatenate([piece.steady_K for piece in self._taken])[-MAX_STEPS:],
            np.concatenate([piece.phase_s_PK for piece in self._taken], axis=1)[:, -MAX_STEPS:],
            _mean_of_pieces([piece for piece in self._taken if piece.steady_K.any()]),
        )

    def _take(self, first: int, last: int) -> None:
        shift = self._store.axis_shift()
        is_first_piece = not self._taken
        # The table begins a step earlier where it can: a step's work begins at the release of the one before.
        found = self._table_of(first - shift, last - shift)
        self._next = last + 1
        if found is None or found[0].num_steps < 2:
            return
        skip = max(found[0].column_of(first - shift), 0)
        piece = _series(found[0], from_beginning=is_first_piece and found[1], skip=skip)
        self._taken.append(piece)
        self._num_taken += piece.step_s_K.size
        while self._num_taken - self._taken[0].step_s_K.size >= MAX_STEPS:
            self._num_taken -= self._taken.pop(0).step_s_K.size


def _series(table: StepTable, *, from_beginning: bool, skip: int) -> StepSeries:
    going_on_R = np.asarray(table.present_RK[:, -64:].any(axis=1))
    table = with_first_evaluation(table)
    barrier = find_barrier(table, going_on_R)
    steadiness = find_steady(table, barrier, from_beginning=from_beginning)
    partial_K = table.flagged_RK(StepFlag.FIRST).any(axis=0)
    usable: Bools = np.asarray(np.isfinite(barrier.cycle_K) & (barrier.cycle_K > 0) & ~partial_K)
    if barrier.evidence != "none":
        usable = np.asarray(usable & barrier.complete_K)
    usable[:skip] = False
    if steadiness.warmup is not None and steadiness.steady_K.any():
        usable[: int(np.argmax(steadiness.steady_K))] = False
    known = np.isfinite(table.phase_s_PRK)
    num_present = np.maximum(table.present_RK.sum(axis=0), 1)
    mean = np.where(known, table.phase_s_PRK, 0.0).sum(axis=1) / num_present
    # A phase without a hook is unknown, but one whose hook has not fired yet took no time of its own.
    observed_P = np.asarray(known.any(axis=(1, 2)) & (not table.is_of_launches))
    phase = np.where(observed_P[:, None], mean, np.nan)
    steady_K = np.asarray(usable & steadiness.steady_K)
    comm = {
        rank: float(comm_K.mean())
        for rank, comm_K in zip(table.ranks, table.phase_s_PRK[COMM][:, steady_K], strict=True)
        if comm_K.size and np.isfinite(comm_K).all()
    }
    return StepSeries(barrier.cycle_K[usable], steadiness.steady_K[usable], phase[:, usable], comm)


def _mean_of_pieces(pieces: list[StepSeries]) -> dict[int, float]:
    """Of ranks that are known in every piece; each piece counts by its steady steps."""
    if not pieces:
        return {}
    weights = [int(piece.steady_K.sum()) for piece in pieces]
    ranks = set[int].intersection(*(set(piece.comm_s) for piece in pieces))
    return {
        rank: float(np.average([piece.comm_s[rank] for piece in pieces], weights=weights))
        for rank in sorted(ranks)
    }
