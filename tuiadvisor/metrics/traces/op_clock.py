"""Workers' clocks in a per-operation trace, put together by the ends of the collective that all of them join.

In: a grid whose rows may come from clocks apart.  Out: the grid on one clock, and what was corrected, in words.
A correction is made only when the other transfers agree with it: their ends must come closer together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.traces import op_graph
from tuiadvisor.metrics.traces.op_table import named

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats
    from tuiadvisor.metrics.traces.op_table import OpGrid

APART_S: Final = (
    20e-3  # a slow worker's own part of a collective's end is below that (10 ms seen on a real job)
)
SHARE_OF_STEPS: Final = 0.25  # fewer steps apart are outliers, not a clock
CLOSER: Final = 0.5  # other transfers' ends must come this much closer for a correction to be believed


def on_one_clock(grid: OpGrid) -> OpGrid:
    """The grid, unchanged when the clocks agree or when there is nothing to tell them by."""
    dps = np.unique(grid.dp_C)
    shape = (len(grid.ops), grid.step_C.size // dps.size, dps.size)
    stages = np.array([op.stage for op in grid.ops])
    clip = [i for i, op in enumerate(grid.ops) if op.optype == op_graph.CLIP]
    if len(clip) != len(set(stages.tolist())) or len(clip) * dps.size < 2:
        return grid
    end = (grid.start_NC + grid.dur_NC).reshape(shape)
    by_stage = {grid.ops[i].stage: end[i] for i in clip}
    middle_S1 = np.median(end[clip], axis=(0, 2))[:, None]
    apart = {stage: ends - middle_S1 for stage, ends in by_stage.items()}
    wrong = {stage: np.mean(np.abs(off) > APART_S, axis=0) >= SHARE_OF_STEPS for stage, off in apart.items()}
    if not any(mask.any() for mask in wrong.values()):
        return grid
    shift = np.stack([np.where(wrong[stage][None, :], apart[stage], 0.0) for stage in stages])
    who = [
        grid.rank_of.get((int(dps[d]), stage)) for stage, mask in wrong.items() for d in np.flatnonzero(mask)
    ]
    known = sorted(rank for rank in who if rank is not None)
    names = ("rank " if len(known) == 1 else "ranks ") + named(known)
    before = _spread(grid, end, wrong)
    if not _spread(grid, end - shift, wrong) < CLOSER * before:
        words = f"clocks may be apart ({names}), but other transfers disagree by how much: left as recorded"
        return replace(grid, losses=(*grid.losses, words))
    start = grid.start_NC.reshape(shape) - shift
    start -= start.min(axis=(0, 2), keepdims=True)
    most_s = max(float(np.abs(np.median(off, axis=0)).max()) for off in apart.values())
    words = f"clocks apart by {most_s:.3g} s ({names}): aligned on the ends of {op_graph.CLIP}"
    return replace(grid, start_NC=start.reshape(grid.start_NC.shape), losses=(*grid.losses, words))


def _spread(grid: OpGrid, end: Floats, wrong: dict[int, Bools]) -> float:
    """Median distance of the ends of one transfer, over transfers in which a corrected worker takes part."""
    template = grid.template
    first_start, first_dur = grid.start_NC[:, template], grid.dur_NC[:, template]
    graph = op_graph.build(grid.ops, first_start, first_start + first_dur)
    distances = [np.empty(0)]
    for group, joins in zip(graph.groups, graph.joins_dp, strict=True):
        if grid.ops[group[0]].optype == op_graph.CLIP or (len(group) == 1 and not joins):
            continue
        ends = end[list(group)]
        touched = np.stack([wrong[grid.ops[i].stage] for i in group])
        if joins:
            part = ends.max(axis=(0, 2)) - ends.min(axis=(0, 2))
            distances.append(part if touched.any() else part[:0])
        else:
            distances.append((ends.max(axis=0) - ends.min(axis=0))[:, touched.any(axis=0)].ravel())
    every = np.concatenate(distances)
    return float(np.median(every)) if every.size else float("nan")
