"""The recent steps of every rank, bounded in memory, on one job axis.

In: columns of STEPS frames, in the order they arrive.  Out: StepTable of the recent window. Everything outside
the plausible is dropped and counted. A slot is `local step % capacity`, so duplicates overwrite themselves and
gaps stay gaps; one offset a rank (metrics.align) puts local steps on the job's axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import STEP_COLUMNS, UNKNOWN
from tuiadvisor.metrics.align import Alignment, RankSteps, align
from tuiadvisor.metrics.steptable import StepTable, build_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuiadvisor.metrics.arrays import Bools, Ints

MAX_RANKS: Final = 1 << 17
MAX_STEP: Final = 1 << 40
MAX_CLOCK_NS: Final = 1 << 61
MAX_DURATION_NS: Final = 86_400 * 10**9
MAX_LEAP_STEPS: Final = 1 << 20  # a gap beyond this is a damaged number, not a loss
EARLY_STEPS: Final = 256  # kept for good: the warm-up must not scroll away
# (ranks up to, steps kept a rank): 24 columns of 8 bytes, so at most about 100 MB.
CAPACITIES: Final = ((256, 2048), (1024, 512), (4096, 128), (MAX_RANKS, 32))
MAX_TABLE_CELLS: Final = 1 << 16  # rank-steps a view looks at: 40 ms for 64 ranks
MIN_TABLE_STEPS: Final = 256
MAX_ALIGN_STEPS: Final = 256
NUM_ROWS_BEFORE_OWN_AXIS: Final = 8

KEPT: Final = tuple(
    name
    for name in STEP_COLUMNS
    if name not in {"step", "num_collectives", "comm_bytes", "micro_steps", "peak_memory_bytes"}
)
_DURATIONS: Final = tuple(
    name
    for name in KEPT
    if name.endswith("_ns") and name not in {"begin_ns", "end_ns", "arrive_ns", "release_ns"}
)
_INDEX: Final = {name: index for index, name in enumerate(KEPT)}


@dataclass(slots=True)
class RankTrack:
    """Where a rank stands: its row, the span of its local steps and its place on the job's axis."""

    rank: int
    row: int
    host: str
    first_step: int  # of this generation of the probe
    last_step: int
    last_end_ns: int
    num_rows: int
    born_tick: int  # counts ingested batches: when this generation began
    last_tick: int
    alignment: Alignment
    first_offset: int | None  # of the rank's first generation: numbers the job's axis
    restarted: bool
    next_check: int  # rows at which the alignment is estimated again


_NOT_YET: Final = Alignment(None, "", "not enough steps yet")


