"""The recent batches of every rank's data loader that were seen in bursts, bounded in memory.

In: EVENTS frames, of which all but LOADER_BATCH rows are left out here.  Out: LoaderBatches by rank, of job steps.
Rows that cannot be true are dropped and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.detail.event_blocks import EventBlocks
from tuiadvisor.advisor.steps.tracks import MAX_RANKS
from tuiadvisor.events import EVENT_COLUMNS, UNKNOWN, EventKind
from tuiadvisor.metrics.steps.loader_stage import batches_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.steps.arrays import Bools, Ints
    from tuiadvisor.metrics.steps.loader_stage import LoaderBatches

MAX_ROWS: Final = 1 << 14  # 1 MB: 128 batches of each of 128 ranks
MAX_QUEUED: Final = 1 << 20
MAX_WORKERS: Final = 1 << 14
MAX_CLOCK_NS: Final = 1 << 61
MAX_WAIT_NS: Final = 3600 * 10**9
BATCH: Final = int(EventKind.LOADER_BATCH)
_KEPT: Final = ("rank", *EVENT_COLUMNS)
_RANK, _STEP, _BEGIN, _END, _WORKERS, _READY, _UNPINNED, _DETAIL = range(len(_KEPT))


class LoaderStore:
    """Mutable: feed it columns, ask for batches."""

    def __init__(self) -> None:
        self.num_bad_rows = 0
        self._held = EventBlocks(_KEPT, MAX_ROWS)

    def add(self, columns: Mapping[str, Ints], host: str) -> None:
        """Take the loaders' rows of one frame."""
        is_ours = columns["kind"] == BATCH
        if not is_ours.any():
            return
        good = is_ours & _plausible(columns)
        self.num_bad_rows += int(is_ours.sum() - good.sum())
        self._held.add(columns, good, host)

    def held(self, store: StepStore, ranks: Sequence[int], steps: Ints) -> dict[int, LoaderBatches]:
        """What was seen of these ranks in these job steps; ranks without a batch are left out."""
        tracks = store.tracks
        if not self._held or not tracks.num or not ranks or not steps.size:
            return {}
        table = self._held.table()
        rows = tracks.rows_of(table[_RANK])
        # A probe that was installed anew counts its steps again: what it wrote before belongs to another count.
        good = (rows >= 0) & tracks.is_aligned[rows] & (table[_BEGIN] >= tracks.born_ns[rows])
        table, rows = table[:, good], rows[good]
        jobs = table[_STEP] + tracks.offset[rows] - store.axis_shift()
        table = table[:, np.isin(jobs, steps)]
        found = {}
        for rank in ranks:
            own = table[:, table[_RANK] == rank]
            if own.shape[1]:
                took = own[_END] - own[_BEGIN]
                found[rank] = batches_of(took, own[_WORKERS], own[_READY], own[_UNPINNED], own[_DETAIL])
        return found


def _plausible(columns: Mapping[str, Ints]) -> Bools:
    begin, end = columns["begin_ns"], columns["end_ns"]
    good = (columns["rank"] >= 0) & (columns["rank"] < MAX_RANKS)
    good &= (columns["step"] >= 0) & (columns["step"] < 1 << 40)
    good &= (begin > 0) & (end >= begin) & (end < MAX_CLOCK_NS)
    good &= end - np.maximum(begin, 0) < MAX_WAIT_NS
    good &= (columns["group"] >= 0) & (columns["group"] <= MAX_WORKERS)
    for name in ("seq", "num_bytes"):
        good &= (columns[name] >= UNKNOWN) & (columns[name] <= MAX_QUEUED)
    has_workers = columns["group"] > 0
    most = np.where(has_workers, MAX_QUEUED, MAX_WAIT_NS)
    return np.asarray(good & (columns["detail"] >= UNKNOWN) & (columns["detail"] <= most))
