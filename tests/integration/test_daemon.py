"""`record --daemon`: the terminal goes, the recording stays, and one command watches it again."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, complaints, wait_until
from training import running

from tuiadvisor.stream.scan import read_summary

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_the_recording_outlives_its_terminal_and_is_watched_again(tmp_path: Path) -> None:
    """Started on a terminal that is then closed: it records on, `watch URL` shows the ranks, a kill ends it well."""
    output = tmp_path / "run.tuirec"
    with running(2, "--step-ms", "60", "--seconds", "3000") as (training, _):
        command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(output), "--daemon", "--pid"]
        said = _on_a_terminal([*command, str(training.pid)])
        pid = int(re.findall(r"as\s+process\s+(\d+)", said)[0])
        try:
            url = re.findall(r"tuiadvisor watch (ipc://\S+)", said)[0]
            watch = [sys.executable, "-m", "tuiadvisor", "watch", "--once", "--for", "200s", url]
            done = subprocess.run(watch, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            assert (0, "") == (done.returncode, complaints(done.stderr))
            assert "2 ranks" in done.stdout
            assert {"tuiadvisor.agent": os.SCHED_BATCH, "tuiadvisor.stream.hub": os.SCHED_BATCH} == _policies(
                pid
            )
        finally:
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not _runs(pid), every_s=0.1)
        assert training.poll() is None
    assert () == read_summary(output).notes
    assert "recorded 2 ranks" in (tmp_path / "run.tuirec.log").read_text()
    assert 0o600 == (tmp_path / "run.tuirec.log").stat().st_mode & 0o777


def _policies(pid: int) -> dict[str, int]:
    """How agent and hub are scheduled: they take no core from a rank when they wake."""
    below = [(" ".join(one.cmdline()), one.pid) for one in psutil.Process(pid).children(recursive=True)]
    return {
        module: os.sched_getscheduler(child)
        for module in ("tuiadvisor.agent", "tuiadvisor.stream.hub")
        for words, child in below
        if f"-m {module}" in words
    }


def _on_a_terminal(command: list[str]) -> str:
    """What it prints on a terminal of its own, which is closed as soon as it returns."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True, close_fds=True
    )
    os.close(follower)
    said = b""
    assert 0 == process.wait(PATIENCE_S)
    while b"end it:" not in said:
        said += os.read(leader, 4096)
    os.close(leader)
    return said.decode()


def test_what_goes_wrong_at_the_start_is_said_in_the_terminal(tmp_path: Path) -> None:
    """No such process: one line and exit code 2, as without --daemon."""
    command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(tmp_path / "run"), "--daemon"]
    done = subprocess.run(
        [*command, "--pid", "999999999"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (2, 1, "") == (done.returncode, done.stderr.count("\n"), done.stdout)
    assert "no such process" in done.stderr


def _runs(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False
