"""What those do who read for the ranks, where all ranks wait for their batches: wait for storage, compute, or neither.

In: looks at the worker processes of the data loaders, or, where the training threads make their batches themselves,
looks at these and the kernel's count of how long they ran and were ready to.
Out: their shares, and which of the three it surely is. Slow storage and slow transforms have other cures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from tuiadvisor.metrics.lateness.late_phase import NUM_STANDARD_ERRORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.lateness.off_core import OffCore

MOSTLY: Final = 0.5  # of the looks, surely: chosen, what else they do is less than that
MIN_LOOKS: Final = 20  # chosen: of fewer two standard deviations are a fifth and more
MIN_WAIT: Final = 0.05  # of the step: as of rule input_bound; of less nobody asks why

Doing = Literal["storage", "computing", "neither"]


@dataclass(frozen=True, slots=True)
class Readers:
    """Shares of the looks at them, the mean over ranks."""

    storage: float
    running: float | None  # workers that had a core or wanted one; a training thread has other work too
    in_workers: bool
    doing: Doing | None  # None: no part is surely the larger one, or not on most ranks
    of_wait: float | None = None  # of a training thread's wait for data, what it surely computes or sleeps
    most_workers: float = 0.0  # processes of a rank's loaders: of more than one loader some are idle


def readers_of_all(seen: Sequence[OffCore], wait: float) -> Readers | None:
    """What the looks at whoever reads found; None where they were not looked at, or too briefly.

    wait: share of its time that the typical rank waits for data, of which it has to explain half. Workers that are
    behind are never idle, a training thread reads for no longer than that. Ranks with one storage wait together, so of
    many ranks at one moment the error is that of one. It is said if most ranks do it, and none surely something else.
    """
    kinds = {one.reads_in_workers for one in seen}
    if len(kinds) != 1 or any(one.storage is None or one.num_looks < MIN_LOOKS for one in seen):
        return None
    together = _together(seen, wait, in_workers=kinds.pop())
    own = [_together([one], wait, in_workers=together.in_workers).doing for one in seen]
    agree = sum(one == together.doing for one in own)
    if together.doing is None or (2 * agree > len(seen) and agree + own.count(None) == len(seen)):
        return together
    return replace(together, doing=None, of_wait=None)


def _together(seen: Sequence[OffCore], wait: float, *, in_workers: bool) -> Readers:
    num = float(np.median([one.num_looks for one in seen]))
    storage = float(np.mean([one.storage or 0.0 for one in seen]))
    if not in_workers:
        if storage - _error(storage, num) >= MOSTLY * wait:
            return Readers(storage, None, in_workers=False, doing="storage")
        return _in_threads(seen, storage, wait)
    runnings = [one.running for one in seen if one.running is not None]
    running = float(np.mean(runnings)) if len(runnings) == len(seen) else None
    doing: Doing | None = None
    if storage - _error(storage, num) >= MOSTLY:
        doing = "storage"
    elif running is not None and running - _error(running, num) >= MOSTLY:
        doing = "computing"
    elif running is not None and storage + running + _error(storage + running, num) < MOSTLY:
        doing = "neither"
    most_workers = max((one.num_workers or 0.0 for one in seen), default=0.0)
    return Readers(storage, running, in_workers=True, doing=doing, most_workers=most_workers)


def _in_threads(seen: Sequence[OffCore], storage: float, wait: float) -> Readers:
    """What threads that make their batches themselves do meanwhile; they run in the rest of a step, too, or not."""
    awake = [one.run + (one.wait or 0.0) for one in seen if one.run is not None]
    if len(awake) < len(seen) or wait <= 0:
        return Readers(storage, None, in_workers=False, doing=None)
    mean = float(np.mean(awake))
    computing, asleep = (mean - (1 - wait)) / wait, (wait - mean - storage) / wait
    if computing >= MOSTLY:
        return Readers(storage, None, in_workers=False, of_wait=min(computing, 1.0), doing="computing")
    if asleep >= MOSTLY:
        return Readers(storage, None, in_workers=False, of_wait=min(asleep, 1.0), doing="neither")
    return Readers(storage, None, in_workers=False, doing=None)


def _error(share: float, num: float) -> float:
    share = min(max(share, 0.0), 1.0)
    return NUM_STANDARD_ERRORS * math.sqrt(share * (1 - share) / num)
