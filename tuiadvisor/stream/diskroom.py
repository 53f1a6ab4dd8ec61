"""How far a recording may fill its file system: never up to the room that the training's checkpoints need.

In: the recording's descriptor, and how much was written.  Out: nothing, or in one sentence why the recording ends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MIB: Final = 1 << 20
# What is left to others: a twentieth, as ext4 sets aside for root, and no more than logs and the end of the recording
# itself need: whoever records on a large disk that is nearly full may go on.
LEFT_SHARE: Final = 1 / 20
MAX_LEFT_BYTES: Final = 256 * MIB
# Looked at so often; between two looks a flood of frames takes a thirty-second of MAX_LEFT_BYTES at most.
LOOK_S: Final = 1.0
LOOK_BYTES: Final = 8 * MIB


class DiskRoom:
    """Mutable: ask it before writing."""

    def __init__(self, descriptor: int, statvfs: Callable[[int], os.statvfs_result] = os.fstatvfs) -> None:
        """descriptor: of a file on the file system, open as long as this is asked."""
        self._descriptor = descriptor
        self._statvfs = statvfs
        self._look_s = self._look_bytes = float("-inf")

    def shortage(self, now_s: float, num_bytes: int) -> str:
        """What is wrong, empty while there is room. num_bytes: the recording's with what is to be written next."""
        if now_s < self._look_s + LOOK_S and num_bytes < self._look_bytes + LOOK_BYTES:
            return ""
        self._look_s, self._look_bytes = now_s, num_bytes
        try:
            found = self._statvfs(self._descriptor)
        except OSError:
            return ""  # a file system that does not say: writing will tell
        free, left = found.f_bavail * found.f_frsize, left_to_others(found)
        if not found.f_blocks or free >= left:  # without blocks at all: a file system without a limit
            return ""
        return f"{free / MIB:.1f} MiB free, {left / MIB:.1f} MiB are left to the training"


def left_to_others(found: os.statvfs_result) -> int:
    """Bytes that a recording leaves free on this file system."""
    return min(int(LEFT_SHARE * found.f_blocks * found.f_frsize), MAX_LEFT_BYTES)
