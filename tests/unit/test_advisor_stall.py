"""What an alert says of a job that makes no progress."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from snapshot import views

from tuiadvisor.advisor.judge.hang import stall, with_stall
from tuiadvisor.causes.hang import _words, measured
from tuiadvisor.metrics.hang.detection import RankNow, Standstill, standstill
from tuiadvisor.tui.control.frame import badge


@dataclass
class Facts:
    """Of one rank, as far as a stall needs them."""

    pid: int
    host: str = "node01"
    state: str = "live"


def roster(*ranks: Facts) -> Any:
    hosts = sorted({facts.host for facts in ranks})
    return SimpleNamespace(ranks=dict(enumerate(ranks)), hosts_of_ranks=lambda: hosts)


WAITING = Standstill(41.0, 120, (0, 1), (2,), "other", is_death=False)


@pytest.mark.parametrize("by_phase", [True, False])
def test_a_stopped_rank_has_the_command_that_lets_it_go_on(by_phase: bool) -> None:
    """Whether it was named by its phase or by its thread."""
    phases = ("backward", "backward", "other" if by_phase else "backward")
    threads = (None, None, "stopped") if by_phase else ("waiting", "waiting", "stopped")
    places = [
        RankNow(rank, "live", phase, 41.0, 120, thread)
        for rank, phase, thread in zip(range(3), phases, threads, strict=True)
    ]
    found = standstill(places, 0.1)
    assert found is not None
    said = stall(found, roster(Facts(10), Facts(11), Facts(12)))
    assert said.words == "ranks 0 and 1 wait for rank 2, stopped by a signal or a debugger"
    verdict = measured(found, {0: "node01", 1: "node01", 2: "node01"}, 3, is_over=False)
    assert verdict.values["still_words"] == f"{said.words}, at step 120"
    assert verdict.values["is_still_stopped"] == 1
    assert (said.held, said.command, said.where) == ("stopped", "kill -CONT 12", "")


def test_on_several_hosts_the_command_says_where() -> None:
    """A process id means nothing on another node."""
    ranks = roster(Facts(10), Facts(11), Facts(12, "node02"))
    assert stall(replace(WAITING, thread="stopped"), ranks).where == "node02"


@pytest.mark.parametrize(
    ("found", "held", "words"),
    [
        (WAITING, "missing", "ranks 0 and 1 wait for rank 2"),
        (replace(WAITING, is_death=True), "gone", "ranks 0 and 1 wait for rank 2, gone"),
        (
            replace(WAITING, waiting=(0, 1, 2), missing=()),
            "missing",
            "ranks 0, 1 and 2 make no progress; who is missing was not observed",
        ),
    ],
)
def test_nobody_is_told_to_continue_what_was_not_stopped(found: Standstill, held: str, words: str) -> None:
    """The stacks tell where ranks are that were not stopped."""
    said = stall(found, roster(Facts(10), Facts(11), Facts(12)))
    assert (said.held, said.command, said.words) == (held, "tuiadvisor stacks", words)


def test_no_rank_of_a_stalled_job_is_live() -> None:
    """Each row says whether its rank waits or is waited for."""
    rows = with_stall(views.healthy().ranks, stall(WAITING, roster(Facts(10), Facts(11), Facts(12))))
    assert ["waits", "waits", "missing", ""] == [row.held for row in rows]
    assert with_stall(rows, None) == rows


def test_who_waits_does_not_stand_out_beside_who_is_missing() -> None:
    """A diamond stood at a rank that had been a little late in its steps, as at the one that all wait for."""
    late = tuple(
        replace(row, is_outlier=row.rank in {0, 1}, is_culprit=row.rank == 1) for row in views.healthy().ranks
    )
    rows = with_stall(late, stall(WAITING, roster(Facts(10), Facts(11), Facts(12))))
    assert [1, 2] == [row.rank for row in rows if row.is_outlier]


@pytest.mark.parametrize(
    ("waiting", "missing", "whose"),
    [((0, 1), (), "their"), ((0, 1, 2), (3,), "its"), ((0,), (1, 2), "their")],
)
def test_what_several_ranks_stand_in_is_theirs(
    waiting: tuple[int, ...], missing: tuple[int, ...], whose: str
) -> None:
    """Loaders that started anew under a signal: "all 2 ranks are waiting for its next batch"."""
    found = Standstill(9.0, 2, waiting, missing, "data_wait", is_death=False)
    assert f"waiting for {whose} next batch" in _words(found, 4, 4)


def test_a_job_of_which_no_step_is_seen_is_not_headed_live() -> None:
    """It may have hung before anybody came, and for 45 s it read LIVE."""
    assert " ◌ NO STEP YET " == badge(views.live(views.standing()))[0]
    assert " ● LIVE " == badge(views.live(views.healthy()))[0]
