"""A zstd file's bytes as they unpack, a bounded piece at a time; one that ends within a frame is refused.

In: an open file.  Out: a file to read from. RFC 8878: a frame may unpack to 32,768 times its size, so that little is
fed at once, and ask for a window of its own size, which the library bounds to 128 MiB.
"""

from __future__ import annotations

import io
from typing import IO, Any, Final

import zstandard

MAGIC: Final = b"\x28\xb5\x2f\xfd"
FED_BYTES: Final = 1 << 10  # unpacks to 32 MiB at most
ZstdError = zstandard.ZstdError


class _Unpacked(io.RawIOBase):
    """Frame after frame, as tools that write in parallel lay them."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._has_begun = False  # a frame, and it has not ended
        self._held = memoryview(b"")

    def readable(self) -> bool:
        """As BufferedReader asks."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill it as far as one piece goes; 0 at the end. EOFError where the last frame has none."""
        while not self._held:
            data = self._raw.read(FED_BYTES)
            if not data:
                if self._has_begun:
                    raise EOFError("it ends within a frame")
                return 0
            self._held = memoryview(self._unpacked(data))
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._held))
        target[:size] = self._held[:size]
        self._held = self._held[size:]
        return size

    def _unpacked(self, data: bytes) -> bytes:
        pieces = []
        while data:
            pieces.append(self._frame.decompress(data))
            self._has_begun = not self._frame.eof
            data = self._frame.unused_data
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
        return b"".join(pieces)


def unpacked(raw: IO[bytes]) -> io.BufferedReader:
    """Read from it as from a file; ZstdError and EOFError for what is damaged or cut."""
    return io.BufferedReader(_Unpacked(raw))
