"""What a thread that stands still is doing, told from /proc of real processes."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from patience import PATIENCE_S

from tuiadvisor.agent import procfs
from tuiadvisor.agent.training_thread import LOOK_EVERY_NS, STANDING_NS, StandingThread

S = 10**9


@contextmanager
def python(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs this code once it has said so."""
    process = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{code}"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def looks(process: subprocess.Popen[bytes], num: int = 2) -> list[str | None]:
    """Answers of looks a second apart by the given clock, however short the test really waits."""
    thread = StandingThread()
    return [thread.state(process.pid, 1, 1 + STANDING_NS + number * LOOK_EVERY_NS) for number in range(num)]


def until(process: subprocess.Popen[bytes], state: str) -> None:
    """Wait for the process's state letter."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        stat = procfs.stat(process.pid)
        if stat is not None and stat.state == state:
            return
        time.sleep(0.005)
    raise AssertionError(f"never came into state {state}")


def can_read_calls() -> bool:
    """Whether this kernel tells which system call a process is in."""
    return platform.machine() == "x86_64" and bool(procfs.read(os.getpid(), "syscall"))


def test_nothing_is_read_of_a_rank_that_moves() -> None:
    """Before two seconds of standing still nobody looks: process 0 does not exist and is not missed."""
    assert StandingThread().state(0, 10 * S, 11 * S) is None


def test_a_stopped_process_is_stopped() -> None:
    """One look is enough."""
    with python("import time; time.sleep(60)") as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(process, "T")
        assert ["stopped"] == looks(process, 1)


@pytest.mark.skipif(not can_read_calls(), reason="no /proc/PID/syscall (another kernel)")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import time; time.sleep(60)", "asleep"),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "waiting"),
    ],
)
def test_a_sleeper_and_one_that_waits_for_a_lock_are_told_apart(code: str, expected: str) -> None:
    """By the system call: a condition variable, as a collective's wait uses it, is a futex."""
    with python(code) as process:
        until(process, "S")
        deadline = time.monotonic() + PATIENCE_S
        while looks(process)[-1] != expected and time.monotonic() < deadline:
            time.sleep(0.01)  # it may sleep for another reason while the interpreter starts
        assert [None, expected] == looks(process)


def test_a_process_that_is_gone_is_unknown() -> None:
    """No exception, no word."""
    with python("import time; time.sleep(60)") as process:
        pass
    assert [None, None] == looks(process)
