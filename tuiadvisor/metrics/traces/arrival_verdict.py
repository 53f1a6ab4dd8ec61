"""Whom the order of arrival at a job's collectives names as late, if anybody, and why or why not.

In: what each rank waits and makes the others wait.  Out: the culprits, their share of all waiting, and the words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.traces.op_table import named
from tuiadvisor.metrics.traces.waits_for_last import CULPRIT_SHARE, HANDED_ON, WORTH_A_NAME, WORTH_A_WORD

if TYPE_CHECKING:
    from tuiadvisor.metrics.traces.waits_for_last import Sums

MATTERS: Final = 0.01  # of the recorded time: shorter waits are none
# A rank most of whose delay lies in so few of the calls does not arrive last, it paused: chosen. One that is late by as
# much in every call has half of its delay in half of them, one that is so in every fourth step in an eighth.
IN_FEW: Final = 0.1
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

# (culprits, their share, is the late rank unrecorded, why)
_Found = tuple[tuple[int, ...], float | None, bool | None, str]


def verdict(sums: Sums, *, unseen: bool, complete: bool | None) -> _Found:
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
        return (), None, False, early(sums) or vary
    return doubt or _beyond_chance(sums, column, unseen=unseen)


def _beyond_chance(sums: Sums, column: int, *, unseen: bool) -> _Found:
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


def _later_still(sums: Sums, column: int, *, unseen: bool, complete: bool | None) -> _Found | None:
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


def _named_together(sums: Sums, *, unseen: bool) -> _Found | None:
    """As `verdict`, of ranks that are late together; None where none are. Beside unseen ranks they are not named."""
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


def early(sums: Sums) -> str:
    """That a few ranks wait for all others, which come together: these have less to do, none of those is late."""
    waits_R, early_R = sums.wait_R / sums.recorded_ns, sums.early_R
    if not early_R.any():
        return ""
    found = [rank for rank, is_early in zip(sums.ranks, early_R, strict=True) if is_early]
    most = f"{waits_R.max():.1%} of the time; the others arrive together: no straggler"
    if len(found) == 1:
        return f"rank {found[0]} arrives early and waits {most}"
    return f"ranks {named(found)} arrive early and wait up to {most}"
