"""One clock for ranks whose clocks disagree: a collective ends for all its ranks at nearly the same moment.

In: begins and ends of the communication calls of two ranks, by collective, each on its rank's own clock.
Out: which calls are the same collective, and the offset between the clocks; or why neither can be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.arrays import mad_sigma
from tuiadvisor.metrics.steps.step_alignment import MIN_MATCHES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Floats, Ints

MIN_AGREEING: Final = 0.8  # of the pairs in order must end together
MIN_VOTES: Final = 0.5  # of the shorter side must end together at the voted offset
RIVAL: Final = 0.7  # a second offset with this share of the votes makes the first a guess
TOLERANCE_NS: Final = 500_000  # ends of one collective: 20 to 350 us apart measured, GPU kernels' far less
SPACING_SHARE: Final = 0.1  # a vote takes no more than this share of the distance to the next collective
# Pairs in order may be a step apart where one rank's first calls are missing and another's last: then ends disagree by
# what steps differ in length. Another offset at which most agree this much better is the clocks'.
CLOSER: Final = 0.25
LEAST_APART_NS: Final = 10_000  # kernels of one collective end closer together: no others are looked for
# A vote that two offsets win is taken anew with this part of the tolerance, where MIN_AGREEING have to end together.
FINER: Final = 10
CLOSEST_NS: Final = 2_000  # as the least tolerance of a vote
AMBIGUOUS: Final = "the communication calls end together at more than one offset of the clocks"
MAX_VOTERS: Final = 2000  # calls a side taken into the vote: its cost is their product


@dataclass(frozen=True, slots=True)
class Calls:
    """One rank's calls of one collective in order of their begin, nanoseconds on its own clock.

    hidden_ns: how much of each lies behind computation; None: nothing is known to.
    """

    begin_ns: Ints
    end_ns: Ints
    hidden_ns: Ints | None = None


@dataclass(frozen=True, slots=True)
class Pairing:
    """The other rank's clock minus the reference's, and the pairs of calls; None when it cannot be told."""

    offset_ns: int | None
    drift: float  # nanoseconds a nanosecond, of the offset
    at_ns: int  # where the offset holds, on the other's clock
    uncertainty_ns: int
    pairs: dict[str, tuple[Ints, Ints]]  # collective -> indices into the reference's and the other's calls
    why_not: str

    def corrected(self, times_ns: Ints) -> Ints:
        """The other rank's times on the reference's clock."""
        shift = (self.offset_ns or 0) + np.rint(self.drift * (times_ns - self.at_ns)).astype(np.int64)
        return np.asarray(times_ns - shift)


def pair(reference: Mapping[str, Calls], other: Mapping[str, Calls]) -> Pairing:
    """Pair calls in order where all of them end together, otherwise by a vote of the ends."""
    shared = [
        name
        for name in reference
        if name in other and reference[name].end_ns.size and other[name].end_ns.size
    ]
    if not shared:
        return _none("no communication call of the same kind on both ranks")
    by_order = _by_order(reference, other, shared)
    if by_order is not None:
        return _closer(by_order, reference, other, shared) or by_order
    return _by_vote(reference, other, shared, _tolerance({name: reference[name] for name in shared}))


def _none(why: str) -> Pairing:
    return Pairing(None, 0.0, 0, 0, {}, why)


def _tolerance(calls: Mapping[str, Calls]) -> int:
    ends = np.sort(np.concatenate([c.end_ns for c in calls.values()]))
    spacing = float(np.median(np.diff(ends))) if ends.size > 1 else TOLERANCE_NS / SPACING_SHARE
    return int(max(min(TOLERANCE_NS, SPACING_SHARE * spacing), CLOSEST_NS))


def _by_order(
    reference: Mapping[str, Calls], other: Mapping[str, Calls], shared: list[str]
) -> Pairing | None:
    """The i-th call with the i-th: right when every rank recorded every call."""
    equal = [name for name in shared if reference[name].end_ns.size == other[name].end_ns.size]
    if len(equal) < len(shared):
        return None
    pairs = {name: (np.arange(other[name].end_ns.size),) * 2 for name in equal}
    return _fitted(reference, other, pairs, TOLERANCE_NS, MIN_AGREEING)


def _closer(
    by_order: Pairing, reference: Mapping[str, Calls], other: Mapping[str, Calls], shared: list[str]
) -> Pairing | None:
    """Other pairs whose ends agree far better than those in order; None where those in order are as good as any."""
    most = int(CLOSER * by_order.uncertainty_ns)
    if by_order.uncertainty_ns < LEAST_APART_NS:
        return None
    voted = _by_vote(reference, other, shared, most)
    return voted if voted.offset_ns is not None and voted.uncertainty_ns <= most else None


def _by_vote(
    reference: Mapping[str, Calls], other: Mapping[str, Calls], shared: list[str], tolerance: int
) -> Pairing:
    """The offset at which most ends coincide: right also when calls are missing on either side.

    Steps of nearly one length put two offsets within the tolerance; ends of one collective lie closer together.
    """
    found = _offset(reference, other, shared, tolerance, MIN_VOTES)
    closer = tolerance
    while found is AMBIGUOUS and (closer := closer // FINER) >= CLOSEST_NS:
        found = _offset(reference, other, shared, closer, MIN_AGREEING)
    if isinstance(found, str):
        return _none(found)
    pairs = {}
    for name in shared:
        ref_end, own_end = np.sort(reference[name].end_ns), other[name].end_ns - found
        order = np.argsort(reference[name].end_ns)
        at = np.clip(np.searchsorted(ref_end, own_end - 2 * tolerance), 0, ref_end.size - 1)
        near = np.abs(ref_end[at] - own_end) <= 2 * tolerance
        own = np.flatnonzero(near)
        _, first = np.unique(at[near], return_index=True)
        pairs[name] = (order[at[near][first]], own[first])
    return _fitted(reference, other, pairs, 2 * tolerance, 0.0) or _none("too few calls end together")


def _offset(
    reference: Mapping[str, Calls],
    other: Mapping[str, Calls],
    shared: list[str],
    tolerance: int,
    min_votes: float,
) -> int | str:
    """Of the other's clock, nanoseconds; or why there is none."""
    differences = np.concatenate(
        [
            (other[name].end_ns[:MAX_VOTERS, None] - reference[name].end_ns[None, :MAX_VOTERS]).ravel()
            for name in shared
        ]
    )
    differences.sort()
    votes = np.searchsorted(differences, differences + 2 * tolerance, side="right") - np.arange(
        differences.size
    )
    best = int(np.argmax(votes))
    offset = int(np.median(differences[best : best + votes[best]]))
    possible = sum(min(reference[name].end_ns.size, other[name].end_ns.size, MAX_VOTERS) for name in shared)
    rivals = votes[np.abs(differences - offset) > 4 * tolerance]
    if possible < MIN_MATCHES:
        calls = f"{possible} communication call{'s' * (possible != 1)}"
        return f"{calls} to align the clocks by, {MIN_MATCHES} are needed"
    if votes[best] < max(MIN_MATCHES, min_votes * possible):
        return f"only {int(votes[best])} of {possible} communication calls end together at any one offset"
    return AMBIGUOUS if rivals.size and rivals.max() > RIVAL * votes[best] else offset


