"""Know a forked child (loader worker) from the rank itself, without a system call.

The child inherits hooks and the ring's mapping and must touch neither. One private page holds the training
thread's ident; the kernel hands a child that page emptied, so comparing the ident answers "right thread?" and
"right process?" in one read, 30 ns where getpid costs 100.
"""

from __future__ import annotations

import mmap
from typing import Any

_WIPE_ON_FORK = 18  # MADV_WIPEONFORK, Linux 4.14; the mmap module has no name for it


def page_with(ident: int) -> Any:
    """Something whose [0] is ident here and 0 in a forked child; on older kernels a list, which a child inherits."""
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_WIPE_ON_FORK)
    except (OSError, ValueError, AttributeError):
        return [ident]
    words = memoryview(page).cast("Q")
    words[0] = ident
    return words
