"""Which folder may hold a mapped file of a rank, and whether its memory bears an attach at all.

A write into a mapped file whose page cannot be had ends the writer by SIGBUS, and the writer is the training. So a
ring lies only where a reserved page stays reserved, and where the training keeps room for itself. A page beyond the
limit of a control group ends its largest process, and that is the training, too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import psutil

from tuiadvisor import expendable
from tuiadvisor.agent import cgroup, procfs
from tuiadvisor.errors import FailureError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MIB: Final = 1 << 20
# The training needs room there too (loaders share their batches in /dev/shm): we never take the last of it.
LEFT_TO_OTHERS_BYTES: Final = 16 * MIB
# What a rank may grow by while it is attached to: the aim that tests/benchmarks/memory.py holds attaches to. An attach
# was charged to the rank's control group with 3.6 MiB at most (tests/benchmarks/RESULTS.md, 2026-12-01).
ATTACH_BYTES: Final = 8 * MIB
# From when an attach is let in until the kernel has all of it in its account: 64 ranks of a node were all attached to
# within 4 s (tests/benchmarks/RESULTS.md).
CHARGED_AFTER_S: Final = 4.0
# A rank stands still while its trace is put together and written: 40 us an event of 1.5 kB on the slowest machine it
# was tried on, so a minute for this much, a tenth of the time after which NCCL's watchdog ends a job (ten minutes).
MOST_TRACE_BYTES: Final = 2048 * MIB
# Memory that a trace takes before it is written, by the size of its file: 5.8 to 6.4 times, with shapes 9 (likewise).
MEMORY_OF_FILE: Final = 5
_NEVER: Final = -1000  # of oom_score_adj: who says so is not taken at all
# The kernel's oom_badness (mm/oom_kill.c), by their names in /proc/PID/status, in kB.
_WEIGHED: Final = ("VmRSS:", "VmSwap:", "VmPTE:")
PLACES: Final = ("/dev/shm", "/tmp", "/var/tmp")  # noqa: S108  # the names below them are random and owner-only
# By their magic numbers in statfs(2). Others may need a new block for each write (btrfs, zfs, bcachefs, f2fs) or wait
# for a network (nfs, fuse): there a reserved page is no promise.
_KEEPS_ITS_PAGES: Final = {
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
    0x0000EF53: "ext4",
    0x58465342: "xfs",
    0x794C7630: "overlay",
}
_STATFS_BYTES: Final = 256  # more than the struct has anywhere


def check_ring_fits(folder_fd: int, num_bytes: int) -> None:
    """OSError if a mapped file of that size in this folder could harm whoever writes it, or take the last room."""
    kind = _kind(folder_fd)
    if kind is not None and kind not in _KEEPS_ITS_PAGES:
        raise OSError(
            errno.EOPNOTSUPP, f"a file system of type {kind:#x} cannot reserve room for a mapped file"
        )
    check_room(folder_fd, num_bytes)


def check_room(folder_fd: int, num_bytes: int) -> None:
    """OSError if the file system would not keep LEFT_TO_OTHERS_BYTES free beside so many bytes of ours."""
    found = os.fstatvfs(folder_fd)
    free, needed = found.f_bavail * found.f_frsize, num_bytes + LEFT_TO_OTHERS_BYTES
    if found.f_blocks and free < needed:  # without blocks at all: a file system without a limit
        raise OSError(errno.ENOSPC, f"{free / MIB:.1f} MiB free, {needed / MIB:.1f} MiB needed")


class MemoryRoom:
    """Room in ranks' control groups, less what attaches will take that were let in just now; for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._let_in: list[tuple[float, Path]] = []  # (when, group)

    def take(self, pid: int, ring_bytes: int, now_s: float) -> None:
        """For one attach. FailureError where a group of the rank's would not keep LEFT_TO_OTHERS_BYTES beside it.

        What the kernel does not say is no reason to refuse.
        """
        ours = set(cgroup.folders(os.getpid(), "memory"))  # a ring in memory is its maker's
        with self._lock:
            self._let_in = [
                (since_s, group) for since_s, group in self._let_in if now_s - since_s < CHARGED_AFTER_S
            ]
            limits = cgroup.memory_limits(pid)
            for limit in limits:
                is_shared = limit.folder in ours
                num = 1 + sum(group == limit.folder for _, group in self._let_in)
                needed = num * (ATTACH_BYTES + ring_bytes * is_shared) + LEFT_TO_OTHERS_BYTES
                if limit.free < needed:
                    raise FailureError(_too_little(pid, limit, needed, is_shared=is_shared))
            self._let_in += [(now_s, limit.folder) for limit in limits]


_MEMORY_ROOM: Final = MemoryRoom()


