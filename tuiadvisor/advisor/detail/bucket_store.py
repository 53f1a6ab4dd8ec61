"""The recent gradient exchanges of every rank that were told bucket by bucket, bounded in memory.

In: EVENTS frames, of which all but BUCKET_PIECE and GRADIENT_BUCKETS rows are left out here.  Out: Exchanges of job
steps for metrics.bucketline. An exchange is believed only if it is whole: its closing row after exactly the pieces
that it counts, in their order, of the same bytes. Rows that cannot be true are dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.detail.event_blocks import EventBlocks, have_a_place
from tuiadvisor.events import EVENT_COLUMNS, EventKind
from tuiadvisor.metrics.communication.bucket_timeline import Exchanges
from tuiadvisor.metrics.steps.step_table import NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

MAX_ROWS: Final = 1 << 16  # 5 MB: 16 steps of 128 ranks with 32 pieces each
READ_STEPS: Final = 64  # what a view looks at: the last so many that were told
MAX_PIECES: Final = 256
MAX_BYTES: Final = 1 << 50
CLOSING, PIECE = int(EventKind.GRADIENT_BUCKETS), int(EventKind.BUCKET_PIECE)
_KEPT: Final = ("rank", "kind", *EVENT_COLUMNS)
_RANK, _KIND, _STEP, _BEGIN, _END, _BUCKET, _PLACE, _BYTES, _DETAIL, _HOST = range(len(_KEPT) + 1)


@dataclass(frozen=True, slots=True)
class HeldExchanges:
    """Steps in which all ranks asked for told of an exchange, all alike."""

    exchanges: Exchanges
    num_elements: int  # of all gradients


class BucketStore:
    """Mutable: feed it columns, ask for exchanges."""

    def __init__(self) -> None:
        self.num_bad_rows = 0
        self._held = EventBlocks(_KEPT, MAX_ROWS)

    def add(self, columns: Mapping[str, Ints], host: str) -> None:
        """Take the buckets' rows of one frame."""
        kind = columns["kind"]
        is_ours = (kind == CLOSING) | (kind == PIECE)
        if not is_ours.any():
            return
        good = is_ours & _plausible(columns)
        self.num_bad_rows += int(is_ours.sum() - good.sum())
        self._held.add(columns, good, host)

    def held(self, store: StepStore, ranks: Sequence[int], steps: Ints) -> HeldExchanges | None:
        """The latest exchanges of these job steps that all these ranks told of; None without any."""
        tracks = store.tracks
        if not self._held or not tracks.num or not ranks or not steps.size:
            return None
        table = self._held.table()
        table = table[:, np.argsort(table[_RANK], kind="stable")]
        closings = _whole(table)
        rows = tracks.rows_of(table[_RANK, closings])
        # A probe that was installed anew counts its steps again: what it wrote before belongs to another count.
        good = (rows >= 0) & tracks.is_aligned[rows] & (table[_BEGIN, closings] >= tracks.born_ns[rows])
        closings, rows = closings[good], rows[good]
        jobs = table[_STEP, closings] + tracks.offset[rows] - store.axis_shift()
        chosen = np.isin(jobs, steps) & np.isin(table[_RANK, closings], np.asarray(ranks))
        return _assembled(table, closings[chosen], jobs[chosen], np.sort(np.asarray(ranks)))


def _plausible(columns: Mapping[str, Ints]) -> Bools:
    good = have_a_place(columns)
    for name, most in (("group", MAX_PIECES), ("seq", MAX_PIECES), ("num_bytes", MAX_BYTES)):
        good &= (columns[name] >= 0) & (columns[name] <= most)
    return np.asarray(good & (columns["num_bytes"] > 0) & (columns["detail"] >= 0))


def _whole(table: Ints) -> Ints:
    """Places of closing rows whose pieces all lie before them, in order; table sorted by rank."""
    is_piece = table[_KIND] == PIECE
    follows = is_piece[:-1] & is_piece[1:] & (np.diff(table[_PLACE]) == 1) & (np.diff(table[_STEP]) == 0)
    follows &= (np.diff(table[_RANK]) == 0) & (np.diff(table[_BUCKET]) >= 0)
    is_linked = is_piece & ((table[_PLACE] == 0) | np.concatenate(([False], follows)))
    num_broken = np.concatenate(([0], np.cumsum(~is_linked)))
    held = np.concatenate(([0], np.cumsum(table[_BYTES])))
    closings = np.flatnonzero(~is_piece)
    num = table[_PLACE, closings]
    closings, num = closings[(num > 0) & (num <= closings)], num[(num > 0) & (num <= closings)]
    last, first = closings - 1, closings - num
    good = num_broken[closings] == num_broken[first]
    good &= (table[_PLACE, last] == num - 1) & (table[_PLACE, first] == 0)
    for name in (_RANK, _STEP):
        good &= table[name, last] == table[name, closings]
    good &= held[closings] - held[first] == table[_BYTES, closings]
    return np.asarray(closings[good])


def _assembled(table: Ints, closings: Ints, jobs: Ints, ranks: Ints) -> HeldExchanges | None:
    """Exchanges of the layout that the latest one has, in steps that all ranks told of."""
    if not closings.size:
        return None
    latest = closings[np.lexsort((table[_BYTES, closings], jobs))[-1]]
    num = int(table[_PLACE, latest])
    pieces = np.arange(latest - num, latest)
    alike = table[_PLACE, closings] == num
    closings, jobs = closings[alike], jobs[alike]
    places = closings[:, None] + np.arange(-num, 0)
    same = (table[_BYTES][places] == table[_BYTES, pieces]).all(axis=1)
    same &= (table[_BUCKET][places] == table[_BUCKET, pieces]).all(axis=1)
    closings, jobs, places = closings[same], jobs[same], places[same]
    steps = np.unique(jobs)[-READ_STEPS:]
    row, column = np.searchsorted(ranks, table[_RANK, closings]), np.searchsorted(steps, jobs)
    kept = jobs >= steps[0]
    # Of several backward passes of a step the last one counts, which is what stands last.
    where = np.full((ranks.size, steps.size), -1, dtype=np.int64)
    where[row[kept], column[kept]] = np.flatnonzero(kept)
    complete = (where >= 0).all(axis=0)
    if not complete.any():
        return None
    found = where[:, complete]
    end = table[_END, closings][found] - _shift(table, closings[found])
    before = (end[:, :, None] - table[_END][places][found]) * NS
    backward = (end - table[_BEGIN, closings][found]) * NS
    last_rank = before.min(axis=2).argmin(axis=0)
    return HeldExchanges(
        Exchanges(
            steps_K=steps[complete],
            before_s_KP=_last(before),
            backward_s_K=backward[last_rank, np.arange(last_rank.size)],
            bytes_P=table[_BYTES, pieces].copy(),
            bucket_P=table[_BUCKET, pieces].copy(),
        ),
        int(table[_DETAIL, latest]),
    )


def _shift(table: Ints, closings: Ints) -> Ints:
    """By how much each rank was released after the typical rank of its host; R x K.

    A collective releases all ranks at one moment, whatever their hosts' clocks say; who was woken late is no later.
    """
    end, host = table[_END, closings], table[_HOST, closings[:, 0]]
    late = np.empty_like(end)
    for one in np.unique(host):
        rows = host == one
        late[rows] = end[rows] - np.median(end[rows], axis=0).astype(np.int64)
    return np.asarray(late, dtype=np.int64)


def _last(before_RKP: Floats) -> Floats:
    """When the last rank had each piece."""
    return np.asarray(np.maximum(before_RKP.min(axis=0), 0.0))
