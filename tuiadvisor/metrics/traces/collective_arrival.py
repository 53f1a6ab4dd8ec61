"""Who arrives last at a job's collectives, from recordings of some or all of its ranks.

In: every recorded rank's communication calls, each on its own clock, and which ranks were not recorded.
Out: waits and caused waits per rank, clock offsets, and the culprit, or why none can be named.
The last to arrive is the culprit; those before it wait and are its victims, as far as they do not compute meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.bootstrap import mean_interval
from tuiadvisor.metrics.series.change_points import find_changes
from tuiadvisor.metrics.steps.arrays import mad_sigma
from tuiadvisor.metrics.steps.step_alignment import MIN_MATCHES
from tuiadvisor.metrics.traces.collective_alignment import SILENT, CommonClock, common_clock
from tuiadvisor.metrics.traces.collective_clock import TOLERANCE_NS, Calls
from tuiadvisor.metrics.traces.op_table import named
from tuiadvisor.metrics.traces.transfers import take_as_long

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

CULPRIT_SHARE: Final = 0.6  # of all waits must be one rank's doing
MATTERS: Final = 0.01  # of the recorded time: shorter waits are none
# Of the recorded time: as rule straggler's moderate_loss, half of TraceML's moderate imbalance. Live nobody is named
# for less, and of two healthy ranks on one H200 one was 0.7 of 29 ms later in each of 12 steps.
WORTH_A_NAME: Final = 0.05
# Of the recorded time: as rule straggler's worth_a_word. So little names a rank only if it stands out as below; of two
# ranks one is always the last, and of two healthy ones on one H200 it was the same one, by 3.9 % of the time.
WORTH_A_WORD: Final = 0.02
MIN_CLEAR_CALLS: Final = 8  # that somebody waits for, as diagnosis' MIN_CLEAR_STEPS
IN_NEARLY_ALL: Final = 0.9  # of those calls one rank is the last; chosen
BEYOND_SPREAD: Final = 2.0  # times what lies between the first and the last of all others; chosen
# A rank most of whose delay lies in so few of the calls does not arrive last, it paused: chosen. One that is late by as
# much in every call has half of its delay in half of them, one that is so in every fourth step in an eighth.
IN_FEW: Final = 0.1
# Of the interval of what a rank makes the others wait beyond what each of these does: of two healthy ranks that differ
# from step to step one causes three fifths of all waiting in every eighth trace. Chosen on simulated healthy twins
# (2 to 8 ranks, 12 to 48 steps, noise of six kinds): see tests/accuracy/RESULTS.md.
BEYOND_CHANCE: Final = 0.99
MIN_LEVEL_SIGMAS: Final = (
    2.0  # between two levels: as far apart as the halves of one (normal) by size, but by time
)
# Ranks that come late together share one delay: chosen, half of the ranks at most, of two halves the later one.
IN_MOST: Final = 0.75  # of the calls all of them come after all others, as diagnosis' MIN_CLEAR_HITS
HANDED_ON: Final = 0.5  # of its delay to others: a rank that waits more than this itself is a victim
# Where ranks are not recorded, the last recorded one may itself spend at most this share of what it makes others wait:
# its time in a collective is the transfer, or a wait for one of those. A wait ends when the unseen rank comes and is
# shorter the later this one was; a transfer takes as long whenever it begins, however much its time varies by chance.
# What it makes others wait is counted from the rank before it: two that come together late hide a third behind them.
# Chosen on 972 simulated jobs (3 to 8 ranks, one without a trace): with `take_as_long` no wrong name (8 where a
# transfer was told by being steady), and of 972 late ranks beside an innocent one without a trace 784 (650).
UNSEEN_SHARE: Final = 0.1
LONG_SHARE: Final = 0.5  # of what ranks wait for whoever comes last; chosen
# Of the recorded time, that the last recorded ranks spend in collectives beside computation: from here on it is said
# that somebody unseen or the network may be late. Twice what names a rank; healthy jobs of 4 ranks spend 0.05 so.
WAITS_LONG: Final = 2 * WORTH_A_NAME
TOO_RARE: Final = ": whether it comes again so few do not tell"
MAY_BE_CHANCE: Final = ", as ranks alike may by chance: no rank is named"
VARY: Final = "stragglers vary"
ARRIVE_TOGETHER: Final = "ranks arrive together: no straggler"
# (where the late rank is, what to do) by whether all ranks were recorded, as of `arrivals`.
ELSEWHERE: Final = {
    True: ("the late rank is one of those not compared", ""),
    False: ("the late rank was not recorded", "; record all ranks"),
    None: (
        "a rank without a trace is late, if there is one",
        "; the traces do not say how many ranks there are",
    ),
}


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
    matched = _matched(common, members, complete=bool(complete) and not more, num_steps=num_steps)
    table, num_left_out = _ending_together(matched)
    if table.begin_MR.shape[0] < MIN_MATCHES:
        together = (" and ends together", " and end together") if num_left_out else ("", "")
        because = few_words(table.begin_MR.shape[0], together)
        return replace(_nobody(calls, common, because), num_left_out=num_left_out)
    unseen = not table.all_seen or len(common.clocks) < len(calls)
    blame = partial(_blame, common, _alone(common, table), unseen=unseen, complete=complete)
    found = blame(table, num_steps=num_steps)
    if found.varies:
        first, second = (blame(half, num_steps=num_steps // 2).culprits for half in _halves(table))
        if first and second and first != second:
            found = replace(found, because=_in_turn(first, second, found.waits_share))
    return replace(found, num_left_out=num_left_out)


def _halves(table: _Table) -> tuple[_Table, _Table]:
    """The first and the second half of the collectives, by when they began."""
    begin_M = np.nanmax(table.begin_MR, axis=1)
    first_M = begin_M < np.median(begin_M)
    return table.only(first_M), table.only(~first_M)


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


def _ending_together(table: _Table) -> tuple[_Table, int]:
    """(the collectives whose ends agree, how many do not): a time that is wrong on one rank moves an end, too."""
    together_M = table.spread_M <= TOLERANCE_NS
    return table.only(together_M), int(np.count_nonzero(~together_M))


def _row(common: CommonClock | None, rank: int, waits: tuple[int, int]) -> RankArrival:
    clock = common.clocks.get(rank) if common else None
    if clock is None:
        return RankArrival(rank, *waits, None, None, common.why_not.get(rank, "") if common else SILENT)
    return RankArrival(rank, *waits, clock.offset_ns, clock.uncertainty_ns, "")


@dataclass(frozen=True, slots=True)
class _Table:
    """M collectives x the ranks with a clock, nanoseconds since the first; NaN for ranks not taking part."""

    ranks: tuple[int, ...]
    begin_MR: Floats
    end_MR: Floats
    hidden_MR: Floats  # of each call, behind computation
    place_M: Ints  # of each collective, among those of its step
    all_seen: bool  # every group's ranks are all among the columns

    def only(self, chosen_M: Bools) -> _Table:
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


def _matched(
    common: CommonClock, members: Mapping[str, tuple[int, ...]], *, complete: bool, num_steps: int
) -> _Table:
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
    a_step = _calls_a_step(begin.shape[0], num_steps)
    place = np.argsort(np.argsort(np.nanmax(begin, axis=1), kind="stable"), kind="stable") % a_step
    return _Table(ranks, begin, end, hidden, place, all_seen)


def _calls_a_step(num_calls: int, num_steps: int) -> int:
    return max(1, round(num_calls / num_steps)) if num_steps else 1


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


def _blame(
    common: CommonClock,
    alone_R: Floats,
    table: _Table,
    *,
    unseen: bool,
    complete: bool | None,
    num_steps: int,
) -> Arrivals:
    begin_MR, num_ranks = table.begin_MR, len(table.ranks)
    last_M = np.nanargmax(begin_MR, axis=1)
    rows = np.arange(last_M.size)
    latest_M = begin_MR[rows, last_M]
    wait_MR = np.nan_to_num(latest_M[:, None] - begin_MR)
    doubt = 2 * max(clock.uncertainty_ns for clock in common.clocks.values())
    # No begin is known better than the ends agree: a clock that was set moves both.
    wait_MR[wait_MR.max(axis=1) <= np.maximum(doubt, 2 * table.spread_M)] = 0.0
    # Who computes meanwhile loses nothing: of its wait at most what no computation hides of the call.
    bare_MR = np.nan_to_num(table.end_MR - begin_MR - table.hidden_MR)
    np.minimum(wait_MR, np.maximum(bare_MR, 0.0), out=wait_MR)
    longest_M = wait_MR.max(axis=1)
    clear_M = longest_M > 0

    def by_last(values_M: Floats) -> Floats:
        return np.bincount(last_M, values_M, num_ranks).astype(np.float64)

    caused_R = by_last(wait_MR.sum(axis=1))
    # What the last arrival itself spends: the transfer, or a wait for someone who was not recorded.
    whole_own_M = table.end_MR[rows, last_M] - latest_M
    own_M = np.clip(bare_MR[rows, last_M], 0.0, whole_own_M)  # as of waits
    behind_M = latest_M - np.nanmedian(begin_MR, axis=1)
    waits = {
        rank: (int(wait_MR[:, column].sum()), int(caused_R[column]))
        for column, rank in enumerate(table.ranks)
    }
    recorded_ns = float(np.nanmax(table.end_MR) - np.nanmin(begin_MR))
    sums = _Sums(
        ranks=table.ranks,
        wait_R=wait_MR.sum(axis=0),
        caused_R=caused_R,
        delay_R=by_last(longest_M),
        lead_R=by_last(np.where(clear_M, np.minimum(latest_M - _before_last(begin_MR), longest_M), 0.0)),
        own_R=by_last(np.where(clear_M, own_M, 0.0)),
        alone_R=alone_R,
        most_in_R=np.array([_most_in(longest_M[last_M == column]) for column in range(num_ranks)]),
        num_calls=int(last_M.size),
        is_sure_R=np.array(
            [_is_sure(begin_MR, longest_M, last_M, column, num_steps) for column in range(num_ranks)]
        ),
        transfers_R=np.array(
            [
                _of_calls(clear_M & (last_M == column), whole_own_M, behind_M, table.place_M)
                for column in range(num_ranks)
            ]
        ),
        transfers_all=_of_calls(
            np.ones_like(clear_M), whole_own_M, behind_M, table.place_M * num_ranks + last_M
        ),
        stands_out_R=_stand_out(begin_MR, clear_M, last_M),
        together=_together(begin_MR, wait_MR, clear_M),
        own_ns=float(own_M.sum()),
        recorded_ns=recorded_ns,
        early_R=_early_ones(wait_MR, recorded_ns),
    )
    culprits, share, not_recorded, because = _verdict(sums, unseen=unseen, complete=complete)
    found = tuple(_row(common, rank, waits.get(rank, (0, 0))) for rank in sorted(common.calls))
    lost = 0.0 if not culprits and _early(sums) else float(sums.delay_R.sum()) / sums.recorded_ns
    behind = () if unseen else _behind(table, culprits, sums.recorded_ns)
    varies = because.startswith(VARY)
    return Arrivals(
        num_collectives=int(last_M.size),
        reference=common.reference,
        ranks=found,
        culprits=culprits,
        culprit_share=share,
        late_rank_not_recorded=not_recorded,
        because=because,
        waits_share=lost,
        behind=behind,
        varies=varies,
    )


def _behind(table: _Table, culprits: tuple[int, ...], recorded_ns: float) -> tuple[int, ...]:
    """Ranks that a later one hides: they never come last, but clearly after the middle one of all but the culprits.

    In as many calls at least as tell of anybody; of several in a step most show it in the first. Where computation
    hides a wait the order of arrival is seen all the same.
    Only of calls that all ranks take part in: in a group of fewer a rank may hand on what it waited for in another.
    """
    others_R = ~np.isin(table.ranks, culprits)
    if not culprits or np.count_nonzero(others_R) < 3 or np.isnan(table.begin_MR).any():
        return ()
    lag_MR = table.begin_MR - np.median(table.begin_MR[:, others_R], axis=1, keepdims=True)
    after_MR = np.maximum(lag_MR, 0.0)  # 0 for calls that wait behind one another on their streams
    after_R, before_R = after_MR.sum(axis=0), np.maximum(-lag_MR, 0.0).sum(axis=0)
    is_late_R = (after_R >= WORTH_A_WORD * recorded_ns) & (before_R <= (1 - IN_NEARLY_ALL) * after_R)
    return tuple(
        table.ranks[column]
        for column in np.flatnonzero(others_R & is_late_R).tolist()
        if 2 * _most_in(after_MR[:, column]) >= MIN_CLEAR_CALLS
    )


def _before_last(begin_MR: Floats) -> Floats:
    """When the last rank but one arrived at each collective; each has two or more."""
    known_MR = np.where(np.isnan(begin_MR), -np.inf, begin_MR)
    return np.asarray(np.partition(known_MR, -2, axis=1)[:, -2])


def _most_in(delay_K: Floats) -> int:
    """How many calls, those with the longest delays first, hold half of a rank's delay."""
    longest_K = np.cumsum(np.sort(delay_K)[::-1])
    return int(np.searchsorted(longest_K, 0.5 * longest_K[-1])) + 1 if longest_K.size else 0


