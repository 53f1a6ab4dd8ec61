"""What each rank's device did in a step, on its own clock, beside what its training thread did.

In: DEVICE_PHASE rows of EVENTS frames: the spans of measured steps, all ranks' at the same steps.  Out: a StepTable of
the steps that were measured on most ranks, which everything is judged on that a host's clock cannot tell; and a
DeviceView a rank and job: medians, and whether the device keeps pace with the thread that feeds it.

In the table a device's wait between the end of its own backward and that of the exchange is `comm_exposed`, and so are
those that a hook sees within forward and backward (FSDP2). It says by itself who came last, the rank that waits least:
no clock is compared with another. Where a step has many waits, what nobody could hide is told part by part of them:
of two ranks that come last in turns, each waits for the other, and neither for the network.

A device that is never behind at any border of a step has no queue: it waits for the thread's next launch all along
(host-bound). One that is behind is what the step waits for. How far behind is known between two bounds; where they
do not decide, nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tuiadvisor.advisor.steps.step_store import MAX_STEP
from tuiadvisor.events import STEP_COLUMNS, UNKNOWN, WAIT_PARTS_BITS, EventKind
from tuiadvisor.metrics.lateness.late_phase import KEEPS_PACE_SHARE, Pace, launched_share
from tuiadvisor.metrics.steps.step_table import COMM, OTHER, StepTable, build_table
from tuiadvisor.phases import COMPUTE, PHASES
from tuiadvisor.views.run_view import DeviceView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.views.shares import Shares

MIN_STEPS: Final = 5  # fewer are an anecdote
VIEW_STEPS: Final = 64  # the latest of a rank, for its own view
# (ranks up to, measured steps kept a rank): 21 columns of 8 bytes, so at most about 90 MB.
CAPACITIES: Final = ((256, 512), (1024, 256), (1 << 13, 64))
MAX_RANKS: Final = CAPACITIES[-1][0]
RECENT_STEPS: Final = 12  # measured ones, whose distance is the present one
MIN_EVEN: Final = 24  # measured steps: a verdict takes twenty
MAX_PHASE_NS: Final = 86_400 * 10**9
WAIT_PARTS: Final = 1 << WAIT_PARTS_BITS
MAX_WAITS: Final = 1024  # of a step: the probe records no more borders
MIN_COMMON: Final = 0.5  # of the ranks: a step that fewer have measured compares nobody
# The last: of waits within forward, by how many there are more than backwards; below 0 where these have some as well.
_BEGIN, _END, _BEHIND, _BRACKET, _PHASES_SEEN, _RELEASE, _MEETINGS = range(7)
_FIRST_PHASE: Final = 7
_FIRST_PACE: Final = _FIRST_PHASE + len(PHASES)  # how far behind at the end of each phase of COMPUTE
_PACE_OF: Final = np.array([COMPUTE.index(name) if name in COMPUTE else -1 for name in PHASES])
_AFTER_WAIT: Final = _FIRST_PACE + len(COMPUTE)  # how far behind when the wait for the exchange is over
_WIDTH: Final = _AFTER_WAIT + 1
FORWARD: Final = PHASES.index("forward")
BACKWARD: Final = PHASES.index("backward")
_OF_DEVICE: Final = frozenset({"begin_ns", "end_ns", "observed", *(f"{name}_ns" for name in PHASES)})
# The host's clock: it says when the thread passed, not when the device did.
_OF_HOST: Final = frozenset({"arrive_ns", "release_ns", "comm_total_ns"})
_OF_THREAD: Final = _OF_HOST - {"comm_total_ns"}


@dataclass(frozen=True, slots=True)
class Stretch:
    """Measured steps of one rank's device, on its own clock; steps as its probe counts."""

    first_step: int
    last_step: int
    begin_ns: int
    first_end_ns: int
    end_ns: int


