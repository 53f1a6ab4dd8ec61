"""Stacks sampled by a thread inside a process, which ends by itself.

In: the process, for how long, how often, and what it may take.  Out: what the process says, unread.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent.ownfolder import new_folder
from tuiadvisor.agent.payload import standalone_code
from tuiadvisor.errors import FailureError
from tuiadvisor.inject import inject

if TYPE_CHECKING:
    from tuiadvisor.agent.discovery import RankProcess

NS: Final = 10**9
LONGEST: Final = 3  # times the window, as in tuiadvisor_probes.stuck
PATIENCE_S: Final = 5.0  # beyond that, for an interpreter that is held in C
LOOK_S: Final = 0.05
MAX_BYTES: Final = 4 << 20


def samples_inside(process: RankProcess, window_s: float, period_s: float, budget_ppm: int) -> bytes:
    """What it writes. OSError or TuiadvisorError where it cannot be asked, FailureError where it does not answer."""
    files = new_folder(process)
    try:
        arguments = (files.inner_directory, int(window_s * NS), int(period_s * NS), budget_ppm)
        inject(process.identity, standalone_code("stuck", f"sample{arguments!r}"))
        deadline_s = time.monotonic() + LONGEST * window_s + PATIENCE_S
        while time.monotonic() < deadline_s:
            with suppress(OSError):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open("state.json", flags, dir_fd=files.directory_fd), "rb") as file:
                    return file.read(MAX_BYTES)
            time.sleep(LOOK_S)
        raise FailureError("its interpreter does not answer: a thread holds it in C")
    finally:
        files.remove()