def take_memory(pid: int, ring_bytes: int) -> None:
    """FailureError in place of an attach for which memory might run out, which would end the training."""
    _MEMORY_ROOM.take(pid, ring_bytes, time.monotonic())


def check_own(groups: Sequence[Path]) -> None:
    """FailureError where our own processes might use up a control group and the kernel would end a training for it.

    groups: of ours that it ends as a whole (`expendable.groups_that_end_together`). A limit above them ends them, too;
    one below takes its own processes alone. In other groups: where a process goes before us all the same.
    """
    for limit in sorted(cgroup.memory_limits(os.getpid()), key=lambda limit: limit.free):
        if limit.free >= expendable.WATCHER_BYTES:
            return
        if any(limit.folder in (group, *group.parents) for group in groups):
            what = "all its processes, a training in it too (memory.oom.group)"
        elif pid := _goes_before_us(limit):
            what = f"process {pid} before us: with pages that are charged elsewhere it is larger than the group's use"
        else:
            continue
        left = f"{limit.free / MIB:.0f} MiB of {limit.limit / MIB:,.0f} left"
        needed = f"less than the {expendable.WATCHER_BYTES // MIB} MiB this may take"
        raise FailureError(
            f"control group {limit.folder} has {left}, {needed}, and "
            f"where it runs out the kernel ends {what}; raise the limit, or watch from outside of the group"
        )


def _goes_before_us(limit: cgroup.MemoryLimit) -> int:
    """A process of the group that the kernel would take although we are more expendable; 0: none.

    It takes the largest sum of what a process holds and of its oom_score_adj in thousandths of the limit. Ours is the
    limit and a little. A process holds pages, too, that are charged to another group: those of libraries that somebody
    else has read first, some 500 MB of a torch with CUDA. So it may be larger than a limit that it keeps.
    """
    own_score = expendable.score_of(os.getpid()) or 0
    largest, found = own_score * limit.limit // expendable.MOST, 0
    for pid in cgroup.processes(limit.folder):
        score = expendable.score_of(pid)
        if pid == os.getpid() or score is None or not _NEVER < score < own_score:
            continue
        # What is left may become that process's, in place of ours.
        weight = _held(pid) + limit.free + score * limit.limit // expendable.MOST
        if weight >= largest:
            largest, found = weight, pid
    return found


def _held(pid: int) -> int:
    """Bytes that the kernel weighs a process by: resident, swapped out, and its page tables."""
    lines = (procfs.read(pid, "status") or b"").decode("ascii", "replace").splitlines()
    words = [line.split() for line in lines]
    return sum(int(word[1]) for word in words if word[0] in _WEIGHED and word[1].isdecimal()) * 1024


class TraceLimit(NamedTuple):
    """What a rank may grow by for a profiler's trace, and what it is a share of, in words."""

    num_bytes: int
    why: str


def trace_limit(pid: int, folder_fd: int, num_ranks: int) -> TraceLimit:
    """Of a rank that is one of num_ranks at once on this machine; folder_fd: where its file will lie.

    Half of what is left of its control groups, of the machine's memory or of the file system, shared by these ranks:
    the other half stays the training's. Never more than MOST_TRACE_BYTES.
    """
    found = os.fstatvfs(folder_fd)
    left = [(limit.free, f"its control group {limit.folder} has left") for limit in cgroup.memory_limits(pid)]
    left.append((psutil.virtual_memory().available, "this machine's memory has left"))
    if found.f_blocks:
        on_disk = found.f_bavail * found.f_frsize
        left.append((on_disk * MEMORY_OF_FILE, "the folder of its files has left"))
    free, why = min(left)
    share = max(1, (free - LEFT_TO_OTHERS_BYTES) // 2 // max(1, num_ranks))  # 0 would be no limit
    if share > MOST_TRACE_BYTES:
        return TraceLimit(MOST_TRACE_BYTES, "more would stand still for over a minute")
    return TraceLimit(share, f"half of what {why}" + (f", shared by {num_ranks} ranks" * (num_ranks > 1)))


def _too_little(pid: int, limit: cgroup.MemoryLimit, needed: int, *, is_shared: bool) -> str:
    left = f"{limit.free / MIB:.1f} MiB of memory left of {limit.limit / MIB:,.0f} MiB"
    what = f"process {pid}: its control group {limit.folder} has {left}, and an attach needs {needed / MIB:.1f} MiB"
    outside = ", watch from outside of the group" if is_shared else ""
    return f"{what}; raise the limit{outside} or let the training take less, then watch again"


def _kind(folder_fd: int) -> int | None:
    """The file system's magic number; None where the machine does not say."""
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    try:
        if ctypes.CDLL(None).fstatfs(folder_fd, buffer) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return int.from_bytes(buffer.raw[:4], "little")
