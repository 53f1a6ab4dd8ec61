"""What a training prints while the screens have its terminal: a file beside the recording, its end for afterwards.

In: the recording's name.  Out: a descriptor to print to, where that goes, and the last lines of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from tuiadvisor import expendable
from tuiadvisor.errors import one_line
from tuiadvisor.log import Logger
from tuiadvisor.ownpython import own_environment, python_command

MAX_BYTES: Final = 1 << 30  # chosen: more is no log that anybody reads
MAX_UNNAMED_BYTES: Final = (
    1 << 20
)  # without a recording nobody asked for a file: what the last lines need, and more
PIPE_BYTES: Final = (
    1 << 20
)  # what Linux gives without privileges: whoever prints waits for no turn of the keeper
READ_BYTES: Final = 1 << 14
NUM_LINES: Final = 20  # chosen: how far it came
NUM_LINES_OF_ERROR: Final = (
    100  # chosen: tracebacks of a few ranks before torchrun's own and its table, some 50 lines
)
SAID_S: Final = 20.0  # chosen: long enough to be read beside a training that starts
END_S: Final = (
    2.0  # chosen: what was printed last is on its way; somebody that the training left may print for ever
)
MOST_NAMES: Final = 100

logger: Final = Logger(__name__)


class KeptOutput:
    """Give `descriptor` to the training, then call `handed_over`."""

    def __init__(self, recording: str | None) -> None:
        """OSError where there is no place for it."""
        self.path, self._file = _create(recording)
        try:
            source, self.descriptor = os.pipe()
        except OSError:
            os.close(self._file)
            raise
        self._begun_s = time.monotonic()
        self._keeper: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        limit = MAX_BYTES if self.path else MAX_UNNAMED_BYTES
        try:
            # Not ended with us, nor by ^C: as long as somebody prints somebody has to read.
            # Nor taken before the training where memory runs out: a print into a pipe without a reader would end it.
            with expendable.as_found():
                self._keeper = subprocess.Popen(
                    python_command("tuiadvisor.app.output_keeper", str(limit)),
                    stdin=source, stdout=self._file, stderr=subprocess.DEVNULL, env=own_environment(),
                    start_new_session=True,
                )  # fmt: skip
        except OSError:
            self.close()
            raise
        finally:
            os.close(source)
        logger.info("process %d keeps what the training prints", self._keeper.pid)

    def handed_over(self) -> None:
        """The training has its own: ours would keep the pipe open."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        """Let go of it; the keeper stays as long as somebody prints."""
        self.handed_over()
        os.close(self._file)
        if self._keeper is not None:
            self._keeper.poll()

    def discard(self) -> None:
        """Nobody will print."""
        self.handed_over()
        self.last_words()
        self.close()
        if self.path:
            Path(self.path).unlink(missing_ok=True)

    def sentence(self, *, has_ended: bool) -> str:
        """For the screens: at the beginning and at the end where it goes."""
        if has_ended:
            return (
                f"what it printed: {self._where}" if self.path else "q shows the last lines that it printed"
            )
        if time.monotonic() - self._begun_s > SAID_S:
            return ""
        return f"what the training prints goes to {self._where}" if self.path else ""

    def last_words(self, *, has_failed: bool = False) -> str:
        """Its last lines under a heading, once whoever printed has ended; more of them after an error."""
        if self._keeper is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(END_S)
        lines = _last_lines(self._file, NUM_LINES_OF_ERROR if has_failed else NUM_LINES)
        if not lines:
            return (
                f"the training printed nothing ({self._where})"
                if self.path
                else "the training printed nothing"
            )
        where = f", all of it in {self._where}" if self.path else ""
        return "\n".join([f"── the last lines that the training printed{where} ──", *lines])

    @property
    def _where(self) -> str:
        return one_line(self.path)


def _create(recording: str | None) -> tuple[str, int]:
    """A new file beside the recording, under a name that is free; without a recording one that has no name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for number in range(1, MOST_NAMES) if recording else ():
        path = str(Path(recording or "").with_suffix(f".output{f'-{number}' if number > 1 else ''}.txt"))
        with contextlib.suppress(FileExistsError):
            return path, os.open(path, flags, 0o600)
    with tempfile.TemporaryFile() as file:
        return "", os.dup(file.fileno())


def _last_lines(descriptor: int, most: int) -> list[str]:
    """What a terminal would show last: of a progress bar its newest state."""
    num_bytes = os.fstat(descriptor).st_size
    raw = os.pread(descriptor, READ_BYTES, max(0, num_bytes - READ_BYTES))
    text = raw.decode(errors="replace").rstrip()
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")] if text else []
    return ["".join(char for char in line if char.isprintable() or char == "\t") for line in lines[-most:]]
