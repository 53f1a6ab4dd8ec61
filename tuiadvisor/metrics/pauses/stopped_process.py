"""Pauses explained by a process that was seen stopped, which may name the rank that arrivals cannot.

In: Steadiness, when each rank was seen stopped.  Out: Steadiness with causes and ranks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.lateness.off_core import MIN_STOPS
from tuiadvisor.metrics.pauses.pause import irregular_pauses

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.pauses.irregular import Interruption
    from tuiadvisor.metrics.pauses.steady_steps import Steadiness
    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable


def with_stops(
    steadiness: Steadiness, table: StepTable, barrier: Barrier, was_stopped: Callable[[int, int, int], bool]
) -> Steadiness:
    """The same, with what the agents saw: a process that stood stopped in a pause explains it, and may name its rank.

    was_stopped(rank, begin_ns, end_ns): seen so between these times of its host's clock.
    """
    events = [event for pause in steadiness.pauses for event in pause.events]
    if not events:
        return steadiness
    told = sorted((_with_stop(event, table, was_stopped) for event in events), key=lambda event: event.column)
    if told == sorted(events, key=lambda event: event.column):
        return steadiness
    others = [pause for pause in steadiness.pauses if not pause.events]
    regrouped = irregular_pauses(table, barrier.cycle_K, tuple(told), steadiness.steady_K)
    return replace(steadiness, pauses=(*others, *regrouped))


def share_of_stops(
    table: StepTable, barrier: Barrier, columns: Ints, row: int, was_stopped: Callable[[int, int, int], bool]
) -> float:
    """Share of the time of these columns, pauses among them, that all others wait for a row in whose steps it stood.

    Only what it arrives later than every other: who is stopped while it waits itself holds nobody up. 0 where the order
    of arrival is not known, and where it stood in fewer than MIN_STOPS steps: who once stood for half a minute has
    paused, however many looks found it so, and of the steps to come that says nothing.
    """
    cycle_s = float(np.nansum(barrier.cycle_K[columns]))
    if not columns.size or cycle_s <= 0 or barrier.lateness_RK.shape[0] < 2 or barrier.evidence == "none":
        return 0.0
    lateness_RK = barrier.lateness_RK[:, columns]
    excess_K = lateness_RK[row] - np.delete(lateness_RK, row, axis=0).max(axis=0)
    held_s, num_steps = 0.0, 0
    for place in np.flatnonzero(excess_K > 0).tolist():
        begin_s, end_s = table.begin_s_RK[row, columns[place]], table.end_s_RK[row, columns[place]]
        origin_ns = int(table.origin_ns_R[row])
        if np.isfinite(begin_s + end_s) and was_stopped(
            table.ranks[row], origin_ns + int(begin_s * 1e9), origin_ns + int(end_s * 1e9)
        ):
            held_s, num_steps = held_s + float(excess_K[place]), num_steps + 1
    return held_s / cycle_s if num_steps >= MIN_STOPS else 0.0


def _with_stop(
    event: Interruption, table: StepTable, was_stopped: Callable[[int, int, int], bool]
) -> Interruption:
    if event.cause:
        return event
    first, last = max(event.columns[0] - 1, 0), event.columns[-1]
    stopped = []
    for row in event.rows or range(table.num_ranks):
        begin_s, end_s = table.begin_s_RK[row, first], table.end_s_RK[row, last]
        if np.isfinite(begin_s) and np.isfinite(end_s):
            origin_ns = int(table.origin_ns_R[row])
            span_ns = (origin_ns + int(begin_s * 1e9), origin_ns + int(end_s * 1e9))
            if was_stopped(table.ranks[row], *span_ns):
                stopped.append(row)
    if not stopped:
        return event
    # Stopped within the exchange, a rank holds the others up there, and all leave it late together.
    is_some = not event.rows and len(stopped) <= table.num_ranks // 2
    return replace(event, cause="stopped", rows=tuple(stopped) if is_some else event.rows)
