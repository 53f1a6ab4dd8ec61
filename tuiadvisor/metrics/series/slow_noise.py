"""How far noise that moves slowly moves a rank, and for how many steps: what its peers' steps say over the whole run.

In: work between barriers, R ranks x K steps.  Out: SlowNoise; None without a sign that steps resemble each other.
A neighbour's work, a warm device or a slow file system hold a rank up for ten or twenty steps at a time. A window that
such a stretch begins shows neither how far noise moves a rank nor for how long; and of the rank in question nothing can
be told apart from its own lateness. So both are asked of the others, over all steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.bootstrap import MAX_CORRELATION, MIN_DEGREES
from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS
from tuiadvisor.metrics.series.recent_noise import MIN_STEPS_TO_RESEMBLE, WITHOUT_TAILS
from tuiadvisor.metrics.steps.arrays import median, row_mad_sigma, row_percentiles

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tuiadvisor.metrics.series.change_points import Change
    from tuiadvisor.metrics.steps.arrays import Floats, Ints

MAX_LOOKED_AT: Final = 32  # peers: the median of more is the same
MIN_PEERS: Final = 2  # one alone is no measure: its noise is that of the rank in question, mirrored
MAX_BLOCK: Final = 8  # steps: the longest period of lateness that does not hide that noise is slow. Chosen
LEAST_KNOWN: Final = 0.25  # of the variance of a step, whatever a short run hides of it. Chosen
RESOLUTION_S: Final = 1e-9  # of our clocks: what moves by less is rounding
LEVEL_STEPS: Final = (
    60  # three times as long as neighbours were seen to hold a rank up (SETTLED_STEPS). Chosen
)
WITHOUT_STALLS: Final = (2, 98)  # percentiles: a pause of one peer is no noise


@dataclass(frozen=True, slots=True)
class SlowNoise:
    """Of a rank that is none of these peers."""

    usual_K: Floats  # mean work of the peers
    noise_PK: Floats  # of each peer beyond the mean of the others
    memory_steps: float  # how many steps say as much as one would that resembles no other
    sigma_s: float  # of what moves slowly, typical peer

    @property
    def carried(self) -> float:
        """Share of a step's noise that the next one has too, in a first-order process with such a memory."""
        return (self.memory_steps - 1) / (self.memory_steps + 1)

    @property
    def degrees(self) -> float:
        """Independent observations that `sigma_s` rests on."""
        num_peers, num_steps = self.noise_PK.shape
        return max(float((num_peers - 1) * num_steps / self.memory_steps - 1), MIN_DEGREES)

    def error_s(self, num_steps: int) -> float:
        """Standard deviation of the mean of so many steps."""
        return self.sigma_s / sqrt(max(num_steps / self.memory_steps, 1.0))

    def largest_s(self, num_steps: int) -> float:
        """The largest mean of so many steps on end that a peer's noise made in the whole run."""
        from_usual = self.noise_PK - np.median(self.noise_PK, axis=1, keepdims=True)
        sums = np.cumsum(np.pad(from_usual, ((0, 0), (1, 0))), axis=1)
        return float((sums[:, num_steps:] - sums[:, :-num_steps]).max()) / num_steps


def peers_of(num_ranks: int, row: int, late_rows: Ints) -> Ints:
    """All that are not late, or all others where fewer than two would be left."""
    rows = np.arange(num_ranks)
    peers = np.setdiff1d(rows, np.append(late_rows, row))
    return peers if peers.size >= MIN_PEERS else np.setdiff1d(rows, [row])


