"""How ranks' processes ended, in words, the likeliest cause first.

In: what is said about the ranks.  Out: sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from tuiadvisor.advisor.cluster.rank_facts import RankFacts

# How a scheduler, a launcher or a person ends a process.
ASKED_TO_END: Final = ("SIGTERM", "SIGINT", "SIGHUP")
WITH_CODE: Final = "exited with code"


def deaths(ranks: Collection[RankFacts]) -> tuple[str, ...]:
    """A sentence for each rank that a signal killed, whom a launcher ended for another's sake last.

    Empty where every end was asked for (scancel, Ctrl-C). A rank that is gone without a known signal may have called
    os._exit: it counts where others were ended after it.
    """
    killed = [fact for fact in ranks if fact.state == "killed"]
    asked = [fact for fact in killed if any(name in fact.detail for name in ASKED_TO_END)]
    signalled = [fact for fact in killed if fact.detail.startswith("killed") and fact not in asked]
    gone = [fact for fact in killed if fact not in asked and fact not in signalled]
    if not signalled and not (gone and asked):
        return ()
    in_order = (*_by_rank(signalled), *_by_rank(gone), *_by_rank(asked))
    return tuple(
        f"rank {fact.rank} {'is' if fact in gone else 'was'} {fact.detail or 'killed'}" for fact in in_order
    )


def how_ended(ranks: Collection[RankFacts]) -> str:
    """The first of them, or the lowest rank that ended by an error; "" where neither is known."""
    if died := deaths(ranks):
        return in_short(died)
    failed = _by_rank([fact for fact in ranks if fact.state == "exited" and WITH_CODE in fact.detail])
    return f"rank {failed[0].rank} {failed[0].detail}" if failed else ""


def in_short(died: tuple[str, ...]) -> str:
    """The first of at least one death, and how many more there were."""
    more = len(died) - 1
    return died[0] + (f" ({more} more {'rank' if more == 1 else 'ranks'} ended with it)" if more else "")


def _by_rank(facts: list[RankFacts]) -> list[RankFacts]:
    return sorted(facts, key=lambda fact: fact.rank)
