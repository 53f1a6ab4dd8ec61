"""The evaluation before the first that a hook saw: who evaluates what a wrapper holds is seen from the second time on.

In: StepTable.  Out: the same with the time of that step booked as evaluation, where it came one distance earlier on the
same rank and took as long where no hook is. All of it is needed: a pause that merely was there stays unexplained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.pauses.sizes import MIN_CHANGE
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats
    from tuiadvisor.metrics.steps.step_table import StepTable

MIN_SEEN: Final = 2  # evaluations: with one of them nobody knows their distance
SAME_DISTANCE: Final = 0.1  # chosen: epochs differ by a batch or two, another pause comes anywhere
MOST_ROWS: Final = 64  # a step is explained by one of them; each costs 60 us a picture
WITHOUT_HOOK: Final = (
    PHASE_INDEX["data_wait"],
    PHASE_INDEX["other"],
)  # where the batches of an unseen forward go


def with_first_evaluation(table: StepTable) -> StepTable:
    """The table itself where there is none."""
    num_seen_R = (table.phase_s_PRK[PHASE_INDEX["eval"]] > 0).sum(axis=1)
    rows = np.flatnonzero(num_seen_R >= MIN_SEEN)[:MOST_ROWS].tolist()
    found = {row: at for row in rows if (at := _unseen(table, row)) is not None}
    if not found:
        return table
    phase_s_PRK = table.phase_s_PRK.copy()
    for row, column in found.items():
        for phase in WITHOUT_HOOK:
            more_s = _beyond_usual(table.phase_s_PRK[phase, row])[column]
            phase_s_PRK[phase, row, column] -= more_s
            phase_s_PRK[PHASE_INDEX["eval"], row, column] += more_s
    return replace(table, phase_s_PRK=phase_s_PRK)


def _unseen(table: StepTable, row: int) -> int | None:
    """The column of the evaluation that was not seen. row: of a rank with MIN_SEEN that were."""
    eval_s_K = table.phase_s_PRK[PHASE_INDEX["eval"], row]
    seen = np.flatnonzero(eval_s_K > 0)
    steps, lengths_s = table.steps_of(seen), eval_s_K[seen]
    distance = float(np.median(np.diff(steps)))
    before_K = np.arange(table.num_steps) < seen[0]
    more_s_K = sum(_beyond_usual(table.phase_s_PRK[phase, row]) for phase in WITHOUT_HOOK)
    is_as_long_K = (more_s_K * MIN_CHANGE > lengths_s.min()) & (more_s_K < MIN_CHANGE * lengths_s.max())
    columns = np.flatnonzero(before_K & is_as_long_K)
    # Any other of that length before it: then it is one of a kind that no evaluation is known to be of.
    if columns.size != 1 or distance <= 1:
        return None
    (came,) = steps[:1] - table.steps_of(columns)
    return int(columns[0]) if abs(came - distance) <= SAME_DISTANCE * distance else None


def _beyond_usual(seconds_K: Floats) -> Floats:
    """What each step has more than the typical one."""
    known = seconds_K[np.isfinite(seconds_K)]
    usual_s = float(np.median(known)) if known.size else 0.0
    return np.maximum(np.nan_to_num(seconds_K) - usual_s, 0.0)
