"""How looks at a rank's process found it, ten looks a second, for the payloads of HOST frames.

Three states are asked for. Stopped: a process that is stopped for 20 of every 50 ms is met by one look a second about
as often as by chance; no counter of the kernel tells it. Waiting for storage (`storage_state`), of its training thread
and of the workers of its data loader: what the kernel counts of such waits (delayacct) is off by default. Who maps a
file or reads it through a cache is met too. Running, of these workers.
In: /proc/PID/stat (8 us a look), and where a thread sleeps, wchan.  Out: counts a rank, which only grow, and when the
looks since the last sample found it stopped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import random
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs
from tuiadvisor.agent.loader_workers import worker_pids
from tuiadvisor.agent.storage_state import waits_for_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

PAUSE_NS: Final = 10**8  # between two looks, on average
# Of that, by lot: a whole round of what stops a rank every 100 ms or more often, as a control group's quota does. Looks
# at a fixed distance fall in with such a thing, and find it each time for seconds, and then never.
BY_LOT: Final = 1.0
MAX_LOOKS: Final = 16  # at once; a node with more ranks looks at each of them less often
MAX_WORKERS: Final = 2  # of a rank at once, in turn
MAX_THREADS: Final = 8  # of a worker, beside its main one
MAX_KNOWN: Final = 64  # workers of a rank: as many look alike, and names are anybody's to take
MAX_TIMES: Final = 32  # of a process between two samples, a second apart
STOPPED_STATES: Final = "Tt"
RUNNING_STATE: Final = "R"
# Between two searches for workers: some ms where a rank has two hundred threads. Who has gone has a successor, mostly.
SEARCH_NS: Final = 5 * 10**9
SEARCH_SOONER_NS: Final = 10**9


@dataclass(slots=True)
class _Rank:
    """Counts so far."""

    looks: int = 0
    stopped: int = 0
    storage: int = 0  # found its training thread waiting for storage
    data_storage: int = 0  # while it waited for data: what else it writes or maps is not what it reads
    worker_looks: int = 0
    worker_storage: int = 0
    worker_running: int = 0  # on a core, or ready to
    stopped_at_ns: list[int] = field(default_factory=list)  # since the last sample
    workers: dict[int, int] = field(default_factory=dict)  # pid -> ticks at which it began
    next_worker: int = 0
    searched_ns: int | None = None
    has_lost_one: bool = False

    def search(self, pid: int, now_ns: int) -> None:
        """For its workers, if it is time to."""
        pause_ns = SEARCH_SOONER_NS if self.has_lost_one else SEARCH_NS
        if self.searched_ns is not None and now_ns - self.searched_ns < pause_ns:
            return
        self.searched_ns, self.has_lost_one = now_ns, False
        found = {worker: procfs.stat(worker) for worker in worker_pids(pid)[:MAX_KNOWN]}
        self.workers = {worker: stat.start_ticks for worker, stat in found.items() if stat is not None}

    def look_at_workers(self) -> None:
        """At the next few of them, in turn."""
        pids = list(self.workers)
        for _ in range(min(MAX_WORKERS, len(pids))):
            self.next_worker = (self.next_worker + 1) % len(pids)
            pid = pids[self.next_worker]
            found = procfs.stat(pid)
            if found is None or not found.is_alive or found.start_ticks != self.workers.get(pid):
                self.workers.pop(pid, None)  # its number may come again
                self.has_lost_one = True
                continue
            self.worker_looks += 1
            in_storage, is_running = _does(found)
            self.worker_storage += in_storage
            self.worker_running += is_running and not in_storage


def _does(worker: procfs.Stat) -> tuple[bool, bool]:
    """(waits for storage, runs) of a worker process: whatever any of its threads does, of which it mostly has one."""
    if waits_for_storage(worker.pid, worker.pid, worker.state):
        return True, False
    if worker.state == RUNNING_STATE or worker.num_threads < 2:
        return False, worker.state == RUNNING_STATE
    others = [
        found
        for thread in procfs.threads(worker.pid)[1 : 1 + MAX_THREADS]
        if (found := procfs.stat_of_thread(worker.pid, thread)) is not None
    ]
    in_storage = any(waits_for_storage(worker.pid, one.pid, one.state) for one in others)
    return in_storage, any(one.state == RUNNING_STATE for one in others)


def is_stopped(found: procfs.Stat) -> bool:
    """By a signal, a frozen job, a debugger or a profiler; our own looks at its stack hold up nobody's steps."""
    return found.state in STOPPED_STATES and not (
        found.state == "t" and procfs.is_ours(procfs.tracer(found.pid, found.pid))
    )


def pause_ns() -> int:
    """Until the next look."""
    return int(PAUSE_NS * (1 - BY_LOT / 2 + BY_LOT * random()))  # noqa: S311 - nobody gains by guessing it


class StateLooks:
    """Mutable: look now and then, ask for the counts when a sample is due."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}  # by process
        self._next = 0

    def look(
        self, threads: Mapping[int, int], waits_for_data: Callable[[int], bool] = lambda _pid: False
    ) -> None:
        """At the next few of these processes, in turn; threads: of each, the one that trains.

        waits_for_data: whether a process does so at this moment; asked of those that are met waiting for storage.
        """
        pids, now_ns = list(threads), time.monotonic_ns()
        for _ in range(min(MAX_LOOKS, len(pids))):
            self._next = (self._next + 1) % len(pids)
            pid = pids[self._next]
            found = procfs.stat(pid)
            if found is None or not found.is_alive:
                continue
            rank = self._ranks.setdefault(pid, _Rank())
            thread = threads[pid]
            of_thread = found if thread == pid else procfs.stat_of_thread(pid, thread)
            rank.looks += 1
            in_storage = of_thread is not None and waits_for_storage(pid, thread, of_thread.state)
            rank.storage += in_storage
            rank.data_storage += in_storage and waits_for_data(pid)
            if is_stopped(found):
                rank.stopped += 1
                if len(rank.stopped_at_ns) < MAX_TIMES:
                    rank.stopped_at_ns.append(time.monotonic_ns())
            rank.search(pid, now_ns)
            rank.look_at_workers()

    def counts(self, pid: int) -> dict[str, int | list[int]]:
        """The fields of a rank; none before the first look. The times are told once, and only where there are any."""
        rank = self._ranks.get(pid)
        if rank is None:
            return {}
        times_ns, rank.stopped_at_ns = rank.stopped_at_ns, []
        return {
            "looks": rank.looks,
            "stopped_looks": rank.stopped,
            "storage_looks": rank.storage,
            "data_storage_looks": rank.data_storage,
            "workers": len(rank.workers),
            "worker_looks": rank.worker_looks,
            "worker_storage_looks": rank.worker_storage,
            "worker_running_looks": rank.worker_running,
            **({"stopped_at_ns": times_ns} if times_ns else {}),
        }

    def keep(self, pids: Collection[int]) -> None:
        """Forget all others: their numbers may come again."""
        self._ranks = {pid: self._ranks[pid] for pid in pids if pid in self._ranks}
