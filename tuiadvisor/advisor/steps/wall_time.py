"""The time of one rank from its first record to its last, lives of its process apart: what the waterfall is cut from.

In: rows of STEPS frames.  Out: Life, one for each time the probe began to count. One rank is enough, for all pass the
same time together; it is the lowest seen. Kept for the whole run: sums, no steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np

from tuiadvisor.advisor.steps.step_store import FOLDED, MAX_CLOCK_NS
from tuiadvisor.metrics.hang.detection import MIN_STILL_S
from tuiadvisor.metrics.steps.step_table import NS
from tuiadvisor.phases import PAUSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.steps.arrays import Ints

MAX_LIVES: Final = 256  # more are a damaged recording: the last takes what comes
MAX_GAPS: Final = 256  # of a life: beyond them, steps that are not there count as the others
MAX_LONG: Final = 8  # of a life: the newest steps in which the job stood
NO_TIME: Final = 0.1  # of a step: less time than this for one that is not there is none
# Chosen, of the mean step until then: in a longer one the job stood, as long as a hang is said from on.
STOOD_STEPS: Final = 10
_RANK, _STEP, _BEGIN, _END, _OTHER = (
    FOLDED.index(name) for name in ("rank", "step", "begin_ns", "end_ns", "other_ns")
)
_PAUSES: Final = {name: FOLDED.index(f"{name}_ns") for name in PAUSES}


@dataclass(frozen=True, slots=True)
class Life:
    """From the first record of a probe to its last."""

    host: str
    begin_ns: int
    end_ns: int
    first_step: int  # as the probe counts
    last_step: int
    first_other_ns: int  # of the first record: time in no phase, so before the first step if it is that
    first_ns: int  # its length
    pauses_ns: tuple[int, ...]  # in the order of PAUSES
    stood_ns: int = (
        0  # in single steps in which the job stood, beyond a mean one; checkpoints and the like apart
    )
    num_skipped: int = (
        0  # numbers between two records for which there is no time: a trace of some steps, laid end to end
    )
    gaps: tuple[tuple[int, int, int], ...] = ()  # begin, end, number of steps that are not there
    # Of single steps in which the job stood: begin, end, and what of it were no checkpoints and the like.
    long_ns: tuple[tuple[int, int, int], ...] = ()

    @property
    def num_steps(self) -> int:
        """Steps done, recorded or not."""
        return self.last_step - self.first_step + 1 - self.num_skipped


class _Stood(TypedDict):
    """Fields of a Life."""

    stood_ns: int
    long_ns: tuple[tuple[int, int, int], ...]


class WallTime:
    """Mutable: feed it tables in the order they came."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.lives: list[Life] = []

    def take(self, tables: Sequence[tuple[Ints, str]]) -> None:
        """Tables of FOLDED x rows, each with its host."""
        for table, host in tables:
            if not table.shape[1]:
                continue
            lowest = int(table[_RANK].min())
            if self.rank is None or 0 <= lowest < self.rank:
                self.rank, self.lives = lowest, []
            if lowest > self.rank:
                continue
            mine = table[:, table[_RANK] == self.rank]
            if mine.shape[1]:
                order = mine[_BEGIN].argsort(kind="stable")
                self._take_rows(mine[:, order], host)

    def _take_rows(self, rows: Ints, host: str) -> None:
        """Rows of the rank by their begin; in one go where they are the next steps and nothing else."""
        last = self.lives[-1] if self.lives else None
        if last is not None and host == last.host and _goes_on(rows, last):
            length = rows[_END] - rows[_BEGIN]
            pauses = tuple(
                total + int(np.clip(rows[at], 0, length).sum())
                for total, at in zip(last.pauses_ns, _PAUSES.values(), strict=True)
            )
            self.lives[-1] = replace(
                last,
                end_ns=int(rows[_END, -1]),
                last_step=int(rows[_STEP, -1]),
                pauses_ns=pauses,
                **_with_stood(rows, last),
                num_skipped=last.num_skipped + int(_skipped(rows, last).sum()),
                gaps=_with_gaps(rows, last),
            )
        else:
            self._take_one_by_one(rows, host)

    def _take_one_by_one(self, rows: Ints, host: str) -> None:
        for row in rows.T.tolist():
            begin, end, step = row[_BEGIN], row[_END], row[_STEP]
            if not (0 < begin <= end < MAX_CLOCK_NS and step >= 0):
                continue
            last = self.lives[-1] if self.lives else None
            if last is None or self._is_new(last, host, begin, step):
                if len(self.lives) < MAX_LIVES:
                    other = min(max(row[_OTHER], 0), end - begin)
                    pauses = tuple(min(max(row[at], 0), end - begin) for at in _PAUSES.values())
                    self.lives.append(Life(host, begin, end, step, step, other, end - begin, pauses))
            elif host == last.host and step > last.last_step and end > last.end_ns and begin >= last.begin_ns:
                pauses = tuple(
                    total + min(max(row[at], 0), end - begin)
                    for total, at in zip(last.pauses_ns, _PAUSES.values(), strict=True)
                )
                alone = np.array(row)[:, None]
                self.lives[-1] = replace(
                    last,
                    end_ns=end,
                    last_step=step,
                    pauses_ns=pauses,
                    **_with_stood(alone, last),
                    num_skipped=last.num_skipped + int(_skipped(alone, last).sum()),
                    gaps=_with_gaps(alone, last),
                )

    @staticmethod
    def _is_new(last: Life, host: str, begin: int, step: int) -> bool:
        return host != last.host or (step <= last.last_step and begin >= last.end_ns)