def without_levels(
    work_RK: Floats,
    levels: Mapping[int, tuple[Change, ...]],
    least_s: float,
    known: Collection[int] = (),
) -> Floats:
    """The work as if no rank had gone to another level for long: what one was late by before is no noise of a peer.

    levels: of each row that has any, its changes in order, beyond what all have in common. least_s: smaller ones stay,
    as do those that did not last. known: columns at which a rank changed by more than noise does: those of all rows
    there are levels, as the others' are its mirror image.
    """

    def is_level(change: Change, begin: int, end: int) -> bool:
        lasted = min(change.index - begin, end - change.index) >= LEVEL_STEPS
        return abs(change.shift) >= least_s and (
            lasted or any(abs(change.index - at) <= MIN_SEGMENT_STEPS for at in known)
        )

    num_steps, result = work_RK.shape[1], work_RK
    for row, changes in levels.items():
        edges = [0, *(change.index for change in changes), num_steps]
        beyond_K = np.zeros(num_steps)
        for change, begin, end in zip(changes, edges[:-2], edges[2:], strict=True):
            if is_level(change, begin, end):
                beyond_K[change.index :] += change.shift
        if beyond_K.any():
            result = result.copy() if result is work_RK else result
            result[row] -= beyond_K - beyond_K.min()
    return result


def slow_noise(work_RK: Floats, peers: Ints, as_was_RK: Floats | None = None) -> SlowNoise | None:
    """What these peers show.

    as_was_RK: the work before lateness that wanders was taken out of it, which shows how long noise is remembered.
    """
    if peers.size < MIN_PEERS:
        return None
    peers = peers[:: -(-peers.size // MAX_LOOKED_AT)]
    was_PK = _beyond_others((work_RK if as_was_RK is None else as_was_RK)[peers])
    found = memory_steps(was_PK)
    if found is None:
        return None
    steps, length = found
    noise_PK = _beyond_others(work_RK[peers])
    # Where lateness wanders the work as it was has its stretches in its noise, and the other lacks some of its noise.
    sigma_s = sqrt(_sigma_s(_blocks(noise_PK, length)) * _sigma_s(_blocks(was_PK, length)))
    # A run shows its noise about its own mean, which has moved with it.
    known = max(1 - steps / noise_PK.shape[1], LEAST_KNOWN)
    return SlowNoise(work_RK[peers].mean(axis=0), noise_PK, steps, sigma_s / sqrt(known))


def _sigma_s(noise_PK: Floats) -> float:
    """Of the typical peer: noise that is skewed has more of it than its middle half shows."""
    low, high = row_percentiles(noise_PK, *WITHOUT_STALLS)
    spread_P = np.asarray(np.clip(noise_PK, low[:, None], high[:, None]).std(axis=1))
    return max(median(row_mad_sigma(noise_PK)), median(spread_P))


def _beyond_others(work_PK: Floats) -> Floats:
    num_peers = work_PK.shape[0]
    return np.asarray((work_PK - work_PK.mean(axis=0)) * (num_peers / (num_peers - 1)))


def memory_steps(noise_RK: Floats) -> tuple[float, int] | None:
    """(how many steps say as much as one that resembles no other, of how many the blocks were that show it).

    Of the typical rank; None without a sign of it. Batch means, as `bootstrap.blocks`, of the shortest blocks that
    resemble their neighbours: beside a rank that is late in every third step neighbouring steps do not, and blocks of
    three do. What comes and goes within a block is not what moves slowly.
    """
    num_steps = noise_RK.shape[1]
    low, high = row_percentiles(noise_RK, *WITHOUT_TAILS)
    clipped = np.clip(noise_RK, low[:, None], high[:, None])
    for length in range(1, min(MAX_BLOCK, num_steps // MIN_STEPS_TO_RESEMBLE) + 1):
        blocks = _blocks(clipped, length)
        num = blocks.shape[1]
        centred = blocks - blocks.mean(axis=1)[:, None]
        power_R = (centred**2).sum(axis=1)
        products_R = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
        moves_R = power_R > num * RESOLUTION_S**2
        alike = float(median(products_R[moves_R] / power_R[moves_R])) if moves_R.any() else 0.0
        if alike >= 2 / sqrt(num):
            alike = min(alike + (1 + 3 * alike) / num, MAX_CORRELATION)
            return length * (1 + alike) / (1 - alike), length
    return None


def _blocks(values_RK: Floats, length: int) -> Floats:
    """Means of so many steps each, the first ones left out where they fill none."""
    num = values_RK.shape[1] // length
    return np.asarray(values_RK[:, -num * length :].reshape(-1, num, length).mean(axis=2))
