"""Lateness in data that is a wait for storage: whoever reads for the rank is met waiting, its peers' readers are not.

In: looks at a rank's readers and at its peers'.  Out: what it waits for; its cause with that. Readers are the worker
processes of its loader, or the training thread where it makes its batches itself.
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

    from tuiadvisor.metrics.lateness.late_ranks import LateRank
    from tuiadvisor.metrics.lateness.off_core import HeldRank, OffCore, OffCoreOf
    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.metrics.steps.barrier import Barrier

MIN_STORAGE: Final = 0.5  # of its lateness, surely: chosen, what else makes it late is less than that


def with_storage(
    stragglers: tuple[LateRank, ...], rows: Ints, barrier: Barrier, off_core: OffCoreOf | None
) -> tuple[LateRank, ...]:
    """Those that are late in data, and that nothing keeps off their cores, with what looks at their readers tell."""
    if off_core is None or not any(_is_late_in_data(one) for one in stragglers):
        return stragglers
    seen = off_core(float(barrier.span_K.sum()))
    late = {one.late.row for one in stragglers}
    peers, step_s = [seen[row] for row in rows.tolist() if row not in late], float(barrier.cycle_K.mean())

    def told(one: LateRank) -> LateRank:
        storage = storage_wait(seen[one.late.row], peers, one.late.mean_excess_s / step_s)
        return (
            one if storage is None else replace(one, cause=replace(one.cause, storage=storage, is_open=False))
        )

    return tuple(told(one) if _is_late_in_data(one) else one for one in stragglers)


def held_with_storage(held: tuple[HeldRank, ...], seen: list[OffCore]) -> tuple[HeldRank, ...]:
    """The same of ranks that wait for their data where nobody's arrival is seen."""
    rows = {one.row for one in held}
    peers = [own for row, own in enumerate(seen) if row not in rows]
    return tuple(
        replace(one, storage=storage_wait(seen[one.row], peers, one.share - one.others)) for one in held
    )


def storage_wait(own: OffCore, peers: Sequence[OffCore], late_share: float) -> StorageWait | None:
    """What looks at its readers found, where that surely explains half of its lateness; late_share: of its time.

    Workers that are behind are never idle, so a step would be shorter by the share of their time in which they wait
    beyond the peers', as it would by that of a thread that reads itself. What looks may find by chance is taken off.
    """
    shares = [peer.storage for peer in peers if peer.reads_in_workers == own.reads_in_workers]
    known = [share for share in shares if share is not None]
    if own.storage is None or own.storage * own.num_looks < MIN_STOPS or not known or len(known) < len(peers):
        return None
    usual = float(np.median(known))
    num_usual = float(np.median([peer.num_looks for peer in peers]))
    chance = NUM_STANDARD_ERRORS * math.hypot(
        _standard_error(own.storage, own.num_looks), _standard_error(usual, num_usual)
    )
    if own.storage - usual - chance < MIN_STORAGE * late_share:
        return None
    return StorageWait(own.storage, usual, in_workers=own.reads_in_workers)


def _is_late_in_data(one: LateRank) -> bool:
    """Of a whole host the cause is the host, whatever its ranks are late in."""
    cause = one.cause
    is_common = one.whole_host and cause.off_core is None and bool(cause.parts)
    return cause.name == "data_wait" or (
        is_common and max(cause.parts, key=lambda name: cause.parts[name]) == "data_wait"
    )


def _standard_error(share: float, num_looks: float) -> float:
    return math.sqrt(share * (1 - share) / max(num_looks, 1.0))
