"""The latest steps of every rank: a slot is `local step % capacity`, so duplicates overwrite themselves and gaps stay.

In: rows (of advisor.tracks), their own step numbers, columns of KEPT.  Out: the same again, as long as they are held.
It knows nobody who uses it: a store that is let go is freed at once, tens of megabytes, not when cycles are looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.steps.tracks import MAX_RANKS
from tuiadvisor.events import STEP_COLUMNS, UNKNOWN, StepFlag
from tuiadvisor.metrics.steps.step_alignment import RankSteps
from tuiadvisor.metrics.steps.step_table import consecutive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tuiadvisor.advisor.steps.tracks import RankTracks
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

# (ranks up to, steps kept a rank): 22 columns of 8 bytes, so at most about 100 MB.
CAPACITIES: Final = ((16, 8192), (256, 2048), (1024, 512), (4096, 128), (MAX_RANKS, 32))
KEPT: Final = tuple(
    name
    for name in STEP_COLUMNS
    if name not in {"step", "num_collectives", "comm_bytes", "micro_steps", "peak_memory_bytes"}
    and name != "other_ns"  # what is left of a step: a table makes it anew
)
COLUMN: Final = {name: index for index, name in enumerate(KEPT)}


def whole_ns(durations_ns: Ints, flags: Ints) -> Ints:
    """How long steps took; UNKNOWN of those that were caught in the middle, whose beginning nobody saw."""
    is_partial = (flags != UNKNOWN) & ((flags & int(StepFlag.FIRST)) != 0)
    return np.where(is_partial, UNKNOWN, durations_ns) if is_partial.any() else durations_ns


class RecentSteps:
    """Mutable columns; rows must be reserved before they are stored.

    A column in which every step has told the same so far (a phase that nobody has, samples a step) is that one number:
    a third to a half of the columns, which take no memory, no time, and no part of a state that is kept.
    """

    def __init__(self, tracks: RankTracks) -> None:
        self.capacity = CAPACITIES[0][1]
        self._tracks = tracks
        self._steps = np.zeros((0, self.capacity), dtype=np.int64)
        self._same: Ints | None = None  # of each column, what all have told; None before the first step
        self._values: dict[str, Ints] = {}  # rows x capacity, of the columns in which steps differ

    @property
    def num_rows(self) -> int:
        """Rows that there is space for."""
        return int(self._steps.shape[0])

    def reserve(self, num_rows: int) -> bool:
        """Make space for so many rows, shorter ones if they are many; True if anything moved."""
        capacity = next(steps for ranks, steps in CAPACITIES if num_rows <= ranks)
        if num_rows <= self.num_rows and capacity == self.capacity:
            return False
        space = self.num_rows if num_rows <= self.num_rows else max(8, num_rows, 2 * self.num_rows)
        steps = np.full((space, capacity), UNKNOWN, dtype=np.int64)
        # Not filled: only cells whose step is the one asked for are ever believed.
        values = {name: np.zeros((space, capacity), dtype=np.int64) for name in self._values}
        if capacity == self.capacity:
            self._widen(steps, values)
        else:
            self._shorten(steps, values, capacity)
        self._steps, self._values, self.capacity = steps, values, capacity
        return True

    def _widen(self, steps: Ints, values: dict[str, Ints]) -> None:
        """The same rows, slot by slot."""
        last = self._tracks.last_step[:, None]
        held = self._steps[: last.size]
        is_recent = (held > last - self.capacity) & (held <= last)
        steps[: last.size] = np.where(is_recent, held, UNKNOWN)
        for name, narrow in self._values.items():
            values[name][: last.size] = narrow[: last.size]

    def _shorten(self, steps: Ints, values: dict[str, Ints], capacity: int) -> None:
        """The latest steps of each row, in their new slots."""
        wanted = self._tracks.last_step[:, None] - np.arange(min(capacity, self.capacity))
        row, back = np.nonzero(
            (self._steps[np.arange(self._tracks.num)[:, None], wanted % self.capacity] == wanted)
            & (wanted >= 0)
        )
        step = wanted[row, back]
        steps[row, step % capacity] = step
        for name, longer in self._values.items():
            values[name][row, step % capacity] = longer[row, step % self.capacity]

    def store(self, row: Ints, step: Ints, columns: Ints) -> None:
        """Keep one step of each row named; columns: KEPT x as many."""
        if not step.size:
            return
        cell = row * self.capacity + step % self.capacity
        self._steps.reshape(-1)[cell] = step
        is_first = self._same is None
        if self._same is None:
            self._same = columns[:, 0].copy()
        differs = (columns != self._same[:, None]).any(axis=1)
        # Column by column, half the time of one assignment to all of them.
        for name, same, now_differs, column in zip(KEPT, self._same, differs, columns, strict=True):
            if now_differs and name not in self._values:
                self._values[name] = made = np.zeros(self._steps.shape, dtype=np.int64)
                if not is_first:  # only what is held is believed: the rest stays memory that nobody touches
                    np.copyto(made, same, where=self._steps != UNKNOWN)
            if name in self._values:
                self._values[name].reshape(-1)[cell] = column

    def column(self, name: str) -> Ints:
        """Rows x capacity, to be read only: what is held where `_steps` is the step that is asked for."""
        same = self.same(name)
        return self._values[name] if same is None else np.broadcast_to(np.int64(same), self._steps.shape)

    def same(self, name: str) -> int | None:
        """What every step has told in this column; None where they differ."""
        if name in self._values:
            return None
        return UNKNOWN if self._same is None else int(self._same[COLUMN[name]])

    def holds(self, row: Ints, step: Ints) -> Bools:
        """Whether these very steps are held."""
        return np.asarray(self._steps.reshape(-1)[row * self.capacity + step % self.capacity] == step)

    def forget(self, rows: Ints) -> None:
        """Nothing is held of these rows any more."""
        self._steps[rows] = UNKNOWN

    def durations_of(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """(row, step, `whole_ns`) of everything held of these rows, row after row in order of steps."""
        row, step, (begin, end, flags) = self.all_of(rows, ("begin_ns", "end_ns", "flags"))
        return row, step, whole_ns(end - begin, flags)

    def all_of(self, rows: Ints, names: Sequence[str]) -> tuple[Ints, Ints, Ints]:
        """(row, step, columns: names x as many) of everything held of these rows, row after row in order of steps."""
        index, slot = np.nonzero(self._steps[rows] != UNKNOWN)
        row = rows[index]
        step = self._steps[row, slot]
        order = np.lexsort((step, index))
        row, slot, step = row[order], slot[order], step[order]
        return row, step, np.stack([self.column(name)[row, slot] for name in names])

    def block(self, rows: Ints, local_RK: Ints) -> tuple[Bools, Block]:
        """(whether held, the columns) of each row's own steps, R x K."""
        is_alike = bool(local_RK.size) and bool((local_RK == local_RK[0]).all())
        take = self._slices(rows, local_RK[0]) if is_alike else self._cells(rows, local_RK)
        present = (take(self._steps) == local_RK) & (local_RK >= 0)
        return present, Block(self, take, local_RK.shape)

    def _slices(self, rows: Ints, local_K: Ints) -> Callable[[Ints], Ints]:
        """Takes the same steps of all these rows, which lie in two pieces at most: of ranks that began together."""
        slots, which = local_K % self.capacity, consecutive(rows)
        pieces = np.split(slots, np.flatnonzero(np.diff(slots) != 1) + 1)
        within = [slice(int(piece[0]), int(piece[-1]) + 1) for piece in pieces]
        return lambda values: np.concatenate([values[which, each] for each in within], axis=1)

    def _cells(self, rows: Ints, local_RK: Ints) -> Callable[[Ints], Ints]:
        """Flat, a third of the time that two indices a cell take: there are a million of them."""
        cells_RK = local_RK % self.capacity + rows[:, None] * self.capacity
        return lambda values: values.reshape(-1).take(cells_RK)

    # -- what alignment reads --------------------------------------------------------------------------------

    def of_rank(self, row: int, num_steps: int) -> RankSteps:
        """The latest steps of one row."""
        last = int(self._tracks.last_step[row])
        wanted = np.arange(max(0, last - min(num_steps, self.capacity) + 1), last + 1)
        slots = wanted % self.capacity
        valid = self._steps[row, slots] == wanted
        steps, slots = wanted[valid], slots[valid]
        release, end = self.column("release_ns")[row, slots], self.column("end_ns")[row, slots]
        seq = self.column("group_seq")[row, slots]
        if (release != UNKNOWN).mean() > 0.5:
            return RankSteps(steps, seq, release, end)
        return RankSteps(steps, seq, end)

    def span_s(self, row: int, num_steps: int) -> float | None:
        """How long the last so many steps of one row took, by their ends; None where either of those is not held."""
        last = int(self._tracks.last_step[row])
        ends = np.array([max(last - num_steps, 0), last])
        if last < num_steps or not self.holds(np.array([row, row]), ends).all():
            return None
        first_ns, last_ns = self.column("end_ns")[row, ends % self.capacity].tolist()
        return float(last_ns - first_ns) / 1e9

    def at(self, rows: Ints, local_RK: Ints) -> tuple[Ints, Ints, Bools]:
        """(sequence numbers, marks, whether held) of each row's own steps; as `of_rank` reads one row."""
        slots, at = local_RK % self.capacity, rows[:, None]
        present = (self._steps[at, slots] == local_RK) & (local_RK >= 0)
        release = self.column("release_ns")[at, slots]
        end = self.column("end_ns")[at, slots]
        released = (present & (release != UNKNOWN)).sum(axis=1) > 0.5 * present.sum(axis=1)
        mark = np.where(released[:, None], release, end)
        return self.column("group_seq")[at, slots], mark, present


class Block(Mapping[str, "Ints"]):
    """The columns of some cells, each taken when it is asked for: to be read before anything is stored again.

    All of them at once were 24 MB at 512 ranks, of which fresh pages took longer than the taking.
    """

    def __init__(self, held: RecentSteps, take: Callable[[Ints], Ints], shape: tuple[int, ...]) -> None:
        """take: the cells of what is held of all rows."""
        self._held, self._take, self._shape = held, take, shape

    def __getitem__(self, name: str) -> Ints:
        same = self._held.same(name)
        if same is not None:
            return np.broadcast_to(np.int64(same), self._shape)
        return self._take(self._held.column(name))

    def __contains__(self, name: object) -> bool:
        return name in COLUMN  # a mapping's own way would take the column

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMN)

    def __len__(self) -> int:
        return len(COLUMN)
