"""Which folder may hold a mapped file of a rank: its writes must not be able to fail later.

A write into a mapped file whose page cannot be had ends the writer by SIGBUS, and the writer is the training. So a
ring lies only where a reserved page stays reserved, and where the training keeps room for itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

MIB: Final = 1 << 20
# The training needs room there too (loaders share their batches in /dev/shm): we never take the last of it.
LEFT_TO_OTHERS_BYTES: Final = 16 * MIB
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


def _kind(folder_fd: int) -> int | None:
    """The file system's magic number; None where the machine does not say."""
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    try:
        if ctypes.CDLL(None).fstatfs(folder_fd, buffer) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return int.from_bytes(buffer.raw[:4], "little")
