"""The training thread of a rank from outside: which it is, its counters, and what it does while the rank stands still.

In: the rank's process, and the thread's id as the process sees it.  Out: its id for us; counters that go on where
another thread takes over; stopped, running, waiting, asleep: one of THREAD_STATES or None. A rank that waits in a
collective on a CPU sleeps on a futex and uses no processor time; one that is stopped, computes or sleeps in another
system call has not come there.
Cost: nothing while the rank moves; four small files of /proc a second once it has stood for two.
"""

from __future__ import annotations

import platform
from typing import Final

from tuiadvisor.agent import procfs

STANDING_NS: Final = 2 * 10**9
LOOK_EVERY_NS: Final = 10**9
RUNNING_SHARE: Final = 0.5  # of the time between two looks
# futex and futex_wait by the numbers of the machine; where those are not known nothing is said.
_FUTEX: Final = {"x86_64": frozenset({b"202", b"449"}), "aarch64": frozenset({b"98", b"449"})}.get(
    platform.machine(), frozenset[bytes]()
)


def host_thread(pid: int, inner: int) -> int | None:
    """Our id of the thread that the process itself calls `inner`; None where it has no such thread.

    In a container of its own the process counts otherwise than we do.
    """
    if len(_ids(pid, f"task/{pid}/status")) <= 1:
        return inner if procfs.read(pid, f"task/{inner}/comm") is not None else None
    return next(
        (thread for thread in procfs.threads(pid) if _ids(pid, f"task/{thread}/status")[-1:] == [inner]), None
    )


def _ids(pid: int, name: str) -> list[int]:
    """The ids of a thread, from our PID namespace inwards."""
    lines = (procfs.read(pid, name) or b"").split(b"\n")
    return [int(word) for line in lines if line.startswith(b"NSpid:") for word in line.split()[1:]]


class TrainingThread:
    """Mutable: one a rank; says which of its threads trains and what the kernel has counted for it."""

    def __init__(self) -> None:
        self._told = 0
        self._found: int | None = None
        self._counted: int | None = None
        self._offsets: dict[str, float] = {}
        self._shown: dict[str, float] = {}

    def of(self, pid: int, told: int) -> int:
        """Our id of the thread that the ring names, the main thread's where it names none or one that has ended."""
        if told != self._told:
            self._told, self._found = told, host_thread(pid, told) if told else None
        return pid if self._found is None else self._found

    def going_on(self, thread: int, counted: dict[str, float]) -> dict[str, float]:
        """The thread's counters; where another has taken over they go on from where the former one's stood."""
        if thread != self._counted:
            is_first, self._counted = self._counted is None, thread
            self._offsets = (
                {} if is_first else {name: self._shown.get(name, 0) - now for name, now in counted.items()}
            )
        self._shown |= {name: now + self._offsets.get(name, 0) for name, now in counted.items()}
        return {name: self._shown[name] for name in counted}


class StandingThread:
    """Mutable: one a rank; ask with every status."""

    def __init__(self) -> None:
        self._state: str | None = None
        self._looked_ns = 0
        self._wanted_s = 0.0
        self._letter = ""  # of the look before

    def state(self, pid: int, since_ns: int, now_ns: int, thread: int | None = None) -> str | None:
        """What its thread (None: the main one) does; None while it has not stood still for long, or is not known."""
        if now_ns - since_ns < STANDING_NS:
            self._state, self._looked_ns, self._letter = None, 0, ""
            return None
        if now_ns - self._looked_ns >= LOOK_EVERY_NS:
            self._state = self._look(pid, pid if thread is None else thread, now_ns)
            self._looked_ns = now_ns
        return self._state

    def _look(self, pid: int, thread: int, now_ns: int) -> str | None:
        try:
            stat = procfs.parse_stat(procfs.read(pid, f"task/{thread}/stat") or b"")
        except ValueError:
            return None
        wanted_s = _wanted_s(pid, thread, stat)
        used_s, elapsed_s = wanted_s - self._wanted_s, (now_ns - self._looked_ns) / 1e9
        is_first, self._wanted_s = self._looked_ns == 0, wanted_s
        if stat.state == "t" and procfs.is_being_sampled(pid, thread):
            return self._state  # whoever looks into a hang, we among them, is not what it hangs on
        before, self._letter = self._letter, stat.state
        # What samples its stack by stopping it (py-spy) is met by one look in ten, a debugger by each.
        if stat.state == "T" or (stat.state == "t" and before in {"T", "t"}):
            return "stopped"
        if is_first:
            return None  # one look does not tell a moment's from lasting work
        if used_s >= RUNNING_SHARE * elapsed_s:
            return "running"
        return _asleep(pid, thread, stat.state)


def _wanted_s(pid: int, thread: int, stat: procfs.Stat) -> float:
    """Seconds that it had a core or was ready for one: on a crowded machine who computes has few of the first."""
    schedule = (procfs.read(pid, f"task/{thread}/schedstat") or b"").split()
    if len(schedule) == 3:
        return (int(schedule[0]) + int(schedule[1])) / 1e9
    return stat.cpu_ticks / procfs.TICKS_PER_S


def _asleep(pid: int, thread: int, state: str) -> str | None:
    if state == "D":
        return "blocked"
    if state != "S" or not _FUTEX:
        return None
    call = (procfs.read(pid, f"task/{thread}/syscall") or b"").split(b" ", 1)[0].strip()
    if call in _FUTEX:
        return "waiting"
    # "running" or -1: it has just woken up, or is stopped by a fault.
    return "asleep" if call.isdigit() else None
