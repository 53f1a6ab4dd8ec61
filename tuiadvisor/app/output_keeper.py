"""A process of its own that keeps what a training prints while the screens have its terminal.

In: the training's pipe as standard input.  Out: the file that is standard output, bounded: its beginning, and behind a
line that says how much is left out its newest end. Whatever becomes of the file or of us, the pipe is read to its end:
a training that cannot print would stand still, and one whose print fails would die of it.

    python -P -m tuiadvisor.app.output_keeper MAX_BYTES <PIPE >FILE
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Final

from tuiadvisor.log import Logger
from tuiadvisor.stream.diskroom import DiskRoom

logger: Final = Logger(__name__)
CHUNK_BYTES: Final = 1 << 16
END_BYTES: Final = (
    1 << 14
)  # chosen: a traceback of each of a few ranks; written anew with each print past the bound


class OutputFile:
    """Mutable: takes what was printed, and never raises for a disk that takes no more."""

    def __init__(self, descriptor: int, max_bytes: int, room: DiskRoom | None = None) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._room = room or DiskRoom(descriptor)
        self._num_begin = 0  # bytes that stay as they are
        self._why = ""  # the beginning grows no more
        self._end = b""
        self._num_behind = 0  # bytes that came after the beginning

    def add(self, data: bytes) -> None:
        """What was printed next."""
        if not self._why:
            data = data[self._add_to_begin(data) :]
        if data:
            self._end = (self._end + data)[-END_BYTES:]
            self._num_behind += len(data)
            self.write_end()

    def write_end(self) -> None:
        """The newest bytes behind those that stay; what the disk does not take is tried again with the next."""
        num_left_out = self._num_behind - len(self._end)
        said = f"\n[tuiadvisor: {num_left_out:,} bytes are left out here: {self._why}]\n".encode()
        data = (said if num_left_out else b"") + self._end
        with suppress(OSError):
            self._write(data, self._num_begin)
            os.ftruncate(self._descriptor, self._num_begin + len(data))

    def _add_to_begin(self, data: bytes) -> int:
        """How many of the bytes were taken."""
        fitting = data[: self._max_bytes - self._num_begin]
        short = self._room.shortage(time.monotonic(), self._num_begin + len(fitting))
        if short:
            self._why = short
            return 0
        try:
            num_written = self._write(fitting, self._num_begin)
        except OSError as error:
            self._why, num_written = error.strerror or "writing failed", 0
        self._num_begin += num_written
        if not self._why and num_written < len(data):
            self._why = f"no more than {self._max_bytes:,} bytes are kept"
        return num_written

    def _write(self, data: bytes, at: int) -> int:
        num_written = 0
        while num_written < len(data):
            num_written += os.pwrite(self._descriptor, data[num_written:], at + num_written)
        return num_written


def keep(source: int, file: OutputFile) -> None:
    """Until whoever prints has ended."""
    is_well = True
    while data := os.read(source, CHUNK_BYTES):
        if is_well:
            try:
                file.add(data)
            except Exception:  # a fault of ours is no reason to stop a training: read on
                is_well = False
                with suppress(Exception):
                    logger.exception("what the training prints is kept no more")


def drain(source: int) -> None:
    """Read to the end what nobody keeps any more."""
    while os.read(source, CHUNK_BYTES):
        pass


def main() -> int:
    """The keeper's own command line: two processes, for whoever prints into a pipe without a reader ends by it.

    The second one only waits; if the first is killed it reads on, and if the second is, nothing happens.
    """
    source = sys.stdin.fileno()
    keeper = os.fork()
    if keeper:
        _, status = os.waitpid(keeper, 0)
        if status:
            drain(source)
    else:
        keep(source, OutputFile(sys.stdout.fileno(), int(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
