"""Which place every rank's steps have on the job's axis, kept up to date as records arrive.

In: the tracks and their recent steps.  Out: offsets in the tracks. Many ranks are confirmed at once against one
reference; only those that this does not settle are voted on one by one (metrics.align).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.tracks import MAX_RANKS, NONE
from tuiadvisor.metrics.align import MIN_MATCHES, RankBlock, RankSteps, align, confirm, likely_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.advisor.recentsteps import RecentSteps
    from tuiadvisor.advisor.tracks import RankTracks
    from tuiadvisor.metrics.arrays import Bools, Ints

    ClockShift = Callable[[str, str], int | None]

MAX_ALIGN_STEPS: Final = 256
CONFIRM_STEPS: Final = 64
MAX_REFERENCES: Final = 3
NUM_ROWS_BEFORE_OWN_AXIS: Final = 8
NOT_YET: Final = "not enough steps yet"


class Alignments:
    """Mutable: tell it which rows have news."""

    def __init__(self, tracks: RankTracks, recent: RecentSteps) -> None:
        self.why_not: dict[int, str] = {}  # of rows without an offset
        self._tracks = tracks
        self._recent = recent
        self._last_job_step: int | None = None  # ever reached, by whichever generation

    def forget(self, rows: Ints) -> None:
        """These rows are about to begin a new generation."""
        known = rows[self._tracks.is_aligned[rows]]
        if known.size:
            self._reached(int((self._tracks.last_step[known] + self._tracks.offset[known]).max()))

    def update(self, touched: Ints, clock_shift: ClockShift, tick: int) -> Ints:
        """Align the touched rows that are due; returns those that now have an offset and had none."""
        tracks = self._tracks
        # Ranks without a place try again with every few records, the others when they have twice as many.
        due = touched[tracks.num_rows[touched] >= tracks.next_check[touched]]
        if not due.size:
            return due
        rows = tracks.num_rows[due]
        aligned = tracks.is_aligned[due]
        later = np.where(rows < 512, np.maximum(4, 2 * rows), rows + 1024)
        tracks.next_check[due] = np.where(aligned, later, np.maximum(rows + 1, rows + rows // 8))
        if not tracks.is_aligned.any():
            self._one(int(due[0]), clock_shift, tick)
        for row in due[~self._confirmed(due, clock_shift, tick)].tolist():
            self._one(row, clock_shift, tick)
        tracks.next_check[due] = np.where(tracks.is_aligned[due], later, tracks.next_check[due])
        fresh = due[~aligned & tracks.is_aligned[due]]
        unnumbered = fresh[tracks.first_offset[fresh] == NONE]
        tracks.first_offset[unnumbered] = tracks.offset[unnumbered]
        for row in fresh.tolist():
            self.why_not.pop(row, None)
        return fresh

    # -- many at once ----------------------------------------------------------------------------------------

    def _confirmed(self, due: Ints, clock_shift: ClockShift, tick: int) -> Bools:
        """Where one aligned rank bears out the offset a row has, or is likely to have."""
        tracks = self._tracks
        nothing = np.zeros(due.size, dtype=np.bool_)
        host = int(tracks.host[due[0]])
        aligned = np.flatnonzero(tracks.is_aligned)
        fresh = aligned[tracks.last_tick[aligned] == tick]
        references = self._references(fresh if fresh.size else aligned, host)
        if due.size < 2 or not references.size:
            return nothing
        ref = int(references[0])
        same_clock = bool(tracks.host[ref] == host)
        shift = 0 if same_clock else clock_shift(tracks.hosts[host], tracks.hosts[tracks.host[ref]])
        there = self._recent.of_rank(ref, CONFIRM_STEPS)
        reference = RankSteps(there.step + tracks.offset[ref], there.seq, there.mark_ns)
        fit = tracks.contemporary(due, ref) & (tracks.host[due] == host) & (due != ref)
        rows = due[fit]
        if not rows.size or reference.step.size < MIN_MATCHES:
            return nothing
        offsets = self._likely(reference, rows, shift)
        seq, mark, present = self._recent.at(rows, reference.step[None, :] - offsets[:, None])
        seen = RankBlock(seq, mark, present)
        good = confirm(reference, seen, same_clock=same_clock, clock_shift_ns=shift) & (offsets != NONE)
        tracks.offset[rows[good]] = offsets[good]
        nothing[fit] = good
        return nothing

    def _likely(self, reference: RankSteps, rows: Ints, shift: int | None) -> Ints:
        """The offset of each row, else the one at which its newest step matches the reference."""
        tracks = self._tracks
        offsets = tracks.offset[rows]
        new = np.flatnonzero(offsets == NONE)
        if new.size:
            last = tracks.last_step[rows[new]]
            seq, mark, _ = self._recent.at(rows[new], last[:, None])
            marks = None if shift is None else mark[:, 0] + shift
            found, known = likely_offsets(reference, last, seq[:, 0], marks)
            offsets[new] = np.where(known, found, NONE)
        return offsets

    def _references(self, candidates: Ints, host: int) -> Ints:
        """The best few rows to compare with: of the same host, lowest ranks first."""
        tracks = self._tracks
        near = candidates[tracks.host[candidates] == host]
        pool = near if near.size >= MAX_REFERENCES else candidates
        order = tracks.rank[pool] + MAX_RANKS * (tracks.host[pool] != host)
        if pool.size > MAX_REFERENCES:  # sorting all of them for each new agent would be quadratic in ranks
            best = np.argpartition(order, MAX_REFERENCES)[:MAX_REFERENCES]
            pool, order = pool[best], order[best]
        return pool[np.argsort(order)]

    # -- one by one ------------------------------------------------------------------------------------------

    def _one(self, row: int, clock_shift: ClockShift, tick: int) -> None:
        tracks = self._tracks
        before = int(tracks.offset[row])
        offset, why_not = self._against_others(row, clock_shift)
        if offset is None:
            if before != NONE and not why_not.startswith("its"):
                return  # no news: the offset it has still stands
            if before == NONE and self._may_start_axis(row, tick):
                offset = self._next_axis(row)
        tracks.offset[row] = NONE if offset is None else offset
        if offset is None:
            self.why_not[row] = why_not

    def _against_others(self, row: int, clock_shift: ClockShift) -> tuple[int | None, str]:
        tracks = self._tracks
        fit = tracks.is_aligned & tracks.contemporary(row, slice(None))
        fit[row] = False
        host = int(tracks.host[row])
        references = self._references(np.flatnonzero(fit), host)
        why_not = NOT_YET
        own = self._recent.of_rank(row, MAX_ALIGN_STEPS) if references.size else None
        for other in references.tolist():
            assert own is not None  # noqa: S101 - read above
            there = self._recent.of_rank(other, 2 * MAX_ALIGN_STEPS)
            same = bool(tracks.host[other] == host)
            found = align(
                RankSteps(there.step + tracks.offset[other], there.seq, there.mark_ns),
                own,
                same_clock=same,
                clock_shift_ns=None
                if same
                else clock_shift(tracks.hosts[host], tracks.hosts[tracks.host[other]]),
            )
            if found.offset is not None:
                return found.offset, ""
            why_not = found.why_not
        return None, why_not

    def _may_start_axis(self, row: int, tick: int) -> bool:
        tracks = self._tracks
        others = tracks.is_aligned
        if not others.any():
            return True
        if not tracks.restarted[row] or (others & tracks.contemporary(row, slice(None))).any():
            return False
        # Frames of other hosts come in turn: before this one's second nobody knows whether they go on.
        here = bool((tracks.host[others] == tracks.host[row]).all())
        return bool(
            tracks.num_rows[row] >= NUM_ROWS_BEFORE_OWN_AXIS and (here or tick > tracks.born_tick[row])
        )

    def _next_axis(self, row: int) -> int:
        """The job goes on counting after a restart of all its ranks; the first axis is the rank's own."""
        tracks = self._tracks
        aligned = tracks.is_aligned
        if aligned.any():
            self._reached(int((tracks.last_step[aligned] + tracks.offset[aligned]).max()))
        return 0 if self._last_job_step is None else self._last_job_step + 1 - int(tracks.first_step[row])

    def _reached(self, job_step: int) -> None:
        self._last_job_step = job_step if self._last_job_step is None else max(self._last_job_step, job_step)
