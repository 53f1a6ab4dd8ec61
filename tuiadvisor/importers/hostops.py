"""What an operator on the CPU is by its name: computation, communication, or a frame around others.

In: name and category of an event on the host.  Out: COMPUTE, COMM or None. Where training runs on the CPU these are
its device's intervals: gloo, MPI and UCC write one event from the moment their thread takes a call until it is
complete; computation is the operators themselves. What only stands around them (autograd's nodes, ranges named by
people, calls that hand work over and return) says nothing, and Python between two operators is neither.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.traces.gpu_timeline import COMM, COMPUTE

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Ints
    from tuiadvisor.metrics.traces.gpu_timeline import GpuEvents

HOST_CATEGORIES: Final = frozenset(("cpu_op", "user_annotation"))
# torch/csrc/distributed/c10d: each backend's profiling title is "backend:call".
BACKEND_CALL: Final = re.compile(r"(?:gloo|mpi|ucc):[a-z_]+")
FRAMES: Final = (
    "c10d::",
    "c10d_functional::",
    "_c10d_functional::",
    "_dtensor::",
    "autograd::",
    "torch::",
    "profiler::",
)
COMPILED: Final = re.compile(r"Torch-Compiled Region|CompiledFunction(?:Backward)?$")


@lru_cache(maxsize=1 << 14)
def host_kind(name: str, category: str) -> int | None:
    """COMPUTE, COMM, or None for what is neither; category in lower case."""
    if BACKEND_CALL.fullmatch(name):
        return COMM
    if category != "cpu_op":
        return None
    if COMPILED.match(name):
        return COMPUTE
    is_operator = "::" in name and not name.startswith(FRAMES) and "." not in name.partition("::")[0]
    return COMPUTE if is_operator else None


def own_times(events: GpuEvents) -> Ints:
    """Of each operator its time without that of the operators that it calls, on its thread."""
    own = (events.end_ns - events.begin_ns).astype(np.int64)
    begin, end, thread = events.begin_ns.tolist(), events.end_ns.tolist(), events.stream.tolist()
    callers: list[int] = []
    for at in _in_order(events).tolist():
        while callers and (thread[callers[-1]] != thread[at] or end[callers[-1]] <= begin[at]):
            callers.pop()
        if callers:
            own[callers[-1]] -= min(end[at], end[callers[-1]]) - begin[at]
        callers.append(at)
    return np.maximum(own, 0)


def outermost(events: GpuEvents) -> Bools:
    """Operators that no other one of their thread has called."""
    found = np.zeros(events.begin_ns.size, dtype=np.bool_)
    end, last = -1, -1
    ends, threads = events.end_ns.tolist(), events.stream.tolist()
    for at in _in_order(events).tolist():
        if threads[at] != last or ends[at] > end:
            found[at], end, last = True, ends[at], threads[at]
    return found


def _in_order(events: GpuEvents) -> Ints:
    """By thread and begin, the longer first: callers before what they call."""
    return np.lexsort((-events.end_ns, events.begin_ns, events.stream))
