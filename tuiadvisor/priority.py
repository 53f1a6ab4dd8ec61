"""Whoever watches waits until a core is free, or the kernel has let the training compute for a while.

Woken ten times a second, a process of ours would take a full core from a rank in the middle of a step, and the other
ranks would wait for that one. Under Linux's batch policy a thread that wakes takes no core from one that computes; its
share of a core stays the usual one, so that on a crowded host we are late rather than starved. No rights are needed,
neither to begin nor to end it.
"""

from __future__ import annotations

import os
from contextlib import suppress


def give_way() -> None:
    """From now on, for this thread and for threads and processes that it starts; nothing where no such policy is."""
    _set("SCHED_BATCH")


def no_longer() -> None:
    """As everybody: for this thread, which will stop a rank and must not leave it so for longer than needed."""
    _set("SCHED_OTHER")


def _set(policy: str) -> None:
    with suppress(AttributeError, OSError):  # another system; a sandbox
        ours = os.SCHED_OTHER, os.SCHED_BATCH
        if os.sched_getscheduler(0) in ours:  # else somebody chose: SCHED_IDLE, real time
            os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
