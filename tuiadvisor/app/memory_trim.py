"""Memory of the process behind the screens: freed blocks go back to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

# <malloc.h> of glibc. Setting a threshold also stops glibc from raising it to 32 MB after the first large array, which
# kept 30 MB of passing arrays in the process (129 MB instead of 98 with 10,000 rank-steps/s of 64 ranks coming in).
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8  # a second arena, of the feed's thread, does not shrink
# A column of the largest table (MAX_TABLE_CELLS and one step more of each rank) is a bit more than 1 MiB, and a view
# makes some eighty: with a block of the system's own for each, fresh pages were 100 of 240 ms of processor time,
# and the process held 4 MB less.
LARGE_BYTES: Final = 1 << 21
# Some twelve of those columns come and go within a view: at 4 MiB they went back and came as fresh pages several times,
# 1,800 to 2,200 faults a seek in a recording of 512 ranks instead of 600. The process rests at 5 MB more (of 208).
TRIMMED_BYTES: Final = 1 << 24


def give_back_large_blocks() -> None:
    """Have freed arrays go back to the system; elsewhere than on glibc nothing happens."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, TRIMMED_BYTES)
