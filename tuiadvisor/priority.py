"""Whoever watches waits until a core is free, or the kernel has let the training compute for a while.

Woken ten times a second, a process of ours would take a full core from a rank in the middle of a step, and the other
ranks would wait for that one. Under Linux's batch policy a thread that wakes takes no core from one that computes; its
share of a core stays the usual one, so that on a crowded host we are late rather than starved. No rights are needed,
neither to begin nor to end it.

Many kernels share cores among sessions first (sched_autogroup), and among the processes of a session then: niceness
counts within one's own session alone, where we are by ourselves. A session has a niceness, too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_OF_SESSION: Final = Path("/proc/self/autogroup")


def give_way() -> None:
    """From now on, for this thread and for threads and processes that it starts; nothing where no such policy is."""
    _set("SCHED_BATCH")


def yield_as_session(niceness: int) -> None:
    """Towards other sessions, where this one is ours: its other processes are then our children."""
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # another kernel; a sandbox
            _OF_SESSION.write_text(str(niceness), encoding="ascii")


def no_longer() -> None:
    """As everybody: for this thread, which will stop a rank and must not leave it so for longer than needed."""
    _set("SCHED_OTHER")


def _set(policy: str) -> None:
    with suppress(AttributeError, OSError):  # another system; a sandbox
        ours = os.SCHED_OTHER, os.SCHED_BATCH
        if os.sched_getscheduler(0) in ours:  # else somebody chose: SCHED_IDLE, real time
            os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
