"""Who takes part is kept within bounds, whatever frames claim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuiadvisor.advisor.cluster import membership as roster_module
from tuiadvisor.advisor.cluster.membership import OTHER_HOSTS, Roster
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind

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


def told(roster: Roster, source: str, seq: int, kind: FrameKind, **payload: Any) -> None:
    """A frame with this in it."""
    roster.take(Frame(kind, source, seq, 1, {"host": source[0], "wall_ns": 1, "mono_ns": 1, **payload}))


def rank(number: int, **more: Any) -> dict[str, Any]:
    return {"rank": number, "pid": 40 + number, "state": "live", **more}


def test_stacks_and_recorders_count_for_ranks_of_their_own_agent() -> None:
    """Another agent's rank, or one that nobody named, cannot be spoken for."""
    roster = Roster()
    told(roster, "a/1/1", 0, FrameKind.HELLO, ranks=[rank(0)])
    told(roster, "b/1/1", 0, FrameKind.HELLO, ranks=[rank(1)])
    stacks = [{"rank": number, "look": 10 + number, "of": number} for number in (0, 1, 2)]
    recorders = [{"rank": number, "pid": 40 + number, "still_since_ns": 1} for number in (0, 1, 2)]
    told(
        roster,
        "a/1/1",
        1,
        FrameKind.STATUS,
        ranks=[rank(0, phase_since_ns=1)],
        stacks=stacks,
        recorders=recorders,
    )
    assert [10] == [look.number for look in roster.stack_looks.newest_first()]
    told(
        roster,
        "b/1/1",
        1,
        FrameKind.STATUS,
        ranks=[rank(1, phase_since_ns=1)],
        stacks=stacks,
        recorders=recorders,
    )
    assert [11, 10] == [look.number for look in roster.stack_looks.newest_first()]
    assert [0, 1] == [answer.rank for answer in roster.recorder_answers.of(roster.ranks.values())]


def test_an_answer_of_a_recorder_is_of_the_standstill_it_was_asked_in() -> None:
    """A rank that moved since, or another process of its number, has not given it."""
    roster = Roster()
    told(roster, "a/1/1", 0, FrameKind.HELLO, ranks=[rank(0), rank(1), rank(2)])
    still = [rank(0, phase_since_ns=7), rank(1, phase_since_ns=9), rank(2, phase_since_ns=7)]
    recorders = [{"rank": at, "pid": pid, "still_since_ns": 7} for at, pid in ((0, 40), (1, 41), (2, 99))]
    told(roster, "a/1/1", 1, FrameKind.STATUS, ranks=still, recorders=recorders)
    answers = roster.recorder_answers.of(roster.ranks.values())
    assert [(0, 7)] == [(one.rank, one.still_since_ns) for one in answers]


def test_silence_and_return_of_an_agent_nobody_met_are_noted() -> None:
    """Its first frame may have been lost; who is known is silent as long as the hub says so."""
    roster = Roster()
    gap = {"num_frames": None, "why": "not heard for 3.1 s"}
    roster.take(Frame(FrameKind.GAP, HUB_SOURCE, 0, 1, {"what": "agent silent", "source": "x/1/1", **gap}))
    assert ["x/1/1: agent silent, not heard for 3.1 s"] == roster.notes
    assert {} == roster.silent_agents()
    told(roster, "a/1/1", 0, FrameKind.HELLO)
    roster.take(Frame(FrameKind.GAP, HUB_SOURCE, 1, 1, {"what": "agent silent", "source": "a/1/1", **gap}))
    assert {"a/1/1": None} == roster.silent_agents()
    again = {"num_frames": None, "why": "heard again after 9.0 s"}
    for seq in (2, 3):
        roster.take(
            Frame(FrameKind.GAP, HUB_SOURCE, seq, 1, {"what": "agent returned", "source": "a/1/1", **again})
        )
    assert {} == roster.silent_agents()
    assert ["agent on a: agent returned, heard again after 9.0 s"] == [
        one for one in roster.notes if one.startswith("agent on a")
    ]


def test_steps_of_a_source_that_is_not_known_are_nobodys_elses() -> None:
    """Of one whose HELLO was lost all rows stay; of a known one those of others' ranks go, and it is told."""
    roster = Roster()
    columns = {"rank": np.array([0, 1, 1]), "step": np.array([5, 5, 6])}
    assert columns is roster.own_columns("x/1/1", columns)
    told(roster, "a/1/1", 0, FrameKind.HELLO, ranks=[rank(0)])
    told(roster, "b/1/1", 0, FrameKind.HELLO, ranks=[rank(1)])
    assert [5] == roster.own_columns("a/1/1", columns)["step"].tolist()
    assert [5, 6] == roster.own_columns("b/1/1", columns)["step"].tolist()
