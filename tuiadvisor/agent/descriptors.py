"""File descriptors of the agent: as many as it may have, and never the last ones for one rank more.

A rank takes three. Without any left, a process that cannot be looked at would pass for one that has ended.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import Final

from tuiadvisor.errors import FailureError

SPARE: Final = 160  # what attaches under way, samplers and looks at /proc take at once
_OURS: Final = "/proc/self/fd"


def raise_limit() -> None:
    """The soft limit, often 1024, to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def refuse_without_room(pid: int) -> None:
    """FailureError where a further rank would take descriptors that those we have need."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return
    with suppress(OSError):
        if len(os.listdir(_OURS)) + SPARE <= limit:  # noqa: PTH208  pathlib costs more and says no more
            return
    what = f"process {pid}: the agent may have {limit} open files, and the ranks before it take them all"
    raise FailureError(
        f"{what}; raise the limit (ulimit -Hn, or LimitNOFILE of the service), then watch again"
    )
