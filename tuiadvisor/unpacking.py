"""What a packed file holds, a bounded piece at a time: gzip, zstd, xz and bzip2, each by its first bytes.

In: an open file.  Out: a file to read from; one that ends within a stream is refused. A zstd frame may unpack to 32,768
times its size (RFC 8878), so little is fed at once, and may ask for a window, as xz for a dictionary, of any size: the
libraries are given bounds.
"""

from __future__ import annotations

import errno
import gzip
import importlib
import io
import tempfile
import zlib
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, cast

import zstandard

from tuiadvisor.errors import FailureError, TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_FILE_BYTES: Final = 8 << 30  # after decompression: beyond that it is no trace but a bomb
MAGIC: Final = b"\x28\xb5\x2f\xfd"
FED_BYTES: Final = 1 << 10
ZSTD_FED_BYTES: Final = 64  # unpacks to 2 MiB at most; 86 MB/s of what is packed still
PIECE_BYTES: Final = 1 << 20
MAX_DICTIONARY_BYTES: Final = 256 << 20  # of xz, four times that of its highest preset
MAGICS: Final = {
    b"\x1f\x8b": "gzip",
    MAGIC: "zstd",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
}
MAGIC_BYTES: Final = max(map(len, MAGICS))
SUFFIXES: Final = (".gz", ".gzip", ".zst", ".zstd", ".xz", ".bz2")  # names of what is packed
ZstdError = zstandard.ZstdError
DAMAGED: Final = (EOFError, zlib.error, gzip.BadGzipFile, ZstdError)


class _Stream(Protocol):
    """One stream of a file, taken apart a bounded piece at a time."""

    fed_bytes: int  # that it is given at once

    def feed(self, data: bytes) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def needs_input(self) -> bool: ...


class _Zstd:
    fed_bytes = ZSTD_FED_BYTES
    needs_input = True  # all that is fed is taken at once

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor().decompressobj()

    def feed(self, data: bytes) -> bytes:
        return self._frame.decompress(data)

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data


class _Bounded:
    """As lzma and bz2 have it; a Python may be built without them, so they are loaded when they are needed."""

    fed_bytes = FED_BYTES

    def __init__(self, module: str) -> None:
        try:
            found: Any = importlib.import_module(module)
        except ImportError:
            raise EOFError(f"this Python has no {module}") from None
        self._errors: tuple[type[Exception], ...] = (OSError, getattr(found, "LZMAError", OSError))
        self._stream = (
            found.LZMADecompressor(found.FORMAT_XZ, memlimit=MAX_DICTIONARY_BYTES)
            if module == "lzma"
            else found.BZ2Decompressor()
        )

    def feed(self, data: bytes) -> bytes:
        try:
            return bytes(self._stream.decompress(data, PIECE_BYTES))
        except self._errors as error:
            raise EOFError(str(error)) from None

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._stream.unused_data)

    @property
    def needs_input(self) -> bool:
        return bool(self._stream.needs_input)


STREAMS: Final[dict[str, Callable[[], _Stream]]] = {
    "zstd": _Zstd,
    "xz": partial(_Bounded, "lzma"),
    "bzip2": partial(_Bounded, "bz2"),
}


class _Unpacked(io.RawIOBase):
    """Stream after stream, as tools that write in parallel lay them."""

    def __init__(self, raw: IO[bytes], begin: Callable[[], _Stream]) -> None:
        self._raw = raw
        self._begin = begin
        self._stream = begin()
        self._has_begun = False  # a stream, and it has not ended
        self._fed = b""  # what a stream that ended left
        self._held = memoryview(b"")

    def readable(self) -> bool:
        """As BufferedReader asks."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill it as far as one piece goes; 0 at the end. EOFError where the last stream has none."""
        while not self._held:
            data = b""
            if self._stream.needs_input:
                data, self._fed = self._fed or self._raw.read(self._stream.fed_bytes), b""
                if not data:
                    if self._has_begun:
                        raise EOFError("it ends within a stream")
                    return 0
                if not self._has_begun and not (data := data.lstrip(b"\0")):
                    continue  # as xz is padded
            self._held = memoryview(self._stream.feed(data))
            self._has_begun = not self._stream.eof
            if self._stream.eof:
                self._fed = self._stream.unused_data
                self._stream = self._begin()
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._held))
        target[:size] = self._held[:size]
        self._held = self._held[size:]
        return size


def packing(head: bytes) -> str | None:
    """How what begins so is packed; None: it is not. head: MAGIC_BYTES, or all there is."""
    return next((kind for magic, kind in MAGICS.items() if head.startswith(magic)), None)


def unpacked(raw: IO[bytes], kind: str) -> io.BufferedReader:
    """Read from it as from a file; one of DAMAGED for what is damaged or cut."""
    if kind == "gzip":
        return cast("io.BufferedReader", gzip.GzipFile(fileobj=raw))
    return io.BufferedReader(_Unpacked(raw, STREAMS[kind]))


def copied(file: IO[bytes], into: IO[bytes]) -> bool:
    """Write what is left of an unpacked file; False where it is more than MAX_FILE_BYTES. One of DAMAGED."""
    size = 0
    while piece := file.read(PIECE_BYTES):
        size += len(piece)
        if size > MAX_FILE_BYTES:
            return False
        into.write(piece)
    return True


@contextmanager
def into_temporary(path: object, kind: str, *damaged: type[Exception]) -> Iterator[None]:
    """What is wrong with a source that is unpacked within, or with the place, in one line.

    damaged: what a reader of this kind raises beside DAMAGED. TuiadvisorError; FailureError of the place.
    """
    refused: tuple[type[Exception], ...] = (*DAMAGED, *damaged)
    try:
        yield
    except refused as error:
        raise TuiadvisorError(f"{path}: truncated or damaged {kind} ({error}); copy it again") from None
    except OSError as error:
        if error.errno in {None, errno.EINVAL}:  # it says to look at a place that cannot be
            raise TuiadvisorError(f"{path}: truncated or damaged {kind} ({error}); copy it again") from None
        raise FailureError(
            f"{path}: cannot unpack it into {tempfile.gettempdir()}: {error.strerror or error}; free space, or unpack "
            "it elsewhere"
        ) from None
