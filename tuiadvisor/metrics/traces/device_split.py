"""Why a device does not compute: its window split into parts that sum to it, each idle gap by what it waited for.

In: a device's events, and what the training thread did meanwhile.  Out: nanoseconds.
  compute       computation runs
  exposed       communication runs and no computation
  copy          copies run alone
  host          idle, and the next work was not launched yet
  launch        idle, and the next work was launched: shorter than LAUNCH_GAP_NS, or since its launch
  held          idle, although the next work was launched before: it waits for another stream or an event
  unknown       idle, and the launch of what comes next is not in the trace
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.series.intervals import Intervals, both, union
from tuiadvisor.metrics.traces.gpu_timeline import COMPUTE, LAUNCH_GAP_NS, MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Bools, Ints
    from tuiadvisor.metrics.traces.gpu_timeline import GpuEvents


@dataclass(frozen=True, slots=True)
class DeviceSplit:
    """compute + exposed + copy + host + launch + held + unknown = window; host_doing: parts of host."""

    window_ns: int
    compute_ns: int
    exposed_ns: int
    copy_ns: int
    host_ns: int
    launch_ns: int
    held_ns: int
    unknown_ns: int
    host_doing: dict[str, int] = field(default_factory=dict)  # phase of the training thread -> nanoseconds

    @property
    def idle_ns(self) -> int:
        """Nothing runs at all."""
        return self.host_ns + self.launch_ns + self.held_ns + self.unknown_ns


def device_split(events: GpuEvents, doing: Mapping[str, Intervals]) -> DeviceSplit | None:
    """doing: when the training thread was in which phase, disjoint. None without events."""
    if events.begin_ns.size == 0:
        return None
    busy = union(events.begin_ns, events.end_ns)
    compute = _merged(events, events.kind == COMPUTE)
    work = _merged(events, events.kind != MEMORY)
    begin, end = busy.end[:-1], busy.begin[1:]
    launch = _launch_of_next(events, end)
    is_known, was_launched = launch >= 0, (launch >= 0) & (launch <= begin)
    # What was launched by then and comes at once is the device's own pause between two kernels.
    is_short = was_launched & (end - begin < LAUNCH_GAP_NS)
    is_host = is_known & ~was_launched
    host = Intervals(begin[is_host], np.minimum(launch, end)[is_host])
    gap = end - begin
    return DeviceSplit(
        window_ns=int(busy.end[-1] - busy.begin[0]),
        compute_ns=compute.length,
        exposed_ns=work.length - compute.length,
        copy_ns=busy.length - work.length,
        host_ns=host.length,
        launch_ns=int(gap[is_host].sum()) - host.length + int(gap[is_short].sum()),
        held_ns=int(gap[was_launched & ~is_short].sum()),
        unknown_ns=int(gap[~is_known].sum()),
        host_doing={name: both(host, when) for name, when in doing.items()},
    )


def _launch_of_next(events: GpuEvents, begins: Ints) -> Ints:
    """When the event that ends each gap was launched, of several the first; -1: none of them says."""
    order = np.lexsort(
        (np.where(events.launch_ns < 0, np.iinfo(np.int64).max, events.launch_ns), events.begin_ns)
    )
    first = np.searchsorted(events.begin_ns[order], begins, side="left")
    return events.launch_ns[order[first]]


def _merged(events: GpuEvents, mask: Bools) -> Intervals:
    return union(events.begin_ns[mask], events.end_ns[mask])