def _is_sure(begin_MR: Floats, delay_M: Floats, last_M: Ints, column: int, num_steps: int) -> bool:
    """Whether a rank makes the others wait for longer than each of these does, beyond chance.

    Of ranks alike each one's delay is the others' mean. Calls of a step have one cause: as many in a row are taken
    together; steps near each other may resemble each other.
    """
    num_others_M = np.count_nonzero(~np.isnan(begin_MR), axis=1) - 1
    beyond_M = np.where(last_M == column, delay_M, -delay_M / num_others_M)
    beyond_M = beyond_M[np.argsort(np.nanmax(begin_MR, axis=1), kind="stable")]
    a_step = _calls_a_step(beyond_M.size, num_steps)
    beyond_K = np.add.reduceat(beyond_M, np.arange(0, beyond_M.size, a_step))
    # A rank that became late once has two levels; taken for noise that moves slowly they would outweigh its lateness.
    return mean_interval(_on_one_level(beyond_K), BEYOND_CHANCE)[0] > 0


def _on_one_level(values_K: Floats) -> Floats:
    """Without verified changes of level, the mean as it was."""
    bounds = [0, *(change.index for change in find_changes(values_K, 0.0)), values_K.size]
    sigma = max(mad_sigma(values_K[begin:end]) for begin, end in pairwise(bounds))
    bounds = [
        0,
        *(change.index for change in find_changes(values_K, MIN_LEVEL_SIGMAS * sigma)),
        values_K.size,
    ]
    level_K = np.concatenate(
        [np.full(end - begin, values_K[begin:end].mean()) for begin, end in pairwise(bounds)]
    )
    return np.asarray(values_K - level_K + values_K.mean())


