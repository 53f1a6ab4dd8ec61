"""Read a file somebody else has named: a plain one only, only so much of it, and without waiting for anybody.

In: a descriptor opened with O_PATH, which has not touched the file yet.  Out: its beginning. A FIFO would wait for a
writer, a terminal or a tape would act on being opened: what is not a plain file is never opened at all.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_plain(path_fd: int, max_bytes: int) -> bytes:
    """The first bytes of the file. OSError where it is not a plain file or may not be read."""
    if not stat.S_ISREG(os.fstat(path_fd).st_mode):
        raise OSError(errno.EINVAL, "not a plain file")
    with os.fdopen(os.open(f"/proc/self/fd/{path_fd}", _FLAGS), "rb", buffering=0) as file:
        parts, left = [], max_bytes
        while left > 0 and (data := file.read(min(left, 1 << 20))):
            parts.append(data)
            left -= len(data)
    return b"".join(parts)
