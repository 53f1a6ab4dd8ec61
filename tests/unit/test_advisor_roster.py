"""Who takes part is kept within bounds, whatever frames claim."""

from __future__ import annotations

import pytest

from tuiadvisor.advisor.cluster import membership as roster_module
from tuiadvisor.advisor.cluster.membership import OTHER_HOSTS, Roster
from tuiadvisor.stream.frames import Frame, FrameKind

MAX = 8


@pytest.fixture
def roster(monkeypatch: pytest.MonkeyPatch) -> Roster:
    monkeypatch.setattr(roster_module, "MAX_SOURCES", MAX)
    return Roster()


def frame(source: str, seq: int, kind: FrameKind = FrameKind.HELLO, host: str = "h") -> Frame:
    return Frame(kind, source, seq, 1, {"host": host, "wall_ns": 1, "mono_ns": 1})


def test_one_agent_cannot_fill_memory_with_hosts(roster: Roster) -> None:
    """A hundred names from one agent: as many as there may be agents, and one for the rest."""
    for seq in range(100):
        for kind in (FrameKind.HELLO, FrameKind.STATUS, FrameKind.HOST):
            roster.take(frame("a/1/1", 3 * seq + kind, kind, f"h{seq}"))
    assert MAX == len(roster.hosts)
    assert OTHER_HOSTS in roster.hosts


def test_agents_that_left_make_room_for_new_ones(roster: Roster) -> None:
    """However many came and went, the next one is shown; while all stay, the first ones are."""
    for number in range(100):
        roster.take(frame(f"i/{number}/1", 0))
        roster.take(frame(f"i/{number}/1", 1, FrameKind.BYE))
    for number in range(100):
        roster.take(frame(f"j/{number}/1", 0))
    assert [f"j/{number}/1" for number in range(MAX)] == [*roster.agents]
