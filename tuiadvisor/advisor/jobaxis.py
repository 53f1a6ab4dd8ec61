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

from tuiadvisor.events import UNKNOWN

if TYPE_CHECKING:
    from tuiadvisor.advisor.steps import StepStore
    from tuiadvisor.metrics.arrays import Ints


@dataclass(slots=True)
class _Generations:
    """A rank's probe, each time it was installed: from which STEPS frame on, and the offset of its steps."""

    first_frames: list[int] = field(default_factory=list)
    born: list[int] = field(default_factory=list)
    offsets: list[int | None] = field(default_factory=list)


class JobAxis:
    """Mutable while `watch` is called after each STEPS frame; then read with `job_steps`."""

    def __init__(self, store: StepStore) -> None:
        self._store = store
        self._ranks: dict[int, _Generations] = {}
        self.num_frames = 0  # STEPS frames watched

    def watch(self, ranks: Ints) -> None:
        """The store has just taken a STEPS frame with these ranks."""
        for rank in np.unique(ranks).tolist():
            track = self._store.tracks.get(rank)
            if track is None:
                continue
            known = self._ranks.setdefault(rank, _Generations())
            if not known.born or known.born[-1] != track.born_tick:
                known.first_frames.append(self.num_frames)
                known.born.append(track.born_tick)
                known.offsets.append(None)
            known.offsets[-1] = track.alignment.offset
        self.num_frames += 1

    def job_steps(self, frame: int, ranks: Ints, steps: Ints) -> Ints:
        """Job step of each row of the STEPS frame at this position; UNKNOWN where a rank was never aligned.

        For an EVENTS frame give the number of STEPS frames before it.
        """
        result = np.full(steps.shape, UNKNOWN, dtype=np.int64)
        shift = self._store.axis_shift()
        for rank in np.unique(ranks).tolist():
            offset = self._offset(rank, frame)
            if offset is not None:
                rows = ranks == rank
                result[rows] = steps[rows] + offset - shift
        return np.where(steps >= 0, result, UNKNOWN)

    def _offset(self, rank: int, frame: int) -> int | None:
        known = self._ranks.get(rank)
        if known is None:
            return None
        return known.offsets[max(bisect_right(known.first_frames, frame) - 1, 0)]
