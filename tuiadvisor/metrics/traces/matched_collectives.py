"""The collectives that ranks share, on one clock: when each rank began and ended its part.

In: the ranks' calls and clocks, the groups' members.  Out: a table of collectives x ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.traces.collective_clock import TOLERANCE_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.traces.collective_alignment import CommonClock


@dataclass(frozen=True, slots=True)
class Matched:
    """M collectives x the ranks with a clock, nanoseconds since the first; NaN for ranks not taking part."""

    ranks: tuple[int, ...]
    begin_MR: Floats
    end_MR: Floats
    hidden_MR: Floats  # of each call, behind computation
    place_M: Ints  # of each collective, among those of its step
    all_seen: bool  # every group's ranks are all among the columns

    def only(self, chosen_M: Bools) -> Matched:
        """Those collectives alone."""
        return replace(
            self,
            begin_MR=self.begin_MR[chosen_M],
            end_MR=self.end_MR[chosen_M],
            hidden_MR=self.hidden_MR[chosen_M],
            place_M=self.place_M[chosen_M],
        )

    @property
    def spread_M(self) -> Floats:
        """From the first to the last end of each collective."""
        return np.asarray(np.nanmax(self.end_MR, axis=1) - np.nanmin(self.end_MR, axis=1))


def matched(
    common: CommonClock, members: Mapping[str, tuple[int, ...]], *, complete: bool, num_steps: int
) -> Matched:
    """Every collective that was recorded on all ranks of its group that have a clock."""
    ranks = tuple(sorted(common.clocks))
    origin = int(min(c.begin_ns[0] for c in common.calls[common.reference].values() if c.begin_ns.size))
    parts: list[tuple[Floats, ...]] = [(np.empty((0, len(ranks))),) * 3]
    all_seen = True
    for name in sorted({name for rank in ranks for name in common.calls[rank]}):
        group = members.get(name, ())
        taking_part = [rank for rank in ranks if name in common.calls[rank]]
        wanted = [rank for rank in ranks if rank in group] if group else taking_part
        if len(taking_part) < 2 or wanted != taking_part:
            all_seen = False
            continue
        # A group that says its ranks is seen with all of them, whatever else the job has.
        all_seen = all_seen and (
            set(group) <= set(ranks) if group else complete and taking_part == list(ranks)
        )
        found = _one_collective(common, name, taking_part, ranks, origin)
        whole = ~np.isnan(found[0][:, [ranks.index(rank) for rank in taking_part]]).any(axis=1)
        parts.append(tuple(values[whole] for values in found))
    begin, end, hidden = (np.concatenate(values) for values in zip(*parts, strict=True))
    a_step = calls_a_step(begin.shape[0], num_steps)
    place = np.argsort(np.argsort(np.nanmax(begin, axis=1), kind="stable"), kind="stable") % a_step
    return Matched(ranks, begin, end, hidden, place, all_seen)


def _one_collective(
    common: CommonClock, name: str, taking_part: list[int], ranks: tuple[int, ...], origin: int
) -> tuple[Floats, Floats, Floats]:
    """Begins, ends and what is hidden of one kind of collective, a row for each of the first rank's calls."""
    first = taking_part[0]
    num_calls = common.calls[first][name].begin_ns.size
    begin = np.full((num_calls, len(ranks)), np.nan)
    end, hidden = begin.copy(), begin.copy()
    for rank in taking_part:
        mine, clock = common.calls[rank][name], common.clocks[rank]
        at = own = np.arange(num_calls)
        if rank != first:
            at, own = common.pairing(first, rank).pairs.get(name, (at[:0], own[:0]))
        column = ranks.index(rank)
        begin[at, column] = clock.corrected(mine.begin_ns[own]) - origin
        end[at, column] = clock.corrected(mine.end_ns[own]) - origin
        hidden[at, column] = 0 if mine.hidden_ns is None else mine.hidden_ns[own]
    return begin, end, hidden


def calls_a_step(num_calls: int, num_steps: int) -> int:
    """How many there are in each step; 1 where nothing marks the steps."""
    return max(1, round(num_calls / num_steps)) if num_steps else 1


def ending_together(table: Matched) -> tuple[Matched, int]:
    """(the collectives whose ends agree, how many do not): a time that is wrong on one rank moves an end, too."""
    together_M = table.spread_M <= TOLERANCE_NS
    return table.only(together_M), int(np.count_nonzero(~together_M))


def alone_ns(common: CommonClock, table: Matched) -> Floats:
    """Each rank's time in calls that were not compared with all of their other ranks: it may have waited there."""
    every = [
        sum(float((c.end_ns - c.begin_ns).sum(dtype=np.float64)) for c in common.calls[rank].values())
        for rank in table.ranks
    ]
    return np.asarray(every - np.nansum(table.end_MR - table.begin_MR, axis=0))
