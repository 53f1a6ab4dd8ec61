"""What the probe brings along does not bring the host's next full garbage collection forward.

In CPython but for 3.14.0 to 3.14.4 the collector looks at every object of the process once those that have survived its
looks at young ones are a quarter of all: 200 ms of a process with torch, with the interpreter's lock, so all ranks
wait. The probe's 4,000 classes, functions and the like are a twentieth of that quarter: one attach in twenty a rank,
and of 64 ranks nearly always some, stood still for it. So each piece of the probe passes to the oldest generation as it
is loaded, past that count: frozen and thawed again, which moves whole lists. Just before it the young objects there
are, the host's, are looked at as the collector was about to, so that no garbage of the host's passes along; where it
may have made some meanwhile, or has the collector do otherwise, the piece is counted as ever.
"""

from __future__ import annotations

import gc
import sys
import time
from operator import methodcaller
from types import SimpleNamespace

_MOST_YOUNG = (
    25_000  # more are not looked at: whoever has set the collector so, no attach brings it near a quarter
)
_ALONE_NS = 500_000  # of a piece's time, in which we did not compute: another thread may have
# From 3.12 on the collector sets some hundreds aside itself, again if thawed; a host that freezes has 4,000 at least.
_OWN_FROZEN = 2_000 if sys.version_info >= (3, 12) else 0
_MOST_LEFT = (
    16  # probes that have left and wait for a full collection, 1 MiB each: more of them are a reason for one
)


class Mark(SimpleNamespace):
    """One a probe, known to its base as long as the probe's garbage is not collected."""


def _is_of_use() -> bool:
    """Whether the collector counts so, and the garbage of probes that have left may grow."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return False
    # An incremental collector, taken back in 3.14.5 and 3.15; what 3.16 has is not known yet.
    if (3, 14) <= sys.version_info < (3, 14, 5) or sys.version_info >= (3, 16):
        return False
    # Not the attribute: of a class of the host's it may be anything, and raise.
    left: int = sum(_name_of(one) == Mark.__name__ for one in SimpleNamespace.__subclasses__())
    return left <= _MOST_LEFT


def _is_frozen() -> bool:
    """Whether the host has frozen objects, which we would thaw."""
    return gc.get_freeze_count() > _OWN_FROZEN


# In C from the one to the other: a handler of a signal may raise between any two of our lines, and all stay frozen.
_called = methodcaller("__call__")
_name_of = type.__dict__["__name__"].__get__
_of_use = _is_of_use()
_begun: list[int] = []  # the clock and this thread's processor time when a piece began


def begin() -> None:
    """A piece of the probe is about to be loaded: from here on what is young is the probe's."""
    global _of_use
    if not _of_use or not gc.isenabled() or gc.get_debug():  # which would have each look printed
        return
    if _is_frozen():
        _of_use = False
        return
    threshold, *_ = gc.get_threshold()
    newest, looks, _ = gc.get_count()
    if threshold and newest + looks * threshold <= _MOST_YOUNG:
        gc.collect(1)
        _begun[:] = time.monotonic_ns(), time.thread_time_ns()


def end() -> None:
    """It has been loaded."""
    if not _begun:
        return
    begin_ns, begin_cpu_ns = _begun
    _begun.clear()
    waited_ns = time.monotonic_ns() - begin_ns - (time.thread_time_ns() - begin_cpu_ns)
    if (
        waited_ns < _ALONE_NS and gc.isenabled() and not _is_frozen()
    ):  # in the meantime, or as it was told of our look
        any(map(_called, (gc.freeze, gc.unfreeze)))