class DeviceTimes:
    """Mutable: feed it the columns of EVENTS frames."""

    def __init__(self) -> None:
        self._capacity = CAPACITIES[0][1]
        self._row_of: dict[int, int] = {}
        self._steps = np.zeros((0, self._capacity), dtype=np.int64)
        self._values = np.zeros((0, self._capacity, _WIDTH), dtype=np.int64)
        # Of steps with several waits: seconds in each part of them, and how many they are; None until there is one.
        self._parts: npt.NDArray[np.float32] | None = None
        self._num_waits: npt.NDArray[np.int16] | None = None
        self._count = np.zeros(0, dtype=np.int64)  # measured steps ever kept, by row
        self._last_step = np.zeros(0, dtype=np.int64)
        self._last_end = np.zeros(0, dtype=np.int64)
        self._host = np.zeros(0, dtype=np.int64)  # by its number, as they were heard of
        self._hosts: dict[str, int] = {}
        # Of an imported trace: nothing is on its way any more, and communication was timed by the devices.
        self.of_trace = False

    # -- feeding ---------------------------------------------------------------------------------------------

    def take(self, columns: Mapping[str, Ints], host: str = "") -> None:
        """Fold the device phases of one frame from a host; rows that contradict themselves are left out."""
        good = np.flatnonzero(_plausible(columns))
        if not good.size:
            return
        rank, step, begin, end, phase, bracket, behind = (
            columns[name][good] for name in ("rank", "step", "begin_ns", "end_ns", "group", "seq", "detail")
        )
        row = self._rows(rank)
        order = np.lexsort((step, row))
        order = order[row[order] >= 0]
        if not order.size:
            return
        row, step, begin, end = row[order], step[order], begin[order], end[order]
        phase, bracket, behind = phase[order], bracket[order], behind[order]
        first = np.concatenate(([True], (row[1:] != row[:-1]) | (step[1:] != step[:-1])))
        at = np.flatnonzero(first)
        group_row, group_step = row[at], step[at]
        self._forget_restarted(group_row, group_step, np.minimum.reduceat(begin, at), host)
        is_new = group_step > self._last_step[group_row]
        is_same = group_step == self._last_step[group_row]
        nth = _nth_of_its_row(group_row, is_new)
        slot = (self._count[group_row] + np.where(is_new, nth, -1)) % self._capacity
        keep = (is_new & (nth >= _num_of_its_row(group_row, is_new) - self._capacity)) | is_same
        new_row, new_slot = group_row[is_new & keep], slot[is_new & keep]
        self._steps[new_row, new_slot] = group_step[is_new & keep]
        self._values[new_row, new_slot] = 0
        self._values[new_row, new_slot, _BEGIN] = np.iinfo(np.int64).max
        if self._parts is not None and self._num_waits is not None:
            self._parts[new_row, new_slot] = self._num_waits[new_row, new_slot] = 0
        np.add.at(self._count, group_row[is_new], 1)
        np.maximum.at(self._last_step, group_row, group_step)
        np.maximum.at(self._last_end, row, end)
        group = np.cumsum(first) - 1
        kept = keep[group]
        cells = (row[kept], slot[group][kept])
        values = self._values
        np.minimum.at(values, (*cells, _BEGIN), begin[kept])
        np.maximum.at(values, (*cells, _END), end[kept])
        np.maximum.at(values, (*cells, _BEHIND), behind[kept])
        np.maximum.at(values, (*cells, _BRACKET), bracket[kept])
        np.bitwise_or.at(values, (*cells, _PHASES_SEEN), 1 << phase[kept])
        np.add.at(values, (*cells, _FIRST_PHASE + phase[kept]), (end - begin)[kept])
        waited = kept & (phase == COMM)
        np.maximum.at(values, (row[waited], slot[group][waited], _RELEASE), end[waited])
        np.maximum.at(values, (row[waited], slot[group][waited], _AFTER_WAIT), behind[waited])
        within_forward, within_backward = (
            waited & np.append((phase[1:] == part) & ~first[1:], False) for part in (FORWARD, BACKWARD)
        )
        # FSDP2's waits, which are seen within backward, too.
        more = within_forward.astype(np.int64) - (kept & (phase == BACKWARD)) - MAX_WAITS * within_backward
        np.add.at(values, (row[kept], slot[group][kept], _MEETINGS), more[kept])
        self._take_parts(
            row, slot[group], end - begin, np.where(waited, columns["num_bytes"][good][order], -1)
        )
        paced = kept & (_PACE_OF[phase] >= 0)
        cells = (row[paced], slot[group][paced])
        np.maximum.at(values, (*cells, _FIRST_PACE + _PACE_OF[phase[paced]]), behind[paced])

    def _take_parts(self, row: Ints, slot: Ints, wait_ns: Ints, place: Ints) -> None:
        """place: of each wait among those of its step, as EventKind.DEVICE_PHASE has it; negative where untold."""
        told = np.flatnonzero((place >= 2 * WAIT_PARTS) & (place < MAX_WAITS * WAIT_PARTS))
        if not told.size:
            return
        if self._parts is None or self._num_waits is None:
            self._parts = np.zeros((*self._steps.shape, WAIT_PARTS), dtype=np.float32)
            self._num_waits = np.zeros(self._steps.shape, dtype=np.int16)
        cells, place = (row[told], slot[told]), place[told]
        np.add.at(self._parts, (*cells, place % WAIT_PARTS), (wait_ns[told] * 1e-9).astype(np.float32))
        self._num_waits[cells] = place // WAIT_PARTS

    def _rows(self, rank: Ints) -> Ints:
        """Row of each record's rank, -1 where there are too many ranks."""
        ranks, inverse = np.unique(rank, return_inverse=True)
        for one in ranks.tolist():
            if one not in self._row_of and len(self._row_of) < MAX_RANKS:
                self._row_of[one] = len(self._row_of)
        self._reserve(len(self._row_of))
        rows = np.array([self._row_of.get(one, -1) for one in ranks.tolist()], dtype=np.int64)
        return np.asarray(rows[inverse])

    def _reserve(self, num_rows: int) -> None:
        """Make space for so many rows, shorter ones if they are many: what was held then goes."""
        capacity = next(steps for ranks, steps in CAPACITIES if num_rows <= ranks)
        if num_rows <= self._count.size and capacity == self._capacity:
            return
        space = self._count.size if num_rows <= self._count.size else max(8, num_rows, 2 * self._count.size)
        steps = np.full((space, capacity), UNKNOWN, dtype=np.int64)
        values = np.zeros((space, capacity, _WIDTH), dtype=np.int64)
        count, last_step, last_end, host = (np.full(space, start, dtype=np.int64) for start in (0, -1, 0, 0))
        held = self._count.size
        if capacity == self._capacity:
            steps[:held], values[:held] = self._steps, self._values
            count[:held], last_step[:held], last_end[:held] = self._count, self._last_step, self._last_end
            host[:held] = self._host
        if self._parts is not None and self._num_waits is not None:
            parts, num_waits = (
                np.zeros((space, capacity, *of.shape[2:]), dtype=of.dtype)
                for of in (self._parts, self._num_waits)
            )
            if capacity == self._capacity:
                parts[:held], num_waits[:held] = self._parts, self._num_waits
            self._parts, self._num_waits = parts, num_waits
        self._capacity, self._steps, self._values = capacity, steps, values
        self._count, self._last_step, self._last_end, self._host = count, last_step, last_end, host

    def _forget_restarted(self, row: Ints, step: Ints, begin: Ints, host: str) -> None:
        """A probe that was installed anew counts from 0 again; on another host also by another clock."""
        number = self._hosts.setdefault(host, len(self._hosts))
        has_moved = (self._host[row] != number) & (self._count[row] > 0)
        counts_anew = (step < self._last_step[row]) & (begin >= self._last_end[row])
        again = np.unique(row[has_moved | counts_anew])
        self._host[row] = number
        self._last_end[again] = 0
        self._steps[again] = UNKNOWN
        self._count[again], self._last_step[again] = 0, -1

    # -- reading ---------------------------------------------------------------------------------------------

    def _complete(self, rows: Ints) -> Bools:
        """Of each row's slots those with a whole step: of the latest one spans may be on their way."""
        steps = self._steps[rows]
        whole = self._values[rows][:, :, _END] > self._values[rows][:, :, _BEGIN]
        newest = self._last_step[rows][:, None] + self.of_trace
        return np.asarray((steps != UNKNOWN) & (steps < newest) & whole)

    def stretch(self, rank: int) -> Stretch | None:
        """From its first measured step that is still held to its newest; None without any."""
        if rank not in self._row_of:
            return None
        row = np.array([self._row_of[rank]])
        slots = np.flatnonzero(self._complete(row)[0])
        if not slots.size:
            return None
        steps, values = self._steps[row[0], slots], self._values[row[0], slots]
        first, last = int(steps.argmin()), int(steps.argmax())
        return Stretch(
            first_step=int(steps[first]),
            last_step=int(steps[last]),
            begin_ns=int(values[first, _BEGIN]),
            first_end_ns=int(values[first, _END]),
            end_ns=int(values[last, _END]),
        )

    def newest(self, rank: int, until: int = MAX_STEP) -> tuple[int, bool] | None:
        """(its own newest step that is whole, whether that tells what it waits for others); None without any.

        until: of its own steps.
        """
        if rank not in self._row_of:
            return None
        row = np.array([self._row_of[rank]])
        slots = np.flatnonzero(self._complete(row)[0] & (self._steps[row[0]] <= until))
        if not slots.size:
            return None
        slot = slots[np.argmax(self._steps[row[0], slots])]
        return int(self._steps[row[0], slot]), bool(self._values[row[0], slot, _PHASES_SEEN] >> COMM & 1)

    def table(
        self,
        store: StepStore,
        first: int | None = None,
        last: int | None = None,
        *,
        without: Sequence[int] = (),
        waits_alike: bool = False,
    ) -> tuple[StepTable, bool] | None:
        """The measured steps that most ranks have in common (of job steps first..last), on the job's axis.

        The second item: whether it reaches back to the first step seen. None without one. Counts, flags and CPU time
        of a step are those of its host record, as far as that is still held. without: ranks to leave out.
        waits_alike: where most ranks tell what they wait for each other, all do: a step of one that does not is no
        step of it, for nothing tells whether it came last.
        """
        tracks, span = store.tracks, store.span()
        if span is None or not self._row_of:
            return None
        aligned = tracks.aligned_rows()
        mine = np.array(
            [self._row_of.get(rank, -1) for rank in tracks.rank[aligned].tolist()], dtype=np.int64
        )
        is_asked = (mine >= 0) & ~np.isin(tracks.rank[aligned], np.array(without, dtype=np.int64))
        aligned, mine = aligned[is_asked], mine[is_asked]
        if not mine.size:
            return None
        shift = store.axis_shift()
        offset = tracks.offset[aligned][:, None]
        jobs_RC, valid = self._steps[mine] + offset, self._complete(mine)
        if first is not None:
            valid &= jobs_RC >= first + shift
        if last is not None:
            valid &= jobs_RC <= last + shift
        if waits_alike and not self.of_trace:
            valid &= ~self._lacks_waits(mine, jobs_RC, valid)
        num_measuring = int(valid.any(axis=1).sum())
        jobs, counts = np.unique(jobs_RC[valid], return_counts=True)
        jobs = jobs[counts >= MIN_COMMON * num_measuring]
        if not jobs.size:
            return None
        place = np.searchsorted(jobs, jobs_RC)
        valid &= (place < jobs.size) & (jobs[np.minimum(place, jobs.size - 1)] == jobs_RC)
        row, slot = np.nonzero(valid)
        cells = (row, place[row, slot])
        present = np.zeros((mine.size, jobs.size), dtype=np.bool_)
        present[cells] = True
        whole = ~_left_out(present)
        if not whole.any():
            return None
        # Of those that count: else what is left of the fewest that a verdict takes may be one too few.
        whole &= np.isin(jobs, _evenly(jobs[whole])[-self._capacity :])
        jobs, present = jobs[whole], present[:, whole]
        kept = whole[cells[1]]
        row, slot = row[kept], slot[kept]
        cells = (row, (np.cumsum(whole) - 1)[cells[1][kept]])
        values = self._values[mine][row, slot]
        held, columns = store.recent.block(aligned, jobs[None, :] - offset)
        if not self.of_trace:  # whose last steps on the device may end behind all that the thread is seen of
            present &= _fits(cells, values, columns, held)
        table = build_table(
            tuple(tracks.rank[aligned].tolist()),
            tuple(tracks.hosts[host] for host in tracks.host[aligned].tolist()),
            int(jobs[0] - shift),
            present,
            _with_device(columns, held & present, cells, values, of_trace=self.of_trace),
            steps=jobs - shift,
        )
        # Once in each forward DDP sends its buffers: that is before the layers.
        meets = bool(np.median(values[:, _MEETINGS]) > 0) and not self.of_trace
        shared_K = self._shared_wait_K(mine[row], slot, cells, present)
        return replace(table, meets_within=meets, shared_wait_K=shared_K), bool(jobs[0] <= span[0] + 2)

    def _lacks_waits(self, rows: Ints, jobs_RC: Ints, valid: Bools) -> Bools:
        """Of these rows' slots those without a wait, in job steps in which most ranks tell theirs."""
        tells = (self._values[rows, :, _PHASES_SEEN] >> COMM & 1).astype(np.bool_)
        if tells[valid].all():
            return np.zeros(valid.shape, dtype=np.bool_)
        jobs, place = np.unique(jobs_RC[valid], return_inverse=True)
        num_K = np.bincount(place, minlength=jobs.size)
        most_tell_K = np.bincount(place, weights=tells[valid], minlength=jobs.size) >= MIN_COMMON * num_K
        lacks = np.zeros(valid.shape, dtype=np.bool_)
        lacks[valid] = ~tells[valid] & most_tell_K[place]
        return lacks

    def _shared_wait_K(
        self, row: Ints, slot: Ints, cells: tuple[Ints, Ints], present: Bools
    ) -> Floats | None:
        """What all ranks wait at the same places of a step; NaN where their waits are not the same ones.

        row, slot: of what is held; cells: where that lies in the table.
        """
        if self._parts is None or self._num_waits is None:
            return None
        parts_RKP = np.full((*present.shape, WAIT_PARTS), np.inf)
        num_RK = np.zeros(present.shape, dtype=np.int64)
        parts_RKP[cells], num_RK[cells] = self._parts[row, slot], self._num_waits[row, slot]
        parts_RKP[~present] = np.inf
        least_K = np.where(present, num_RK, MAX_WAITS).min(axis=0)
        is_told_K = (
            present.any(axis=0) & (least_K > 1) & (least_K == np.where(present, num_RK, 0).max(axis=0))
        )
        shared_K = np.full(present.shape[1], np.nan)
        shared_K[is_told_K] = parts_RKP[:, is_told_K].min(axis=0).sum(axis=1)
        return shared_K

    def views(
        self, store: StepStore | None = None, first: int | None = None, last: int | None = None
    ) -> dict[int, DeviceView]:
        """The ranks whose device was seen often enough: medians of their latest measured steps.

        first, last: of these job steps only, by the ranks' places on the axis of `store`.
        """
        offsets = {} if store is None else store.job_offsets()
        found = {}
        for rank in sorted(self._row_of):
            if first is None and last is None:
                view = self.of_rank(rank)
            elif rank not in offsets:
                continue
            else:
                own = offsets[rank]
                view = self.of_rank(
                    rank,
                    0 if first is None else first - own,
                    MAX_STEP if last is None else last - own,
                )
            if view is not None:
                found[rank] = view
        return found

    def of_rank(self, rank: int, first: int = 0, last: int = MAX_STEP) -> DeviceView | None:
        """Medians of its measured steps, of its own steps first..last; None while there are too few."""
        if rank not in self._row_of:
            return None
        row = np.array([self._row_of[rank]])
        within = (self._steps[row[0]] >= first) & (self._steps[row[0]] <= last)
        slots = np.flatnonzero(self._complete(row)[0] & within)
        slots = slots[np.argsort(self._steps[row[0], slots])][-VIEW_STEPS:]
        if slots.size < MIN_STEPS:
            return None
        return _view(self._values[row[0], slots])

    def pace(self, rank: int, steps: Ints) -> Pace | None:
        """How far its device is behind its thread in these of its own steps; None while too few were measured."""
        if rank not in self._row_of:
            return None
        row = np.array([self._row_of[rank]])
        slots = np.flatnonzero(self._complete(row)[0] & np.isin(self._steps[row[0]], steps))
        if slots.size < MIN_STEPS:
            return None
        return pace_of(_view(self._values[row[0], slots]))


