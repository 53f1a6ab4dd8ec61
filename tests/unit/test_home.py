"""Home: what runs and what was recorded; enter goes there, and nothing is attached to unasked."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE_S
from snapshot import desks, views
from test_tui_navigator import Keyboard

from tuiadvisor.app.desk import Desk
from tuiadvisor.app.jobs import age, parsed_queue
from tuiadvisor.tui.contract.desk import Attach, ListJobs, ListRuns, OpenRun
from tuiadvisor.tui.contract.feed import CLOSED

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.tui.contract.desk import DeskState

LISTED = desks.desk(jobs=desks.jobs(), is_looking=False, can_attach=True)


def keyboard(desk: DeskState = LISTED) -> Keyboard:
    board = Keyboard(views.live(views.healthy()), desk=desk)
    board.press("0")
    return board


def test_home_looks_for_both_lists_and_enter_asks_before_it_attaches() -> None:
    """Yes attaches with the options that mean the training; nothing is sent before."""
    board = keyboard()
    assert board.shell.asked == [ListJobs(), ListRuns()]
    assert "Attach to train.py, 8 ranks? y/n" in board.press("enter")
    assert len(board.shell.asked) == 2
    board.press("y", "enter")
    assert board.shell.asked[-1] == Attach(("--pid", "8812"))


@pytest.mark.parametrize("answer", [("n", "enter"), ("enter",), ("escape",)])
def test_anything_but_yes_attaches_to_nothing(answer: tuple[str, ...]) -> None:
    """An empty answer is no yes."""
    board = keyboard()
    board.press("enter", *answer)
    assert Attach not in {type(each) for each in board.shell.asked}


@pytest.mark.parametrize(
    ("place", "said"),
    [(2, "a training of user anna"), (4, "1 node, pending: it can be watched once it runs")],
)
def test_what_cannot_be_attached_to_says_why(place: int, said: str) -> None:
    """Another user's training, a job that waits for its nodes."""
    board = keyboard()
    assert said in board.press(*["down"] * place, "enter")
    assert board.place.asking.prompt is None


def test_beside_an_open_run_the_command_is_told_instead() -> None:
    """One session watches one training; the other one gets a terminal of its own."""
    board = keyboard(replace(LISTED, can_attach=False))
    assert "tuiadvisor watch --pid 9000" in board.press("down", "enter")


def test_a_job_in_slurm_is_reached_through_slurm() -> None:
    """One agent a node, by its number."""
    board = keyboard()
    board.press(*["down"] * 3, "enter", "y", "enter")
    assert board.shell.asked[-1] == Attach(("--slurm", "481223"))


def test_enter_on_a_recording_replays_it() -> None:
    """As on the list of runs."""
    board = keyboard(replace(LISTED, jobs=()))
    board.press("enter")
    assert board.shell.asked[-1] == OpenRun(LISTED.runs[0].path)
    assert board.page == "overview"


def test_the_screens_end_with_what_was_chosen(tmp_path: Path) -> None:
    """Whoever showed them goes on to watch it."""
    desk = Desk(None, tmp_path, can_attach=True)
    assert desk.desk().can_attach
    desk._obey(Attach(("--pid", "1")))
    assert desk.chosen == ("--pid", "1")
    assert desk.latest().phase == CLOSED


def test_rows_of_squeue_are_read_whatever_a_job_is_called() -> None:
    """The name is last, for it may hold the separator; rows that are none are left out."""
    text = "481223|RUNNING|8|6:00:00|a|b\n\nerror\n481230|PENDING|1|0:00|eval\n"
    running, waiting = parsed_queue(text)
    assert (running.slurm, running.label, running.where) == ("481223", "a|b", "8 nodes, running")
    assert (waiting.where, waiting.is_running) == ("1 node, pending", False)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0 s"), (59.9, "59 s"), (1300, "21 m"), (8040, "2 h 14 m"), (270_000, "3 d 3 h")],
)
def test_ages_are_rough(seconds: float, words: str) -> None:
    """Nobody needs the seconds of a job that runs for days."""
    assert age(seconds) == words


def test_without_a_terminal_the_list_is_text(tmp_path: Path) -> None:
    """A pipe gets both lists, and success; nothing waits for a key."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tuiadvisor"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "running here" in done.stdout
    assert "0 recordings in ." in done.stdout
