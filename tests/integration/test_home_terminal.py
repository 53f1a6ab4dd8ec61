"""Home on a real terminal over a real training: attach and come back, look along with a recording, leave."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S
from test_tui_terminal import wait_for_end
from training import end, launch, wait_for_ranks

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from screens import Terminal

from tuiadvisor.agent.session import mapped_rings

HOME = [sys.executable, "-P", "-m", "tuiadvisor", "home"]


def until(terminal: Terminal, text: bytes) -> None:
    """Read until the screens have drawn this."""
    assert re.search(text, terminal.read(PATIENCE_S, text)), text


def choose(terminal: Terminal, command: bytes) -> None:
    """Move the cursor to the training with this in its command: others may run on the machine."""
    for _ in range(50):
        if command in terminal.read(2.0, command):
            return
        os.write(terminal.fd, b"j")
    raise AssertionError(command)


def test_from_home_into_a_training_and_back(tmp_path: Path) -> None:
    """From a watch q leads home and takes the probes out; a second q leaves."""
    training = launch(2, ["--seconds", "901", "--step-ms", "40"])
    terminal = None
    try:
        ranks = wait_for_ranks(training, 2)
        terminal = Terminal([], 240, 30, [*HOME, str(tmp_path)])
        choose(terminal, b"--seconds 901")
        os.write(terminal.fd, b"\r")
        until(terminal, b"y/n")
        os.write(terminal.fd, b"y\r")
        until(terminal, b"LIVE")
        os.write(terminal.fd, b"q")
        until(terminal, b"not watched")
        assert not any(mapped_rings(rank.pid) for rank in ranks)
        os.write(terminal.fd, b"q")
        terminal.read(1.0)
        assert wait_for_end(terminal.pid, PATIENCE_S) == 0
        assert training.poll() is None
    finally:
        if terminal is not None:
            os.close(terminal.fd)
        end(training)


def test_what_is_recorded_has_its_rate_and_enter_looks_along(tmp_path: Path) -> None:
    """No question: the hub that records lets the screens in, and the recording goes on when they leave."""
    training = launch(2, ["--seconds", "902", "--step-ms", "40"])
    terminal = None
    record = None
    file = tmp_path / "run.tuirec"
    try:
        pid = wait_for_ranks(training, 2)[0].pid
        record = subprocess.Popen(
            [sys.executable, "-P", "-m", "tuiadvisor", "record", "--pid", str(training.pid), "-o", str(file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        terminal = Terminal([], 240, 30, [*HOME, str(tmp_path)])
        choose(terminal, b"--seconds 902")
        until(terminal, rb"steps would take|mean step takes|more steady steps")
        os.write(terminal.fd, b"\r")
        seen = terminal.read(PATIENCE_S, b"LIVE")
        assert b"LIVE" in seen
        assert b"y/n" not in seen
        os.write(terminal.fd, b"\x03")
        terminal.read(1.0)
        assert wait_for_end(terminal.pid, PATIENCE_S) == 0
        assert mapped_rings(pid), "the recording goes on"
        record.send_signal(signal.SIGTERM)
        record.wait(PATIENCE_S)
    finally:
        if terminal is not None:
            os.close(terminal.fd)
        if record is not None and record.poll() is None:
            record.kill()
            record.wait()
        end(training)
