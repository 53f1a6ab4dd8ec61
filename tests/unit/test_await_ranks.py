"""A launcher without ranks yet is waited for, as long as it lives; the ranks are processes without torch here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE_S, wait_until

from tuiadvisor.agent import procfs
from tuiadvisor.agent.discovery import find_ranks
from tuiadvisor.app import awaiting_ranks
from tuiadvisor.app.awaiting_ranks import await_ranks
from tuiadvisor.errors import FailureError, TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# Its name makes it a launcher; what it starts has the variables of a rank.
LAUNCHER = """
import os, subprocess, sys
sys.stdin.readline()
variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}
with subprocess.Popen(
    [sys.executable, "-c", "import sys; sys.stdin.read()"], env=os.environ | variables, stdin=subprocess.PIPE
):
    print("started", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """It starts its rank when a line is written to it, and ends it at the next."""
    script = tmp_path / "torchrun"
    script.write_text(LAUNCHER)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_ranks_that_come_late_are_waited_for(
    launcher: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """They are started in the first pause of the wait: it ends with them, and one sentence was said."""
    pauses: list[float] = []

    def start_ranks(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 1:
            assert launcher.stdin is not None
            assert launcher.stdout is not None
            launcher.stdin.write("\n")
            launcher.stdin.flush()
            assert "started\n" == launcher.stdout.readline()
        time.sleep(0.01)  # the rank's variables are there once it has replaced the fork

    await_ranks([launcher.pid], "watch", sleep=start_ranks)
    assert pauses
    said = capsys.readouterr().err.splitlines()
    assert [f"tuiadvisor watch: waiting: the launcher (process {launcher.pid}) has no ranks yet"] == [
        line.partition(";")[0] for line in said
    ]


def test_a_launcher_that_ends_ends_the_wait(launcher: subprocess.Popen[str]) -> None:
    """One line and exit code 1, also while nobody has taken its exit code."""

    def end(_pause_s: float) -> None:
        launcher.kill()
        os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(FailureError, match="the launcher ended before a rank appeared"):
        await_ranks([launcher.pid], "record", sleep=end)


@pytest.mark.parametrize("is_within_exit", [False, True], ids=["ended", "within its exit"])
def test_a_launcher_that_ends_while_it_is_looked_at_ends_the_wait(
    launcher: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, is_within_exit: bool
) -> None:
    """The same words as where it ends between two looks: not that there is no such process, as if none had been."""

    def end(pids: Sequence[int]) -> object:
        living = procfs.stat(launcher.pid)
        launcher.kill()
        os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOWAIT)
        if is_within_exit and living is not None:
            exiting = replace(living, has_memory=False)
            monkeypatch.setattr(procfs, "snapshot", lambda: {launcher.pid: exiting})
            monkeypatch.setattr(procfs, "stat", lambda _: exiting)
        return find_ranks(pids)

    def look_on(_pause_s: float) -> None:
        monkeypatch.setattr(awaiting_ranks, "find_ranks", end)

    with pytest.raises(FailureError, match="the launcher ended before a rank appeared"):
        await_ranks([launcher.pid], "record", sleep=look_on)


@pytest.mark.slow
def test_a_limit_is_kept(launcher: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]) -> None:
    """In a log how long it has been is said after 10, 20 and 40 seconds."""
    now_s = [0.0]

    def pass_time(_pause_s: float) -> None:
        now_s[0] += 5  # each look reads of all processes: 60 of them took three minutes on a busy machine

    with pytest.raises(FailureError, match="no rank in 60 s; --for 5m waits longer"):
        await_ranks([launcher.pid], "watch", 60, sleep=pass_time, clock=lambda: now_s[0])
    assert ["10", "20", "40"] == re.findall(r"yet, (\d+) s", capsys.readouterr().err)


def test_what_is_no_launcher_is_not_waited_for() -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        with pytest.raises(TuiadvisorError, match="not a Python process and no training runs below it"):
            await_ranks([process.pid], "watch", sleep=lambda _: pytest.fail("waited"))
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "ends", "code"),
    [(("watch", "--once"), "launcher", 1), (("record", "-o", "r.tuirec"), "user", 130)],
    ids=["watch", "record"],
)
def test_the_commands_wait(
    words: tuple[str, ...], ends: str, code: int, launcher: subprocess.Popen[str], tmp_path: Path
) -> None:
    """They say so, and end as the documents promise: 1 with a line that says why, 130 by ^C."""
    log = tmp_path / "log"
    with log.open("w") as stderr:
        ours = subprocess.Popen(
            [sys.executable, "-m", "tuiadvisor", *words, "--for", "10m", "--pid", str(launcher.pid)],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=stderr,
        )  # fmt: skip
    try:
        wait_until(
            lambda: "waiting: the launcher" in log.read_text() or ours.poll() is not None, "a sentence"
        )
        assert ours.poll() is None, log.read_text()
        if ends == "user":
            ours.send_signal(signal.SIGINT)
        else:
            launcher.kill()
            launcher.wait()
        assert code == ours.wait(PATIENCE_S), log.read_text()
        assert ("ended before a rank appeared" in log.read_text()) == (ends == "launcher")
    finally:
        ours.kill()
        ours.wait()
