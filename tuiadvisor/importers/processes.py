"""How many processes a trace's events are of: files of several ranks that were merged into one read like a rank.

In: processes, devices and step marks of the events while they are read.  Out: a number, 1 where nothing says otherwise.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import distinct

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools
    from tuiadvisor.metrics.traces.gpu_timeline import GpuEvents

MAX_KEPT: Final = 10_000
LEAST_CALLS: Final = 10
SHARE: Final = 0.1  # of the busiest process's calls: profilers write a few events under other numbers
# Kernels of one stream run one after the other; in public traces of single ranks 0.3 % overlap at most, and of
# collectives, which merged ranks are in at the same time, none. Ranks leave a collective together, so their later
# halves overlap; one that begins a moment before the one before it is told to have ended is a clock's doing.
OVERLAPPING: Final = 0.2
LEAST_OVERLAPS: Final = 10


@dataclass(slots=True)
class Processes:
    """Filled event by event; processes and devices by whatever the trace calls them."""

    calls: Counter[object] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    device: array[int] = field(default_factory=lambda: array("i"))  # of each device event
    devices: dict[object, int] = field(default_factory=dict)

    def called(self, process: object) -> None:
        """An operator or a launch on the host."""
        key = process if isinstance(process, int | str) else None
        if key in self.calls or len(self.calls) < MAX_KEPT:
            self.calls[key] += 1

    def stepped(self, name: str) -> None:
        """A step's mark with its number, which one process writes once."""
        self.steps[name] += 1

    def ran(self, process: object) -> None:
        """An event of a device."""
        key = process if isinstance(process, int | str) else None
        kept = key if key in self.devices or len(self.devices) < MAX_KEPT else None
        self.device.append(self.devices.setdefault(kept, len(self.devices)))

    def caller(self) -> int | None:
        """The process that called most, as it sees itself; None where the trace's numbers are no process's."""
        most = max(self.calls, key=lambda process: self.calls[process], default=None)
        number = int(most) if isinstance(most, str) and most.isdecimal() and len(most) < 12 else most
        return number if type(number) is int and number > 0 else None

    def count(self, events: GpuEvents, together: Bools) -> int:
        """Processes by their numbers, by step marks that are there again, by calls that cannot be of one stream.

        together: the events that are collectives for which all ranks wait.
        """
        most = max(self.calls.values(), default=0)
        callers = sum(1 for num in self.calls.values() if num >= max(LEAST_CALLS, SHARE * most))
        marked = max(self.steps.values(), default=1)
        return max(callers, marked, self._at_once(events, together))

    def is_doubled(self, events: GpuEvents) -> bool:
        """Whether device events are there again with the same times, which no two processes' are to the nanosecond."""
        if not events.begin_ns.size:
            return False
        device = np.frombuffer(self.device, dtype=np.int32)
        rows = np.stack([device, events.stream, events.begin_ns, events.end_ns])
        return 2 * int(distinct(rows, axis=1).shape[1]) <= events.begin_ns.size

    def _at_once(self, events: GpuEvents, together: Bools) -> int:
        """How many collectives of one stream of one device end at once, where that is no exception."""
        rows = np.flatnonzero(together)
        if rows.size < LEAST_OVERLAPS:
            return 1
        device = np.frombuffer(self.device, dtype=np.int32)[rows]
        streams = np.stack([device, events.stream[rows]])
        num, deepest = 0, 1
        for stream in distinct(streams, axis=1).T:
            mine = rows[(streams == stream[:, None]).all(axis=0)]
            end = np.sort(events.end_ns[mine])
            middle = np.sort(events.begin_ns[mine] + (events.end_ns[mine] - events.begin_ns[mine]) // 2)
            # Those whose later half began before this one's does, less those that ended.
            running = np.arange(mine.size) - np.searchsorted(end, middle, "right")
            num += int(np.count_nonzero(running > 0))
            deepest = max(deepest, 1 + int(running.max()))
        return deepest if num >= max(LEAST_OVERLAPS, OVERLAPPING * rows.size) else 1