def pace_of(view: DeviceView) -> Pace:
    """How far a device is behind its thread."""
    phase_s = {name: seconds for name in COMPUTE if (seconds := view.seconds[name]) is not None}
    return Pace(view.step_s, view.behind_s, phase_s)


def _view(values: Ints) -> DeviceView:
    """Medians of measured steps."""
    step_ns = (values[:, _END] - values[:, _BEGIN]).astype(np.float64)
    low = float(np.median(values[:, _BEHIND] / step_ns))
    high = float(np.median((values[:, _BEHIND] + values[:, _BRACKET]) / step_ns))
    behind = values[:, _FIRST_PACE:_AFTER_WAIT]
    low_N = np.median(behind, axis=0).tolist()
    high_N = np.median(behind + values[:, _BRACKET, None], axis=0).tolist()
    seen = int(np.bitwise_or.reduce(values[:, _PHASES_SEEN]))
    return DeviceView(
        step_s=float(np.median(step_ns)) / 1e9,
        seconds={
            name: float(np.median(values[:, _FIRST_PHASE + index])) / 1e9 if seen >> index & 1 else None
            for index, name in enumerate(PHASES)
        },
        behind_share=high if high < KEEPS_PACE_SHARE else low if low >= KEEPS_PACE_SHARE else None,
        keeps_pace=_keeps_pace(low, high),
        num_steps=values.shape[0],
        behind_s={
            name: (low_ns / 1e9, high_ns / 1e9)
            for name, low_ns, high_ns in zip(COMPUTE, low_N, high_N, strict=True)
            if seen >> PHASES.index(name) & 1
        },
        wait_launched=_wait_launched(values),
    )


