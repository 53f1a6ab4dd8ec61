"""How one device spent its time: computing, communicating, both, neither.

In: begin, end, kind and stream of every event on one device, nanoseconds.  Out: lengths in nanoseconds.
Definitions as Holistic Trace Analysis has them, on merged intervals:
  window   last end - first begin;  busy = |all events|, idle = window - busy
  compute  |computation|, comm = |communication|, overlap = |computation and communication at once|
  exposed  comm - overlap
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.intervals import both, union
from tuiadvisor.metrics.steps.arrays import distinct

if TYPE_CHECKING:
    from tuiadvisor.metrics.series.intervals import Intervals
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

# Kinds of work on a device.
COMPUTE: Final = 0
COMM: Final = 1
MEMORY: Final = 2
COMM_GUESSED: Final = 3  # looks like communication, but of no library we know: counted as communication

LAUNCH_GAP_NS: Final = (
    30_000  # a shorter gap between two kernels is the device's own (Holistic Trace Analysis: 30 us)
)


@dataclass(frozen=True, slots=True)
class GpuEvents:
    """Parallel columns of one device's events; launch_ns -1 where the launch was not recorded."""

    begin_ns: Ints
    end_ns: Ints
    kind: Ints
    stream: Ints
    launch_ns: Ints

    def only(self, mask: Bools) -> GpuEvents:
        """The events of a mask."""
        return GpuEvents(
            self.begin_ns[mask], self.end_ns[mask], self.kind[mask], self.stream[mask], self.launch_ns[mask]
        )


NO_EVENTS: Final = GpuEvents(*(np.empty(0, dtype=np.int64) for _ in range(5)))


@dataclass(frozen=True, slots=True)
class GpuTime:
    """One device's window split up, nanoseconds."""

    window_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    comm_ns: int
    memory_ns: int
    overlap_ns: int
    exposed_ns: int
    exposed_beside_memory_ns: int  # communication that neither computation nor copies hide
    num_comm: int
    num_events: int


@dataclass(frozen=True, slots=True)
class StreamIdle:
    """Gaps between one stream's kernels by what was missing, nanoseconds."""

    stream: int
    host_wait_ns: int  # the next kernel had not been launched yet
    kernel_wait_ns: int  # the gap is no longer than the device's own between two kernels
    other_ns: int  # launched, and something else held it back


def gpu_time(events: GpuEvents) -> GpuTime | None:
    """The split of the window; None without events."""
    if events.begin_ns.size == 0:
        return None
    is_comm = (events.kind == COMM) | (events.kind == COMM_GUESSED)
    compute = _merged(events, events.kind == COMPUTE)
    comm = _merged(events, is_comm)
    memory = _merged(events, events.kind == MEMORY)
    busy = union(events.begin_ns, events.end_ns).length
    window = int(events.end_ns.max() - events.begin_ns.min())
    hidden = both(compute, comm)
    covered = union(np.concatenate((compute.begin, memory.begin)), np.concatenate((compute.end, memory.end)))
    return GpuTime(
        window_ns=window,
        busy_ns=busy,
        idle_ns=window - busy,
        compute_ns=compute.length,
        comm_ns=comm.length,
        memory_ns=memory.length,
        overlap_ns=hidden,
        exposed_ns=comm.length - hidden,
        exposed_beside_memory_ns=comm.length - both(comm, covered),
        num_comm=int(is_comm.sum()),
        num_events=int(events.begin_ns.size),
    )


def stream_idle(events: GpuEvents) -> tuple[StreamIdle, ...]:
    """Gaps of each stream, by stream number; a longer gap before an event of unknown launch counts as other."""
    found = []
    for stream in distinct(events.stream):
        mine = events.only(events.stream == stream)
        order = np.argsort(mine.begin_ns, kind="stable")
        begin, end = mine.begin_ns[order], mine.end_ns[order]
        launch = mine.launch_ns[order][1:]
        gap = np.maximum(begin[1:] - np.maximum.accumulate(end)[:-1], 0)
        host = (launch >= 0) & (launch > end[:-1])
        short = ~host & (gap < LAUNCH_GAP_NS)
        rest = ~host & ~short
        found.append(
            StreamIdle(int(stream), int(gap[host].sum()), int(gap[short].sum()), int(gap[rest].sum()))
        )
    return tuple(found)


def _merged(events: GpuEvents, mask: Bools) -> Intervals:
    return union(events.begin_ns[mask], events.end_ns[mask])
