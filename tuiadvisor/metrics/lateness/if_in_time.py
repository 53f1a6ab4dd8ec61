"""The work of late ranks if they were in time, and what stands for normal beside them.

In: work between barriers, R x K, no NaN, the rows that are late.  Out: their work without what makes them late, C x K.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.persistence import between_modes, persistence
from tuiadvisor.metrics.series.what_if import like_peers
from tuiadvisor.metrics.steps.arrays import mad_sigma, median, medians, row_mad_sigma

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

MAX_PEERS: Final = 32  # whose noise is looked at
MIN_SCALED_STEPS: Final = 40  # to tell one rank's noise from its peers'
OTHER_KIND: Final = (
    6.0  # of its own noise: a step so much beyond the usual one is of another kind, as of pauses
)
SCALED_NOISE: Final = 1.25  # noise so much beyond its peers': the rank is slower by a factor, not by a delay


def beyond_others(work_RK: Floats, rows: Ints) -> Floats:
    """Work of the late rows beyond the middle of the others: of three ranks a late one moves the middle of all."""
    peers = np.setdiff1d(np.arange(work_RK.shape[0]), rows)
    if peers.size:
        return np.asarray(work_RK[rows] - medians(work_RK[peers], 0))
    return np.stack([work_RK[row] - medians(in_time_RK, 0) for row, in_time_RK in _others(work_RK)])


def all_cured(work_RK: Floats, rows: Ints, excess_CK: Floats, stall_RK: Bools, is_rare_R: Bools) -> Floats:
    """The work of these rows if none was late: in rare stalls that of the peers, else its own without the excess."""
    peers = np.setdiff1d(np.arange(work_RK.shape[0]), rows)
    if peers.size:
        return _cured_beside(work_RK[peers], work_RK[rows], excess_CK, stall_RK[rows], is_rare_R[rows])
    return np.concatenate(
        [
            _cured_beside(in_time_RK, work_RK[[row]], excess_CK[[row]], stall_RK[[row]], is_rare_R[[row]])
            for row, in_time_RK in _others(work_RK)
        ]
    )


def _cured_beside(
    peers_RK: Floats, work_CK: Floats, excess_CK: Floats, stall_CK: Bools, is_rare_C: Bools
) -> Floats:
    noise_s = median(row_mad_sigma(peers_RK[:MAX_PEERS]))
    return np.stack(
        [
            np.where(stall_K, medians(peers_RK, 0), work_K)
            if is_rare
            else _cured(work_K, excess_K, peers_RK, noise_s)
            for work_K, excess_K, stall_K, is_rare in zip(
                work_CK, excess_CK, stall_CK, is_rare_C.tolist(), strict=True
            )
        ]
    )


def _cured(work_K: Floats, excess_K: Floats, peers_RK: Floats, noise_s: float) -> Floats:
    """The rank's work without its fault: shifted by a steady excess, which keeps its own noise and so the
    estimate's variance small; with its peers' distribution where the excess comes and goes. noise_s: of a peer.
    """
    typical_s, _, persistent = persistence(excess_K)
    if not persistent:
        return like_peers(work_K, peers_RK)
    own_s, own_noise_s = median(work_K), mad_sigma(work_K)
    if own_s <= typical_s or own_noise_s <= SCALED_NOISE * noise_s:
        return work_K - typical_s
    if work_K.size >= MIN_SCALED_STEPS and own_noise_s > SCALED_NOISE * noise_s * own_s / (own_s - typical_s):
        # More restless than any factor makes it: two kinds of steps, too near each other to be told apart.
        return like_peers(work_K, peers_RK)
    return work_K * (1 - typical_s / own_s)  # all its work is slower, and its noise with it


def _others(work_RK: Floats) -> Iterator[tuple[int, Floats]]:
    """Each row, and what stands for normal beside it where all are late: the others without what makes them so."""
    in_time_RK = calm(work_RK)
    typical_R = medians(in_time_RK, 1)
    in_time_RK -= (typical_R - typical_R.min())[:, None]
    for row in range(work_RK.shape[0]):
        yield row, np.delete(in_time_RK, row, axis=0)


def calm(work_RK: Floats) -> Floats:
    """Each row's work, with its usual step in place of those that belong to a longer kind of its own."""
    calm_RK = work_RK.copy()
    for own_K in calm_RK:
        middle_s = between_modes(own_K - median(own_K))
        limit_s = median(own_K) + (OTHER_KIND * mad_sigma(own_K) if middle_s is None else middle_s)
        own_K[own_K > limit_s] = median(own_K[own_K <= limit_s])
    return np.asarray(calm_RK)
