"""Which step of the job a record belongs to, for those who read a recording a second time.

Each rank counts its own steps from where it was attached; where these lie on the job's axis is known only after
enough of them were seen. In: the STEPS frames, once.  Out: JobAxis, which answers for any frame of the recording by
its position among the STEPS frames.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.advisor.steps.tracks import MAX_RANKS, NONE
from tuiadvisor.events import UNKNOWN

if TYPE_CHECKING:
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.steps.arrays import Ints


@dataclass(slots=True)
class _Generations:
    """A rank's probe, each time it was installed: from which STEPS frame and moment on, the offset of its steps."""

    first_frames: list[int] = field(default_factory=list)
    born_ticks: list[int] = field(default_factory=list)
    born_ns: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)  # NONE while not aligned


class JobAxis:
    """Mutable while `watch` is called after each STEPS frame; then read with `job_steps`."""

    def __init__(self, store: StepStore) -> None:
        self._store = store
        self._ranks: dict[int, _Generations] = {}
        self.num_frames = 0  # STEPS frames watched

    def watch(self, ranks: Ints) -> None:
        """The store has just taken a STEPS frame with these ranks."""
        tracks = self._store.tracks
        seen = np.unique(ranks[(ranks >= 0) & (ranks < MAX_RANKS)])
        rows = tracks.rows_of(seen)
        for rank, row in zip(seen[rows >= 0].tolist(), rows[rows >= 0].tolist(), strict=True):
            known = self._ranks.setdefault(rank, _Generations())
            if not known.born_ticks and tracks.restarted[row]:  # both generations within its first frame
                known.first_frames.append(self.num_frames)
                known.born_ticks.append(-1)
                known.born_ns.append(0)
                known.offsets.append(int(tracks.former_offset[row]))
            if not known.born_ticks or known.born_ticks[-1] != tracks.born_tick[row]:
                known.first_frames.append(self.num_frames)
                known.born_ticks.append(int(tracks.born_tick[row]))
                known.born_ns.append(int(tracks.born_ns[row]))
                known.offsets.append(NONE)
            known.offsets[-1] = int(tracks.offset[row])
        self.num_frames += 1

    def job_steps(self, frame: int, ranks: Ints, steps: Ints, begins_ns: Ints) -> Ints:
        """Job step of each row of the STEPS frame at this position; UNKNOWN where a rank was never aligned.

        For an EVENTS frame give the number of STEPS frames before it.
        """
        result = np.full(steps.shape, UNKNOWN, dtype=np.int64)
        shift = self._store.axis_shift()
        for rank in np.unique(ranks).tolist():
            known = self._ranks.get(rank)
            if known is None:
                continue
            rows = np.flatnonzero(ranks == rank)
            result[rows] = self._on_axis(known, frame, steps[rows], begins_ns[rows]) - shift
            result[rows[result[rows] < 0]] = UNKNOWN
        return np.where(steps >= 0, result, UNKNOWN)

    @staticmethod
    def _on_axis(known: _Generations, frame: int, steps: Ints, begins_ns: Ints) -> Ints:
        at = max(bisect_right(known.first_frames, frame) - 1, 0)
        nowhere = np.full(steps.shape, NONE // 2)
        now = steps + known.offsets[at] if known.offsets[at] != NONE else nowhere
        if at == 0 or known.first_frames[at] != frame:
            return now
        # The frame in which the probe was installed anew may hold the end of the generation before.
        before = steps + known.offsets[at - 1] if known.offsets[at - 1] != NONE else nowhere
        return np.where(begins_ns < known.born_ns[at], before, now)
