"""Restarts as a view shows them.

In: who takes part, the steps.  Out: Restart.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.restarts import SAME_START_NS
from tuiadvisor.views.restart import Restart

if TYPE_CHECKING:
    from tuiadvisor.advisor.cluster.membership import Roster
    from tuiadvisor.advisor.cluster.restarts import Began
    from tuiadvisor.advisor.steps.step_store import StepStore

MAX_ASKED: Final = 256  # ranks of a restart that are asked whether they have made a step: all begin together


def restarts(
    roster: Roster, store: StepStore, until_step: int | None, *, with_now: bool, is_over: bool
) -> tuple[Restart, ...]:
    """Those after steps up to until_step, oldest first; with_now: also whether the last of them has made a step yet.

    is_over: the run has ended, so it makes none any more.
    """
    began = roster.restarts.began
    newest = began[-1] if began and with_now else None
    waits_s = None if newest is None else _waits_s(newest, roster, store)
    return tuple(
        Restart(
            number=roster.restarts.num_begun - len(began) + place,
            after_step=one.after_step,
            ranks=tuple(sorted(one.ranks)),
            how_ended=one.how_ended,
            began_wall_s=one.start_wall_ns / 1e9,
            waits_s=waits_s if one is newest and not is_over else None,
            came_to_nothing=one is newest and is_over and waits_s is not None,
        )
        for place, one in enumerate(began, 1)
        if until_step is None or one.after_step is None or one.after_step <= until_step
    )


def _waits_s(began: Began, roster: Roster, store: StepStore) -> float | None:
    """Seconds without a step of the new processes, as far as clocks tell."""
    for rank in islice(began.ranks, MAX_ASKED):
        last, start_ns = store.last_end(rank), roster.restarts.starts_ns(rank)
        shift_ns = roster.clocks.wall_shift_ns(last[0]) if last is not None else None
        if last is None or shift_ns is None or start_ns is None:
            continue
        if last[1] + shift_ns > start_ns + SAME_START_NS:  # starts are told to the second
            return None
    now_ns = max(roster.newest_ns().values(), default=0)
    return max(now_ns - began.start_wall_ns, 0) / 1e9
