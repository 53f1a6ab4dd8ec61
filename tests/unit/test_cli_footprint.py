"""What a start of the command line loads, and what the screens' process keeps."""

from __future__ import annotations

import fcntl
import os
import platform
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from patience import PATIENCE_S


def loaded(code: str) -> set[str]:
    """Modules in a fresh interpreter after this code."""
    told = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return set(done.stdout.split())


def test_version_and_help_load_nothing_heavy() -> None:
    """They answer at once: no numpy, no Textual, no command's own modules."""
    run = "from tuiadvisor.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass"
    assert set() == loaded(run) & {"numpy", "textual", "zmq", "tuiadvisor.cli.watch"}


@pytest.mark.parametrize("module", ["tuiadvisor.agent.__main__", "tuiadvisor.stream.hub"])
def test_what_stands_beside_a_training_loads_no_event_loop(module: str) -> None:
    """Agent and hub poll; every session starts both."""
    assert set() == loaded(f"import {module}") & {"asyncio", "zmq.asyncio", "textual"}


# What the first screen does not need: each was seen to cost 10 to 80 ms before the first frame.
NOT_BEFORE_THE_FIRST_FRAME = {
    "numpy",
    "orjson",
    "pyarrow",
    "scipy",
    "torch",
    "zmq",
    "zstandard",
    "tuiadvisor.advisor.fold",
    "tuiadvisor.advisor.judge.findings",
    "tuiadvisor.app.advising",
    "tuiadvisor.app.desk",
    "tuiadvisor.app.feed",
    "tuiadvisor.app.live_feed",
    "tuiadvisor.app.replay_feed",
    "tuiadvisor.app.live_session",
    "tuiadvisor.app.sizing",
    "tuiadvisor.report.page",
    "tuiadvisor.scaling",
    "tuiadvisor.session.conduct",
    "tuiadvisor.stream.recording",
}
FIRST_FRAME = """
import sys
from pathlib import Path
from tuiadvisor.cli import main
from tuiadvisor.app.opening import OpeningDesk

def begin(curtain):
    Path(sys.argv[1]).write_text(" ".join(sys.modules))
    curtain.failure = SystemExit(0)
    curtain._state = curtain._state.__class__(None, "live", "closed", "", None, None, 1)

OpeningDesk.begin = begin
main(sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["replay", "runs", "watch"])
def test_the_first_frame_waits_for_nothing_it_does_not_show(command: str, tmp_path: Path) -> None:
    """Modules that are loaded when the first frame is out, on a real terminal; what is opened is opened then."""
    (tmp_path / "run.tuirec").write_bytes(b"")
    what = {"replay": [str(tmp_path / "run.tuirec")], "runs": [str(tmp_path)], "watch": ["ipc:///none"]}[
        command
    ]
    told = tmp_path / "modules"
    ended, _ = on_terminal([sys.executable, "-c", FIRST_FRAME, str(told), command, *what])
    assert 0 == ended
    loaded = set(told.read_text().split())
    assert {"textual", "tuiadvisor.tui.pages.overview"} <= loaded
    assert set() == loaded & NOT_BEFORE_THE_FIRST_FRAME


@pytest.mark.slow
def test_what_cannot_be_opened_ends_the_screens_with_its_line(tmp_path: Path) -> None:
    """The first frame is out already; the line stands on the terminal that the screens leave behind."""
    (tmp_path / "run.tuirec").write_bytes(b"no recording")
    ended, shown = on_terminal([sys.executable, "-m", "tuiadvisor", "replay", str(tmp_path / "run.tuirec")])
    assert 2 == ended
    assert b"run.tuirec" in shown.rpartition(b"\x1b[?1049l")[2]


def on_terminal(command: list[str]) -> tuple[int, bytes]:
    """Exit code and output of a command on a pseudo-terminal of 80x24."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)  # noqa: S606  # no shell wanted
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown = b""
    with suppress(OSError):  # Linux says EIO when the other end is closed
        while select.select([terminal], [], [], PATIENCE_S)[0] and (data := os.read(terminal, 65536)):
            shown += data
    os.kill(pid, signal.SIGKILL)  # a zombie, unless it hangs
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown


HOLES = """
from pathlib import Path
def kept_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
first = b"x" * (4 << 20)
del first  # glibc now keeps blocks of this size for itself
begin = kept_mb()
blocks, pins = [], []
for _ in range(32):
    blocks.append(bytearray(b"x") * (2 << 20))
    pins.append(bytearray(b"x") * 100_000)
del blocks
print(kept_mb() - begin)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no glibc (another system)")
def test_freed_blocks_go_back_to_the_system() -> None:
    """64 MB of blocks with small ones between them: kept without us, given back with us."""
    ours = "from tuiadvisor.app.memory_trim import give_back_large_blocks\ngive_back_large_blocks()\n"
    kept_mb = {
        name: float(
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        )
        for name, code in (("without", HOLES), ("with", ours + HOLES))
    }
    assert kept_mb["without"] > 50
    assert kept_mb["with"] < 20