def _stand_out(begin_MR: Floats, clear_M: Bools, last_M: Ints) -> Bools:
    """Ranks that come last to nearly all calls, by more than all others differ by: a small delay is theirs, too."""
    found = np.zeros(begin_MR.shape[1], dtype=np.bool_)
    several_M = clear_M & (np.count_nonzero(~np.isnan(begin_MR), axis=1) > 2)
    if np.count_nonzero(several_M) < MIN_CLEAR_CALLS:
        return found
    before_M = _before_last(begin_MR[several_M])
    lead_M = np.nanmax(begin_MR[several_M], axis=1) - before_M
    spread_M = before_M - np.nanmin(begin_MR[several_M], axis=1)
    last_M = last_M[several_M]
    column = int(np.bincount(last_M).argmax())
    mine_M = last_M == column
    found[column] = mine_M.mean() >= IN_NEARLY_ALL and bool(
        np.median(lead_M[mine_M]) >= BEYOND_SPREAD * np.median(spread_M[mine_M])
    )
    return found


def _together(begin_MR: Floats, wait_MR: Floats, clear_M: Bools) -> tuple[Bools, float]:
    """(ranks that come after all others in most calls, nanoseconds that these wait for them all); none: nobody, 0."""
    nobody = np.zeros(begin_MR.shape[1], dtype=np.bool_)
    delay_ns = float(wait_MR.max(axis=1).sum())
    late_R = wait_MR.sum(axis=0) < HANDED_ON * delay_ns
    whole_M = clear_M & ~np.isnan(begin_MR).any(axis=1)
    if not 2 <= np.count_nonzero(late_R) <= late_R.size // 2 or not whole_M.any():
        return nobody, 0.0
    lead_M = begin_MR[whole_M][:, late_R].min(axis=1) - begin_MR[whole_M][:, ~late_R].max(axis=1)
    lead_ns = float(np.minimum(np.maximum(lead_M, 0.0), wait_MR[whole_M].max(axis=1)).sum())
    is_clear = float((lead_M > 0).mean()) >= IN_MOST and lead_ns >= CULPRIT_SHARE * delay_ns
    return (late_R, lead_ns) if is_clear else (nobody, 0.0)


