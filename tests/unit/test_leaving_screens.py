"""What is left on the terminal after the screens is of the run: of its end, and not of what was looked at last."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest
from patience import PATIENCE_S
from snapshot import views
from unit.synthetic_run import Fault, Job, frames
from unit.test_cli_lookback import GivenSource

from tuiadvisor.app.live_feed import LiveFeed
from tuiadvisor.cli import run_, watching
from tuiadvisor.cli.watching import say_goodbye, see_end
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EXITING
from tuiadvisor.tui.contract.feed import ChooseSteps, FeedState, Pause, SeekStep
from tuiadvisor.views.run_view import RunView

JOB = Job(num_steps=400, faults=(Fault("backward", (2,), 0.01, onset=200),))


@pytest.mark.parametrize(
    "command", [ChooseSteps(20, 120), SeekStep(100), Pause()], ids=["stretch", "past", "paused"]
)
def test_the_verdict_after_the_screens_is_the_runs(
    command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`+ + [ q` printed the stretch's, as if it were the run's."""
    source = GivenSource()
    told = frames(JOB, rows_per_frame=8)
    source.give(told)
    feed = LiveFeed(source, lambda: None)

    def leaves_aside(*_: object, **__: object) -> None:
        wait_until(lambda: feed.latest().view is not None)
        feed.command(command)
        wait_until(lambda: feed.latest().phase in ("past", "stretch", "paused"))

    monkeypatch.setattr(watching, "show_screens", leaves_aside)
    feed.start()
    watching.show(feed)
    state = feed.latest()
    feed.stop()
    assert "live" == state.phase
    assert state.view is not None
    assert 399 == state.view.last_step
    say_goodbye(state, None)
    assert capsys.readouterr().out.startswith("Tune: ")


def wait_until(holds: Any) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to that")


def test_without_the_runs_picture_no_verdict_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    state = FeedState(views.straggler(), "live", "stretch", "", None, None, 1)
    say_goodbye(state, "r.tuirec")
    assert capsys.readouterr().out.startswith("recorded in r.tuirec")


def exiting(view: RunView) -> RunView:
    rows = tuple(replace(row, state="detached", state_detail=EXITING) for row in view.ranks)
    return replace(view, ranks=rows)


class Shown:
    """A feed whose pictures come one after another, the last one again and again."""

    failure = None

    def __init__(self, *pictures: RunView) -> None:
        self.pictures = list(pictures)

    def latest(self) -> FeedState:
        view = self.pictures.pop(0) if len(self.pictures) > 1 else self.pictures[0]
        return FeedState(view, "live", "live", "", None, None, 1)


def test_the_end_of_ranks_that_exit_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Python and torch take seconds to shut down: who left the screens meanwhile got a run without an end."""
    going = exiting(views.straggler())
    feed: Any = Shown(going, going, views.straggler())
    see_end(feed, lambda: False)
    assert 1 == len(feed.pictures)
    assert "ranks are exiting" in capsys.readouterr().out


@pytest.mark.parametrize("is_exiting", [False, True])
def test_nobody_waits_for_ranks_that_train_on_or_are_not_watched(
    *, is_exiting: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    view = views.straggler()
    feed: Any = Shown(exiting(view) if is_exiting else view)
    see_end(feed, lambda: is_exiting)
    assert is_exiting == bool(capsys.readouterr().out)


def test_an_exit_that_takes_for_ever_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "END_GRACE_S", 0.1)
    feed: Any = Shown(exiting(views.straggler()))
    see_end(feed, lambda: False)
    assert exiting(views.straggler()) == feed.latest().view


def test_whether_the_training_has_ended_is_seen_without_taking_its_exit_code() -> None:
    """The agent reads it where the process still waits to be asked: what is taken before it is lost."""
    training = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)"], stdin=subprocess.PIPE
    )
    assert training.stdin is not None
    assert not run_._is_over(training)
    training.stdin.close()
    wait_until(lambda: run_._is_over(training))
    assert run_._is_over(training)
    assert None is training.returncode
    assert 3 == training.wait()
    assert run_._is_over(training)


@pytest.mark.parametrize("num_refusals", [1, 2])
def test_what_is_refused_once_is_looked_at_again(monkeypatch: pytest.MonkeyPatch, num_refusals: int) -> None:
    """Within its exit a command can't be read and has not ended yet; what nobody may read is refused again."""
    refusals = [TuiadvisorError("not to be read")] * num_refusals

    def look(_pids: list[int]) -> list[Any]:
        if refusals:
            raise refusals.pop()
        training.kill()
        training.wait()
        return []

    monkeypatch.setattr(run_, "find_ranks", look)
    training = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        if num_refusals == 1:
            assert not run_._wait_for_ranks(training)
        else:
            with pytest.raises(TuiadvisorError, match="not to be read"):
                run_._wait_for_ranks(training)
    finally:
        training.kill()
        training.wait()


def test_a_command_is_waited_for_as_long_as_it_is_within_its_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Giving much memory back takes longer than the pause between two looks; its exit code comes after that."""
    num_looks = 0

    def look(_pids: list[int]) -> list[Any]:
        nonlocal num_looks
        num_looks += 1
        if num_looks == 4:
            training.kill()
            training.wait()
        raise TuiadvisorError("it has just ended")

    monkeypatch.setattr(run_, "find_ranks", look)
    monkeypatch.setattr(run_.procfs, "is_at_its_end", lambda _: True)
    training = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not run_._wait_for_ranks(training)
    finally:
        training.kill()
        training.wait()
    assert 4 == num_looks
