"""What gives way to the tests that judge by time: from its start, or from some moment on with all that it started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

YIELDING = [sys.executable, str(Path(__file__).parents[1] / "yielding.py")]
LEAST = 19


def autogroup(pid: int) -> str | None:
    """How the kernel ranks its session; None where it does not group them."""
    try:
        return Path(f"/proc/{pid}/autogroup").read_text().split()[-1]
    except OSError:
        return None


def test_a_command_gives_way_at_once() -> None:
    """In a session of its own, which has the least share too; its exit code is the command's."""
    told = "import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.getsid(0) == os.getpid()); raise SystemExit(3)"
    done = subprocess.run(
        [*YIELDING, sys.executable, "-c", told], capture_output=True, text=True, check=False
    )
    assert (3, f"{LEAST} True\n") == (done.returncode, done.stdout)


def test_a_command_gives_way_later() -> None:
    """With its threads and what it has started; whoever told it keeps its own priority."""
    usual, own = os.getpriority(os.PRIO_PROCESS, 0), autogroup(os.getpid())
    command = [*YIELDING, "--later", "sh", "-c", "sleep 600 & echo started; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:
        try:
            assert shell.stdout is not None
            assert "started\n" == shell.stdout.readline()
            family = [shell.pid, *(one.pid for one in psutil.Process(shell.pid).children())]
            assert [usual, usual] == [os.getpriority(os.PRIO_PROCESS, pid) for pid in family]
            subprocess.run([*YIELDING, "--now", str(shell.pid)], check=True)
            assert [LEAST, LEAST] == [os.getpriority(os.PRIO_PROCESS, pid) for pid in family]
            assert autogroup(shell.pid) in {None, str(LEAST)}
            assert (usual, own) == (os.getpriority(os.PRIO_PROCESS, 0), autogroup(os.getpid()))
        finally:
            os.killpg(shell.pid, 9)
    subprocess.run([*YIELDING, "--now", str(shell.pid)], check=True)  # it has ended: nothing to do
