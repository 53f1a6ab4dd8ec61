"""Late ranks whose device says that it holds its clock back: all along, or in just the steps in which they are late.

In: a window's stragglers, what devices tell of their clocks.  Out: the same with that as their cause, where it explains
the delay. Late for a while, again and again, a rank may be in time when the last samples were taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.late_phase import COMPUTE_PHASES, MAX_PEERS, DeviceClock, with_device_clock
from tuiadvisor.metrics.lateness.persistence import MIN_MODE_SHARE
from tuiadvisor.metrics.steps.arrays import median, row_median
from tuiadvisor.metrics.steps.held_steps import spans_ns
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX
from tuiadvisor.metrics.window.waves import MIN_HELD_MORE, held_more

if TYPE_CHECKING:
    from tuiadvisor.metrics.lateness.late_phase import Cause
    from tuiadvisor.metrics.lateness.late_ranks import LateRank
    from tuiadvisor.metrics.lateness.witnesses import Witnesses
    from tuiadvisor.metrics.steps.arrays import Floats, Ints
    from tuiadvisor.metrics.steps.held_steps import HeldBackOf, Throttled
    from tuiadvisor.metrics.steps.step_table import StepTable

MAX_WITH_IT: Final = 1 - MIN_MODE_SHARE  # of the steps: of more there are too few others to compare with


def with_held_clocks(
    stragglers: tuple[LateRank, ...],
    steady: StepTable,
    rows: Ints,
    seconds_PR: Floats,
    span_s: float,
    *,
    witnesses: Witnesses,
) -> tuple[LateRank, ...]:
    """Each straggler's cause, where its device's clock is held back below its peers' and that explains the delay.

    steady: the window, of so many seconds. rows: of it, whose arrival is compared. seconds_PR: means of their phases.
    """
    clocks = witnesses.device_clocks
    if not stragglers or clocks is None:
        return stragglers
    latest = clocks(span_s)
    late_rows = {entry.late.row for entry in stragglers}
    peers = np.array([row for row in rows.tolist() if row not in late_rows], dtype=np.int64)
    known = [clock.mhz for row in peers.tolist() if (clock := latest[row]) is not None]
    peers_mhz = median(np.array(known)) if known and len(known) == peers.size else None
    layers = np.array([PHASE_INDEX[name] for name in COMPUTE_PHASES])
    compute_s = float(np.nansum(row_median(seconds_PR[np.ix_(layers, peers)])))
    result = []
    for entry in stragglers:
        then = _when_late(steady, entry, peers, witnesses.held_back)
        own = latest[entry.late.row] if then is None else DeviceClock(then.mhz, 1.0, then.reasons)
        usual_mhz = then.free_mhz if then is not None and peers_mhz is None else peers_mhz
        excess_s = entry.late.mean_excess_s if entry.late.persistent else entry.late.excess_s
        result.append(replace(entry, cause=_with_clock(entry, own, usual_mhz, compute_s, excess_s)))
    return tuple(result)


def _with_clock(
    entry: LateRank, own: DeviceClock | None, usual_mhz: float | None, compute_s: float, excess_s: float
) -> Cause:
    found = with_device_clock(entry.cause, own, usual_mhz, compute_s, excess_s)
    # A host of which all devices are held back is late as a whole: what they have in common is there.
    return replace(found, name=entry.cause.name) if entry.whole_host else found


def _when_late(
    steady: StepTable, entry: LateRank, peers: Ints, held_back: HeldBackOf | None
) -> Throttled | None:
    """What its device tells, if it is held back in just those steps in which it is late, and its peers are not."""
    late_K = entry.late.hit_K
    if entry.late.persistent or held_back is None or late_K.mean() > MAX_WITH_IT:
        return None
    columns = np.arange(steady.num_steps)

    def told(row: int) -> Throttled | None:
        return held_back(row, *spans_ns(steady, row, columns))

    own = told(entry.late.row)
    share = None if own is None else held_more(late_K, own.share_K)
    if own is None or share is None:
        return None
    some = peers[:: max(1, -(-peers.size // MAX_PEERS))].tolist()
    others = [float(np.nanmean(one.share_K[late_K])) for row in some if (one := told(row)) is not None]
    with_them = median(np.array(others)) if others and 2 * len(others) > len(some) else 0.0
    return own if share - with_them >= MIN_HELD_MORE else None
