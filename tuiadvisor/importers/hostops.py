"""What an operator on the CPU is by its name: computation, communication, or a frame around others.

In: name and category of an event on the host.  Out: COMPUTE, COMM or None. Where training runs on the CPU these are
its device's intervals: gloo, MPI and UCC write one event from the moment their thread takes a call until it is
complete; computation is the operators themselves. What only stands around them (autograd's nodes, ranges named by
people, calls that hand work over and return) says nothing, and Python between two operators is neither.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tuiadvisor.metrics.traces.gpu_timeline import COMM, COMPUTE

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
