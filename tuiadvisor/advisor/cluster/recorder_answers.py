"""What ranks said of their flight recorders while they stood, the last of each.

In: the `recorders` of STATUS frames, from strangers.  Out: those that are of this standstill.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuiadvisor.advisor.cluster.payload_fields import MAX_WATCHED_RANKS, Payload
from tuiadvisor.metrics.hang.asked_recorder import Asked, asked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.advisor.cluster.rank_facts import RankFacts


class RecorderAnswers:
    """Mutable: feed it entries."""

    def __init__(self) -> None:
        self._of: dict[int, Asked] = {}

    def take(self, entry: Payload, rank: int) -> None:
        """One rank's answer; whose rank it is has been checked."""
        if rank not in self._of and len(self._of) >= MAX_WATCHED_RANKS:
            return
        former, said = self._of.get(rank), asked(entry, rank)
        if former is not None and not former.ends and _is_same_stand(former, said):
            said = replace(said, ends=False)  # it stood before it was told to end
        self._of[rank] = said

    def of_dumps(self) -> tuple[Asked, ...]:
        """All there are, as of an import, which tells no moment; ascending."""
        return tuple(answer for _, answer in sorted(self._of.items()))

    def from_the_start(self, ranks: Iterable[RankFacts]) -> tuple[Asked, ...]:
        """Answers of those ranks that have shown no phase since the attach, and so not moved; ascending."""
        return tuple(
            answer
            for facts in sorted(ranks, key=lambda facts: facts.rank)
            if (answer := self._of.get(facts.rank)) is not None
            and answer.pid == facts.pid
            and facts.still_phase is None
        )

    def of(self, ranks: Iterable[RankFacts]) -> tuple[Asked, ...]:
        """Answers of those ranks that have not moved since they were asked; ascending."""
        return tuple(
            answer
            for facts in sorted(ranks, key=lambda facts: facts.rank)
            if (answer := self._of.get(facts.rank)) is not None
            and answer.pid == facts.pid
            and answer.still_since_ns == facts.still_since_ns
        )


def _is_same_stand(former: Asked, now: Asked) -> bool:
    return (former.pid, former.still_since_ns) == (now.pid, now.still_since_ns)
