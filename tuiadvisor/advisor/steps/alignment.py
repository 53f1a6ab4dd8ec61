"""Which place every rank's steps have on the job's axis, kept up to date as records arrive.

In: the tracks and their recent steps.  Out: offsets in the tracks. Many ranks are confirmed at once against one
reference; only those that this does not settle are voted on one by one (metrics.align).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.steps.tracks import NONE
from tuiadvisor.metrics.steps.step_alignment import (
    MIN_MATCHES,
    NOT_YET,
    RankBlock,
    align,
    confirm,
    likely_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.advisor.steps.recent_steps import RecentSteps
    from tuiadvisor.advisor.steps.tracks import RankTracks
    from tuiadvisor.metrics.steps.arrays import Bools, Ints
    from tuiadvisor.metrics.steps.step_alignment import RankSteps

    ClockShift = Callable[[str, str], int | None]

MAX_ALIGN_STEPS: Final = 256
CONFIRM_STEPS: Final = 64
MAX_REFERENCES: Final = 3
NUM_ROWS_BEFORE_OWN_AXIS: Final = 8


class Alignments:
    """Mutable: tell it which rows have news."""

    def __init__(self, tracks: RankTracks, recent: RecentSteps) -> None:
        self.why_not: dict[int, str] = {}  # of rows without an offset
        self.runs_ahead = (
            False  # the ranks launch work for devices: when they do it says little of when it is done
        )
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
        aligned = tracks.offset[due] != NONE
        later = np.where(rows < 512, np.maximum(4, 2 * rows), rows + 1024)
        tracks.next_check[due] = np.where(aligned, later, np.maximum(rows + 1, rows + rows // 8))
        if not tracks.any_aligned():
            self._one(int(due[0]), clock_shift, tick)
        for row in due[~self._confirmed(due, clock_shift, tick)].tolist():
            self._one(row, clock_shift, tick)
        now_aligned = tracks.offset[due] != NONE
        tracks.next_check[due] = np.where(now_aligned, later, tracks.next_check[due])
        fresh: Ints = due[~aligned & now_aligned]
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
        if due.size < 2:
            return nothing
        host = int(tracks.host[due[0]])
        near = tracks.rows_on(host)
        near = near[tracks.offset[near] != NONE]
        fresh = near[tracks.last_tick[near] == tick]
        references = self._nearest(fresh) if fresh.size else self._references(near, host)
        if not references.size:
            return nothing
        ref = int(references[0])
        same_clock = bool(tracks.host[ref] == host)
        shift = 0 if same_clock else clock_shift(tracks.hosts[host], tracks.hosts[tracks.host[ref]])
        there = self._recent.of_rank(ref, CONFIRM_STEPS)
        reference = replace(there, step=there.step + tracks.offset[ref])
        fit = tracks.contemporary(due, ref) & (tracks.host[due] == host) & (due != ref)
        rows = due[fit]
        if not rows.size or reference.step.size < MIN_MATCHES:
            return nothing
        offsets = self._likely(reference, rows, shift)
        seq, mark, present = self._recent.at(rows, reference.step[None, :] - offsets[:, None])
        seen = RankBlock(seq, mark, present)
        good = confirm(
            reference, seen, same_clock=same_clock, clock_shift_ns=shift, runs_ahead=self.runs_ahead
        )
        good &= offsets != NONE
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

    def _nearest(self, near: Ints) -> Ints:
        """The best few rows of a host to compare with: its lowest ranks."""
        return near[np.argsort(self._tracks.rank[near])[:MAX_REFERENCES]]

    def _references(self, near: Ints, host: int, row: int | None = None) -> Ints:
        """The same, filled up with the lowest ranks of other hosts. near: what fits of this host; row: to compare.

        Never a look at all ranks: it happens for each agent, and would make the whole quadratic in ranks.
        """
        best = self._nearest(near)
        if best.size == MAX_REFERENCES:
            return best
        others = self._tracks.lowest_aligned(MAX_REFERENCES - best.size, host, row)
        return np.concatenate((best, others))

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
        host = int(tracks.host[row])
        near = tracks.rows_on(host)
        near = near[(tracks.offset[near] != NONE) & (near != row)]
        references = self._references(near[tracks.contemporary(row, near)], host, row)
        why_not = NOT_YET
        own = self._recent.of_rank(row, MAX_ALIGN_STEPS) if references.size else None
        for other in references.tolist():
            assert own is not None  # noqa: S101 - read above
            there = self._recent.of_rank(other, 2 * MAX_ALIGN_STEPS)
            same = bool(tracks.host[other] == host)
            found = align(
                replace(there, step=there.step + tracks.offset[other]),
                own,
                same_clock=same,
                runs_ahead=self.runs_ahead,
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
        if not tracks.any_aligned():
            return True
        others = tracks.is_aligned
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
