"""A late rank that has more to compute than its peers: neither its code nor its device is slower.

In: StepTable, the late rank, its peers, the steps in which it was late, its delay by phase.  Out: MoreWork where its
batches are so much larger that they explain the delay; None where they do not, or were not observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor import phases
from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.steps.arrays import column_median, median

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Floats, Ints
    from tuiadvisor.metrics.steps.step_table import StepTable

GROWS_WITH_THE_BATCH: Final = tuple(
    name for name in phases.of_kind("copy", "compute") if name in phases.GROWING
)
MIN_MORE: Final = 0.02  # of the peers' batch


@dataclass(frozen=True, slots=True)
class MoreWork:
    """ratio: of its batch a step to its peers'; phase: which holds most of the delay."""

    unit: str  # tokens, samples
    ratio: float
    phase: str


def more_work(
    table: StepTable,
    phases: Mapping[str, Floats],
    row: int,
    peers: Ints,
    *,
    columns: Ints,
    parts: Mapping[str, float],
) -> MoreWork | None:
    """phases: seconds before the barrier, R x K by name; parts: seconds beyond the peers, by phase."""
    beyond = {name: max(parts.get(name, 0.0), 0.0) for name in GROWS_WITH_THE_BATCH}
    delay_s = sum(beyond.values())
    if delay_s <= 0 or delay_s < MIN_COVER * sum(max(value, 0.0) for value in parts.values()):
        return None
    unit, ratio = _ratio(table, row, peers, columns)
    usual_s = sum(
        median(usual[np.isfinite(usual)])
        for name in GROWS_WITH_THE_BATCH
        if np.isfinite(usual := column_median(phases[name][np.ix_(peers, columns)])).any()
    )
    if ratio - 1 < MIN_MORE or (ratio - 1) * usual_s < MIN_COVER * delay_s:
        return None
    return MoreWork(unit, ratio, max(beyond, key=lambda name: beyond[name]))


def _ratio(table: StepTable, row: int, peers: Ints, columns: Ints) -> tuple[str, float]:
    """Tokens where they are known, else samples; 1 where neither is."""
    for unit, values in (("tokens", table.tokens_RK), ("samples", table.samples_RK)):
        own, others = values[row, columns], column_median(values[np.ix_(peers, columns)])
        known = np.isfinite(own) & np.isfinite(others) & (others > 0)
        if known.any():
            return unit, float(own[known].mean() / others[known].mean())
    return "", 1.0
