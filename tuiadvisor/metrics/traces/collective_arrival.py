"""Who arrives last at a job's collectives, from recordings of some or all of its ranks.

In: every recorded rank's communication calls, each on its own clock, and which ranks were not recorded.
Out: waits and caused waits per rank, clock offsets, and the culprit, or why none can be named.
The last to arrive is the culprit; those before it wait and are its victims, as far as they do not compute meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.metrics.steps.step_alignment import MIN_MATCHES
from tuiadvisor.metrics.traces.arrival_verdict import VARY, early, verdict
from tuiadvisor.metrics.traces.collective_alignment import SILENT, CommonClock, common_clock
from tuiadvisor.metrics.traces.matched_collectives import Matched, alone_ns, ending_together, matched
from tuiadvisor.metrics.traces.op_table import named
from tuiadvisor.metrics.traces.waits_for_last import later_than_most, sums_of, waits_for_last

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Floats
    from tuiadvisor.metrics.traces.collective_clock import Calls


@dataclass(frozen=True, slots=True)
class RankArrival:
    """One recorded rank, its waits as far as no computation hides them.

    clock_offset_ns: against the reference, None when it could not be aligned.
    """

    rank: int
    wait_ns: int
    caused_wait_ns: int
    clock_offset_ns: int | None
    clock_uncertainty_ns: int | None
    why_not: str


@dataclass(frozen=True, slots=True)
class Arrivals:
    """culprits (): nobody can or should be named, `because` says which and why; several came late together."""

    num_collectives: int
    reference: int | None
    ranks: tuple[RankArrival, ...]
    culprits: tuple[int, ...]
    culprit_share: float | None  # of all waits
    late_rank_not_recorded: bool | None  # None: the traces do not say how many ranks there are
    because: str
    waits_share: float = 0.0  # of the recorded time; 0 where those that wait have less to do
    behind: tuple[int, ...] = ()  # ranks that come after the most, too, but before the culprits
    num_left_out: int = 0  # collectives whose ends lie too far apart to be one
    varies: bool = False  # ranks wait, and for no single one


def arrivals(
    calls: Mapping[int, Mapping[str, Calls]],
    members: Mapping[str, tuple[int, ...]],
    complete: bool | None,
    num_steps: int = 0,
    *,
    more: bool = False,
) -> Arrivals:
    """Align, match and blame. members: ranks of each collective's group where known.

    complete: whether all ranks were recorded; None: the traces do not say how many there are.
    num_steps: of the recorded time, 0 where nothing marks them: then each call is taken for one.
    more: whether traces are there that are not among these calls.
    """
    common = common_clock(calls)
    if common is None or len(calls) - list(common.why_not.values()).count(SILENT) < 2:
        because = (
            "a collective that all wait for was recorded on fewer than two ranks: no one to compare with"
        )
        return _nobody(calls, common, because)
    if len(common.clocks) < 2:
        return _nobody(calls, common, next(why for why in common.why_not.values() if why != SILENT))
    every = matched(common, members, complete=bool(complete) and not more, num_steps=num_steps)
    table, num_left_out = ending_together(every)
    if table.begin_MR.shape[0] < MIN_MATCHES:
        together = (" and ends together", " and end together") if num_left_out else ("", "")
        because = few_words(table.begin_MR.shape[0], together)
        return replace(_nobody(calls, common, because), num_left_out=num_left_out)
    unseen = not table.all_seen or len(common.clocks) < len(calls)
    blame = partial(_blame, common, alone_ns(common, table), unseen=unseen, complete=complete)
    found = blame(table, num_steps=num_steps)
    if found.varies:
        first, second = (blame(half, num_steps=num_steps // 2).culprits for half in _halves(table))
        if first and second and first != second:
            found = replace(found, because=_in_turn(first, second, found.waits_share))
    return replace(found, num_left_out=num_left_out)


def _halves(table: Matched) -> tuple[Matched, Matched]:
    """The first and the second half of the collectives, by when they began."""
    begin_M = np.nanmax(table.begin_MR, axis=1)
    first_M = begin_M < np.median(begin_M)
    return table.only(first_M), table.only(~first_M)


def _blame(
    common: CommonClock,
    alone_R: Floats,
    table: Matched,
    *,
    unseen: bool,
    complete: bool | None,
    num_steps: int,
) -> Arrivals:
    """Of these collectives. unseen: ranks may be missing among them."""
    waits = waits_for_last(table, 2 * max(clock.uncertainty_ns for clock in common.clocks.values()))
    sums = sums_of(table, waits, alone_R, num_steps)
    culprits, share, not_recorded, because = verdict(sums, unseen=unseen, complete=complete)
    by_rank = {
        rank: (int(waits.wait_MR[:, column].sum()), int(sums.caused_R[column]))
        for column, rank in enumerate(table.ranks)
    }
    return Arrivals(
        num_collectives=int(waits.last_M.size),
        reference=common.reference,
        ranks=tuple(_row(common, rank, by_rank.get(rank, (0, 0))) for rank in sorted(common.calls)),
        culprits=culprits,
        culprit_share=share,
        late_rank_not_recorded=not_recorded,
        because=because,
        waits_share=0.0 if not culprits and early(sums) else float(sums.delay_R.sum()) / sums.recorded_ns,
        behind=() if unseen else later_than_most(table, culprits, sums.recorded_ns),
        varies=because.startswith(VARY),
    )


def _in_turn(first: tuple[int, ...], second: tuple[int, ...], waits_share: float) -> str:
    """That one half of a trace has another late rank than the other."""
    one, other = (f"rank{'s' * (len(ranks) > 1)} {named(list(ranks))}" for ranks in (first, second))
    are = "arrives" if len(first) == 1 else "arrive"
    return (
        f"{VARY}: {one} {are} last in the first half of the trace, {other} in the second; "
        f"{waits_share:.1%} of the time is waiting for them; a longer capture tells whether it changes again"
    )


def few_words(num_calls: int, more: tuple[str, str] = ("", "")) -> str:
    """Why calls are not compared. more: what else is said of one, and of several."""
    if num_calls == 0:
        return f"no collective was recorded on all of its ranks{more[0]}"
    if num_calls == 1:
        return f"only 1 collective was recorded on all of its ranks{more[0]}"
    return f"only {num_calls} collectives were recorded on all of their ranks{more[1]}"


def _nobody(calls: Mapping[int, object], common: CommonClock | None, because: str) -> Arrivals:
    ranks = tuple(_row(common, rank, (0, 0)) for rank in sorted(calls))
    return Arrivals(0, common.reference if common else None, ranks, (), None, False, because)


def _row(common: CommonClock | None, rank: int, waits: tuple[int, int]) -> RankArrival:
    clock = common.clocks.get(rank) if common else None
    if clock is None:
        return RankArrival(rank, *waits, None, None, common.why_not.get(rank, "") if common else SILENT)
    return RankArrival(rank, *waits, clock.offset_ns, clock.uncertainty_ns, "")
