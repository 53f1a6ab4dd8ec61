"""How restless the steps are now: noise may have grown on all ranks alike since the past that a rank is judged by.

In: deviations of ranks from their common level, R ranks x K steps.  Out: standard deviation of a step, from all ranks
together, so that a few steps tell it. Neither a change of level nor a rank that is late now and then is noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import MAD_TO_SIGMA, Floats, median, medians

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Ints

RECENT_STEPS: Final = 24  # eight steps of two ranks are often half as restless as the job is
GREW: Final = 1.6  # a ratio below this is how far so few steps scatter
MAX_RANKS: Final = 256


def noise_s(deviation_RK: Floats) -> float:
    """Standard deviation of a step of the typical rank; 0 for fewer than two steps."""
    if deviation_RK.shape[1] < 2 or not deviation_RK.shape[0]:
        return 0.0
    some = deviation_RK[:: max(1, -(-deviation_RK.shape[0] // MAX_RANKS))]
    # Late in every third step most neighbours differ, but not most steps; after a change of level it is the other way.
    of_neighbours = median(np.abs(np.diff(some, axis=1)).ravel()) / float(np.sqrt(2))
    of_level = median(np.abs(some - medians(some, 1)[:, None]).ravel())
    return MAD_TO_SIGMA * min(of_neighbours, of_level)


def recent_noise_s(deviation_RK: Floats) -> float:
    """The same of the last steps."""
    return noise_s(deviation_RK[:, -RECENT_STEPS:])


def growth(deviation_RK: Floats, start: int) -> float:
    """Noise of the last steps over that before `start`; 1 where it did not grow beyond doubt, or nothing is known."""
    before = noise_s(deviation_RK[:, :start])
    ratio = recent_noise_s(deviation_RK) / before if before > 0 else 1.0
    return ratio if ratio > GREW else 1.0


def log_chance_of_hits(hits_R: Ints, rows: Ints, peers: Ints) -> Floats:
    """Logarithm of a bound on the chance that any rank has so many of the late steps, each of `rows`, as peers have.

    Given how many late steps a rank and its peers have together, they fall by lot. Source: Chernoff's bound of a
    binomial tail, times the ranks.
    """
    own, others = hits_R[rows].astype(np.float64), float(hits_R[peers].sum())
    total, by_lot = np.maximum(own + others, 1.0), 1 / (peers.size + 1)
    share = np.clip(own / total, 1e-12, 1 - 1e-12)
    divergence = share * np.log(share / by_lot) + (1 - share) * np.log((1 - share) / (1 - by_lot))
    return np.asarray(np.log(hits_R.size) - np.where(share > by_lot, total * divergence, 0.0))
