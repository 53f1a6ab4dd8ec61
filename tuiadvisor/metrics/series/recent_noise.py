"""How restless the steps are now: noise may have grown on all ranks alike since the past that a rank is judged by.

In: deviations of ranks from their common level, R ranks x K steps.  Out: standard deviation of a step, from all ranks
together, so that a few steps tell it. Neither a change of level nor a rank that is late now and then is noise.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.bootstrap import MAX_CORRELATION
from tuiadvisor.metrics.steps.arrays import MAD_TO_SIGMA, Floats, median, medians, row_percentiles

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

RECENT_STEPS: Final = 24  # eight steps of two ranks are often half as restless as the job is
GREW: Final = 1.6  # a ratio below this is how far so few steps scatter
MAX_RANKS: Final = 256  # looked at: the median of more is the same
MIN_STEPS_TO_RESEMBLE: Final = 16  # a correlation from fewer scatters by a quarter and more
WITHOUT_TAILS: Final = (5, 95)  # percentiles: one long step correlates with nothing


def noise_s(deviation_RK: Floats) -> float:
    """Standard deviation of a step of the typical rank; 0 for fewer than two steps."""
    return float(noise_of_parts_s(deviation_RK[None])[0])


def noise_of_parts_s(deviation_PRK: Floats) -> Floats:
    """The same of P parts of a run with as many steps each."""
    num_parts, num_ranks, num_steps = deviation_PRK.shape
    if num_steps < 2 or not num_ranks:
        return np.zeros(num_parts)
    some = deviation_PRK[:, :: max(1, -(-num_ranks // MAX_RANKS))]
    # Late in every third step most neighbours differ, but not most steps; after a change of level it is the other way.
    of_neighbours_P = medians(np.abs(np.diff(some, axis=2)).reshape(num_parts, -1), 1) / float(np.sqrt(2))
    levels = medians(some.reshape(-1, num_steps), 1).reshape(num_parts, -1, 1)
    of_level_P = medians(np.abs(some - levels).reshape(num_parts, -1), 1)
    return np.asarray(MAD_TO_SIGMA * np.minimum(of_neighbours_P, of_level_P))


def recent_noise_s(deviation_RK: Floats) -> float:
    """The same of the last steps."""
    return noise_s(deviation_RK[:, -RECENT_STEPS:])


def growth(deviation_RK: Floats, start: int) -> float:
    """Noise of the last steps over that before `start`; 1 where it did not grow beyond doubt, or nothing is known."""
    before = noise_s(deviation_RK[:, :start])
    ratio = recent_noise_s(deviation_RK) / before if before > 0 else 1.0
    return ratio if ratio > GREW else 1.0


def repetition(deviation_RK: Floats) -> float:
    """How many steps say as much as one would if no step resembled the one before; 1 without a sign of it.

    Source: (1 + r) / (1 - r) of a first-order process; r: the correlation of neighbouring steps, of the typical rank.
    """
    num_steps = deviation_RK.shape[1]
    if num_steps < MIN_STEPS_TO_RESEMBLE:
        return 1.0
    some = deviation_RK[:: max(1, -(-deviation_RK.shape[0] // MAX_RANKS))]
    low, high = row_percentiles(some, *WITHOUT_TAILS)
    centred = np.clip(some, low[:, None], high[:, None])
    centred = centred - centred.mean(axis=1)[:, None]
    total = (centred**2).sum(axis=1)
    products = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
    typical = float(median(products[total > 0] / total[total > 0])) if (total > 0).any() else 0.0
    if typical < 2 / np.sqrt(num_steps):
        return 1.0
    typical = min(typical + (1 + 3 * typical) / num_steps, MAX_CORRELATION)
    return float((1 + typical) / (1 - typical))


def separate_hits(hit_RK: Bools) -> Floats:
    """R: how many late steps of each rank say something new: as many as runs of them are by lot in such a share.

    A neighbour's burst of work makes ten steps in a row late, and is one event.
    """
    share_R = hit_RK.mean(axis=1)
    runs_R = hit_RK[:, 0] + (hit_RK[:, 1:] & ~hit_RK[:, :-1]).sum(axis=1)
    separate_R = runs_R / np.maximum(1 - share_R, 1 / hit_RK.shape[1])
    return np.asarray(np.minimum(separate_R, hit_RK.sum(axis=1)))


def log_chance_of_hits(hits_R: Floats, row: int, peers: Ints) -> float:
    """Logarithm of a bound on the chance that any rank has so many of the late steps as this one has beside its peers.

    Given how many late steps a rank and its peers have together, they fall by lot. Source: Chernoff's bound of a
    binomial tail, times the ranks.
    """
    own, total = float(hits_R[row]), float(hits_R[row] + hits_R[peers].sum())
    return log(hits_R.size) + log_tail(own, total, 1 / (peers.size + 1))


def log_tail(own: float, total: float, by_lot: float) -> float:
    """Logarithm of a bound on the chance of so many of `total` where each is one's own with the chance by_lot."""
    share = min(max(own / max(total, 1.0), 1e-12), 1 - 1e-12)
    divergence = share * log(share / by_lot) + (1 - share) * log((1 - share) / (1 - by_lot))
    return -total * divergence if share > by_lot else 0.0