def stood_beyond(length: Ints, paused: Ints, before: Ints, num_before: Ints) -> Ints:
    """Of each step what it took beyond a mean one where the job stood in it, else 0.

    length: ns, of which paused in checkpoints and the like. before: ns of the num_before steps until then.
    """
    mean = before // np.maximum(num_before, 1)
    beyond = length - paused - mean
    stood = (num_before > 0) & (beyond >= MIN_STILL_S / NS) & (beyond >= STOOD_STEPS * mean)
    return np.where(stood, beyond, 0)


def _with_stood(rows: Ints, life: Life) -> _Stood:
    """The life's time in which the job stood, with that of these rows."""
    begin, length = rows[_BEGIN], rows[_END] - rows[_BEGIN]
    paused = np.clip(rows[list(_PAUSES.values())], 0, length).sum(axis=0)
    stood = stood_beyond(length, paused, begin - life.begin_ns, rows[_STEP] - life.first_step)
    at = np.flatnonzero(stood)[-MAX_LONG:]
    long = zip(begin[at].tolist(), rows[_END, at].tolist(), (length - paused)[at].tolist(), strict=True)
    return {"stood_ns": life.stood_ns + int(stood.sum()), "long_ns": (*life.long_ns, *long)[-MAX_LONG:]}


def _skipped(rows: Ints, last: Life) -> Ints:
    """Before each row the numbers that are missing and would have taken less than a tenth of its length each."""
    begin, end, step = rows[_BEGIN], rows[_END], rows[_STEP]
    missing = np.diff(step, prepend=last.last_step) - 1
    gap = begin - _ends_before(rows, last)
    return np.where(gap < missing * NO_TIME * (end - begin), missing, 0)


def _ends_before(rows: Ints, last: Life) -> Ints:
    return np.concatenate(([last.end_ns], rows[_END, :-1]))


def _with_gaps(rows: Ints, last: Life) -> tuple[tuple[int, int, int], ...]:
    """The life's gaps with those before each row: steps that took their time, and of which nothing is there."""
    missing = np.diff(rows[_STEP], prepend=last.last_step) - 1 - _skipped(rows, last)
    ended = _ends_before(rows, last)
    at = np.flatnonzero((missing > 0) & (rows[_BEGIN] > ended))[: MAX_GAPS - len(last.gaps)]
    found = zip(ended[at].tolist(), rows[_BEGIN, at].tolist(), missing[at].tolist(), strict=True)
    return (*last.gaps, *found)


def _goes_on(rows: Ints, last: Life) -> bool:
    begin, end, step = rows[_BEGIN], rows[_END], rows[_STEP]
    return bool(
        begin[0] >= last.begin_ns
        and begin[0] > 0
        and end[0] > last.end_ns
        and step[0] > last.last_step
        and end[-1] < MAX_CLOCK_NS
        and (begin <= end).all()
        and (np.diff(end) > 0).all()
        and (np.diff(step) > 0).all()
    )
