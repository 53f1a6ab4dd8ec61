"""All ranks of a job on one clock, through the process groups they share.

In: every recorded rank's communication calls on its own clock.  Out: each rank's clock against the
reference's, found directly or through ranks in between, and why some ranks could not be reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.traces.collective_clock import Calls, Pairing, pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Ints
SILENT: Final = "no communication recorded"


@dataclass(frozen=True, slots=True)
class RankClock:
    """The way from a rank's clock to the reference's: one correction after the other, none for itself."""

    steps: tuple[Pairing, ...]

    @property
    def offset_ns(self) -> int:
        """This clock minus the reference's."""
        return sum(step.offset_ns or 0 for step in self.steps)

    @property
    def uncertainty_ns(self) -> int:
        """Of the offset; errors of several steps add up."""
        return sum(step.uncertainty_ns for step in self.steps)

    def corrected(self, times_ns: Ints) -> Ints:
        """This rank's times on the reference's clock."""
        for step in self.steps:
            times_ns = step.corrected(times_ns)
        return times_ns


@dataclass(slots=True)
class CommonClock:
    """reference, and the clock of every rank that could be reached; why_not for the others."""

    calls: Mapping[int, Mapping[str, Calls]]
    reference: int
    clocks: dict[int, RankClock]
    why_not: dict[int, str]
    pairings: dict[tuple[int, int], Pairing] = field(default_factory=dict)

    def pairing(self, reference: int, other: int) -> Pairing:
        """The pairing of two ranks, computed once."""
        found = self.pairings.get((reference, other))
        if found is None:
            found = self.pairings[reference, other] = pair(self.calls[reference], self.calls[other])
        return found


def common_clock(calls: Mapping[int, Mapping[str, Calls]]) -> CommonClock | None:
    """Reach as many ranks as can be from one, the lowest of those that communicate; None when none does.

    Where the lowest reaches few, as one that lacks calls, another may reach most.
    """
    having = [rank for rank in sorted(calls) if any(c.end_ns.size for c in calls[rank].values())]
    best: CommonClock | None = None
    seen: set[int] = set()
    for rank in having:
        if rank not in seen and (best is None or len(best.clocks) < len(having) - len(seen)):
            found = _from(rank, calls, having)
            seen |= found.clocks.keys()
            best = found if best is None or len(found.clocks) > len(best.clocks) else best
    return best


def _from(reference: int, calls: Mapping[int, Mapping[str, Calls]], having: list[int]) -> CommonClock:
    """The clocks that this rank's is tied to."""
    silent = {rank: SILENT for rank in calls if rank not in having}
    common = CommonClock(calls, reference, {reference: RankClock(())}, silent)
    frontier, open_ranks = [reference], [rank for rank in having if rank != reference]
    for near in frontier:  # grows while we walk it
        for rank in list(open_ranks):
            if not calls[near].keys() & calls[rank].keys():
                continue
            pairing = common.pairing(near, rank)
            if pairing.offset_ns is None:
                common.why_not.setdefault(rank, pairing.why_not)
                continue
            common.clocks[rank] = RankClock((pairing, *common.clocks[near].steps))
            common.why_not.pop(rank, None)
            open_ranks.remove(rank)
            frontier.append(rank)
    for rank in open_ranks:
        common.why_not.setdefault(rank, "it shares no process group with the other recorded ranks")
    return common
