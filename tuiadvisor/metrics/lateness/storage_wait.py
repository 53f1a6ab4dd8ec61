"""Lateness in data that is a wait for storage: whoever reads for the rank is met waiting, its peers' readers are not.

In: a late rank's cause, the looks at its readers and at its peers'.  Out: the same, with what it waits for. Readers are
the worker processes of its loader, or the training thread where it makes its batches itself.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.late_phase import NUM_STANDARD_ERRORS, StorageWait
from tuiadvisor.metrics.lateness.off_core import MIN_STOPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.lateness.late_phase import Cause
    from tuiadvisor.metrics.lateness.off_core import OffCore

MIN_STORAGE: Final = 0.5  # of its lateness, surely: chosen, what else makes it late is less than that


def with_storage_wait(
    cause: Cause, own: OffCore, peers: Sequence[OffCore], step_s: float, excess_s: float
) -> Cause:
    """The cause of a rank that is late in data, with its wait for storage where that surely explains half of it.

    Workers that are behind are never idle, so a step would be shorter by the share of their time in which they wait
    beyond the peers', as it would by that of a thread that reads itself. What looks may find by chance is taken off.
    """
    shares = [peer.storage for peer in peers if peer.reads_in_workers == own.reads_in_workers]
    known = [share for share in shares if share is not None]
    if cause.name != "data_wait" or own.storage is None or not known or len(known) < len(peers):
        return cause
    if own.storage * own.num_looks < MIN_STOPS:
        return cause
    usual = float(np.median(known))
    num_usual = float(np.median([peer.num_looks for peer in peers]))
    chance = NUM_STANDARD_ERRORS * math.hypot(
        _standard_error(own.storage, own.num_looks), _standard_error(usual, num_usual)
    )
    if (own.storage - usual - chance) * step_s < MIN_STORAGE * excess_s:
        return cause
    return replace(
        cause, storage=StorageWait(own.storage, usual, in_workers=own.reads_in_workers), is_open=False
    )


def _standard_error(share: float, num_looks: float) -> float:
    return math.sqrt(share * (1 - share) / max(num_looks, 1.0))
