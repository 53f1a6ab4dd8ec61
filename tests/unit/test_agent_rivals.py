"""Several processes claim to be one rank: the one that was started like the others is watched, else none is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from test_agent_attach import rank_process

from tuiadvisor.agent.info import ProbeInfo
from tuiadvisor.agent.rank_link import RankLink
from tuiadvisor.agent.rivals import may_turn_away, settle
from tuiadvisor.events import RankState

OURS = rank_process(os.getpid())
INIT, SHELL, LAUNCHER, LOADER = (1, 0), (50, 7), (60, 8), (70, 9)


def link(
    pid: int, rank: int | None, ancestors: Sequence[tuple[int, int]] = (), *, is_launched: bool = False
) -> RankLink:
    """A process that was found; nothing is put into it."""
    process = replace(OURS, pid=pid, rank=rank, ancestors=tuple(ancestors), is_launched=is_launched)
    return RankLink(process)


def ranks(links: Sequence[RankLink]) -> list[int | None]:
    """What each is taken for."""
    settle(links)
    return [one.rank for one in links]


def test_who_alone_claims_a_rank_is_it() -> None:
    """Whatever its place in the tree."""
    assert [0, 1, None] == ranks([link(101, 0), link(102, 1, [INIT]), link(103, None)])


def test_a_child_of_a_rank_is_told_from_the_rank_by_its_place() -> None:
    """A loader's worker has its parent's environment: it lies a step further below the launcher than the others."""
    siblings = [link(100 + rank, rank, [LAUNCHER, SHELL, INIT]) for rank in (0, 1)]
    rank_2 = link(102, 2, [LAUNCHER, SHELL, INIT])
    worker = link(110, 2, [LOADER, LAUNCHER, SHELL, INIT])

    assert [2, None, 0, 1] == ranks([rank_2, worker, *siblings])
    assert "process 110 claims to be rank 2 like process 102, which is taken for it" == worker.contested


def test_who_shares_the_nearest_ancestor_with_the_others_is_preferred() -> None:
    """Somebody's script in the same shell exports RANK, and lies as deep."""
    sibling = link(100, 0, [LAUNCHER, SHELL, INIT])
    stranger, own = link(120, 1, [SHELL, INIT]), link(101, 1, [LAUNCHER, SHELL, INIT])
    assert [None, 1, 0] == ranks([stranger, own, sibling])


def test_a_launchers_own_is_preferred_where_no_other_rank_is_sure() -> None:
    """All that is known of them is whether torchrun or its like is above."""
    assert [None, 0] == ranks([link(101, 0, [INIT]), link(102, 0, [LAUNCHER, INIT], is_launched=True)])


def test_where_nothing_tells_them_apart_none_is_watched() -> None:
    """Whoever was guessed wrong would be named for what another did."""
    alike = [link(101, 0, [SHELL]), link(102, 0, [SHELL])]
    assert [None, None] == ranks(alike)
    assert all("name the right one with --pid" in one.contested for one in alike)
    assert "processes 101 and 102 all claim to be rank 0" in alike[0].contested


def test_who_is_watched_already_stays_so() -> None:
    """A second process that comes later takes nobody's rank away, and the first one's end frees it."""
    first, later = link(101, 0, [SHELL]), link(102, 0, [SHELL])
    first.state = RankState.LIVE
    assert [0, None] == ranks([first, later])

    first.state = RankState.EXITED
    assert 0 == ranks([first, later])[1]
    assert "" == later.contested


def test_nobody_is_turned_away_before_all_have_said_who_they_are() -> None:
    """The environment may err: a probe knows its process's rank."""
    said, silent = link(101, 0), link(102, 0)
    said.reader = silent.reader = object()  # type: ignore[assignment]  # that there is one is all that is asked
    said.info = ProbeInfo(python="3.11.7")
    assert not may_turn_away(said, [said, silent])

    silent.info = ProbeInfo(python="3.12.1")
    assert may_turn_away(said, [said, silent])

    gone = link(103, 0)
    gone.reader, gone.state = object(), RankState.KILLED  # type: ignore[assignment]
    assert may_turn_away(said, [said, silent, gone])