def _of_calls(chosen_M: Bools, own_M: Floats, behind_M: Floats, place_M: Ints) -> bool:
    return take_as_long(own_M[chosen_M], behind_M[chosen_M], place_M[chosen_M])


def _alone(common: CommonClock, table: _Table) -> Floats:
    """Each rank's time in calls that were not compared with all of their other ranks: it may have waited there."""
    every = [
        sum(float((c.end_ns - c.begin_ns).sum(dtype=np.float64)) for c in common.calls[rank].values())
        for rank in table.ranks
    ]
    return np.asarray(every - np.nansum(table.end_MR - table.begin_MR, axis=0))


@dataclass(frozen=True, slots=True)
class _Sums:
    """Nanoseconds by rank: waiting, waiting caused in all others, delay caused to the job, own time last or alone.

    lead_R: of the delay, what lies behind the rank before it, which is what this one alone is to blame for.
    """

    ranks: tuple[int, ...]
    wait_R: Floats
    caused_R: Floats
    delay_R: Floats
    lead_R: Floats
    own_R: Floats
    alone_R: Floats
    most_in_R: Ints  # as of `_most_in`
    num_calls: int
    is_sure_R: Bools  # as of `_is_sure`
    transfers_R: Bools  # whose own time as the last is a transfer's
    transfers_all: bool  # of whoever is last, the same
    stands_out_R: Bools  # as of `_stand_out`
    together: tuple[Bools, float]  # as of `_together`
    own_ns: float  # of whoever is last, as own_R
    recorded_ns: float
    early_R: Bools  # as of `_early_ones`


