"""How often a look at a rank's process found it stopped, ten looks a second, for the payloads of HOST frames.

A process that is stopped for 20 of every 50 ms is met by one look a second about as often as by chance; no counter of
the kernel tells it. In: /proc/PID/stat (8 us a look).  Out: two counts a process, which only grow, and when
the looks since the last sample found it stopped.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_LOOKS: Final = 16  # at once; a node with more ranks looks at each of them less often
MAX_TIMES: Final = 32  # of a process between two samples, a second apart
STOPPED_STATES: Final = "Tt"


class StateLooks:
    """Mutable: look now and then, ask for the counts when a sample is due."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, int]] = {}  # pid -> (looks, of them stopped)
        self._stopped_at_ns: dict[int, list[int]] = {}  # since the last sample
        self._next = 0

    def look(self, pids: Sequence[int]) -> None:
        """At the next few of these processes, in turn."""
        for _ in range(min(MAX_LOOKS, len(pids))):
            self._next = (self._next + 1) % len(pids)
            pid = pids[self._next]
            found = procfs.stat(pid)
            if found is not None and found.is_alive:
                looks, stopped = self._counts.get(pid, (0, 0))
                is_stopped = found.state in STOPPED_STATES
                self._counts[pid] = looks + 1, stopped + is_stopped
                times_ns = self._stopped_at_ns.setdefault(pid, []) if is_stopped else []
                if is_stopped and len(times_ns) < MAX_TIMES:
                    times_ns.append(time.monotonic_ns())

    def counts(self, pid: int) -> dict[str, int | list[int]]:
        """The fields of a rank; none before the first look. The times are told once, and only where there are any."""
        if pid not in self._counts:
            return {}
        looks, stopped = self._counts[pid]
        times_ns = self._stopped_at_ns.pop(pid, [])
        return {"looks": looks, "stopped_looks": stopped, **({"stopped_at_ns": times_ns} if times_ns else {})}

    def keep(self, pids: Sequence[int]) -> None:
        """Forget all others: their numbers may come again."""
        self._counts = {pid: self._counts[pid] for pid in pids if pid in self._counts}
        self._stopped_at_ns = {pid: self._stopped_at_ns[pid] for pid in pids if pid in self._stopped_at_ns}
