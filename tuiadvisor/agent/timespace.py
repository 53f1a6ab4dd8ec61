"""A rank in a time namespace of its own: its monotonic clock and ours differ by what /proc says of both.

In: a process id, and times of either clock.  Out: times of the other. A lease in the wrong clock would have run out at
once, or never; a rank's times must compare with its agent's and with those of other ranks of the machine. Restored
and migrated containers (CRIU) live in such namespaces, and `unshare --time` makes one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from tuiadvisor.agent import procfs
from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS

Row = tuple[int, ...]
NS: Final = 10**9
_LAST: Final = 2**63 - 1
_STEP_TIMES: Final = frozenset(map(STEP_COLUMNS.index, ("begin_ns", "end_ns", "arrive_ns", "release_ns")))
_EVENT_TIMES: Final = frozenset(
    1 + EVENT_COLUMNS.index(name) for name in ("begin_ns", "end_ns")
)  # after the kind


@dataclass(frozen=True, slots=True)
class RankClock:
    """The monotonic clock of a rank, and by how much it is ahead of ours."""

    ahead_ns: int = 0

    def to_rank(self, ours_ns: int) -> int:
        """A moment of our clock on the rank's; 0 stays what it is: no moment."""
        return max(1, ours_ns + self.ahead_ns) if ours_ns else 0

    def to_us(self, theirs_ns: int) -> int:
        """A moment of the rank's clock on ours; 0 and -1 stay what they are: no moment."""
        # Whatever a ring says must fit a frame, and not become "unknown".
        return min(max(1, theirs_ns - self.ahead_ns), _LAST) if theirs_ns > 0 else theirs_ns

    def steps(self, rows: list[Row]) -> list[Row]:
        """Step records on our clock."""
        return self._shifted(rows, _STEP_TIMES)

    def events(self, rows: list[Row]) -> list[Row]:
        """Event records on our clock."""
        return self._shifted(rows, _EVENT_TIMES)

    def _shifted(self, rows: list[Row], times: frozenset[int]) -> list[Row]:
        if not self.ahead_ns:
            return rows
        return [
            tuple(self.to_us(value) if column in times else value for column, value in enumerate(row))
            for row in rows
        ]


OUR_CLOCK: Final = RankClock()


def clock_of(pid: int) -> RankClock:
    """The clock of this process; ours where the kernel knows no time namespaces or does not tell."""
    try:
        if os.readlink(f"/proc/{pid}/ns/time") == os.readlink("/proc/self/ns/time"):  # noqa: PTH115  a link of /proc
            return OUR_CLOCK
    except OSError:
        return OUR_CLOCK
    return RankClock(monotonic_offset_ns(pid) - monotonic_offset_ns(os.getpid()))


def monotonic_offset_ns(pid: int) -> int:
    """What the process's namespace adds to the machine's monotonic clock."""
    for line in (procfs.read(pid, "timens_offsets") or b"").splitlines():
        name, *fields = line.split()
        if name in {b"monotonic", b"1"} and len(fields) == 2:
            return int(fields[0]) * NS + int(fields[1])
    return 0
