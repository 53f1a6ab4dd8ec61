"""Which rank's data is late, from the share of steps at which each rank's next batch was ready.

In: readiness 0..1, ranks x times, NaN where not observed.  Out: episodes in which one rank starves.
A rank starves only against its peers: while most ranks are low together, nobody is the straggler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats

READY: Final = 0.5  # of the steps: below it a rank waits more often than not
MIN_SAMPLES: Final = 20  # of starving, for an episode to be more than a refilled cache
BRIDGED_SAMPLES: Final = 3  # a gap no longer than this, unobserved or ready, does not end an episode


@dataclass(frozen=True, slots=True)
class Starving:
    """Row of the rank and its first and last starving sample; readiness is its mean in between."""

    row: int
    first: int
    last: int
    num_samples: int
    readiness: float


def starving(ready_RT: Floats) -> tuple[Starving, ...]:
    """Episodes by their start; those that overlap are both there."""
    if ready_RT.shape[0] < 2:
        return ()
    known_RT = ~np.isnan(ready_RT)
    low_RT = np.where(known_RT, ready_RT, 1.0) < READY
    num_known = known_RT.sum(axis=0)
    majority_ready = 2 * low_RT.sum(axis=0) <= num_known
    late_RT = low_RT & majority_ready & (num_known >= 2)
    found = [
        Starving(row, first, last, count, float(np.nanmean(ready_RT[row, first : last + 1])))
        for row in range(ready_RT.shape[0])
        for first, last, count in _runs(late_RT[row])
        if count >= MIN_SAMPLES
    ]
    return tuple(sorted(found, key=lambda episode: (episode.first, episode.row)))


def _runs(late_T: Bools) -> list[tuple[int, int, int]]:
    at = np.flatnonzero(late_T)
    if at.size == 0:
        return []
    parts = np.split(at, np.flatnonzero(np.diff(at) > BRIDGED_SAMPLES + 1) + 1)
    return [(int(part[0]), int(part[-1]), int(part.size)) for part in parts]