class StepStore:
    """Mutable: feed it columns, ask for a table."""

    def __init__(self) -> None:
        self.tracks: dict[int, RankTrack] = {}
        self.capacity = CAPACITIES[0][1]
        self.num_bad_rows = 0
        self.num_restarts = 0
        self.first_job_step: int | None = None
        self._tick = 0
        self._row_space = 0
        self._steps = np.zeros((0, self.capacity), dtype=np.int64)
        self._values = np.zeros((len(KEPT), 0, self.capacity), dtype=np.int64)
        self._early = np.zeros((0, EARLY_STEPS), dtype=np.int64)
        self._aligned: list[tuple[int, Ints, Ints]] = []  # not yet taken by the trend

    # -- feeding ---------------------------------------------------------------------------------------------

    def add(
        self,
        columns: Mapping[str, Ints],
        host: str,
        clock_shift: Callable[[str, str], int | None],
    ) -> None:
        """Take the rows of one frame. clock_shift(host, other) is added to host's clock to read other's."""
        self._tick += 1
        keep = _plausible(columns)
        self.num_bad_rows += int(keep.size - keep.sum())
        if not keep.any():
            return
        kept = {name: values[keep] for name, values in columns.items()}
        order = np.lexsort((kept["step"], kept["rank"]))
        kept = {name: values[order] for name, values in kept.items()}
        _sanitize(kept)
        ranks, starts = np.unique(kept["rank"], return_index=True)
        edges = np.append(starts, kept["rank"].size)
        touched = []
        for index, rank in enumerate(ranks.tolist()):
            part = slice(int(edges[index]), int(edges[index + 1]))
            track = self._track(rank, host, kept["step"][part], kept["begin_ns"][part])
            if track is not None and self._take(track, kept, part):
                touched.append(track)
        for track in touched:
            if track.alignment.offset is None or track.num_rows >= track.next_check:
                self._align(track, clock_shift)

    def _track(self, rank: int, host: str, steps: Ints, begins: Ints) -> RankTrack | None:
        track = self.tracks.get(rank)
        if track is None:
            if len(self.tracks) >= MAX_RANKS:
                return None
            self._reserve(len(self.tracks) + 1)
            track = RankTrack(
                rank=rank,
                row=len(self.tracks),
                host=host,
                first_step=int(steps[0]),
                last_step=int(steps[0]) - 1,
                last_end_ns=0,
                num_rows=0,
                born_tick=self._tick,
                last_tick=self._tick,
                alignment=_NOT_YET,
                first_offset=None,
                restarted=False,
                next_check=0,
            )
            self.tracks[rank] = track
            return track
        moved = track.host != host
        counts_anew = int(steps[0]) <= track.last_step and int(begins[0]) >= track.last_end_ns
        if moved or counts_anew:
            self._restart(track, host, int(steps[0]))
        return track

    def _restart(self, track: RankTrack, host: str, first_step: int) -> None:
        """The probe was installed anew, or the rank moved: local steps count from 0 again."""
        self.num_restarts += 1
        self._steps[track.row] = UNKNOWN
        track.host = host
        track.first_step = first_step
        track.last_step = first_step - 1
        track.last_end_ns = 0
        track.num_rows = 0
        track.born_tick = self._tick
        track.alignment = _NOT_YET
        track.restarted = True
        track.next_check = 0

    def _take(self, track: RankTrack, kept: Mapping[str, Ints], part: slice) -> bool:
        steps, ends = kept["step"][part], kept["end_ns"][part]
        good = steps > track.last_step - self.capacity
        if track.num_rows:
            good &= steps <= track.last_step + MAX_LEAP_STEPS
            # Later steps end later; a clock that runs backwards is not this rank's.
            good &= (steps <= track.last_step) | (ends > track.last_end_ns)
        good[1:] &= ends[1:] > np.maximum.accumulate(ends)[:-1]
        self.num_bad_rows += int(good.size - good.sum())
        if not good.any():
            return False
        where = np.flatnonzero(good) + part.start
        steps, ends = kept["step"][where], kept["end_ns"][where]
        recent = where[steps > steps[-1] - self.capacity]
        slots = kept["step"][recent] % self.capacity
        new = self._steps[track.row, slots] != kept["step"][recent]
        self._steps[track.row, slots] = kept["step"][recent]
        for index, name in enumerate(KEPT):
            self._values[index, track.row, slots] = kept[name][recent]
        early = where[(steps < EARLY_STEPS) & (not track.restarted)]
        self._early[track.row, kept["step"][early]] = kept["end_ns"][early] - kept["begin_ns"][early]
        track.num_rows += int(new.sum())
        track.last_step = max(track.last_step, int(steps[-1]))
        track.last_end_ns = max(track.last_end_ns, int(ends[-1]))
        track.last_tick = self._tick
        if track.alignment.offset is not None:
            self._report(track, where=recent[new], kept=kept)
        return True

    def _report(self, track: RankTrack, where: Ints, kept: Mapping[str, Ints]) -> None:
        offset = track.alignment.offset
        if offset is not None and where.size:
            durations = kept["end_ns"][where] - kept["begin_ns"][where]
            self._aligned.append((track.rank, kept["step"][where] + offset, durations))

    def take_aligned(self) -> list[tuple[int, Ints, Ints]]:
        """(rank, job steps, durations in ns) that arrived or were aligned since the last call."""
        taken, self._aligned = self._aligned, []
        return taken

    # -- alignment -------------------------------------------------------------------------------------------

    def _align(self, track: RankTrack, clock_shift: Callable[[str, str], int | None]) -> None:
        track.next_check = max(4, 2 * track.num_rows) if track.num_rows < 512 else track.num_rows + 1024
        before = track.alignment.offset
        found = self._against_others(track, clock_shift)
        if found.offset is None:
            if before is not None and not found.why_not.startswith("its"):
                return  # no news: the offset it has still stands
            if before is None and self._may_start_axis(track):
                found = Alignment(self._next_axis(track), "first", "")
        if found.offset is None or found.offset != before:
            track.alignment = found
        if before is None and found.offset is not None:
            own = self._rank_steps(track, self.capacity)
            slots = own.step % self.capacity
            begin = self._values[_INDEX["begin_ns"], track.row, slots]
            end = self._values[_INDEX["end_ns"], track.row, slots]
            self._aligned.append((track.rank, own.step + found.offset, end - begin))
        if found.offset is not None and track.first_offset is None:
            track.first_offset = found.offset

    def _against_others(self, track: RankTrack, clock_shift: Callable[[str, str], int | None]) -> Alignment:
        own = self._rank_steps(track, MAX_ALIGN_STEPS)
        others = sorted(
            (
                other
                for other in self.tracks.values()
                if other is not track
                and other.alignment.offset is not None
                # After a restart of all ranks sequence numbers begin anew: old records would match new ones.
                and (other.last_tick >= track.born_tick or not track.restarted)
            ),
            key=lambda other: (other.host != track.host, other.rank),
        )
        best = Alignment(None, "", _NOT_YET.why_not)
        for other in others[:3]:
            reference = self._rank_steps(other, 2 * MAX_ALIGN_STEPS)
            offset = other.alignment.offset
            assert offset is not None  # noqa: S101 - filtered above
            same = other.host == track.host
            found = align(
                RankSteps(reference.step + offset, reference.seq, reference.mark_ns),
                own,
                same_clock=same,
                clock_shift_ns=None if same else clock_shift(track.host, other.host),
            )
            if found.offset is not None:
                return found
            best = found
        return best

    def _may_start_axis(self, track: RankTrack) -> bool:
        others = [
            other
            for other in self.tracks.values()
            if other is not track and other.alignment.offset is not None
        ]
        if not others:
            return True
        silent = all(other.last_tick < track.born_tick for other in others)
        return track.restarted and silent and track.num_rows >= NUM_ROWS_BEFORE_OWN_AXIS

    def _next_axis(self, track: RankTrack) -> int:
        """The job goes on counting after a restart of all its ranks; the first axis is the rank's own."""
        last = [
            other.last_step + other.alignment.offset
            for other in self.tracks.values()
            if other.alignment.offset is not None and other is not track
        ]
        return max(last) + 1 - track.first_step if last else 0

    def _rank_steps(self, track: RankTrack, num_steps: int) -> RankSteps:
        wanted = np.arange(max(0, track.last_step - min(num_steps, self.capacity) + 1), track.last_step + 1)
        slots = wanted % self.capacity
        valid = self._steps[track.row, slots] == wanted
        steps, slots = wanted[valid], slots[valid]
        release = self._values[_INDEX["release_ns"], track.row, slots]
        end = self._values[_INDEX["end_ns"], track.row, slots]
        mark = release if (release != UNKNOWN).mean() > 0.5 else end
        return RankSteps(steps, self._values[_INDEX["group_seq"], track.row, slots], mark)

    # -- space -----------------------------------------------------------------------------------------------

    def _reserve(self, num_rows: int) -> None:
        capacity = next(steps for ranks, steps in CAPACITIES if num_rows <= ranks)
        if num_rows <= self._row_space and capacity == self.capacity:
            return
        space = self._row_space if num_rows <= self._row_space else max(8, 2 * self._row_space)
        steps = np.full((space, capacity), UNKNOWN, dtype=np.int64)
        values = np.full((len(KEPT), space, capacity), UNKNOWN, dtype=np.int64)
        early = np.zeros((space, EARLY_STEPS), dtype=np.int64)
        early[: self._early.shape[0]] = self._early
        for track in self.tracks.values():
            wanted = np.arange(max(0, track.last_step - capacity + 1), track.last_step + 1)
            old = wanted % self.capacity
            wanted = wanted[self._steps[track.row, old] == wanted]
            steps[track.row, wanted % capacity] = wanted
            values[:, track.row, wanted % capacity] = self._values[:, track.row, wanted % self.capacity]
        self._steps, self._values, self._early = steps, values, early
        self._row_space, self.capacity = space, capacity

    # -- reading ---------------------------------------------------------------------------------------------

    def axis_shift(self) -> int:
        """Subtract it from internal job steps: the job counts as its lowest rank did when first seen."""
        known = [track for track in self.tracks.values() if track.first_offset is not None]
        lowest = min(known, key=lambda track: track.rank, default=None)
        return 0 if lowest is None or lowest.first_offset is None else lowest.first_offset

    def aligned_tracks(self) -> list[tuple[RankTrack, int]]:
        """(track, offset) of the ranks on the job's axis, by rank."""
        return [
            (track, track.alignment.offset)
            for _, track in sorted(self.tracks.items())
            if track.alignment.offset is not None
        ]

    def table(self, first: int | None = None, last: int | None = None) -> tuple[StepTable, bool] | None:
        """The recent window (or job steps first..last of it), and whether it reaches back to the first step.

        None without an aligned rank.
        """
        aligned = self.aligned_tracks()
        if not aligned:
            return None
        shift = self.axis_shift()
        newest = max(track.last_step + offset for track, offset in aligned)
        oldest = min(track.first_step + offset for track, offset in aligned)
        width = min(self.capacity, max(MIN_TABLE_STEPS, MAX_TABLE_CELLS // len(aligned)))
        stop = newest if last is None else min(newest, last + shift)
        start = max(oldest, newest - width + 1, stop - width + 1)
        if first is not None:
            start = max(start, first + shift - 1)  # the step before: work begins at its release
        jobs = np.arange(start, max(stop, start - 1) + 1)
        local = jobs[None, :] - np.array([offset for _, offset in aligned])[:, None]
        slots = local % self.capacity
        rows = np.array([track.row for track, _ in aligned])[:, None]
        present = (self._steps[rows, slots] == local) & (local >= 0)
        columns = {name: self._values[index][rows, slots] for name, index in _INDEX.items()}
        table = build_table(
            tuple(track.rank for track, _ in aligned),
            tuple(track.host for track, _ in aligned),
            int(start - shift),
            present,
            columns,
        )
        return table, start <= oldest

    def early_seconds(self) -> tuple[int, Ints]:
        """(first job step, median nanoseconds of the first steps ever seen, 0 where none) of the job."""
        aligned = [(track, offset) for track, offset in self.aligned_tracks() if not track.restarted]
        if not aligned:
            return 0, np.zeros(0, dtype=np.int64)
        first = min(track.first_step + offset for track, offset in aligned)
        jobs = np.arange(first, first + EARLY_STEPS)
        local = jobs[None, :] - np.array([offset for _, offset in aligned])[:, None]
        rows = np.array([track.row for track, _ in aligned])[:, None]
        inside = (local >= 0) & (local < EARLY_STEPS)
        values = np.where(inside, self._early[rows, np.clip(local, 0, EARLY_STEPS - 1)], 0)
        ordered = np.sort(values, axis=0)
        count = (ordered > 0).sum(axis=0)
        middle = np.clip(len(aligned) - 1 - count // 2, 0, len(aligned) - 1)
        return first - self.axis_shift(), ordered[middle, np.arange(EARLY_STEPS)]


def _plausible(columns: Mapping[str, Ints]) -> Bools:
    rank, step = columns["rank"], columns["step"]
    begin, end = columns["begin_ns"], columns["end_ns"]
    good = (rank >= 0) & (rank < MAX_RANKS) & (step >= 0) & (step < MAX_STEP)
    good &= (begin > 0) & (end > begin) & (end < MAX_CLOCK_NS)
    return np.asarray(good & (end - np.maximum(begin, 0) < MAX_DURATION_NS))


def _sanitize(columns: dict[str, Ints]) -> None:
    """Replace what cannot be true by UNKNOWN, in place."""
    begin, end = columns["begin_ns"], columns["end_ns"]
    for name in _DURATIONS:
        values = columns[name]
        columns[name] = np.where((values >= 0) & (values <= MAX_DURATION_NS), values, UNKNOWN)
    arrive, release = columns["arrive_ns"], columns["release_ns"]
    # The barrier lies within its step: anything else belongs to another step or to nobody.
    good = (arrive >= begin) & (release >= arrive) & (release <= end)
    columns["arrive_ns"] = np.where(good, arrive, UNKNOWN)
    columns["release_ns"] = np.where(good, release, UNKNOWN)
    for name in ("group_seq", "samples", "tokens", "flags"):
        values = columns[name]
        columns[name] = np.where((values >= 0) & (values < MAX_CLOCK_NS), values, UNKNOWN)
