"""Agents that others start come by an invitation, as a pod's sidecar does."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE_S, complaints
from training import running

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.live_session import Session
from tuiadvisor.launch.invited import InvitedLauncher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def training() -> Iterator[int]:
    """The launcher of two ranks whom the tests watch one after the other: nothing of a watch is left in them."""
    with running(2, "--step-ms", "60", "--seconds", "3000") as (launcher, _):
        yield launcher.pid
        assert launcher.poll() is None, "the training must not notice"


def test_an_agent_comes_with_the_invitation_and_leaves_when_it_is_asked(
    training: int, tmp_path: Path
) -> None:
    """The file is the owner's alone and goes with the session; ^C for the agent takes the probes out."""
    file = tmp_path / "invitation"
    with Session((), None, "invited", "", launcher=InvitedLauncher(file, "127.0.0.1")) as session:
        assert 0o600 == file.stat().st_mode & 0o777
        assert not session.agent_ended()
        command = [sys.executable, "-m", "tuiadvisor.agent", "--invitation", str(file)]
        agent = subprocess.Popen([*command, "--pid", str(training)])
        source, advisor = session.source(), Advisor()
        deadline_s = time.monotonic() + PATIENCE_S
        while {row.state for row in advisor.view().ranks} != {"live"} or not advisor.view().last_step:
            assert time.monotonic() < deadline_s
            assert agent.poll() is None
            for frame in source.read(0.2):
                advisor.feed(frame)
        agent.send_signal(signal.SIGTERM)
        assert 0 == agent.wait(PATIENCE_S)
        while {row.state for row in advisor.view().ranks} != {"detached"}:
            assert time.monotonic() < deadline_s
            for frame in source.read(0.2):
                advisor.feed(frame)
        source.close()
    assert not file.exists()


def test_a_session_below_sends_its_ranks_on(training: int, tmp_path: Path) -> None:
    """`--invite` above, `--forward` below: the upper hub shows the ranks, to their end."""
    file, advisor = tmp_path / "invitation", Advisor()
    command = [
        sys.executable,
        "-m",
        "tuiadvisor",
        "record",
        "-o",
        str(tmp_path / "part"),
        "--steps",
        "50",
        "--pid",
    ]
    with (
        Session((), None, "above", "", launcher=InvitedLauncher(file, "127.0.0.1")) as above,
        closing(above.source()) as source,
    ):
        below = subprocess.run(
            [*command, str(training), "--forward", str(file)],
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (0, "") == (below.returncode, complaints(below.stderr.decode()))
        deadline_s = time.monotonic() + PATIENCE_S
        while {row.state for row in advisor.view().ranks} != {"detached"}:
            assert time.monotonic() < deadline_s
            for frame in source.read(0.2):
                advisor.feed(frame)
    view = advisor.view()
    assert [0, 1] == [row.rank for row in view.ranks]
    assert (view.last_step or 0) >= 49
    assert (0, 0) == (view.losses.frames_lost, view.losses.frames_bad)


def test_an_invitation_beside_another_way_is_refused(tmp_path: Path) -> None:
    """One line, exit code 2, and no file."""
    command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(tmp_path / "run"), "--invite"]
    done = subprocess.run(
        [*command, str(tmp_path / "key"), "--hosts", "a"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (2, 1) == (done.returncode, done.stderr.count("\n"))
    assert "give one of them" in done.stderr
    assert not (tmp_path / "key").exists()
