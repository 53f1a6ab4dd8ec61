"""A process that was started armed runs a watcher's code, and nonsense neither ends it nor its listener."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

PROGRAM = """
import os, sys
{before}
from tuiadvisor_probes import armed
print(armed.start(), armed.start(), flush=True)
for line in sys.stdin:
    exec(line)
"""
LARGEST = 64 << 20


class Armed:
    """The process, which runs each line that it reads and says what the line says."""

    def __init__(self, before: str = "", wish: str = "1") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(before=before)],
            env={**os.environ, "TUIADVISOR_ARM": wish},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = self.heard()
        self.place = Path(f"/tmp/tuiadvisor-arm-{os.getuid()}/{self.process.pid}.sock")  # noqa: S108

    def heard(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, line: str) -> str:
        """What it says to one line of its own."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.heard()

    def send(self, *parts: bytes) -> None:
        """A connection that brings these bytes and is closed by the other end."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(self.place))
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            assert b"" == connection.recv(1)

    def end(self) -> int:
        self.process.communicate()
        return self.process.returncode


def sized(code: str) -> bytes:
    return len(code.encode()).to_bytes(8, "big") + code.encode()


@pytest.fixture(name="armed")
def _armed() -> Iterator[Armed]:
    made = Armed()
    yield made
    made.process.kill()
    made.process.communicate()
    made.place.unlink(missing_ok=True)


def test_an_armed_process_runs_what_it_is_sent(armed: Armed) -> None:
    """In a namespace of its own each time, and once asked to listen it does so once."""
    assert "True False" == armed.said
    assert 0o700 == armed.place.parent.stat().st_mode & 0o777
    armed.send(sized("import sys; sys.stdout.write('first\\n'); sys.stdout.flush(); mine = 1"))
    assert "first" == armed.heard()
    armed.send(sized("print('mine' in dir(), __name__, flush=True)"))
    assert "False _tuiadvisor_boot" == armed.heard()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"\0\0\0",
        (100).to_bytes(8, "big") + b"cut",
        (LARGEST + 1).to_bytes(8, "big"),
        (2).to_bytes(8, "big") + b"\xff\xfe",
        sized("not python"),
        sized("raise SystemExit(3)"),
        sized("raise KeyboardInterrupt"),
    ],
    ids=["nothing", "cut length", "cut code", "too long", "no text", "no code", "exits", "interrupts"],
)
def test_nonsense_is_not_answered_and_ends_nothing(armed: Armed, nonsense: bytes) -> None:
    """The next watcher's code runs, and so does the process."""
    armed.send(nonsense)
    armed.send(sized("print('still here', flush=True)"))
    assert "still here" == armed.heard()
    assert 0 == armed.end()


def test_the_socket_goes_with_its_process(armed: Armed) -> None:
    assert armed.place.is_socket()
    assert 0 == armed.end()
    assert not armed.place.exists()


def test_a_forked_child_is_not_armed(armed: Armed) -> None:
    """Nobody listens in it, and its end takes nothing from its parent."""
    child = "pid = os.fork(); pid or (print(armed._listener, flush=True), sys.exit()); os.waitpid(pid, 0)"
    assert "None" == armed.do(child)
    armed.send(sized("print('still here', flush=True)"))
    assert "still here" == armed.heard()


@pytest.mark.parametrize("wish", ["", "0", "yes"])
def test_who_did_not_ask_for_it_is_not_armed(wish: str) -> None:
    unarmed = Armed(wish=wish)
    assert "False False" == unarmed.said
    assert not unarmed.place.exists()
    assert 0 == unarmed.end()


def test_a_folder_that_somebody_else_holds_is_not_used() -> None:
    """Its name is known to all users of the machine: one that nobody can know is taken, and goes at the end."""
    other = os.getuid() + 1_000_000  # whose folder would be ours, by its owner
    taken = Path(f"/tmp/tuiadvisor-arm-{other}")  # noqa: S108
    taken.mkdir(mode=0o700, exist_ok=True)
    try:
        armed = Armed(before=f"os.getuid = lambda: {other}")
        assert "True False" == armed.said
        assert [] == list(taken.iterdir())
        (own,) = taken.parent.glob(f"{taken.name}-*")
        assert (own / f"{armed.process.pid}.sock").is_socket()
        assert 0 == armed.end()
        assert not own.exists()
    finally:
        taken.rmdir()
