"""The recent batches of every rank's data loader that were seen in bursts, bounded in memory.

In: EVENTS frames, of which all but LOADER_BATCH and PACKED_BATCH rows are left out here.  Out: LoaderBatches by
rank, and what packed batches hold, of job steps.
Rows that cannot be true are dropped and counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.detail.event_blocks import MAX_EVENT_NS, EventBlocks, have_a_place
from tuiadvisor.events import BATCHES_HELD_BITS, EVENT_COLUMNS, UNKNOWN, EventKind
from tuiadvisor.metrics.steps.loader_stage import batches_of, recent_rows, share_at_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.steps.loader_stage import LoaderBatches

MAX_ROWS: Final = 1 << 14  # 1 MB: 128 batches of each of 128 ranks
MAX_QUEUED: Final = 1 << 20
MAX_WORKERS: Final = 1 << 14
MAX_TOKENS: Final = 1 << 30  # of a batch; its square still is a number of 64 bits
BATCH, PACKED = int(EventKind.LOADER_BATCH), int(EventKind.PACKED_BATCH)
_KEPT: Final = ("rank", *EVENT_COLUMNS)
_RANK, _STEP, _BEGIN, _END, _WORKERS, _READY, _UNPINNED, _DETAIL = range(len(_KEPT))


class LoaderStore:
    """Mutable: feed it columns, ask for batches."""

    def __init__(self) -> None:
        self.num_bad_rows = 0
        self._held = EventBlocks(_KEPT, MAX_ROWS)
        self._packed = EventBlocks(_KEPT, MAX_ROWS)

    def add(self, columns: Mapping[str, Ints], host: str) -> None:
        """Take the loaders' rows of one frame."""
        for kind, held, plausible in (
            (BATCH, self._held, _plausible),
            (PACKED, self._packed, _plausible_lengths),
        ):
            is_ours = columns["kind"] == kind
            if is_ours.any():
                good = is_ours & plausible(columns)
                self.num_bad_rows += int(is_ours.sum() - good.sum())
                held.add(columns, good, host)

    def held(
        self,
        store: StepStore,
        ranks: Sequence[int],
        steps: Ints,
        wait_s_R: Floats,
        earliest: int | None = None,
    ) -> dict[int, LoaderBatches]:
        """What tells of these ranks in these job steps, as `recent_rows`; ranks without a batch are left out.

        wait_s_R: of each of these ranks, the mean wait for data of these steps. earliest: no batch of an earlier one.
        """
        first = earliest or 0
        told = {}
        for rank, own in _by_rank(self._held, store, ranks, lambda jobs: jobs >= first).items():
            jobs = own[_STEP] + store.tracks.offset[store.tracks.rows_of(own[_RANK])] - store.axis_shift()
            rows, until = recent_rows(
                jobs, (own[_END] - own[_BEGIN]) * 1e-9, steps, float(wait_s_R[ranks.index(rank)])
            )
            if rows.size:
                told[rank] = replace(_batches(own[:, rows]), seen_until=until)
        return told

    def at_limit(self, store: StepStore, ranks: Sequence[int], first_step: int) -> Floats:
        """Of each of these ranks `share_at_limit` of its loader since this job step."""
        found = _by_rank(self._held, store, ranks, lambda jobs: jobs >= first_step)
        return np.array(
            [share_at_limit(_batches(found[rank])) if rank in found else np.nan for rank in ranks],
            dtype=np.float64,
        )

    def squares(self, store: StepStore, ranks: Sequence[int], steps: Ints) -> dict[int, Floats]:
        """Of each packed batch of these ranks in these job steps the sum of its squared lengths."""
        found = _by_rank(self._packed, store, ranks, lambda jobs: np.isin(jobs, steps))
        return {rank: own[_DETAIL].astype(np.float64) for rank, own in found.items()}


def _batches(own: Ints) -> LoaderBatches:
    return batches_of(own[_END] - own[_BEGIN], own[_WORKERS], own[_READY], own[_UNPINNED], own[_DETAIL])


def _by_rank(
    held: EventBlocks, store: StepStore, ranks: Sequence[int], wanted: Callable[[Ints], Bools]
) -> dict[int, Ints]:
    """Rows of the job steps that are wanted, columns first; ranks without any are left out."""
    tracks = store.tracks
    if not held or not tracks.num or not ranks:
        return {}
    table = held.table()
    rows = tracks.rows_of(table[_RANK])
    # A probe that was installed anew counts its steps again: what it wrote before belongs to another count.
    good = (rows >= 0) & tracks.is_aligned[rows] & (table[_BEGIN] >= tracks.born_ns[rows])
    table, rows = table[:, good], rows[good]
    jobs = table[_STEP] + tracks.offset[rows] - store.axis_shift()
    table = table[:, wanted(jobs)]
    table = table[
        :, np.argsort(table[_RANK], kind="stable")
    ]  # a look at all rows for each rank is slow with thousands
    begins, ends = (np.searchsorted(table[_RANK], ranks, side).tolist() for side in ("left", "right"))
    return {
        rank: table[:, begin:end] for rank, begin, end in zip(ranks, begins, ends, strict=True) if end > begin
    }


def _plausible_lengths(columns: Mapping[str, Ints]) -> Bools:
    num, tokens, total = columns["group"], columns["seq"], columns["detail"]
    good = have_a_place(columns) & (num > 0) & (num <= MAX_TOKENS) & (tokens >= num) & (tokens <= MAX_TOKENS)
    # No more than one sequence of them all; the sum of squares is the least where all are alike.
    largest = np.minimum(np.maximum(tokens, 0), MAX_TOKENS)
    return np.asarray(good & (total >= tokens) & (total <= largest * largest))


def _plausible(columns: Mapping[str, Ints]) -> Bools:
    good = have_a_place(columns)
    good &= (columns["group"] >= 0) & (columns["group"] <= MAX_WORKERS)
    for name in ("seq", "num_bytes"):
        good &= (columns[name] >= UNKNOWN) & (columns[name] <= MAX_QUEUED)
    has_workers = columns["group"] > 0
    most = np.where(has_workers, MAX_QUEUED << BATCHES_HELD_BITS, MAX_EVENT_NS)
    return np.asarray(good & (columns["detail"] >= UNKNOWN) & (columns["detail"] <= most))
