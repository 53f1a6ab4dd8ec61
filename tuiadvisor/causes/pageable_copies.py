"""Ranks whose batches are copied to their devices from pageable memory, by the names of a trace's copies.

What that costs a step is not in it: a copy may lie behind compute. Where it makes a rank late, or all of them wait,
their own findings say how much, so this is no more than a remark with its lever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause, Measured, rank_words
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis

MOST: Final = 0.5  # of the longest: ranks that copy as much from pageable memory are named with it


def measure(_diagnosis: Diagnosis, facts: Facts, _job: Values) -> list[Measured]:
    """One subject: the ranks that copy most; none where no copy is known to be pageable."""
    work = facts.device_work
    of_rank = {one.rank: one for one in (work.ranks if work is not None else ()) if one.pageable_s}
    if not of_rank:
        return []
    longest = max(of_rank.values(), key=lambda one: one.pageable_s or 0.0)
    longest_s = longest.pageable_s or 0.0
    ranks = tuple(
        sorted(rank for rank, one in of_rank.items() if (one.pageable_s or 0.0) >= MOST * longest_s)
    )
    values: Values = {
        "ranks": rank_words(ranks),
        "pageable_share": min(longest_s / longest.window_s, 1.0),
        "pageable_words": f"{seconds(longest_s)} of the {seconds(longest.window_s)} that were traced",
    }
    return [Measured("placement", values, ranks, (), "h2d")]


PAGEABLE_COPIES: Final = Cause(
    rules=("pageable_copies",),
    metrics="""
placement pageable_share share of a traced device's window in copies from pageable memory, of the rank with most
placement pageable_words text how long it copies, and of which time
""",
    scope="placement",
    measure=measure,
    is_remark=True,
    names_ranks=True,
    needs_device=False,
)
