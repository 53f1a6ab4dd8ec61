"""What the ranks of a job's collectives wait for the one that comes last, and by how much each delays the others.

In: the collectives that ranks share, on one clock.  Out: nanoseconds by rank, and what stands out among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.bootstrap import mean_interval
from tuiadvisor.metrics.series.change_points import find_changes
from tuiadvisor.metrics.steps.arrays import mad_sigma
from tuiadvisor.metrics.traces.matched_collectives import calls_a_step
from tuiadvisor.metrics.traces.transfers import take_as_long

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.traces.matched_collectives import Matched

CULPRIT_SHARE: Final = 0.6  # of all waits must be one rank's doing
# Of the recorded time: as rule straggler's moderate_loss, half of TraceML's moderate imbalance. Live nobody is named
# for less, and of two healthy ranks on one H200 one was 0.7 of 29 ms later in each of 12 steps.
WORTH_A_NAME: Final = 0.05
# Of the recorded time: as rule straggler's worth_a_word. So little names a rank only if it stands out as below; of two
# ranks one is always the last, and of two healthy ones on one H200 it was the same one, by 3.9 % of the time.
WORTH_A_WORD: Final = 0.02
MIN_CLEAR_CALLS: Final = 8  # that somebody waits for, as diagnosis' MIN_CLEAR_STEPS
IN_NEARLY_ALL: Final = 0.9  # of those calls one rank is the last; chosen
BEYOND_SPREAD: Final = 2.0  # times what lies between the first and the last of all others; chosen
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


@dataclass(frozen=True, slots=True)
class Waits:
    """Nanoseconds of M collectives x R ranks, as far as no computation hides them."""

    last_M: Ints  # column of the rank that begins last
    latest_M: Floats  # when it does
    wait_MR: Floats  # for that rank; 0 where the clocks do not tell
    bare_MR: Floats  # of each call


def waits_for_last(table: Matched, doubt_ns: float) -> Waits:
    """Who waits how long for whom. doubt_ns: by how much the ranks' clocks may differ."""
    last_M = np.nanargmax(table.begin_MR, axis=1)
    latest_M = table.begin_MR[np.arange(last_M.size), last_M]
    wait_MR = np.nan_to_num(latest_M[:, None] - table.begin_MR)
    # No begin is known better than the ends agree: a clock that was set moves both.
    wait_MR[wait_MR.max(axis=1) <= np.maximum(doubt_ns, 2 * table.spread_M)] = 0.0
    # Who computes meanwhile loses nothing: of its wait at most what no computation hides of the call.
    bare_MR = np.nan_to_num(table.end_MR - table.begin_MR - table.hidden_MR)
    np.minimum(wait_MR, np.maximum(bare_MR, 0.0), out=wait_MR)
    return Waits(last_M, latest_M, wait_MR, bare_MR)


@dataclass(frozen=True, slots=True)
class Sums:
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


def sums_of(table: Matched, waits: Waits, alone_R: Floats, num_steps: int) -> Sums:
    """alone_R: as of `alone_ns`. num_steps: of the recorded time, 0 where nothing marks them."""
    begin_MR, wait_MR, last_M, num_ranks = table.begin_MR, waits.wait_MR, waits.last_M, len(table.ranks)
    longest_M = wait_MR.max(axis=1)
    clear_M = longest_M > 0

    def by_last(values_M: Floats) -> Floats:
        return np.bincount(last_M, values_M, num_ranks).astype(np.float64)

    # What the last arrival itself spends: the transfer, or a wait for someone who was not recorded.
    rows = np.arange(last_M.size)
    whole_own_M = table.end_MR[rows, last_M] - waits.latest_M
    own_M = np.clip(waits.bare_MR[rows, last_M], 0.0, whole_own_M)  # as of waits
    behind_M = waits.latest_M - np.nanmedian(begin_MR, axis=1)

    def are_transfers(chosen_M: Bools, place_M: Ints) -> bool:
        return take_as_long(whole_own_M[chosen_M], behind_M[chosen_M], place_M[chosen_M])

    columns = range(num_ranks)
    recorded_ns = float(np.nanmax(table.end_MR) - np.nanmin(begin_MR))
    return Sums(
        ranks=table.ranks,
        wait_R=wait_MR.sum(axis=0),
        caused_R=by_last(wait_MR.sum(axis=1)),
        delay_R=by_last(longest_M),
        lead_R=by_last(
            np.where(clear_M, np.minimum(waits.latest_M - _before_last(begin_MR), longest_M), 0.0)
        ),
        own_R=by_last(np.where(clear_M, own_M, 0.0)),
        alone_R=alone_R,
        most_in_R=np.array([_most_in(longest_M[last_M == column]) for column in columns]),
        num_calls=int(last_M.size),
        is_sure_R=np.array([_is_sure(begin_MR, longest_M, last_M, column, num_steps) for column in columns]),
        transfers_R=np.array(
            [are_transfers(clear_M & (last_M == column), table.place_M) for column in columns]
        ),
        transfers_all=are_transfers(np.ones_like(clear_M), table.place_M * num_ranks + last_M),
        stands_out_R=_stand_out(begin_MR, clear_M, last_M),
        together=_together(begin_MR, wait_MR, clear_M),
        own_ns=float(own_M.sum()),
        recorded_ns=recorded_ns,
        early_R=_early_ones(wait_MR, recorded_ns),
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
    a_step = calls_a_step(beyond_M.size, num_steps)
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


def _early_ones(wait_MR: Floats, recorded_ns: float) -> Bools:
    """Fewer than half of the ranks, who wait for all others; these wait too little for one another to name one."""
    early_R = wait_MR.sum(axis=0) >= WORTH_A_NAME * recorded_ns
    among_others_ns = wait_MR[:, ~early_R].max(axis=1, initial=0.0).sum()
    is_clear = 2 * np.count_nonzero(early_R) < early_R.size and among_others_ns < WORTH_A_NAME * recorded_ns
    return early_R if is_clear else np.zeros_like(early_R)


def later_than_most(table: Matched, culprits: tuple[int, ...], recorded_ns: float) -> tuple[int, ...]:
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
