"""What has grown from some steps to others: the phase that holds most of it, and the work itself.

In: StepTable, columns before and after.  Out: shares; None where nothing tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.steps.arrays import column_median
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX
from tuiadvisor.metrics.window.phase_levels import COMPARED_STEPS
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.metrics.steps.step_table import StepTable


def growth_phase(table: StepTable, columns: Ints, index: int) -> tuple[str | None, float]:
    """(phase that grew most at a change, share of the growth that it holds), on the typical rank."""
    return grown_phase(
        table, columns[max(0, index - COMPARED_STEPS) : index], columns[index : index + COMPARED_STEPS]
    )


def grown_phase(table: StepTable, before: Ints, after: Ints) -> tuple[str | None, float]:
    """(phase that grew most from some columns to others, share of the growth that it holds), on the typical rank."""
    growth: dict[str, float] = {}
    for name, layer in PHASE_INDEX.items():
        values = table.phase_s_PRK[layer]
        old, new = column_median(values[:, before]), column_median(values[:, after])
        if np.isfinite(old).any() and np.isfinite(new).any():
            growth[name] = float(np.nanmedian(new) - np.nanmedian(old))
    phase = max(growth, key=lambda name: (growth[name], -PHASES.index(name)), default=None)
    grown = sum(max(value, 0.0) for value in growth.values())
    return phase, max(growth[phase], 0.0) / grown if phase is not None and grown > 0 else 0.0


def work_growth(table: StepTable, before: Ints, after: Ints) -> float | None:
    """By what share a step has more tokens, or samples where these are not told, of the ranks that tell them."""
    for counts_RK in (table.tokens_RK, table.samples_RK):
        old, new = counts_RK[:, before], counts_RK[:, after]
        told_R = np.isfinite(old).all(axis=1) & np.isfinite(new).all(axis=1)
        if told_R.any() and old[told_R].sum() > 0:
            return float(new[told_R].mean() / old[told_R].mean()) - 1
    return None
