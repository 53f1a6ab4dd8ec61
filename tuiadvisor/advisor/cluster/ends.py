"""How ranks' processes ended, in words, the likeliest cause first.

In: what is said about the ranks.  Out: sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.views.deaths import ASKED_TO_END, WITH_CODE

if TYPE_CHECKING:
    from collections.abc import Collection

    from tuiadvisor.advisor.cluster.rank_facts import RankFacts

BY_HAND: Final = "SIGINT"
LEFT: Final = "left with exit code 0"  # past its exit hooks: os._exit in the middle of anything


def deaths(ranks: Collection[RankFacts]) -> tuple[str, ...]:
    """A sentence for each rank that a signal killed or an error ended, whom a launcher ended for another's sake last.

    Empty where every end was asked for (scancel, Ctrl-C). A rank that called os._exit, or is gone without a known
    signal, counts where others were ended after it. Who lost a peer may end by an error: signals come first, and so
    does who was gone before the first error.
    """
    killed = [fact for fact in ranks if fact.state == "killed"]
    asked = [fact for fact in killed if any(name in fact.detail for name in ASKED_TO_END)]
    signalled = [fact for fact in killed if fact.detail.startswith("killed") and fact not in asked]
    gone = [fact for fact in ranks if vanished(fact)]
    # Who is interrupted by hand takes its connections with it, and its peers may raise before they are.
    by_hand = any(BY_HAND in fact.detail for fact in asked)
    failed = [] if by_hand else failures(ranks)
    if not signalled and not failed and not (gone and asked):
        return ()
    first_error = min((fact.ended_at for fact in failed), default=0)
    before = [fact for fact in gone if 0 < fact.ended_at < first_error]
    told = (signalled, before, failed, [fact for fact in gone if fact not in before], asked)
    return tuple(f"rank {fact.rank} {how_ended(fact)}" for group in told for fact in _in_order(group))


def vanished(fact: RankFacts) -> bool:
    """Whether it left past its exit hooks, and no signal is known that ended it."""
    if fact.state == "exited":
        return fact.detail.startswith(LEFT)
    return fact.state == "killed" and not fact.detail.startswith("killed")


def how_ended(fact: RankFacts) -> str:
    """Completes "rank 3 ..."."""
    detail = fact.told or "killed"
    verb = "" if fact.state == "exited" else "was " if detail.startswith("killed") else "is "
    return verb + detail


def failures(ranks: Collection[RankFacts]) -> list[RankFacts]:
    """Those that ended by themselves with another exit code than 0."""
    return [fact for fact in ranks if fact.state == "exited" and WITH_CODE in fact.detail]


def counted(ranks: Collection[RankFacts]) -> str:
    """How many a signal ended, of how many: "1 of 4 killed, 3 by SIGTERM, ..."; whoever was asked to end by which.

    "" where no signal ended any; an error of their own is counted behind the signals. Of several that were killed, who
    was seen to end before all others: a launcher may end these for its sake by the same signal.
    """
    killed = [fact for fact in ranks if fact.state == "killed"]
    kinds = [next((name for name in ASKED_TO_END if name in fact.detail), "") for fact in killed]
    counts = [(kinds.count(kind), f"by {kind}" if kind else "killed") for kind in ("", *ASKED_TO_END)]
    parts = [f"{number} {how}" for number, how in counts if number]
    num_failed = len(failures(ranks))
    if parts:
        first, _, how = parts[0].partition(" ")
        parts[0] = f"{first} of {len(ranks)} {how}"
        if how == "killed" and (one := _first_of(killed)) is not None and int(first) > 1:
            parts[0] += f" (rank {one.rank} first)"
        parts += [f"{num_failed} by an error"] if num_failed else []
    return ", ".join(parts)


def in_short(died: tuple[str, ...]) -> str:
    """The first death, and how many more there were; "" without one."""
    if not died:
        return ""
    more = len(died) - 1
    return died[0] + (f" ({more} more {'rank' if more == 1 else 'ranks'} ended with it)" if more else "")


def _first_of(killed: list[RankFacts]) -> RankFacts | None:
    """Who ended first; None where one frame told of several, or frames of several agents, whose order says nothing."""
    if len(killed) < 2 or len({fact.source for fact in killed}) > 1:
        return None
    first, second = _in_order(killed)[:2]
    return first if 0 < first.ended_at < second.ended_at else None


def _in_order(facts: list[RankFacts]) -> list[RankFacts]:
    """As they were seen to end, by rank where that was told at once."""
    return sorted(facts, key=lambda fact: (fact.ended_at, fact.rank))
