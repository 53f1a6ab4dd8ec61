"""Kill -9 of a rank, of the agent, of the hub: the others live on, the recording opens, the view says what was lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from live_views import follow
from patience import PATIENCE_S
from training import running

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.app.live_session import Session
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.source import FileSource
from tuiadvisor.views.run_view import RunView

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
ENOUGH_BYTES = 20_000  # some seconds of steps
# So much that no load of the machine comes near it.
LATE = ("--fault", "slow-backward", "--fault-rank", "1", "--delay-ms", "200")
Training = tuple[subprocess.Popen[bytes], list[RankProcess]]


@pytest.fixture(scope="module")
def survivor() -> Iterator[Training]:
    """A training that every test leaves as it found it."""
    with running(2, "--step-ms", "30") as started:
        yield started


def is_live(view: RunView) -> bool:
    """All ranks attached and stepping."""
    return bool(view.ranks) and all(row.state == "live" for row in view.ranks) and (view.last_step or 0) > 20


def reopened(path: Path) -> RunView:
    """The view at the end of a recording on disk."""
    source, advisor = FileSource(path), Advisor()
    while frames := source.read(0):
        for frame in frames:
            advisor.feed(frame)
    source.close()
    return advisor.view()


def test_killed_rank_is_named(tmp_path: Path) -> None:
    """The view names the rank that was killed and its last step; the recording opens afterwards and says the same."""
    path = tmp_path / "run.tuirec"
    with (
        running(2, "--step-ms", "30") as (training, ranks),
        Session([training.pid], str(path), "train.py", "") as session,
    ):
        source, advisor = session.source(), Advisor()
        follow(source, advisor, is_live)
        os.kill(ranks[1].pid, signal.SIGKILL)
        view = follow(source, advisor, lambda view: any(row.state == "killed" for row in view.ranks))
        source.close()
    row = next(row for row in view.ranks if row.rank == 1)
    assert row.state == "killed"
    assert "SIGKILL" in row.state_detail or "killed" in row.state_detail
    assert [note for note in view.losses.notes if note.startswith("rank 1: ")], view.losses
    again = reopened(path)
    assert next(row.state for row in again.ranks if row.rank == 1) == "killed"


def test_a_recording_of_a_rank_that_is_killed_is_a_good_one(tmp_path: Path) -> None:
    """`record` ends with the training, names rank and signal in its last lines, and answers 0 for the recording."""
    path = tmp_path / "run.tuirec"
    command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(path), "--pid"]
    with running(2, "--step-ms", "10") as (training, ranks):
        recorder = subprocess.Popen(
            [*command, str(training.pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists() or path.stat().st_size < ENOUGH_BYTES:
            assert time.monotonic() < deadline
            assert recorder.poll() is None
            time.sleep(0.1)
        # The signal is told for as long as the launcher has not asked for it, which a busy agent may miss.
        os.kill(training.pid, signal.SIGSTOP)
        try:
            os.kill(ranks[1].pid, signal.SIGKILL)
            while not any(row.state == "killed" for row in reopened(path).ranks):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            os.kill(training.pid, signal.SIGCONT)
        said, complained = recorder.communicate(timeout=PATIENCE_S)
    assert 0 == recorder.returncode, complained
    assert f"recorded 2 ranks, up to step {reopened(path).last_step} in {path}" in said
    assert "ank 1 was killed by SIGKILL" in said.splitlines()[-1]


def test_killed_agent_leaves_ranks_training(tmp_path: Path, survivor: Training) -> None:
    """Training goes on, the hub notes the silence, and the probes go by themselves when their lease runs out."""
    path, (training, ranks) = tmp_path / "run.tuirec", survivor
    with Session([training.pid], str(path), "train.py", "") as session:
        source, advisor = session.source(), Advisor()
        before = follow(source, advisor, is_live)
        session.agent.kill()
        follow(source, advisor, lambda view: any("silent" in note for note in view.losses.notes))
        source.close()
    assert training.poll() is None
    done = subprocess.run(
        [sys.executable, "-m", "tuiadvisor", "detach", "--pid", str(training.pid)],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 probes taken out" in done.stdout
    assert all(psutil.pid_exists(rank.pid) for rank in ranks)
    assert (reopened(path).last_step or 0) >= (before.last_step or 0)


def test_killed_hub_costs_at_most_the_last_frame(tmp_path: Path, survivor: Training) -> None:
    """The viewer says that the hub is gone, the training goes on, the file opens with all whole frames."""
    path, (training, ranks) = tmp_path / "run.tuirec", survivor
    with Session([training.pid], str(path), "train.py", "") as session:
        source, advisor = session.source(), Advisor()
        before = follow(source, advisor, is_live)
        session.hub.kill()
        deadline = time.monotonic() + PATIENCE_S
        while source.status.connected and time.monotonic() < deadline:
            source.read(0.2)
        assert not source.status.connected
        source.close()
    assert training.poll() is None
    assert all(psutil.pid_exists(rank.pid) for rank in ranks)
    assert (reopened(path).last_step or 0) >= (before.last_step or 0)


def test_live_and_replay_give_the_same_views(tmp_path: Path) -> None:
    """The sequence of views folded live, frame by frame, is the sequence folded from the file."""
    path = tmp_path / "run.tuirec"
    live: list[RunView] = []
    with (
        running(2, "--step-ms", "10", *LATE) as (training, _),
        Session([training.pid], str(path), "train.py", "") as session,
    ):
        source, advisor = session.source(), Advisor()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if len(live) > 40 and live[-1].verdict.finding == "straggler":
                break
            for frame in source.read(0.2):
                advisor.feed(frame)
                live.append(advisor.view())
        source.close()
    replayed: list[RunView] = []
    source_again, advisor_again = FileSource(path), Advisor()
    while frames := source_again.read(0):
        for frame in frames:
            advisor_again.feed(frame)
            replayed.append(advisor_again.view())
    source_again.close()
    assert len(live) > 20
    assert replayed[: len(live)] == live
    assert live[-1].verdict.finding == "straggler"


def test_a_file_that_exists_is_the_users_mistake(tmp_path: Path) -> None:
    """Exit code 2 as for every other output, before an agent is started; the file stays as it is."""
    path = tmp_path / "run.tuirec"
    path.write_bytes(b"kept")
    with pytest.raises(TuiadvisorError, match=r"run\.tuirec: exists already; choose another name") as refused:
        Session([os.getpid()], str(path), "train.py", "")
    assert 2 == refused.value.exit_code
    assert b"kept" == path.read_bytes()
