"""Frames of a recording with a progress line on stderr once reading takes longer than a second.

On a terminal one line that is redrawn and at the end taken away; in a log a line every ten seconds. What is cut off or
damaged is told there too.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import one_line
from tuiadvisor.stream.recording import CHUNK_BYTES, RecordingReader
from tuiadvisor.text.printed import redraw, say_on_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S: Final = 1.0
TERMINAL_EVERY_S: Final = 0.2
LOG_EVERY_S: Final = 10.0


def to_stderr(path: str, note: str) -> None:
    """A note on a recording, beside what is printed of it."""
    say_on_stderr(f"{one_line(path)}: {note}")


class Rereading:
    """Reads a recording as often as it is called; what is wrong with it is told the first time alone."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_told = False

    def __call__(self, doing: str = "reading") -> Iterator[bytes]:
        """All its frames."""
        is_told, self._is_told = self._is_told, True
        return read_frames(self._path, doing, say=(lambda *_: None) if is_told else to_stderr)


def read_frames(
    path: str, doing: str = "reading", *, say: Callable[[str, str], None] = to_stderr
) -> Iterator[bytes]:
    """All whole frames of a recording, in order, a bounded piece at a time. TuiadvisorError if it is none.

    say: told at the end, with the path, what is damaged or cut off.
    """
    for _, frame in read_along(path, CHUNK_BYTES, doing, say=say):
        yield frame


def read_along(
    path: str, max_bytes: int, doing: str = "reading", *, say: Callable[[str, str], None] = to_stderr
) -> Iterator[tuple[float, bytes]]:
    """The same with the share of the recording that was read, 0..1; max_bytes: of a piece."""
    line = ProgressLine(f"{doing} {path}")
    with RecordingReader(path) as reader:
        try:
            while taken := reader.take(max_bytes):
                share = reader.position / max(reader.num_bytes, 1)
                line.show(share)
                for located in taken:
                    yield share, located.data
            if warnings := reader.summary().warnings:
                line.end()
                say(path, "; ".join(warnings))
        finally:
            line.end()


class ProgressLine:
    """Says how far a long piece of work is."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._is_terminal = sys.stderr.isatty()
        self._next_s = time.monotonic() + PATIENCE_S
        self._is_shown = False

    def show(self, share: float) -> None:
        """share: 0..1 of the work that is done."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (TERMINAL_EVERY_S if self._is_terminal else LOG_EVERY_S)
        (redraw if self._is_terminal else say_on_stderr)(f"{self._doing}: {share:.0%}")
        self._is_shown = True

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._is_shown and self._is_terminal:
            self._is_shown = False
            redraw("")
