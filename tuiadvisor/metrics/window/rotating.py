"""Lateness that wanders: one rank is late for a stretch of steps, then another one, so that nobody is late for long.

In: work between barriers of the steady steps, R ranks x K steps, no NaN.  Out: Wandering, None where no lateness
wanders in stretches: what it costs a step, and who had it. Lateness drawn anew each step (noise of a crowded machine,
sequence lengths by lot) has no stretches and is none of this; one rank that comes and goes is a straggler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS
from tuiadvisor.metrics.series.recent_noise import noise_of_parts_s
from tuiadvisor.metrics.series.what_if import Gain, gain
from tuiadvisor.metrics.steps.arrays import column_median, median, row_mad_sigma, row_percentiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

WINDOW_STEPS: Final = MIN_SEGMENT_STEPS + 1  # the middle of so many steps: late in most of them
MIN_EXCESS_SHARE: Final = 0.05  # of the step
NUM_NOISE_SIGMAS: Final = 2.0  # of a single step: five of the middle of nine
MIN_CULPRITS: Final = 3  # or both of two ranks: fewer are stragglers that come and go
MIN_HANDOVERS: Final = 3  # one rank after another once is a fault that has moved
MAX_SHARE_OF_ONE: Final = 0.7  # of the loss: more is one rank's
MIN_PART: Final = (
    0.1  # of the loss of the one that has most: a rank that was last by chance for a moment has less
)
MAX_TOGETHER: Final = (
    0.75  # of them late in the same steps: a host or a stage that is late, whoever is last by a hair
)
MIN_LOSS_SHARE: Final = 0.02  # of the step: smaller losses are not worth a name
MAX_SEARCHED_RANKS: Final = 64  # those who are late most: the cost of a view
NOISE_STEPS: Final = 32  # of which the noise is taken: it may grow within the run
# Exchanges (lower place, higher place) that leave the middle of nine in place 4.
MEDIAN_OF_NINE: Final = (
    *((1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3)),
    *((5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2)),
)
FEW_RANKS: Final = 3  # of these stretches by lot vary much from one order to the next
NUM_SHUFFLES, NUM_SHUFFLES_OF_MANY = 8, 2
BEYOND_LOTS: Final = (
    1.5  # by lot it is 0.9 to 1.3 times what shuffled steps lose, in turns at least 1.7 times
)
MIN_QUIET_STRETCHES: Final = 3  # of the usual length without any, and it had not begun


@dataclass(frozen=True, slots=True)
class Wandering:
    """late_CK and healed_CK: rows `culprits`, columns as given."""

    gain: Gain  # from `since` on
    culprits: Ints
    late_CK: Bools
    healed_CK: Floats  # their work without it
    loss_K: Floats
    since: int  # column; 0 when it was there from the start
    stretch_steps: float  # typical

    def heal(self, work_RK: Floats) -> Floats:
        """The same work with nobody late in stretches."""
        result = work_RK.copy()
        result[self.culprits] = self.healed_CK
        return result


def find_wandering(work_RK: Floats, cycle_K: Floats) -> Wandering | None:
    """Lateness that goes from rank to rank in stretches of steps."""
    num_ranks, num_steps = work_RK.shape
    if num_ranks < 2 or num_steps < (MIN_HANDOVERS + 1) * WINDOW_STEPS:
        return None
    rows = _suspects(work_RK)
    deviation = _beyond_reference(work_RK, rows)
    excess = _stretches(deviation, median(cycle_K))
    if not excess.any():
        return None
    healed = work_RK[rows] - excess
    others_K = np.delete(work_RK, rows, axis=0).max(axis=0, initial=-np.inf)
    loss_K = _loss_K(work_RK[rows], others_K, excess)
    last_K = np.where(excess.max(axis=0) > 0, np.argmax(excess, axis=0), -1)
    by_row = np.bincount(last_K[last_K >= 0], weights=loss_K[last_K >= 0], minlength=rows.size)
    culprits = np.flatnonzero(by_row > MIN_PART * by_row.max())
    owners, lengths, begins = _runs(last_K)
    num_handovers = int((owners[1:] != owners[:-1]).sum()) if owners.size else 0
    late = excess[culprits] > 0
    if culprits.size < min(MIN_CULPRITS, num_ranks) or num_handovers < MIN_HANDOVERS or _is_crowd(late):
        return None
    if float(by_row.max()) > MAX_SHARE_OF_ONE * float(by_row.sum()):
        return None
    stretch = float(np.median(lengths))
    since = int(begins[0]) if begins[0] >= MIN_QUIET_STRETCHES * stretch else 0
    what_if = gain(cycle_K[since:], loss_K[since:])
    is_costly = what_if.loss_low_s > 0 and what_if.loss_s >= MIN_LOSS_SHARE * what_if.step_s
    if not is_costly or loss_K.sum() < BEYOND_LOTS * _lost_by_lot(
        work_RK[rows], others_K, deviation, median(cycle_K)
    ):
        return None
    return Wandering(what_if, rows[culprits], late, healed[culprits], loss_K, since, stretch)


def _loss_K(work: Floats, others_K: Floats, excess: Floats) -> Floats:
    """Seconds a step that the suspects' excess costs; others_K: the longest work of ranks that are no suspects."""
    healed_K = np.maximum((work - excess).max(axis=0), others_K)
    return np.asarray(np.maximum(work.max(axis=0), others_K) - healed_K)