def _fitted(
    reference: Mapping[str, Calls],
    other: Mapping[str, Calls],
    pairs: dict[str, tuple[Ints, Ints]],
    tolerance: int,
    min_agreeing: float,
) -> Pairing | None:
    """Offset and drift of these pairs; None when fewer than the share agree."""
    own = np.concatenate([other[name].end_ns[own_at] for name, (_, own_at) in pairs.items()])
    ref = np.concatenate([reference[name].end_ns[ref_at] for name, (ref_at, _) in pairs.items()])
    if own.size < MIN_MATCHES:
        return None
    order = np.argsort(own)
    own, difference = own[order], (own - ref)[order]
    at = int(own[own.size // 2])
    offset, drift = int(np.median(difference)), 0.0
    half = own.size // 2
    span = float(np.median(own[half:]) - np.median(own[:half])) if half >= 4 else 0.0
    if span > 0:
        slope = float(np.median(difference[half:]) - np.median(difference[:half])) / span
        if abs(slope) < 1e-3:  # beyond 1000 ppm it is no clock's drift
            straight = difference - slope * (own - at)
            if mad_sigma(straight.astype(np.float64)) < 0.5 * mad_sigma(difference.astype(np.float64)):
                drift, offset = slope, int(np.median(straight))
    residual: Floats = difference - offset - drift * (own - at)
    if np.mean(np.abs(residual) <= tolerance) < min_agreeing:
        return None
    return Pairing(offset, drift, at, int(np.ceil(mad_sigma(residual))), pairs, "")