def _early_ones(wait_MR: Floats, recorded_ns: float) -> Bools:
    """Fewer than half of the ranks, who wait for all others; these wait too little for one another to name one."""
    early_R = wait_MR.sum(axis=0) >= WORTH_A_NAME * recorded_ns
    among_others_ns = wait_MR[:, ~early_R].max(axis=1, initial=0.0).sum()
    is_clear = 2 * np.count_nonzero(early_R) < early_R.size and among_others_ns < WORTH_A_NAME * recorded_ns
    return early_R if is_clear else np.zeros_like(early_R)


def _early(sums: _Sums) -> str:
    """That a few ranks wait for all others, which come together: these have less to do, none of those is late."""
    waits_R, early_R = sums.wait_R / sums.recorded_ns, sums.early_R
    if not early_R.any():
        return ""
    found = [rank for rank, is_early in zip(sums.ranks, early_R, strict=True) if is_early]
    most = f"{waits_R.max():.1%} of the time; the others arrive together: no straggler"
    if len(found) == 1:
        return f"rank {found[0]} arrives early and waits {most}"
    return f"ranks {named(found)} arrive early and wait up to {most}"


# (culprits, their share, is the late rank unrecorded, why)
_Found = tuple[tuple[int, ...], float | None, bool | None, str]


def _verdict(sums: _Sums, *, unseen: bool, complete: bool | None) -> _Found:
    """Who is late, if anybody. complete: whoever is unseen was recorded all the same."""
    elsewhere, remedy = ELSEWHERE[complete]
    delay_ns = float(sums.delay_R.sum())
    lost = f"{delay_ns / sums.recorded_ns:.1%} of the time"
    # Who waits about as long as it makes others wait only hands on another rank's lateness.
    origin_R = sums.wait_R < HANDED_ON * sums.delay_R
    column = int(np.argmax(np.where(origin_R, sums.caused_R, -1.0)))
    worth_a_name = WORTH_A_WORD if sums.stands_out_R[column] else WORTH_A_NAME
    total = float(sums.caused_R[origin_R].sum())
    share = float(sums.caused_R[column]) / total if total > 0 else 0.0
    delay = float(sums.delay_R[column]) / sums.recorded_ns
    is_one = bool(origin_R[column]) and share >= CULPRIT_SHARE and delay >= worth_a_name
    doubt = _later_still(sums, column, unseen=unseen, complete=complete)
    is_surely_last = is_one and bool(sums.is_sure_R[column]) and doubt is None
    waits_long = sums.own_ns > max(LONG_SHARE * delay_ns, WAITS_LONG * sums.recorded_ns)
    if unseen and waits_long and not is_surely_last and not sums.transfers_all:
        because = (
            f"every {'compared' if complete else 'recorded'} rank spends most of its communication waiting or "
            f"transferring: {elsewhere}, or the network is slow{remedy}"
        )
        return (), None, _is_elsewhere(complete), because
    if delay_ns < worth_a_name * sums.recorded_ns:
        is_long = delay_ns >= MATTERS * sums.recorded_ns
        too_little = f"ranks wait {lost} for whoever comes last: too little to name one"
        # Where the recorded ones wait as well, one that was not may be late.
        is_open = unseen and sums.own_ns > max(LONG_SHARE * delay_ns, MATTERS * sums.recorded_ns)
        arrive = "the ranks compared arrive together: none of them is late"
        return (), None, False, too_little if is_long else arrive if is_open else ARRIVE_TOGETHER
    if (found := _named_together(sums, unseen=unseen)) is not None:
        return found
    if not is_one:
        vary = f"{VARY}: several ranks arrive last, no single culprit; {lost} is waiting for them"
        return (), None, False, _early(sums) or vary
    return doubt or _beyond_chance(sums, column, unseen=unseen)