def _lost_by_lot(work: Floats, others_K: Floats, deviation: Floats, cycle_s: float) -> float:
    """Seconds in stretches if the same steps came in another order: by lot a rank is late five times of nine, too."""
    stream = np.random.default_rng(0)
    lost = []
    for _ in range(NUM_SHUFFLES if len(work) <= FEW_RANKS else NUM_SHUFFLES_OF_MANY):
        order = stream.permutation(others_K.size)
        excess = _stretches(np.ascontiguousarray(deviation[:, order]), cycle_s)
        lost.append(float(_loss_K(work[:, order], others_K[order], excess).sum()))
    return max(lost)


def _is_crowd(late_CK: Bools) -> bool:
    """Whether they are late together, and not one after the other."""
    return float(late_CK[:, late_CK.any(axis=0)].mean()) > MAX_TOGETHER


def _suspects(work_RK: Floats) -> Ints:
    """The ranks that are last most often: of thousands only few can be late for a stretch."""
    num_ranks = work_RK.shape[0]
    if num_ranks <= MAX_SEARCHED_RANKS:
        return np.arange(num_ranks)
    times = np.bincount(np.argmax(work_RK, axis=0), minlength=num_ranks)
    return np.sort(np.argsort(-times, kind="stable")[:MAX_SEARCHED_RANKS])


def _beyond_reference(work_RK: Floats, rows: Ints) -> Floats:
    """Seconds, rows x K, beyond a rank that is in time."""
    place = (work_RK.shape[0] - 1) // 4
    reference_K = np.partition(np.ascontiguousarray(work_RK.T), place, axis=1)[:, place]
    return np.asarray(work_RK[rows] - reference_K)


def _stretches(deviation: Floats, cycle_s: float) -> Floats:
    """Seconds, rows x K, by which a rank is late in a stretch, beyond its own usual place; 0 outside."""
    half = WINDOW_STEPS // 2
    padded = np.pad(deviation, ((0, 0), (half, half)), mode="edge")
    smooth = _running_median(padded, deviation.shape[1])
    excess = smooth - row_percentiles(smooth, 25)[0][:, None]
    limit_K = np.maximum(MIN_EXCESS_SHARE * cycle_s, NUM_NOISE_SIGMAS * _noise_K(deviation))
    return np.where(excess > limit_K, excess, 0.0)


def _noise_K(deviation_RK: Floats) -> Floats:
    """Noise of a step, seconds, by differences of neighbours, whatever the stretches; it may grow within the run."""
    num_steps = deviation_RK.shape[1]
    whole_s = median(row_mad_sigma(np.diff(deviation_RK, axis=1))) / float(np.sqrt(2))
    num_parts = max(1, num_steps // NOISE_STEPS)
    edges = np.linspace(0, num_steps, num_parts + 1).astype(np.int64)
    lengths, parts = np.diff(edges), np.zeros(num_parts)
    for length in {
        int(lengths.min()),
        int(lengths.max()),
    }:  # together: of thousands of steps each call would count
        (which,) = np.nonzero(lengths == length)
        columns = edges[which, None] + np.arange(length)
        parts[which] = noise_of_parts_s(deviation_RK[:, columns].transpose(1, 0, 2))
    return np.asarray(np.maximum(whole_s, np.repeat(parts, lengths)))


def _running_median(padded_RK: Floats, num_steps: int) -> Floats:
    """The middle of each WINDOW_STEPS neighbours, R x num_steps.

    Exchanges between whole shifted arrays, a tenth of the time of as many small sorts: the network of nine is the
    shortest one known (Paeth, Graphics Gems 1990).
    """
    v = [padded_RK[:, shift : shift + num_steps] for shift in range(WINDOW_STEPS)]
    for low, high in MEDIAN_OF_NINE:
        v[low], v[high] = np.minimum(v[low], v[high]), np.maximum(v[low], v[high])
    return v[4]


def _runs(last_K: Ints) -> tuple[Ints, Ints, Ints]:
    """(owner, length, first step) of stretches with one last rank, short ones left out."""
    begins = np.flatnonzero(np.concatenate(([True], last_K[1:] != last_K[:-1])))
    lengths = np.diff(np.append(begins, last_K.size))
    keep = (last_K[begins] >= 0) & (lengths > WINDOW_STEPS // 2)
    return last_K[begins][keep], lengths[keep], begins[keep]


def phase_shares(phases: Mapping[str, Floats], late_RK: Bools) -> dict[str, float]:
    """Share of the lateness in each phase: late ranks against those that are not late in the same step.

    phases: name -> R x K seconds before the barrier, NaN where not observed. Empty where none of it was observed.
    """
    growth: dict[str, float] = {}
    for name, values in phases.items():
        usual_K = column_median(np.where(late_RK, np.nan, values))
        beyond = (values - usual_K)[late_RK]
        beyond = beyond[np.isfinite(beyond)]
        if beyond.size:
            growth[name] = max(float(beyond.mean()), 0.0)
    total = sum(growth.values())
    return {name: value / total for name, value in growth.items()} if total > 0 else {}
