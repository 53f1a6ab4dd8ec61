"""Read a small file of the user's whole: settings, answers, sessions, ceilings.

In: its path, how much it may hold, what to do where it is none.  Out: its bytes, or one line of what is wrong. A pipe
or a device in its place would be read for ever, and a log of gigabytes before anybody looked at its size.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from tuiadvisor.errors import FailureError, TuiadvisorError

if TYPE_CHECKING:
    from pathlib import Path


def read_small(path: Path, most_bytes: int, remedy: str) -> bytes:
    """All bytes. TuiadvisorError: it is not there, no regular file or larger; FailureError: it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise TuiadvisorError(f"{path}: is no file; {remedy}")
        with path.open("rb") as file:
            raw = file.read(most_bytes + 1)
    except FileNotFoundError as error:
        raise TuiadvisorError(f"{path}: cannot be read: {error.strerror}") from error
    except OSError as error:
        raise FailureError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > most_bytes:
        size = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
        raise TuiadvisorError(f"{path}: larger than {size}; {remedy}")
    return raw
