"""What the waterfall is made of, taken from the fold's parts.

In: wall time, roster, steps, what was seen.  Out: Goodput.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.advisor.judge.waterfall import Clocks, waterfall
from tuiadvisor.advisor.steps.wall_time import stood_beyond
from tuiadvisor.metrics.steps.step_table import NS, PHASE_INDEX
from tuiadvisor.phases import PAUSES

if TYPE_CHECKING:
    from tuiadvisor.advisor.assemble.seen import Seen
    from tuiadvisor.advisor.cluster.membership import Roster
    from tuiadvisor.advisor.detail.device_times import DeviceTimes, Stretch
    from tuiadvisor.advisor.judge.goodput import Accounted
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.advisor.steps.wall_time import Life, WallTime
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.views.goodput import Goodput


def wall_goodput(
    wall: WallTime,
    roster: Roster,
    store: StepStore,
    seen: Seen,
    accounted: Accounted,
    *,
    stands: bool,
    hangs: bool,
    stands_s: float | None = None,
    traced: DeviceTimes | None = None,
) -> Goodput | None:
    """None before the first step. stands: no step has ended for long. hangs: and that is a hang, stands_s long.

    traced: the steps of a trace that is judged by its devices' clocks; None of any other run.
    """
    if wall.rank is None or not wall.lives:
        return None
    lives = wall.lives if traced is None else _on_device(wall.lives, traced.stretch(wall.rank))
    last = lives[-1]
    heard_ns = roster.last_heard_ns(wall.rank)
    since_end_s = 0.0 if heard_ns is None else max(heard_ns - last.end_ns, 0) * NS
    change, marked_s = _window(wall, store, seen, is_traced=traced is not None)
    waited = roster.core_wait.share_before(wall.rank, change[0]) if change is not None else None
    clocks = Clocks(
        lives=lives,
        is_first_whole=traced is not None,
        starts=roster.clocks.process_starts(roster.ranks.get(wall.rank), last.host),
        still_since_end_s=since_end_s if stands else 0.0,
        since_end_s=since_end_s,
        hangs=hangs,
        stands_s=stands_s,
        change=change,
        core_wait_before=waited,
        marked_s=marked_s,
        stood_within_s=_stood_within_s(last, store, seen.table, wall.rank),
        steps_before=roster.clocks.steps_before(roster.ranks.get(wall.rank), last.host),
        wall_shift_ns=roster.clocks.wall_shift_ns(last.host),
    )
    return waterfall(clocks, accounted)


def _on_device(lives: list[Life], device: Stretch | None) -> list[Life]:
    """The life of a trace as its device lived it: a thread that runs ahead has launched all long before it is done."""
    if device is None or len(lives) != 1:
        return lives
    (life,) = lives
    if device.first_step == life.first_step:
        first_ns = device.first_end_ns - device.begin_ns
        life = replace(life, begin_ns=device.begin_ns, first_ns=first_ns)
    if device.last_step == life.last_step:
        life = replace(life, end_ns=max(device.end_ns, life.begin_ns))
    return [life]


def _stood_within_s(life: Life, store: StepStore, table: StepTable | None, rank: int) -> float:
    """Seconds that the job stood in single steps which are held still: as pauses these are judged there."""
    offset = store.job_offsets().get(rank)
    if table is None or offset is None or rank not in table.ranks:
        return 0.0
    row = table.ranks.index(rank)
    own_steps = table.steps_of(np.arange(table.num_steps)) - offset
    known = np.isfinite(table.step_s_RK[row]) & (own_steps > life.first_step) & (own_steps <= life.last_step)
    begin_ns = int(table.origin_ns_R[row]) + np.rint(table.begin_s_RK[row, known] / NS).astype(np.int64)
    length_ns = np.rint(table.step_s_RK[row, known] / NS).astype(np.int64)
    paused_s = np.nansum(table.phase_s_PRK[[PHASE_INDEX[name] for name in PAUSES], row][:, known], axis=0)
    stood_ns = stood_beyond(
        length_ns,
        np.rint(paused_s / NS).astype(np.int64),
        begin_ns - life.begin_ns,
        own_steps[known] - life.first_step,
    )
    return float(stood_ns.sum()) * NS


def _window(
    wall: WallTime, store: StepStore, seen: Seen, *, is_traced: bool
) -> tuple[tuple[int, int] | None, dict[str, float]]:
    """(time and own step at which the present level began, if it did; seconds of marked pauses in the window).

    is_traced: the time is the device's, as the wall time of a trace.
    """
    table, diagnosis, rank = seen.table, seen.diagnosis, wall.rank
    if table is None or diagnosis is None or rank not in table.ranks:
        return None, {}
    row = table.ranks.index(rank)
    first_step = diagnosis.table.step_of(diagnosis.window_start)
    column = min(max(first_step - table.first_step, 0), table.num_steps - 1)
    spent_PK = table.phase_s_PRK[[PHASE_INDEX[name] for name in PAUSES], row, column:]
    marked_s = dict(zip(PAUSES, np.nansum(spent_PK, axis=1).tolist(), strict=True))
    if is_traced:
        table = diagnosis.table
        if rank not in table.ranks:
            return None, marked_s
        row, column = table.ranks.index(rank), diagnosis.window_start
    begin_s = table.begin_s_RK[row, column]
    offset = store.job_offsets().get(rank)
    if diagnosis.regime_step is None or offset is None or not np.isfinite(begin_s):
        return None, marked_s
    return (int(table.origin_ns_R[row]) + round(begin_s / NS), first_step - offset), marked_s
