"""What each rank spent on each phase in each recent step: the values that the heat map can show beside lateness.

In: tables of steps.  Out: StepMap, one a phase that was observed; the steps are those of the lateness levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.assemble.rank_rows import MAX_LATENESS_STEPS
from tuiadvisor.metrics.steps.arrays import median
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX
from tuiadvisor.phases import PHASES, of_kind
from tuiadvisor.views.step_map import UNKNOWN_LEVEL, StepMap

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.views.run_view import Clock

NUM_LEVELS: Final = 8
# What a slow rank takes in nineteen of twenty steps fills a cell, so one pause leaves nobody else flat (presentation:
# nothing is decided by it); what is typical of all fills half of one at most, so that small noise stays small.
TOP_PERCENT: Final = 95
TYPICAL_FILLS: Final = 0.5
ROUND: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)  # times a power of ten
NEARLY: Final = 1 - 1e-9  # of a round number still is that number


def step_maps(table: StepTable | None, clock: Clock, host: StepTable | None = None) -> tuple[StepMap, ...]:
    """table: what the view rests on, by `clock`. host: the threads' own steps, for whose input devices do not tell."""
    if table is None or not table.num_steps:
        return ()
    first = max(0, table.num_steps - MAX_LATENESS_STEPS)
    rows = {rank: row for row, rank in enumerate(table.ranks)}
    found = [
        made
        for index, phase in enumerate(PHASES)
        if (made := _map(phase, clock, table.phase_s_PRK[index][:, first:], rows)) is not None
    ]
    if clock == "device" and host is not None:
        for phase in of_kind("input"):
            waited = _map(phase, "host", _at_steps_of(table, first, host, phase), rows)
            found += [waited] if waited is not None else []
    return tuple(found)


def heat_steps(table: StepTable | None) -> tuple[int, ...]:
    """The job step of each column of the levels where only some steps are measured; else empty."""
    if table is None or not table.is_sampled:
        return ()
    return tuple(table.steps_of(np.arange(table.num_steps))[-MAX_LATENESS_STEPS:].tolist())


def _at_steps_of(table: StepTable, first: int, host: StepTable, phase: str) -> Floats:
    """A phase by the threads' clocks, in the rows and columns of the other table."""
    values = np.full((table.num_ranks, table.num_steps - first), np.nan)
    own = {rank: row for row, rank in enumerate(host.ranks)}
    columns = table.steps_of(np.arange(first, table.num_steps)) - host.first_step
    known = (columns >= 0) & (columns < host.num_steps)
    for row, rank in enumerate(table.ranks):
        if rank in own:
            values[row, known] = host.phase_s_PRK[PHASE_INDEX[phase], own[rank], columns[known]]
    return values


def _map(phase: str, clock: Clock, seconds_RK: Floats, rows: dict[int, int]) -> StepMap | None:
    known = np.isfinite(seconds_RK)
    filled = np.where(known, seconds_RK, 0.0)
    if not (filled > 0).any():  # not observed, or a phase that these steps do not have
        return None
    top_s = _top(filled, known)
    filled *= (NUM_LEVELS - 1) / top_s
    filled += 0.5
    levels = np.clip(filled, 0, NUM_LEVELS - 1, out=filled).astype(np.uint8)
    levels[~known] = UNKNOWN_LEVEL
    return StepMap(phase, clock, top_s, seconds_RK.shape[1], rows, levels.tobytes())


def _top(filled: Floats, known: Bools) -> float:
    """A round number of seconds: it changes seldom, and with it every cell. filled: 0 where not known."""
    usual_R = np.partition(filled, (place := (filled.shape[1] - 1) * TOP_PERCENT // 100), axis=1)[:, place]
    values = filled.reshape(-1) if known.all() else filled[known]
    usual_s = float(usual_R.max())
    if not usual_s:
        return _rounded_up(median(values) / TYPICAL_FILLS or float(filled.max()))
    top_s = _rounded_up(usual_s)
    # By counting, from one round number to the next: their median took a tenth of a view of 512 ranks.
    while not _is_typical_below(values, TYPICAL_FILLS * top_s / NEARLY):
        top_s = _rounded_up(1.01 * top_s)
    return top_s


def _is_typical_below(values: Floats, limit: float) -> bool:
    """Whether the median is no larger."""
    num_above = np.count_nonzero(values > limit)
    return median(values) <= limit if 2 * num_above == values.size else bool(2 * num_above < values.size)


def _rounded_up(seconds: float) -> float:
    """A round number with one digit, or 1.5; a second where nothing was ever spent."""
    if seconds <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(seconds))
    return float(next(step * power for step in ROUND if step * power >= seconds * NEARLY))
