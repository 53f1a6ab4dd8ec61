"""Text of two or four bytes a character as UTF-8, while it is read: what PowerShell's > and some editors write.

In: an open file that begins with a byte order mark of UTF-16 or UTF-32.  Out: a file of UTF-8 to read from.
"""

from __future__ import annotations

import codecs
import io
from typing import IO, Any, Final

MARKS: Final = (  # UTF-32's begins like UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LONGEST_MARK: Final = 4
READ_BYTES: Final = 1 << 16


def encoding_of(head: bytes) -> str | None:
    """By the mark at its beginning; None: no mark of these."""
    return next((name for mark, name in MARKS if head.startswith(mark)), None)


class _Utf8(io.RawIOBase):
    """Characters that are cut or none at all become U+FFFD: a byte that is wrong costs no file."""

    def __init__(self, wide: IO[bytes], encoding: str) -> None:
        self._wide = wide
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._held = b""
        self._is_read = False

    def readable(self) -> bool:
        """As BufferedReader asks."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill it as far as one piece goes; 0 at the end."""
        while not self._held and not self._is_read:
            piece = self._wide.read(READ_BYTES)
            self._is_read = not piece
            self._held = self._decoder.decode(piece, final=self._is_read).encode("utf-8", "replace")
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._held))
        target[:size] = self._held[:size]
        self._held = self._held[size:]
        return size


def as_utf8(wide: IO[bytes], encoding: str) -> io.BufferedReader:
    """Read from it as from a file of UTF-8 without a mark."""
    return io.BufferedReader(_Utf8(wide, encoding))
