"""Long steps at a fixed distance that nothing marks: logging, validation without a hook, collection, an own file.

In: Barrier and the columns that could be steady.  Out: the columns of such pauses, group by group. Among the long steps
of a loaded machine most are chance, so the long ones are looked at by size, and by the rank that alone came late to
them: pauses of one kind resemble each other in both, and what chance does keeps no distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, e, log
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.pauses.irregular import BEYOND_ORDINARY
from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints, mad_sigma

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.metrics.steps.barrier import Barrier

PAUSE_FACTOR: Final = 1.5  # an unmarked pause is a step this much longer than the median ...
MIN_PERIOD: Final = 8  # ... that comes back at a fixed distance of at least so many steps
MIN_PERIODS: Final = 3  # distances alike: fewer are kept by chance
MAX_GROUPS: Final = 3  # pauses of different ranks or distances, each a finding of its own
STRAY_SHARE: Final = 0.25  # of the period: pauses by the clock drift by less against the steps
MIN_ALIKE: Final = 0.4  # of the typical pause: a shorter one is another thing
# Of the steps from the first of them to the last: a pause spoils its step and the next one, so of what comes in more of
# them too few are left to tell what a steady one takes. It is a part of the step then, or a stretch of longer steps.
PART_OF_STEP: Final = 0.4
# So many steps on end are a level of the step: nothing stood still. Fewer are seldom verified as one (measured).
MIN_LEVEL_STEPS: Final = 12
MIN_REGULAR: Final = 0.7  # of the distances agree: spikes of noise fall between the pauses
ROUGH: Final = 0.05  # of the period: by so much distances that agree may differ
OWN_SHARE: Final = 0.6  # of a long step: so much later than all others arrives the rank whose pause it is
FAR_LONGER: Final = BEYOND_ORDINARY  # times the longest other pause of a group, as of any step ...
MAX_FAR_SHARE: Final = 0.25  # ... and at most so many of the group: with more of them it has two sizes
MIN_BREAK: Final = 1.5  # the smallest pause over the largest spike, where their sizes tell them apart
ALIKE_SIZE: Final = 1.3  # of whole steps
MAX_EVENTS: Final = 48  # largest long steps that are searched
MAX_LAGS: Final = 3  # distances that most pairs have
LEVEL_STEP: Final = 1.25  # from one size at which long steps are cut off to the next
MAX_LOG_CHANCE_OF_GAPS: Final = log(2e-3)  # that neighbouring long steps keep it: four of 40 steps apart
MAX_LOG_CHANCE: Final = log(5e-4)  # that long steps which fall by lot keep such a distance so often


@dataclass(frozen=True, slots=True)
class _Events:
    """Runs of long columns: the first one, the last, and by how much the longest is too long, seconds."""

    start: Ints
    stop: Ints  # exclusive
    size_s: Floats

    def some(self, chosen: Ints | Bools) -> _Events:
        return _Events(self.start[chosen], self.stop[chosen], self.size_s[chosen])


def periodic_groups(barrier: Barrier, candidates_K: Bools) -> list[Bools]:
    """Columns of pauses of one distance and kind each, the most striking first; none with fewer than four of them."""
    cycle_K, found = barrier.cycle_K, list[Bools]()
    left_K = candidates_K.copy()
    while len(found) < MAX_GROUPS:
        columns_K = _periodic_columns(barrier, left_K)
        if not columns_K.any():
            break
        found.append(columns_K)
        left_K &= ~columns_K
    return [columns_K for columns_K in found if not _is_part_of_row(columns_K, found, cycle_K)]


def far_longer(barrier: Barrier, columns_K: Bools, base_s: float) -> Bools:
    """Columns of a group's few events that are far longer than all its others: something else befell the step.

    base_s: steady step. A process that is stopped where a pause is due anyway keeps its distance by chance.
    """
    result = np.zeros_like(columns_K)
    excess_K = np.where(columns_K & np.isfinite(barrier.cycle_K), barrier.cycle_K - base_s, 0.0)
    events = _events(excess_K, 0.0)
    order = np.argsort(-events.size_s, kind="stable")
    sizes = events.size_s[order]
    for num in range(int(MAX_FAR_SHARE * sizes.size), 0, -1):
        if sizes[num - 1] >= FAR_LONGER * sizes[num]:
            for start, stop in zip(events.start[order[:num]], events.stop[order[:num]], strict=True):
                result[start:stop] = True
            break
    return result


def _is_part_of_row(columns_K: Bools, found: list[Bools], cycle_K: Floats) -> bool:
    """Whether it is one of several rows of like size and distance: long steps too near each other for pauses."""
    distance, size_s = _distance(columns_K), float(np.median(cycle_K[columns_K]))
    return distance < 2 * MIN_PERIOD and any(
        abs(_distance(other) - distance) <= 1
        and max(size_s, float(np.median(cycle_K[other])))
        < ALIKE_SIZE * min(size_s, float(np.median(cycle_K[other])))
        for other in found
        if other is not columns_K
    )


def _distance(columns_K: Bools) -> float:
    return float(np.median(np.diff(np.flatnonzero(columns_K & ~np.append(False, columns_K[:-1])))))


def _periodic_columns(barrier: Barrier, candidates_K: Bools) -> Bools:
    cycle_K = barrier.cycle_K
    found = np.zeros(cycle_K.size, dtype=np.bool_)
    values = cycle_K[candidates_K]
    if values.size < MIN_PERIODS * MIN_PERIOD:
        return found
    median_s = float(np.median(values))
    limit_s = max((PAUSE_FACTOR - 1) * median_s, 6 * mad_sigma(values))
    excess_K = np.where(candidates_K & np.isfinite(cycle_K), cycle_K - median_s, 0.0)
    events = _events(excess_K, limit_s)
    if events.start.size <= MIN_PERIODS:
        return found
    for group in _groups(events, barrier):
        chosen = _regular(group)
        if chosen is None:
            chosen = _chained(group, values.size)
        if chosen is not None and not _is_stretch(chosen):
            for start, stop in zip(chosen.start.tolist(), chosen.stop.tolist(), strict=True):
                found[start:stop] = True
            return found
    return found


def _is_stretch(events: _Events) -> bool:
    lengths = events.stop - events.start
    return float(np.median(lengths)) >= MIN_LEVEL_STEPS or int(lengths.sum()) > PART_OF_STEP * (
        int(events.stop[-1]) - int(events.start[0])
    )


def _events(excess_K: Floats, limit_s: float) -> _Events:
    long_K = np.concatenate(([False], excess_K > limit_s, [False]))
    edges = np.flatnonzero(long_K[1:] != long_K[:-1])
    start, stop = edges[::2], edges[1::2]
    size_s = np.maximum.reduceat(excess_K, start) if start.size else np.zeros(0)
    # reduceat goes on to the next start, where what lies between is shorter than any of these.
    return _Events(start, stop, size_s)


def _groups(events: _Events, barrier: Barrier) -> Iterator[_Events]:
    """All long steps, then those of each rank that alone came late to some: the rank with most of them first."""
    yield events
    own = _own_row(events, barrier)
    rows, counts = np.unique(own[own >= 0], return_counts=True)
    for row in rows[np.argsort(-counts, kind="stable")][: MAX_LAGS + 1].tolist():
        mine = np.flatnonzero(own == row)
        if MIN_PERIODS < mine.size < own.size:
            yield events.some(mine)


def _own_row(events: _Events, barrier: Barrier) -> Ints:
    """The rank that alone holds up the others in each event; -1 where none does."""
    own = np.full(events.start.size, -1)
    if barrier.evidence == "none" or barrier.lateness_RK.shape[0] < 2:
        return own
    for index in np.argsort(-events.size_s, kind="stable")[:MAX_EVENTS].tolist():
        late = barrier.lateness_RK[:, events.start[index] : events.stop[index]]
        late = np.where(np.isfinite(late), late, 0.0)
        row, at = np.unravel_index(int(np.argmax(late)), late.shape)
        rest = np.delete(late[:, at], row).max()
        if late[row, at] - rest >= OWN_SHARE * events.size_s[index]:
            own[index] = row
    return own


def _regular(events: _Events) -> _Events | None:
    """The events that keep their distance, where most of those of like size do.

    Two cuts by size: what is much smaller than the typical one, and below the widest break between sizes.
    """
    cuts = [MIN_ALIKE * float(np.median(events.size_s))]
    sizes = np.sort(events.size_s)[::-1][: MAX_EVENTS + 1]
    if sizes.size > MIN_PERIODS + 1:
        ratios = sizes[MIN_PERIODS:-1] / sizes[MIN_PERIODS + 1 :]
        widest = int(np.argmax(ratios))
        if ratios[widest] >= MIN_BREAK:
            cuts.append(float(sizes[MIN_PERIODS + widest]) * (1 - 1e-9))
    for cut in cuts:
        large = events.some(events.size_s >= cut)
        if large.start.size > MIN_PERIODS and (kept := _keeping_distance(large)) is not None:
            return kept
    return None


def _keeping_distance(events: _Events) -> _Events | None:
    gaps = np.diff(events.start)
    period = float(np.median(gaps))
    regular = np.abs(gaps - period) <= max(1.0, ROUGH * period)
    if period < MIN_PERIOD or regular.mean() < MIN_REGULAR:
        return None
    if _log_chance_of_gaps(int(regular.sum()), gaps.size, period) > MAX_LOG_CHANCE_OF_GAPS:
        return None
    # Who keeps no distance to either neighbour is another pause, which has its own finding.
    whole = np.maximum(np.round(gaps / period), 1.0) * period
    near = np.abs(gaps - whole) <= STRAY_SHARE * period
    return events.some(np.append(near, False) | np.insert(near, 0, False))


def _log_chance_of_gaps(num_regular: int, num_gaps: int, period: float) -> float:
    """Logarithm of how likely so many distances agree with their median where the events fall by lot.

    Distances between such events are exponential: near its mean one falls into a width w with w / (e * mean).
    """
    width = 2 * max(1.0, ROUGH * period) + 1
    return log(comb(num_gaps, num_regular)) + (num_regular - 1) * log(min(1.0, width / (e * period)))


def _chained(events: _Events, num_steps: int) -> _Events | None:
    """The longest chain at one distance that chance does not make, over cuts of falling size."""
    order = np.argsort(-events.size_s, kind="stable")[:MAX_EVENTS]
    best: tuple[float, Ints] | None = None
    num = float(MIN_PERIODS + 2)
    while int(num) <= order.size:
        largest = np.sort(order[: int(num)])
        for period in _lags(events.start[largest]):
            chain = _chain(events.start[largest], period)
            if len(chain) <= MIN_PERIODS:
                continue
            chance = max(
                _log_chance(len(chain), largest.size, num_steps),
                _log_chance_beside(chain, events.start[largest], period),
            )
            if chance < MAX_LOG_CHANCE and (best is None or chance < best[0]):
                best = chance, largest[chain]
        num = max(num + 1, num * LEVEL_STEP)
    return events.some(best[1]) if best is not None else None


def _lags(starts: Ints) -> list[int]:
    """Distances within a step of which most pairs are, the most frequent first."""
    apart = (starts[None, :] - starts[:, None])[np.triu_indices(starts.size, 1)]
    longest = int(starts[-1] - starts[0]) // MIN_PERIODS + 1
    apart = apart[(apart >= MIN_PERIOD) & (apart <= longest)]
    if not apart.size:
        return []
    counts = np.bincount(apart, minlength=longest + 2).astype(np.float64)
    around = counts.copy()
    around[1:] += 0.9 * counts[:-1]
    around[:-1] += 0.9 * counts[1:]
    return [int(lag) for lag in np.argsort(-around, kind="stable")[:MAX_LAGS] if lag >= MIN_PERIOD]


def _chain(starts: Ints, period: int) -> list[int]:
    """Indices of the longest row of starts a period apart, within a step; one of them may be missing in between."""
    length, before = [1] * starts.size, [-1] * starts.size
    whole = np.rint((starts[None, :] - starts[:, None]) / period)
    near = np.abs(starts[None, :] - starts[:, None] - whole * period) <= 1
    links = near & (whole >= 1) & (whole <= 2)
    for later in range(starts.size):
        for earlier in np.flatnonzero(links[:later, later]).tolist():
            if length[earlier] + 1 > length[later]:
                length[later], before[later] = length[earlier] + 1, earlier
    at = int(np.argmax(length))
    chain = [at]
    while before[chain[-1]] >= 0:
        chain.append(before[chain[-1]])
    chain.reverse()
    teeth = round(float(starts[chain[-1]] - starts[chain[0]]) / period) + 1
    return chain if len(chain) >= MIN_REGULAR * teeth else []


def _log_chance_beside(chain: list[int], starts: Ints, period: int) -> float:
    """The same among the long steps beside the chain, as densely as they fall there: noise may have grown.

    Only those that are none of it count: pauses that come to themselves are no chance.
    """
    first, last = int(starts[chain[0]]) - period, int(starts[chain[-1]]) + period
    inside = int(np.count_nonzero((starts > first) & (starts < last)))
    hit = min(1.0, 3 * (inside - len(chain) + 2) / (last - first))
    return log(inside * (inside - 1) / 2) + (len(chain) - 2) * log(hit)


def _log_chance(num_chained: int, num_events: int, num_steps: int) -> float:
    """Logarithm of how many such chains are to be expected of events that fall by lot.

    The first two events make any distance; each of the others must come within a step of its place.
    """
    hit = min(1.0, 3 * num_events / num_steps)
    return log(num_events * (num_events - 1) / 2) + (num_chained - 2) * log(hit)
