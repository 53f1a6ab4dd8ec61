"""What the training thread of a rank that stands still is doing, from outside: stopped, running, waiting, asleep.

In: the rank's process.  Out: one of THREAD_STATES or None. A rank that waits in a collective on a CPU sleeps on a futex
and uses no processor time; one that is stopped, computes or sleeps in another system call has not come there.
Cost: nothing while the rank moves; three small files of /proc a second once it has stood for two.
"""

from __future__ import annotations

import platform
from typing import Final

from tuiadvisor.agent import procfs

STANDING_NS: Final = 2 * 10**9
LOOK_EVERY_NS: Final = 10**9
RUNNING_SHARE: Final = 0.5  # of the time between two looks
_FUTEX: Final = frozenset({b"202", b"449"}) if platform.machine() == "x86_64" else frozenset[bytes]()


class StandingThread:
    """Mutable: one a rank; ask with every status."""

    def __init__(self) -> None:
        self._state: str | None = None
        self._looked_ns = 0
        self._cpu_ticks = 0

    def state(self, pid: int, since_ns: int, now_ns: int) -> str | None:
        """What its main thread does; None while it has not stood still for long, or when that is not known."""
        if now_ns - since_ns < STANDING_NS:
            self._state, self._looked_ns = None, 0
            return None
        if now_ns - self._looked_ns >= LOOK_EVERY_NS:
            self._state = self._look(pid, now_ns)
            self._looked_ns = now_ns
        return self._state

    def _look(self, pid: int, now_ns: int) -> str | None:
        raw = procfs.read(pid, f"task/{pid}/stat")
        if not raw:
            return None
        try:
            stat = procfs.parse_stat(raw)
        except ValueError:
            return None
        used_s = (stat.cpu_ticks - self._cpu_ticks) / procfs.TICKS_PER_S
        elapsed_s = (now_ns - self._looked_ns) / 1e9
        is_first, self._cpu_ticks = self._looked_ns == 0, stat.cpu_ticks
        if stat.state in "Tt":
            return "stopped"
        if is_first:
            return None  # one look does not tell a moment's from lasting work
        if used_s >= RUNNING_SHARE * elapsed_s:
            return "running"
        return _asleep(pid, stat.state)


def _asleep(pid: int, state: str) -> str | None:
    if state == "D":
        return "blocked"
    if state != "S" or not _FUTEX:
        return None
    call = (procfs.read(pid, f"task/{pid}/syscall") or b"").split(b" ", 1)[0].strip()
    if call in _FUTEX:
        return "waiting"
    # "running" or -1: it has just woken up, or is stopped by a fault.
    return "asleep" if call.isdigit() else None
