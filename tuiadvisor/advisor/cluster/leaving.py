"""When a job's end began: ranks that go or went because somebody asked them to, by scancel or Ctrl-C.

In: what is said about the ranks, as it comes.  Out: whether the end has begun, and whether it takes too long. What
stands still only since then does so because the job ends: whoever waits for a rank that goes is no hang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuiadvisor.advisor.cluster.rank_facts import RankFacts

# What torchrun and Slurm (KillWait) leave a process between SIGTERM and SIGKILL: something holds who is there still.
END_GRACE_S: Final = 30.0


class Leaving:
    """Mutable: show it each rank as it changes."""

    def __init__(self) -> None:
        self._since_ns: dict[int, int] = {}  # by rank, wall clock
        self._now_ns = 0

    def hear(self, now_ns: int) -> None:
        """It is as late as this now, wall clock."""
        self._now_ns = max(self._now_ns, now_ns)

    def take(self, facts: RankFacts) -> None:
        """One rank, as it is known now."""
        if facts.is_leaving:
            self._since_ns.setdefault(facts.rank, self._now_ns)
        else:
            self._since_ns.pop(facts.rank, None)

    @property
    def has_begun(self) -> bool:
        """Whether any rank goes, or went because somebody asked."""
        return bool(self._since_ns)

    @property
    def is_overdue(self) -> bool:
        """Whether it began so long ago that nobody waits for an end any more."""
        first_ns = min(self._since_ns.values(), default=self._now_ns)
        return self._now_ns - first_ns >= END_GRACE_S * 1e9

    def holds(self, facts: RankFacts) -> bool:
        """Whether where this rank stood when it went still counts."""
        return facts.rank in self._since_ns and not self.is_overdue