def _beyond_chance(sums: _Sums, column: int, *, unseen: bool) -> _Found:
    """The rank that causes most of the waiting, named only where ranks alike would not give as much by chance."""
    rank, delay = sums.ranks[column], float(sums.delay_R[column]) / sums.recorded_ns
    part = float(sums.caused_R[column] / sums.caused_R.sum())
    # Of ranks that were not recorded one may be later still, by no more than this one waited.
    of_whom, whose = ("is the last of the ranks compared", "their") if unseen else ("arrives last", "all")
    of_time = f"{delay:.0%}" if delay >= WORTH_A_NAME else f"{delay:.1%}"
    most_in = int(sums.most_in_R[column])
    is_rare = most_in <= IN_FEW * sums.num_calls
    comes = "" if is_rare else f"{of_whom} and "
    because = f"rank {rank} {comes}causes {part:.0%} of {whose} waiting, {of_time} of the time"
    if is_rare:
        because += f", most of it in {most_in} of {sums.num_calls} collectives"
    if not sums.is_sure_R[column]:
        return (), None, False, f"{because}{TOO_RARE if is_rare else MAY_BE_CHANCE}"
    return (rank,), part, False, because


def _later_still(sums: _Sums, column: int, *, unseen: bool, complete: bool | None) -> _Found | None:
    """That a rank which was not compared may be later than the last one that was; None where it cannot."""
    elsewhere, remedy = ELSEWHERE[complete]
    rank = sums.ranks[column]
    if unseen and not sums.transfers_R[column] and sums.own_R[column] > UNSEEN_SHARE * sums.lead_R[column]:
        waits_long = sums.own_R[column] > UNSEEN_SHARE * sums.delay_R[column]
        other = "not compared" if complete else "not recorded"
        because = f"rank {rank} is the last of the {'compared' if complete else 'recorded'} ranks but " + (
            f"itself waits or transfers long: {elsewhere}, or the network is slow{remedy}"
            if waits_long
            else f"hardly behind the one before it: a rank that was {other} may be later still{remedy}"
        )
        return (), None, _is_elsewhere(complete), because
    if sums.alone_R[column] > LONG_SHARE * sums.delay_R[column]:
        because = (
            f"rank {rank} is the last of those compared but spends long in communication with ranks that are not: "
            "the late rank may be one of them; record all ranks"
        )
        return (), None, unseen and _is_elsewhere(complete), because
    return None


def _is_elsewhere(complete: bool | None) -> bool | None:
    return None if complete is None else not complete


def _named_together(sums: _Sums, *, unseen: bool) -> _Found | None:
    """As `_verdict`, of ranks that are late together; None where none are. Beside unseen ranks they are not named."""
    late_R, lead_ns = sums.together
    is_alone = sums.alone_R[late_R].sum() > LONG_SHARE * lead_ns
    if lead_ns < WORTH_A_NAME * sums.recorded_ns or unseen or is_alone:
        return None
    ranks = tuple(rank for rank, is_late in zip(sums.ranks, late_R, strict=True) if is_late)
    part = float(sums.caused_R[late_R].sum() / sums.caused_R.sum())
    delay = float(sums.delay_R[late_R].sum()) / sums.recorded_ns
    because = (
        f"ranks {named(list(ranks))} arrive last, all of them after all others, and cause {part:.0%} of all waiting, "
        f"{delay:.0%} of the time"
    )
    return ranks, part, False, because