def _wait_launched(values: Ints) -> float | None:
    """Share of a wait for which the thread had launched all that it ends with; None where it waits in no step.

    Only the rest of it may be the thread's: a device that is behind it then waited for no launch meanwhile.
    """
    wait_ns = values[:, _FIRST_PHASE + COMM]
    waits = wait_ns > 0
    if not waits.any():
        return None
    return float(np.median(np.minimum(values[waits, _AFTER_WAIT] / wait_ns[waits], 1.0)))


def _keeps_pace(low: float, high: float) -> bool | None:
    """low, high: behind by so much of a step at least and at most."""
    return True if high < KEEPS_PACE_SHARE else False if low >= KEEPS_PACE_SHARE else None


def _plausible(columns: Mapping[str, Ints]) -> Bools:
    begin, end = columns["begin_ns"], columns["end_ns"]
    good = (columns["kind"] == EventKind.DEVICE_PHASE) & (columns["rank"] >= 0)
    good &= (columns["step"] >= 0) & (columns["step"] < MAX_STEP)
    good &= (begin > 0) & (end >= begin) & (end - np.maximum(begin, 0) <= MAX_PHASE_NS)
    good &= (columns["group"] >= 0) & (columns["group"] < len(PHASES))
    good &= columns["group"] != PHASES.index("pipeline_idle")  # no border of a device begins one
    for name in ("seq", "detail"):
        good &= (columns[name] >= 0) & (columns[name] <= MAX_PHASE_NS)
    return np.asarray(good)


