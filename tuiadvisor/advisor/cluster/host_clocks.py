"""What the hosts' clocks show, and which processes were met before they could have made a step.

In: clocks of frames, entries of HELLO payloads.  Out: shifts between clocks, starts of processes on their host's clock.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import MAX_RANKS, integer, objects, text
from tuiadvisor.advisor.cluster.restarts import SAME_START_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tuiadvisor.advisor.cluster.payload_fields import Payload
    from tuiadvisor.advisor.cluster.rank_facts import RankFacts

NOT_READY: Final = frozenset({"has not imported torch yet", "torch is still being imported"})
STARTED_TOGETHER_NS: Final = 5_000_000_000  # a launcher's ranks; a restarted one comes later


class HostClocks:
    """Mutable: feed it what agents say. Each host has one clock, whose first reading counts."""

    def __init__(self) -> None:
        self._wall_shift_ns: dict[str, int] = {}  # by host
        # By host: starts of processes met before they had torch, in order.
        self._seen_young: dict[str, list[int]] = {}
        self._num_young = 0
        self._boots: dict[str, tuple[str, int]] = {}  # by host: which boot, and the first shift read in it

    def note(self, host: str, wall_shift_ns: int) -> None:
        """Nanoseconds to add to this host's clock to read its wall clock."""
        self._wall_shift_ns.setdefault(host, wall_shift_ns)

    def first_shift_ns(self, host: str, boot: str, wall_shift_ns: int) -> int:
        """What was to be added to this host's clock when it was first read since that boot.

        A wall clock that is set later moves nothing that is counted by the host's own.
        """
        if not boot:
            return wall_shift_ns
        if self._boots.get(host, ("", 0))[0] != boot:
            self._boots[host] = (boot, wall_shift_ns)
        return self._boots[host][1]

    def knows(self, host: str) -> bool:
        """Whether this host's clock can be read."""
        return host in self._wall_shift_ns

    def wall_shift_ns(self, host: str) -> int | None:
        """Nanoseconds to add to a host's clock to read its wall clock; None when not known."""
        return self._wall_shift_ns.get(host)

    def shift(self, host: str, other: str) -> int | None:
        """Nanoseconds to add to host's clock to read other's, by their wall clocks; None when not known."""
        own, others = self._wall_shift_ns.get(host), self._wall_shift_ns.get(other)
        return None if own is None or others is None else own - others

    def note_young(self, host: str, entry: Payload) -> None:
        """A process that had not imported torch had done no step: its first record is of its first one."""
        start = integer(entry, "start_wall_ns")
        if start is None or text(entry, "detail") not in NOT_READY or self._num_young >= MAX_RANKS:
            return
        starts = self._seen_young.setdefault(host, [])
        at = bisect_left(starts, start)
        if starts[at : at + 1] != [start]:
            starts.insert(at, start)
            self._num_young += 1

    def process_starts(self, facts: RankFacts | None, host: str) -> list[tuple[int, bool]]:
        """(start on the host's clock, whether it was met before its first step) of those that were this rank."""
        shift = self._wall_shift_ns.get(host)
        if facts is None or shift is None:
            return []
        starts = sorted(facts.starts_wall_ns)
        return [(start - shift, self._was_met_young(host, start)) for start in starts]

    def steps_before(self, facts: RankFacts | None, host: str) -> dict[int, int]:
        """Start of a process that was this rank, on the host's clock: the training's steps before the probe's first."""
        shift = self._wall_shift_ns.get(host)
        if facts is None or shift is None:
            return {}
        return {at - shift: num for at, num in facts.steps_before.items()}

    def was_met_late(self, facts: Iterable[RankFacts]) -> bool:
        """Whether some rank's process had torch before its agent came: what it did until then nobody saw."""
        return any(
            not self._was_met_young(fact.host, fact.start_wall_ns)
            for fact in facts
            if fact.start_wall_ns is not None
        )

    def _was_met_young(self, host: str, start: int) -> bool:
        """Whether it, or one that was started with it, had not imported torch when it was met.

        Ranks that were started together make their first step together. On a busy machine the one that is looked at
        first may have torch before anybody comes back to it.
        """
        starts = self._seen_young.get(host, [])
        at = bisect_left(starts, start)
        return any(abs(start - other) <= STARTED_TOGETHER_NS for other in starts[max(at - 1, 0) : at + 1])


def by_first_clock(hello: Payload, set_by_ns: int, known: Mapping[int, RankFacts], host: str) -> Payload:
    """A HELLO whose processes started when this host's wall clock would have said so as it was first read.

    The kernel tells the boot, from which starts are counted, by the wall clock of now: set by seconds, it moves the
    starts of processes that have run all the time, and an agent that comes then would tell of restarts.
    set_by_ns: by how much; the same is seen of a machine that was suspended, where starts have not moved.
    """
    if abs(set_by_ns) <= SAME_START_NS:
        return hello
    entries = []
    for entry in objects(hello, "ranks"):
        start, facts = integer(entry, "start_wall_ns"), known.get(integer(entry, "rank") or 0)
        if start is None:
            entries.append(entry)
            continue
        moved = start - set_by_ns
        former = facts.start_wall_ns if facts is not None else None
        is_same = facts is not None and (facts.host, facts.pid) == (host, integer(entry, "pid"))
        if is_same and former is not None and _is_near(former, (start, moved)):
            moved = former
        entries.append({**entry, "start_wall_ns": moved})
    return {**hello, "ranks": entries}


def _is_near(former: int, starts: tuple[int, ...]) -> bool:
    return any(abs(start - former) <= SAME_START_NS for start in starts)
