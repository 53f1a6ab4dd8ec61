"""When steps ended by the wall clock, and which were looked at more closely at our wish: for the list of events.

In: the table of steps by the hosts' clocks.  Out: StepTimes, Captured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.events import StepFlag
from tuiadvisor.views.event import Captured, StepTimes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.arrays import Bools
    from tuiadvisor.metrics.steps.step_table import StepTable


def step_times(table: StepTable | None, wall_shift: Callable[[str], int | None]) -> StepTimes | None:
    """A step ends when the last of its ranks ends it: who writes a checkpoint does so seconds after its peers.

    By one rank's clock alone all times moved whenever another rank had a step more.
    wall_shift: nanoseconds from a host's clock to its wall clock, if known.
    """
    if table is None or not table.num_steps or not table.num_ranks:
        return None
    shifts = [wall_shift(host) for host in table.hosts]
    rows = [row for row, shift in enumerate(shifts) if shift is not None]
    if not rows:
        return None
    origins_ns = [int(table.origin_ns_R[row]) + (shifts[row] or 0) for row in rows]
    first_ns = min(origins_ns)  # so that nanoseconds are not lost in seconds since 1970
    after_first_s = np.array([(origin_ns - first_ns) * 1e-9 for origin_ns in origins_ns])
    end_s = np.fmax.reduce(table.end_s_RK[rows] + after_first_s[:, None], axis=0)
    known = np.flatnonzero(np.isfinite(end_s))
    wall_s = end_s[known] + first_ns * 1e-9
    return StepTimes(tuple(table.steps_of(known).tolist()), tuple(wall_s.tolist()))


def captured(table: StepTable | None) -> tuple[Captured, ...]:
    """Windows of the profiler, oldest first."""
    if table is None or not table.num_steps:
        return ()
    return _windows(table, table.flagged_RK(StepFlag.CAPTURE))


def in_detail(
    table: StepTable | None, asked: Callable[[int], tuple[tuple[int, int], ...]]
) -> tuple[Captured, ...]:
    """Steps recorded call by call because somebody asked, oldest first; not the probe's own bursts.

    asked: of a rank, from when until when (ns on its host's clock).
    """
    if table is None or not table.num_steps:
        return ()
    seen_RK = np.zeros_like(table.present_RK)
    for row, rank in enumerate(table.ranks):
        origin_ns = int(table.origin_ns_R[row])
        for begin_ns, end_ns in asked(rank):
            is_within = table.end_s_RK[row] >= (begin_ns - origin_ns) * 1e-9
            seen_RK[row] |= is_within & (table.begin_s_RK[row] <= (end_ns - origin_ns) * 1e-9)
    if not seen_RK.any():
        return ()
    return _windows(table, seen_RK & table.flagged_RK(StepFlag.DETAIL))


def _windows(table: StepTable, seen_RK: Bools) -> tuple[Captured, ...]:
    """Steps in a row in which some rank was seen."""
    columns = np.flatnonzero(seen_RK.any(axis=0))
    if not columns.size:
        return ()
    windows = np.split(columns, np.flatnonzero(np.diff(columns) > 1) + 1)
    return tuple(
        Captured(
            table.step_of(int(window[0])),
            table.step_of(int(window[-1])),
            tuple(table.ranks[row] for row in np.flatnonzero(seen_RK[:, window].any(axis=1))),
        )
        for window in windows
    )