def _evenly(jobs: Ints) -> Ints:
    """The steps as far apart as the latest ones: the first are all measured, and would outweigh all later ones."""
    if jobs.size < MIN_EVEN:
        return jobs
    apart = int(np.median(np.diff(jobs[-RECENT_STEPS:])))
    if apart < 2:  # each or every other one
        return jobs
    _, first = np.unique(jobs // apart, return_index=True)
    return jobs[first] if first.size >= MIN_EVEN else jobs[-MIN_EVEN:]


def _left_out(present_RK: Bools) -> Bools:
    """Columns that a rank has not measured which has some before and after: it saves more than the others."""
    began = np.maximum.accumulate(present_RK, axis=1)
    goes_on = np.maximum.accumulate(present_RK[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((began & goes_on & ~present_RK).any(axis=0))


def _num_of_its_row(row: Ints, counted: Bools) -> Ints:
    """How many of a row are counted, at each of its places; row is sorted."""
    totals = np.bincount(row, weights=counted).astype(np.int64)
    return np.asarray(totals[row])


def _nth_of_its_row(row: Ints, counted: Bools) -> Ints:
    """How many of the same row were counted before; row is sorted."""
    before: Ints = np.cumsum(counted) - counted
    start = np.concatenate(([True], row[1:] != row[:-1]))
    return np.asarray(before - before[start][np.cumsum(start) - 1])


def _fits(cells: tuple[Ints, Ints], values: Ints, columns: Mapping[str, Ints], held: Bools) -> Bools:
    """Cells whose step on the device is no longer than all that its thread is held of: else it is nobody's."""
    begin = np.where(held, columns["begin_ns"], np.iinfo(np.int64).max).min(axis=1)
    end = np.where(held, columns["end_ns"], 0).max(axis=1)
    result = np.ones(held.shape, dtype=np.bool_)
    longest = np.where(held.any(axis=1), end - np.minimum(begin, end), np.iinfo(np.int64).max)
    result[cells] = values[:, _END] - values[:, _BEGIN] <= longest[cells[0]]
    return result


def _with_device(
    columns: Mapping[str, Ints],
    held: Bools,
    cells: tuple[Ints, Ints],
    values: Ints,
    *,
    of_trace: bool,
) -> dict[str, Ints]:
    """The columns of a table, R x K: what the device tells at these cells, the rest from the host's records.

    When the last exchange of a step was over its device tells, too; when its own work was, only by how long it waited.
    """
    of_host = _OF_THREAD if of_trace else _OF_HOST
    result = {}
    for name in STEP_COLUMNS:
        if name in _OF_DEVICE or name in of_host or name not in columns:
            result[name] = np.full(held.shape, UNKNOWN, dtype=np.int64)
        else:
            result[name] = np.where(held, columns[name], UNKNOWN)
    result["begin_ns"][cells], result["end_ns"][cells] = values[:, _BEGIN], values[:, _END]
    if not of_trace:  # whose waits are those of any kernel
        result["release_ns"][cells] = np.where(values[:, _RELEASE] > 0, values[:, _RELEASE], UNKNOWN)
    result["observed"][cells] = values[:, _PHASES_SEEN] | 1 << OTHER
    for index, name in enumerate(PHASES):
        result[f"{name}_ns"][cells] = values[:, _FIRST_PHASE + index]
    return result


def of_job(devices: Mapping[int, DeviceView]) -> DeviceView | None:
    """Mean over the ranks whose device was seen; it keeps pace where all of theirs do, the worst of `wait_launched`."""
    if not devices:
        return None
    seen = list(devices.values())
    seconds: Shares = {}
    for name in PHASES:
        known = [value for view in seen if (value := view.seconds[name]) is not None]
        seconds[name] = fmean(known) if known else None
    behind = [view.behind_share for view in seen if view.behind_share is not None]
    keep_pace = {view.keeps_pace for view in seen}
    launched = [view.wait_launched for view in seen if view.wait_launched is not None]
    return DeviceView(
        step_s=fmean(view.step_s for view in seen),
        seconds=seconds,
        behind_share=median(behind) if len(behind) == len(seen) else None,
        keeps_pace=keep_pace.pop() if len(keep_pace) == 1 else None,
        num_steps=min(view.num_steps for view in seen),
        wait_launched=min(launched) if len(launched) == len(seen) else None,
    )


def launched_of_last(devices: Mapping[int, DeviceView]) -> float | None:
    """`launched_share` of the device that the others wait for, which waits least itself; None where nobody knows."""
    seen = list(devices.values())
    waits = [view.seconds["comm_exposed"] for view in seen]
    if len(seen) == 1:
        return launched_share(pace_of(seen[0]))
    known = [(wait_s, place) for place, wait_s in enumerate(waits) if wait_s is not None]
    return launched_share(pace_of(seen[min(known)[1]])) if known else None
