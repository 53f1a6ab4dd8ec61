"""The recent steps of every rank, bounded in memory, on one job axis.

In: columns of STEPS frames, in the order they arrive.  Out: StepTable of the recent window. Everything outside
the plausible is dropped and counted. What is held lies in advisor.recentsteps; one offset a rank (advisor.alignment)
puts local steps on the job's axis. Nothing here loops over ranks in the usual case.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.steps.alignment import Alignments
from tuiadvisor.advisor.steps.course import COURSE_RANKS, PARTS, UNLIKE
from tuiadvisor.advisor.steps.next_steps import MAX_LEAP_STEPS, Batch
from tuiadvisor.advisor.steps.recent_steps import KEPT, RecentSteps, whole_ns
from tuiadvisor.advisor.steps.tracks import MAX_RANKS, NONE, RankTracks
from tuiadvisor.events import UNKNOWN
from tuiadvisor.metrics.steps.step_alignment import (
    RankSteps,
    is_out_of_step,
    num_steps_within,
    steps_by_number,
)
from tuiadvisor.metrics.steps.step_table import StepTable, build_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.advisor.steps.alignment import ClockShift
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

MAX_STEP: Final = 1 << 40
MAX_CLOCK_NS: Final = 1 << 61
MAX_DURATION_NS: Final = 86_400 * 10**9
EARLY_STEPS: Final = 256  # kept for good: the warm-up must not scroll away
MAX_EARLY_RANKS: Final = 1024  # their median stands for the others'
MAX_TABLE_CELLS: Final = 1 << 16  # rank-steps a view looks at: 40 ms for 64 ranks
MIN_TABLE_STEPS: Final = 256
USUAL_TABLE_STEPS: Final = 2048  # at most, where these take long enough
# Whether a rank lacks a core is told from 10 to 15 s of it (`off_core`): of steps of a millisecond that are many.
LEAST_TABLE_S: Final = 20.0
MAX_SUSPECTS: Final = 64  # ranks looked at step by step for having left the job's axis: 50 us each
OUT_OF_STEP: Final = (
    "it makes fewer or more steps than the others (uneven inputs, as under Join), so its steps are not theirs"
)
MIN_WITHIN: Final = 2  # steps of another rank within one: in step it is one
MAX_GENERATIONS: Final = 4  # of one rank within one frame: more is a damaged frame

_DURATIONS: Final = tuple(
    name
    for name in KEPT
    if name.endswith("_ns") and name not in {"begin_ns", "end_ns", "arrive_ns", "release_ns"}
)
NUM_KEYS: Final = 2
_KEPT_ROWS: Final = slice(NUM_KEYS, NUM_KEYS + len(KEPT))
FOLDED: Final = ("rank", "step", *KEPT, "other_ns")  # what is read of a frame
_BEGIN, _END, _ARRIVE, _RELEASE = (
    FOLDED.index(name) for name in ("begin_ns", "end_ns", "arrive_ns", "release_ns")
)
_KEYS: Final = (0, 1, _BEGIN, _END)
_DURATION_ROWS: Final = np.array([FOLDED.index(name) for name in _DURATIONS])
_PART_ROWS: Final = np.array([FOLDED.index(name) for name in PARTS])
_FLAGS: Final = FOLDED.index("flags")
_COUNT_ROWS: Final = np.array([FOLDED.index(name) for name in ("group_seq", "samples", "tokens", "flags")])


class StepStore:
    """Mutable: feed it columns, ask for a table."""

    def __init__(self) -> None:
        self.tracks = RankTracks()
        self.recent = RecentSteps(self.tracks)
        self.alignments = Alignments(self.tracks, self.recent)
        self.num_bad_rows = 0
        self._tick = 0
        self._early = np.zeros((0, EARLY_STEPS), dtype=np.int64)
        self._aligned: list[tuple[Ints, Ints]] = []  # not yet taken by the trend
        self._parts: list[tuple[Ints, Ints]] = []  # nor by the run's course

    @property
    def capacity(self) -> int:
        """Steps that are held of a rank."""
        return self.recent.capacity

    # -- feeding ---------------------------------------------------------------------------------------------

    def add(self, columns: Mapping[str, Ints], host: str, clock_shift: ClockShift) -> None:
        """Take the rows of one frame. clock_shift(host, other) is added to host's clock to read other's."""
        self.add_many([(np.stack([columns[name] for name in FOLDED]), host)], clock_shift)

    def add_many(self, frames: Sequence[tuple[Ints, str]], clock_shift: ClockShift) -> None:
        """Take frames in order, each as a table of FOLDED x rows with its host; one by one gives the same."""
        if not frames:
            return
        batch = Batch([table for table, _ in frames], _KEYS)
        hosts = [self.tracks.host_index(host) for _, host in frames]
        batch.judge(_plausible(batch), self.tracks, np.array(hosts), self.capacity)
        _sanitize(batch.table)
        tick, first = self._tick, 0
        is_odd, capacity = batch.is_odd, self.capacity
        # Ranks that went the careful way: what was foreseen of them may not hold.
        changed = np.zeros(MAX_RANKS if is_odd.any() else 0, dtype=np.bool_)
        special = np.arange(len(frames)) if changed.size else np.flatnonzero(batch.is_due)
        for frame in special.tolist():
            runs = batch.runs(frame, frame + 1)
            is_odd[frame] |= capacity != self.capacity
            if is_odd[frame] or (changed.size and changed[batch.run_rank[runs]].any()):
                self._store(batch, first, frame, tick)
                self._tick = tick + frame + 1
                self._add(_Records(batch.table[:, batch.rows(frame, frame + 1)]), hosts[frame], clock_shift)
                changed[np.clip(batch.run_rank[runs], 0, MAX_RANKS - 1)] = True
                first = frame + 1
            elif batch.is_due[frame]:
                self._store(batch, first, frame + 1, tick)
                self._report_all(self.alignments.update(batch.run_row[runs], clock_shift, tick + frame + 1))
                first = frame + 1
        self._store(batch, first, len(frames), tick)
        self._tick = tick + len(frames)

    def _store(self, batch: Batch, first: int, stop: int, tick: int) -> None:
        """Keep the rows of plain frames first..stop - 1."""
        rows, runs = batch.rows(first, stop), batch.runs(first, stop)
        if rows.start == rows.stop:
            return
        tracks = self.tracks
        run_row, size = batch.run_row[runs], batch.run_size[runs]
        row, step = np.repeat(run_row, size), batch.step[rows]
        duration = whole_ns(batch.end[rows] - batch.begin[rows], batch.table[_FLAGS, rows])
        early = np.flatnonzero(step < EARLY_STEPS)
        early = early[tracks.restarted[row[early]] == 0]
        self._early[row[early], step[early]] = duration[early]
        self.recent.store(row, step, batch.table[_KEPT_ROWS, rows])
        np.add.at(tracks.num_rows, run_row, size)
        tracks.last_step[run_row], tracks.last_end_ns[run_row] = (
            batch.run_last_step[runs],
            batch.run_last_end[runs],
        )
        tracks.last_tick[run_row] = tick + 1 + batch.run_frame[runs]
        offset = tracks.offset[row]
        known = offset != NONE
        if known.all():
            self._aligned.append((step + offset, duration))
        elif known.any():
            self._aligned.append((step[known] + offset[known], duration[known]))
        self._note_parts(batch.table[:, rows], step + offset, known & (row < COURSE_RANKS))

    def _add(self, records: _Records, host: int, clock_shift: ClockShift) -> None:
        """Take the rows of one frame, sorted by rank and begin, whatever they are."""
        keep = _plausible(records)
        self.num_bad_rows += int(keep.size - keep.sum())
        if not keep.any():
            return
        if not keep.all():
            records = records.take(keep)
        rows = self._rows(records.rank)
        begins = self._begins(rows, records, host)
        first = np.concatenate(([True], rows[1:] != rows[:-1]))
        again = np.cumsum(begins & ~first)
        generation = again - again[first][np.cumsum(first) - 1]
        self.num_bad_rows += int((generation >= MAX_GENERATIONS).sum())
        for number in range(min(int(generation.max()) + 1, MAX_GENERATIONS)):
            here = np.flatnonzero(generation == number)
            self._begin(rows, records, here[begins[here]], host)
            touched = self._take(rows, records, here)
            self._report_all(self.alignments.update(touched, clock_shift, self._tick))

    def _rows(self, ranks: Ints) -> Ints:
        """Row of each record; ranks seen for the first time get one."""
        rows = self.tracks.rows_of(ranks)
        if (rows < 0).any():
            new = np.unique(ranks[rows < 0])
            self._reserve(self.tracks.num + new.size)
            self.tracks.add(new)
            rows = self.tracks.rows_of(ranks)
        return rows

    def _begins(self, rows: Ints, records: _Records, host: int) -> Bools:
        """Records with which a probe begins to count: its first, the first after it was installed anew or moved."""
        tracks, step, begin = self.tracks, records.step, records.begin
        result = np.zeros(rows.size, dtype=np.bool_)
        anew = (step[1:] <= step[:-1]) & (begin[1:] >= records.end[:-1])
        same = rows[1:] == rows[:-1]
        result[1:] = same & anew
        first = np.flatnonzero(np.concatenate(([True], ~same)))
        row = rows[first]
        counts_anew = (step[first] <= tracks.last_step[row]) & (begin[first] >= tracks.last_end_ns[row])
        result[first] = (tracks.born_tick[row] == 0) | (tracks.host[row] != host) | counts_anew
        return result

    def _begin(self, rows: Ints, records: _Records, at: Ints, host: int) -> None:
        if not at.size:
            return
        row = rows[at]
        old = row[self.tracks.born_tick[row] != 0]
        if old.size:
            self.alignments.forget(old)
            self.recent.forget(old)
            self.tracks.restart(old)
        self.tracks.begin(row, host, records.step[at], records.begin[at], self._tick)

    def _take(self, rows: Ints, records: _Records, here: Ints) -> Ints:
        """Store the records `here`, at most one generation a rank; returns the rows that have news, by rank."""
        tracks, step_of, end_of = self.tracks, records.step, records.end
        same = rows[here[1:]] == rows[here[:-1]]
        if np.any(same & (step_of[here[1:]] < step_of[here[:-1]])):
            here = here[np.lexsort((step_of[here], records.rank[here]))]
        row, step, end = rows[here], step_of[here], end_of[here]
        good = step > tracks.last_step[row] - self.capacity
        # Later steps end later; a clock that runs backwards is not this rank's.
        ahead = step > tracks.last_step[row]
        good &= (tracks.num_rows[row] == 0) | ~ahead | (end > tracks.last_end_ns[row])
        good &= (tracks.num_rows[row] == 0) | (step <= tracks.last_step[row] + MAX_LEAP_STEPS)
        good &= _rises(row, end)
        self.num_bad_rows += int(good.size - good.sum())
        here = here[good]
        if not here.size:
            return here
        last = np.append(rows[here[1:]] != rows[here[:-1]], True)
        touched = rows[here[last]]
        num_records = np.diff(np.flatnonzero(np.concatenate(([True], last))))
        newest = np.repeat(step_of[here[last]], num_records)
        durations = whole_ns(end_of - records.begin, records.table[_FLAGS])
        early = here[(step_of[here] < EARLY_STEPS) & (tracks.restarted[rows[here]] == 0)]
        self._early[rows[early], step_of[early]] = durations[early]
        recent = here[step_of[here] > newest - self.capacity]
        row, step = rows[recent], step_of[recent]
        new = ~self.recent.holds(row, step)
        self.recent.store(row, step, records.table[_KEPT_ROWS, recent])
        starts = np.flatnonzero(np.concatenate(([True], row[1:] != row[:-1])))
        tracks.num_rows[touched] += np.add.reduceat(new.astype(np.int64), starts)
        tracks.last_step[touched] = np.maximum(tracks.last_step[touched], step_of[here[last]])
        tracks.last_end_ns[touched] = np.maximum(tracks.last_end_ns[touched], end_of[here[last]])
        tracks.last_tick[touched] = self._tick
        known = new & (tracks.offset[row] != NONE)
        if known.any():
            self._aligned.append((step[known] + tracks.offset[row[known]], durations[recent[known]]))
            known &= row < COURSE_RANKS
            self._note_parts(records.table[:, recent], step + tracks.offset[row], known)
        return np.asarray(touched)

    def _report_all(self, fresh: Ints) -> None:
        """Everything held of rows whose place on the axis has just become known."""
        if not fresh.size:
            return
        row, step, durations = self.recent.durations_of(fresh)
        self._aligned.append((step + self.tracks.offset[row], durations))
        row, step, columns = self.recent.all_of(fresh[fresh < COURSE_RANKS], (*PARTS, "flags"))
        usual = (columns[-1] & UNLIKE) == 0
        self._parts.append(((step + self.tracks.offset[row])[usual], columns[:-1, usual]))

    def _note_parts(self, table: Ints, job_step: Ints, chosen: Bools) -> None:
        """For the run's course; table: FOLDED x records."""
        kept = chosen & ((table[_FLAGS] & UNLIKE) == 0)
        if kept.all():
            self._parts.append((job_step, table[_PART_ROWS]))
        elif kept.any():
            at = np.flatnonzero(kept)
            self._parts.append((job_step[at], table[_PART_ROWS[:, None], at]))

    def take_parts(self) -> list[tuple[Ints, Ints]]:
        """(job steps, PARTS of each) of the first ranks' usual steps since the last call."""
        taken, self._parts = self._parts, []
        return taken

    def take_aligned(self) -> list[tuple[Ints, Ints]]:
        """(job steps, durations in ns, as of `whole_ns`) that arrived or were aligned since the last call."""
        taken, self._aligned = self._aligned, []
        return taken

    def _reserve(self, num_rows: int) -> None:
        if self.recent.reserve(num_rows) and self.recent.num_rows > self._early.shape[0]:
            early = np.zeros((self.recent.num_rows, EARLY_STEPS), dtype=np.int64)
            early[: self._early.shape[0]] = self._early
            self._early = early

    # -- reading ---------------------------------------------------------------------------------------------

    def axis_shift(self) -> int:
        """Subtract it from internal job steps: the job counts as its lowest rank did when first seen."""
        known = np.flatnonzero(self.tracks.first_offset != NONE)
        if not known.size:
            return 0
        return int(self.tracks.first_offset[known[np.argmin(self.tracks.rank[known])]])

    def span(self) -> tuple[int, int] | None:
        """(oldest, newest) internal job step of the aligned ranks' present generations; None without any."""
        rows = np.flatnonzero(self.tracks.is_aligned)
        return self._span_of(rows) if rows.size else None

    def _span_of(self, rows: Ints) -> tuple[int, int]:
        offset = self.tracks.offset[rows]
        return (
            int((self.tracks.first_step[rows] + offset).min()),
            int((self.tracks.last_step[rows] + offset).max()),
        )

    def job_offsets(self) -> dict[int, int]:
        """What to add to a rank's own step number to have the job's, of the aligned ranks."""
        rows, shift = self.tracks.aligned_rows(), self.axis_shift()
        return dict(
            zip(self.tracks.rank[rows].tolist(), (self.tracks.offset[rows] - shift).tolist(), strict=True)
        )

    def last_job_steps(self) -> dict[int, int]:
        """The newest job step of each aligned rank."""
        rows, shift = self.tracks.aligned_rows(), self.axis_shift()
        last = self.tracks.last_step[rows] + self.tracks.offset[rows] - shift
        return dict(zip(self.tracks.rank[rows].tolist(), last.tolist(), strict=True))

    def first_job_steps(self) -> dict[int, int]:
        """The first job step of each aligned rank, since it was attached or started anew."""
        rows, shift = self.tracks.aligned_rows(), self.axis_shift()
        first = self.tracks.first_step[rows] + self.tracks.offset[rows] - shift
        return dict(zip(self.tracks.rank[rows].tolist(), first.tolist(), strict=True))

    def last_end(self, rank: int) -> tuple[str, int] | None:
        """(host, when the rank's newest step ended on its clock, in ns); None without a step."""
        row = int(self.tracks.rows_of(np.array([rank]))[0])
        if row < 0 or not self.tracks.num_rows[row]:
            return None
        return self.tracks.hosts[int(self.tracks.host[row])], int(self.tracks.last_end_ns[row])

    def not_compared(self, min_rows: int) -> dict[int, str]:
        """Ranks with at least so many records and no place on the job's axis, and why."""
        rows = np.flatnonzero(~self.tracks.is_aligned & (self.tracks.num_rows >= min_rows))
        why_not = {row: self.alignments.why_not.get(row, "") for row in rows.tolist()}
        why_not |= dict.fromkeys(self._out_of_step(self.tracks.aligned_rows()).tolist(), OUT_OF_STEP)
        return {
            rank: why_not[row] for rank, row in sorted((int(self.tracks.rank[row]), row) for row in why_not)
        }

    def _out_of_step(self, rows: Ints) -> Ints:
        """Those of the aligned rows that have made fewer or more steps than the first since they were aligned.

        Most are cleared by one number each: that of their newest step is the first one's there, too.
        """
        tracks = self.tracks
        if rows.size < 2:
            return rows[:0]
        first, others = int(rows[0]), rows[1:]
        last = tracks.last_step[others]
        own, _, _ = self.recent.at(others, last[:, None])
        there, _, held = self.recent.at(
            np.array([first]), (last + tracks.offset[others] - tracks.offset[first])[None, :]
        )
        is_known = (own[:, 0] != UNKNOWN) & held[0] & (there[0] != UNKNOWN)
        may_be = (~is_known | (own[:, 0] != there[0])) & tracks.contemporary(others, first)
        suspects = others[may_be][:MAX_SUSPECTS]
        if not suspects.size:
            return rows[:0]
        steps = self._job_steps_of(first)
        found = [row for row in suspects.tolist() if is_out_of_step(steps, self._job_steps_of(row))]
        return np.array(found, dtype=np.int64)

    def _met(self, rows: Ints) -> dict[int, tuple[Ints, Ints]]:
        """Of those that have left the job's axis: at which job steps each meets the first, and its own steps there."""
        found: dict[int, tuple[Ints, Ints]] = {}
        for row in self._out_of_step(rows).tolist():
            first, own = self._job_steps_of(int(rows[0])), self.recent.of_rank(row, self.capacity)
            if (steps := steps_by_number(first, own)) is not None:
                found[row] = steps
        return found

    def busy_within(self, steps: Sequence[int]) -> tuple[int, ...]:
        """Ranks that leave the job's axis by having more batches: they make several steps within each of these."""
        rows = self.tracks.aligned_rows()
        others = self._out_of_step(rows)
        if not others.size:
            return ()
        first, at = self._job_steps_of(int(rows[0])), np.array(steps, dtype=np.int64) + self.axis_shift()
        busy = [
            row
            for row in others.tolist()
            if num_steps_within(first, self._job_steps_of(row), at) >= MIN_WITHIN
        ]
        return tuple(sorted(self.tracks.rank[busy].tolist()))

    def _job_steps_of(self, row: int) -> RankSteps:
        found = self.recent.of_rank(row, self.capacity)
        return replace(found, step=found.step + self.tracks.offset[row])

    def ranks(self) -> list[int]:
        """Every rank that has sent a step."""
        return sorted(self.tracks.rank.tolist())

    @property
    def table_width(self) -> int:
        """How many steps a table has at most."""
        rows = self.tracks.aligned_rows()
        most = min(self.capacity, max(MIN_TABLE_STEPS, MAX_TABLE_CELLS // max(rows.size, 1)))
        if most <= USUAL_TABLE_STEPS or not rows.size:
            return min(most, USUAL_TABLE_STEPS)
        for num_steps in (USUAL_TABLE_STEPS, USUAL_TABLE_STEPS // 2):  # a record may be lost
            span_s = self.recent.span_s(int(rows[0]), num_steps) or 0.0
            if span_s > 0:
                return min(most, max(USUAL_TABLE_STEPS, round(num_steps * LEAST_TABLE_S / span_s)))
        return USUAL_TABLE_STEPS

    def met_table(self, first: int | None, last: int | None) -> tuple[StepTable, bool] | None:
        """As `table`, with those that have left the job's axis in the steps in which they meet it; None without any."""
        met = self._met(self.tracks.aligned_rows())
        return self.table(first, last, met) if met else None

    def table(
        self,
        first: int | None = None,
        last: int | None = None,
        met: Mapping[int, tuple[Ints, Ints]] = MappingProxyType({}),
    ) -> tuple[StepTable, bool] | None:
        """The recent window (or job steps first..last of it), and whether it reaches back to the first step.

        met: of rows that have left the job's axis, at which job steps they meet it, and their own steps there. None
        without an aligned rank.
        """
        aligned = self.tracks.aligned_rows()
        if not aligned.size:
            return None
        aligned = aligned[~np.isin(aligned, self._out_of_step(aligned)) | np.isin(aligned, list(met))]
        shift = self.axis_shift()
        oldest, newest = self._span_of(
            aligned
        )  # those that make more steps than these run ahead of them for ever
        width = self.table_width
        stop = newest if last is None else min(newest, last + shift)
        start = max(oldest, newest - self.capacity + 1, stop - width + 1)
        if first is not None:
            start = max(start, first + shift - 1)  # the step before: work begins at its release
        jobs = np.arange(start, max(stop, start - 1) + 1)
        local = jobs[None, :] - self.tracks.offset[aligned][:, None]
        for place, row in enumerate(aligned.tolist()):
            if (steps := met.get(row)) is not None:
                local[place] = -1
                _, at, own_at = np.intersect1d(jobs, steps[0], assume_unique=True, return_indices=True)
                local[place, at] = steps[1][own_at]
        present, columns = self.recent.block(aligned, local)
        table = build_table(
            tuple(self.tracks.rank[aligned].tolist()),
            tuple(self.tracks.hosts[host] for host in self.tracks.host[aligned].tolist()),
            int(start - shift),
            present,
            columns,
        )
        return table, start <= oldest

    def early_seconds(self) -> tuple[int, Ints]:
        """(first job step, median nanoseconds of the first steps ever seen, 0 where none) of the job."""
        rows = self.tracks.aligned_rows()
        rows = rows[self.tracks.restarted[rows] == 0][:MAX_EARLY_RANKS]
        if not rows.size:
            return 0, np.zeros(0, dtype=np.int64)
        offset = self.tracks.offset[rows]
        first = int((self.tracks.first_step[rows] + offset).min())
        local = np.arange(first, first + EARLY_STEPS)[None, :] - offset[:, None]
        if (offset == first).all():  # as of ranks that began together
            values = self._early[rows]
        else:
            inside = (local >= 0) & (local < EARLY_STEPS)
            values = np.where(inside, self._early[rows[:, None], np.clip(local, 0, EARLY_STEPS - 1)], 0)
        ordered = np.sort(np.ascontiguousarray(values.T), axis=1)
        count = np.count_nonzero(ordered > 0, axis=1)
        middle = np.clip(rows.size - 1 - count // 2, 0, rows.size - 1)
        return first - self.axis_shift(), ordered[np.arange(EARLY_STEPS), middle]


def _rises(row: Ints, end: Ints) -> Bools:
    """Records that end after all earlier ones of their row, in the order given."""
    result = np.ones(end.size, dtype=np.bool_)
    same = row[1:] == row[:-1]
    falls = same & (end[1:] <= end[:-1])
    for at in np.unique(row[1:][falls]).tolist():  # damaged input only
        here = np.flatnonzero(row == at)
        result[here[1:]] = end[here[1:]] > np.maximum.accumulate(end[here])[:-1]
    return result


class _Records:
    """Rows of one frame as a table, names of FOLDED x records, with the columns that sort them."""

    __slots__ = ("begin", "end", "rank", "step", "table")

    def __init__(self, table: Ints) -> None:
        self.table = table
        self.rank, self.step = table[0], table[1]
        self.begin, self.end = table[_BEGIN], table[_END]

    def take(self, which: Bools | Ints) -> _Records:
        """The same of some of them."""
        return _Records(self.table[:, which])


def _plausible(records: _Records | Batch) -> Bools:
    rank, step, begin, end = records.rank, records.step, records.begin, records.end
    good = (rank >= 0) & (rank < MAX_RANKS) & (step >= 0) & (step < MAX_STEP)
    good &= (begin > 0) & (end > begin) & (end < MAX_CLOCK_NS)
    return np.asarray(good & (end - np.maximum(begin, 0) < MAX_DURATION_NS))


def _sanitize(table: Ints) -> None:
    """Replace what cannot be true by UNKNOWN, in place."""
    durations = table[_DURATION_ROWS]
    wrong = (durations < 0) | (durations > MAX_DURATION_NS)
    if wrong.any():
        table[_DURATION_ROWS] = np.where(wrong, UNKNOWN, durations)
    arrive, release = table[_ARRIVE], table[_RELEASE]
    # The release lies within its step: anything else belongs to another step or to nobody. The arrival is the release
    # without what was waited since the last one, a barrier behind the optimizer's step included: it may be before it.
    wrong = (release < table[_BEGIN]) | (release < arrive) | (release > table[_END])
    wrong |= release - arrive > MAX_DURATION_NS
    if wrong.any():
        table[_ARRIVE, wrong] = table[_RELEASE, wrong] = UNKNOWN
    counts = table[_COUNT_ROWS]
    wrong = (counts < 0) | (counts >= MAX_CLOCK_NS)
    if wrong.any():
        table[_COUNT_ROWS] = np.where(wrong, UNKNOWN, counts)
