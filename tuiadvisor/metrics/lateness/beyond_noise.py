"""Which ranks are later than noise makes a rank that moves slowly.

In: work between barriers, R ranks x K steps, as it was, and the rows that seem late.  Out: yes or no for each of them.
Steps that resemble each other count as one: fifteen late ones on end may be a single excursion.
"""

from __future__ import annotations

from math import exp
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.stalls import MAX_LOG_CHANCE_OF_HITS
from tuiadvisor.metrics.series.bootstrap import student
from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS
from tuiadvisor.metrics.series.recent_noise import log_chance_of_hits
from tuiadvisor.metrics.series.slow_noise import WITHOUT_STALLS, SlowNoise, peers_of, slow_noise
from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints, median, medians, percentiles, row_mad_sigma

if TYPE_CHECKING:
    from collections.abc import Callable

HIT_SIGMAS: Final = 3.0  # a step so much later than the one before it foretold is a late one
MIN_STRETCHES: Final = 4  # as long as the present, in the run: it knows then how long excursions are


def beyond_slow_noise(
    work_RK: Floats,
    rows: Ints,
    start: int,
    as_was_RK: Floats | None = None,
    *,
    levelled: Callable[[Floats], Floats] = lambda work_RK: work_RK,
) -> Bools:
    """Of each row whether it is late beyond slow noise, since column `start` or in the whole run.

    as_was_RK: as of `slow_noise`. levelled: `without_levels`, of peers. True where steps do not resemble each other.
    Late all the time, a rank's mean tells it; late now and then, what its steps have beyond what the steps before them
    foretold.
    """
    result = np.ones(rows.size, dtype=np.bool_)
    known: dict[bytes, SlowNoise | None] = {}  # mostly the peers of one row are those of all
    num_ranks = work_RK.shape[0]
    peers_RK = levelled(work_RK)
    was_RK = None if as_was_RK is None else levelled(as_was_RK)
    for index, row in enumerate(rows.tolist()):
        peers = peers_of(num_ranks, row, rows)
        key = peers.tobytes()
        if key not in known:
            known[key] = slow_noise(peers_RK, peers, was_RK)
        if (found := known[key]) is not None:
            own_K = work_RK[row] - found.usual_K
            result[index] = any(
                _is_late(own_K, found, at, num_ranks) or _is_late_at_once(own_K, found, at)
                for at in (start, 0)
            )
    return result


def _is_late(own_K: Floats, found: SlowNoise, start: int, num_ranks: int) -> bool:
    """Whether the mean of its steps is beyond what noise makes of any rank in any stretch as long, but by chance.

    And beyond what the run has seen: noise that is skewed makes one rank later than its standard deviation tells.
    """
    since_K = own_K[start:]
    num_stretches = own_K.size / since_K.size
    late_s = float(np.clip(since_K, *percentiles(since_K, *WITHOUT_STALLS)).mean())
    sigmas = -NormalDist().inv_cdf(exp(MAX_LOG_CHANCE_OF_HITS) / (num_ranks * num_stretches))
    if late_s <= student(found.degrees, sigmas) * found.error_s(since_K.size):
        return False
    return num_stretches < MIN_STRETCHES or late_s > found.largest_s(since_K.size)


def _is_late_at_once(own_K: Floats, found: SlowNoise, start: int) -> bool:
    """Whether its steps are longer than the ones before them foretold, more often than its peers'.

    And longer than its usual one: back in time after a peer's late step a rank seems to be late at once, too.
    """
    series = np.concatenate((own_K[None], found.noise_PK))
    fresh = series[:, 1:] - found.carried * series[:, :-1]
    limit_s = HIT_SIGMAS * median(row_mad_sigma(fresh[1:]))
    from_usual = (series - medians(series, 1)[:, None])[:, 1 + start :]
    fresh = fresh[:, start:]
    if fresh.shape[1] < MIN_SEGMENT_STEPS:
        return False
    hit_RK = (fresh - medians(fresh, 1)[:, None] > limit_s) & (from_usual > limit_s)
    hits_R = hit_RK.sum(axis=1).astype(np.float64)
    return log_chance_of_hits(hits_R, 0, np.arange(1, hits_R.size)) < MAX_LOG_CHANCE_OF_HITS
