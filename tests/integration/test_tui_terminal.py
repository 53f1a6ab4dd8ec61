"""The screens on a real pseudo-terminal: first frame, keys, leaving, a terminal that goes away, a slow one."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from patience import PATIENCE_S

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from screens import ASK, Terminal

LEFT = b"\x1b[?1049l"  # the terminal is given back


@pytest.fixture
def terminal() -> Terminal:
    return Terminal(["--child", "4", "2"], 80, 24)


def wait_for_end(pid: int, seconds: float) -> int:
    """Return the exit code of a child that must end by itself."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail(f"the screens still ran after {seconds} s")


def test_first_frame_key_and_leaving(terminal: Terminal) -> None:
    """Verdict drawn, a key answered, the terminal given back, exit code 0."""
    seen = terminal.read(PATIENCE_S, b"TUNE")
    assert b"TUNE" in seen
    terminal.read(0.5)
    os.write(terminal.fd, b"2")
    assert b"ranks by rank" in terminal.read(PATIENCE_S, b"ranks by rank")
    os.write(terminal.fd, b"q")
    assert LEFT in terminal.read(PATIENCE_S, LEFT.replace(b"[", rb"\[").replace(b"?", rb"\?"))
    assert 0 == wait_for_end(terminal.pid, PATIENCE_S)
    os.close(terminal.fd)


def test_a_terminal_that_goes_away_ends_the_screens(terminal: Terminal) -> None:
    """No core is left spinning on a hang-up."""
    assert b"TUNE" in terminal.read(PATIENCE_S, b"TUNE")
    os.close(terminal.fd)
    assert 0 == wait_for_end(terminal.pid, PATIENCE_S)


def test_a_polite_kill_gives_the_terminal_back(terminal: Terminal) -> None:
    """Not a shell that prints into what is left of the picture."""
    assert b"TUNE" in terminal.read(PATIENCE_S, b"TUNE")
    os.kill(terminal.pid, signal.SIGTERM)
    assert LEFT in terminal.read(PATIENCE_S, LEFT.replace(b"[", rb"\[").replace(b"?", rb"\?"))
    assert 0 == wait_for_end(terminal.pid, PATIENCE_S)
    os.close(terminal.fd)


def test_a_terminal_that_does_not_answer_gets_no_queue(terminal: Terminal) -> None:
    """Until the frame was taken no further one is sent, whatever changes and whatever keys are pressed."""
    seen = b""
    end_s = time.monotonic() + PATIENCE_S
    while ASK not in seen and time.monotonic() < end_s:
        # Read past Terminal.read, which would answer.
        seen += os.read(terminal.fd, 65536)
    assert ASK in seen
    for _ in range(10):
        os.write(terminal.fd, b"2")
        os.write(terminal.fd, b"1")
    time.sleep(1.0)  # that nothing more comes can only be seen for a while; what would come is there at once
    os.set_blocking(terminal.fd, False)
    try:
        later = os.read(terminal.fd, 1 << 20)
    except BlockingIOError:
        later = b""
    assert later.count(ASK) <= 1
    os.set_blocking(terminal.fd, True)
    os.write(terminal.fd, b"\x1b[24;80R")
    assert terminal.num_frames == 0
    terminal.read(PATIENCE_S, ASK.replace(b"[", rb"\["))
    assert terminal.num_frames >= 1
    terminal.close()
