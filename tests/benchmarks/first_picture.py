"""When the screens of a large trace first show something: `open TRACE` in a terminal, by wall and processor time.

Run: python tests/benchmarks/first_picture.py [--events 4400000] [--trace FILE]

Without --trace one is generated as kineto_memory.py does (4.4 million events: 1 GB). Printed: when the first frame, the
progress of reading and the steps read so far stand on the screen, and the largest resident set until then. The
reading is then left with q. Not in CI: a GB of disk.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

import kineto_memory
import psutil
import pyte

COLUMNS, ROWS = 110, 34
WAITED_S = 600.0
# What stands on the screen, in the order in which it is waited for.
MOMENTS = (
    ("first frame", "reading"),
    ("progress", " of 100"),
    ("steps read so far", "only the steps read so far"),
)


class AnsweringScreen(pyte.Screen):
    """It answers where its cursor is, as terminals do: frames wait for that, 2 s where no answer comes."""

    def __init__(self, terminal: int) -> None:
        super().__init__(COLUMNS, ROWS)
        self._terminal = terminal

    def write_process_input(self, data: str) -> None:
        os.write(self._terminal, data.encode())


def measure(path: Path) -> list[str]:
    """A line for each moment."""
    begin_s = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "tuiadvisor", "open", str(path)])  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = AnsweringScreen(terminal)
    stream = pyte.ByteStream(screen)
    process, waiting, lines = psutil.Process(pid), list(MOMENTS), []
    try:
        while waiting and time.monotonic() - begin_s < WAITED_S:
            if select.select([terminal], [], [], 0.05)[0]:
                stream.feed(os.read(terminal, 1 << 16))
            shown = "\n".join(screen.display)
            while waiting and waiting[0][1] in shown:
                used = process.cpu_times()
                lines.append(
                    f"{waiting.pop(0)[0]}: {time.monotonic() - begin_s:.2f} s by the wall, "
                    f"{used.user + used.system:.2f} s of the processor, {process.memory_info().rss / 1e6:.0f} MB"
                )
        os.write(terminal, b"q")
        process.wait(30)
    except (OSError, psutil.Error):
        lines.append("it ended")
    finally:
        if process.is_running():
            os.kill(pid, signal.SIGKILL)
        os.close(terminal)
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=4_400_000)
    parser.add_argument("--trace", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = options.trace or Path(name, "rank0.json")
        if options.trace is None:
            kineto_memory.write_rank(path, 0, 1, options.events, 0.5)
        print(f"{path.stat().st_size / 1e6:.0f} MB, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
        print("\n".join(measure(path)))


if __name__ == "__main__":
    main()
