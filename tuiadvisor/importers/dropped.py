"""Events of a device that a trace should hold and does not: the profiler's buffers were full, or it says so itself.

In: its launches, its warnings.  Out: how many are missing. A gap that they leave looks like idle time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

LAUNCHES_KERNEL: Final = (
    "aunchKernel"  # in the names of CUDA's and HIP's calls; a graph's launch has kernels of its own
)
DROPPED: Final = re.compile(r"\b[Dd]ropped (\d{1,12}) activity records")
MAX_WARNINGS, MAX_WARNING = 1000, 1000  # lines, and characters of one


def without_kernel(is_kernel: Bools, begin_ns: Ints, has_event: Bools) -> tuple[int, int]:
    """(launches of kernels whose kernel is not there, all such launches), between the first and last that has one.

    Those outside may have run before the profiler looked at the device, or after. In public traces it is none.
    """
    called_ns, ran = begin_ns[is_kernel], has_event[is_kernel]
    if not ran.any():
        return 0, 0
    inner = (called_ns >= called_ns[ran].min()) & (called_ns <= called_ns[ran].max())
    return int(np.count_nonzero(inner & ~ran)), int(np.count_nonzero(inner))


def said_dropped(warnings: object) -> int:
    """Kineto's own count: 'Dropped 128 activity records' among its warnings; 0 without."""
    lines = warnings[:MAX_WARNINGS] if isinstance(warnings, list) else [warnings]
    found = [DROPPED.search(line[:MAX_WARNING]) for line in lines if isinstance(line, str)]
    return sum(int(one[1]) for one in found if one)
