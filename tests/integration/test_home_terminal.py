"""Home on a real terminal over a real training: attach and come back, look along with a recording, leave."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest
from patience import PATIENCE_S, wait_until
from test_tui_terminal import wait_for_end
from training import end, launch, wait_for_ranks

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from screens import Terminal

from tuiadvisor.agent.session import mapped_rings

WIDTH, HEIGHT = 240, 30
MAX_PICTURES = 60
SECONDS = "--seconds 9001"  # by which it is found among others' trainings
HOME = [sys.executable, "-P", "-m", "tuiadvisor", "home"]


class Picture:
    """What the terminal shows now: screens draw only the cells that changed, bytes alone do not tell."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._screen = pyte.Screen(WIDTH, HEIGHT)
        self._stream = pyte.ByteStream(self._screen)
        self._pictures: list[str] = []  # that differed: what was said for a while is told when a test fails

    def text(self) -> str:
        """Return the rows drawn so far."""
        return "\n".join(self._screen.display)

    def read(self, seconds: float) -> None:
        """Draw what comes within this time."""
        self._stream.feed(self.terminal.read(seconds))
        if (text := self.text()) not in self._pictures[-1:]:
            self._pictures = [*self._pictures[-MAX_PICTURES:], text]

    def story(self) -> str:
        """Return the lines that each of the last pictures had and the one before it had not."""
        pairs = itertools.pairwise(["", *self._pictures])
        told = [
            [line.rstrip() for line in after.splitlines() if line not in before] for before, after in pairs
        ]
        return "\n--\n".join("\n".join(lines) for lines in told)

    def press(self, keys: bytes) -> None:
        """Type this."""
        os.write(self.terminal.fd, keys)

    def selected(self) -> str:
        """Return what is said of the row under the cursor."""
        return self.text().partition("selected")[2]

    def question(self) -> str:
        """Return the row that asks."""
        return next((row for row in self.text().splitlines() if "y or n" in row), "")

    def sentence(self) -> str:
        """Return what a recording says of the training under the cursor: it stands before the command."""
        first, second, *_ = [row.strip() for row in self.selected().splitlines()[1:]] + ["", ""]
        return first if second else ""

    def until(self, *texts: str, never: str = "") -> None:
        """Draw until one of these texts is shown; none of the pictures on the way shows the other."""
        end_s = time.monotonic() + PATIENCE_S
        while not any(each in self.text() for each in texts):
            assert time.monotonic() < end_s, f"{texts} in\n{self.text()}\nafter\n{self.story()}"
            self.read(0.2)
            assert not never or never not in self.text(), self.text()

    def choose(self, command: str) -> None:
        """Move the cursor to the training with this in its command: others may run on the machine."""
        self.until("ranks on")
        end_s = time.monotonic() + PATIENCE_S
        keys = itertools.cycle(b"j" * 20 + b"k" * 20)  # the list grows and shrinks under the cursor
        while command not in self.selected():
            assert time.monotonic() < end_s, f"{command} in\n{self.text()}"
            self.press(bytes([next(keys)]))
            self.read(0.5)


@pytest.fixture(scope="module")
def ranks() -> Iterator[list[int]]:
    """Two ranks whom both tests watch, one after the other."""
    training = launch(2, [*SECONDS.split(), "--step-ms", "40"])
    try:
        yield [rank.pid for rank in wait_for_ranks(training, 2)]
        assert training.poll() is None, "the training must not notice"
    finally:
        end(training)


def test_from_home_into_a_training_and_back(ranks: list[int], tmp_path: Path) -> None:
    """From a watch q leads home and takes the probes out; a second q leaves."""
    terminal = None
    try:
        terminal = Terminal([], WIDTH, HEIGHT, [*HOME, str(tmp_path)])
        picture = Picture(terminal)
        while True:  # others' trainings come and go, and the list with them
            picture.choose(SECONDS)
            picture.press(b"\r")
            picture.until("y or n")
            if "train.py" in picture.question() and SECONDS in picture.selected():
                break
            picture.press(b"n\r")
            picture.until("not attached")
        picture.press(b"y\r")
        picture.until("LIVE")
        picture.press(b"q")
        picture.until("not watched")
        assert not any(map(mapped_rings, ranks))
        picture.press(b"q")
        terminal.read(1.0)
        assert wait_for_end(terminal.pid, PATIENCE_S) == 0
    finally:
        if terminal is not None:
            os.close(terminal.fd)


def test_what_is_recorded_has_its_rate_and_enter_looks_along(ranks: list[int], tmp_path: Path) -> None:
    """No question: the hub that records lets the screens in, and the recording goes on when they leave."""
    terminal = None
    record = None
    file, log = tmp_path / "run.tuirec", tmp_path / "log"
    command = [
        sys.executable,
        "-P",
        "-m",
        "tuiadvisor",
        "record",
        "-o",
        str(file),
        "--log",
        str(log),
        "--pid",
    ]
    try:
        record = subprocess.Popen(
            [*command, *map(str, ranks)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        terminal = Terminal([], WIDTH, HEIGHT, [*HOME, str(tmp_path)])
        picture = Picture(terminal)

        def is_known() -> bool:
            assert record.poll() is None, log.read_text()
            picture.choose(SECONDS)  # again: others come and go, and the cursor's row with them
            picture.read(0.2)
            return SECONDS in picture.selected() and bool(picture.sentence())

        wait_until(is_known, "what is recorded is known", seen=lambda: picture.text() + log.read_text())
        picture.press(b"\r")
        picture.until("LIVE", never="y or n")
        picture.press(b"\x03")
        terminal.read(1.0)
        assert wait_for_end(terminal.pid, PATIENCE_S) == 0
        assert mapped_rings(ranks[0]), "the recording goes on"
        record.send_signal(signal.SIGTERM)
        record.wait(PATIENCE_S)
    finally:
        if terminal is not None:
            os.close(terminal.fd)
        if record is not None and record.poll() is None:
            record.kill()
            record.wait()
