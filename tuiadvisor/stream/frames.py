"""The frame: the one unit that travels on the wire and lies on disk, the same bytes in both places.

Layout, version 1, little endian:

    0   magic    4s   b"TUIF"
    4   crc32    u32  of everything after it
    8   version  u8
    9   kind     u8   FrameKind
    10  flags    u8   bit 0: the payload is zstd-compressed; bit 1: with dictionary 1
    11  source   u8   bytes of the source's name
    12  length   u32  bytes after the header: source and payload
    16  seq      u64  counts the frames of this source from 0
    24  time     i64  nanoseconds; the sender's monotonic clock
    32  source        UTF-8
    ..  payload       JSON object

Nothing here trusts a length, a type or a name before it is checked: FrameError is the only way out.
"""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson
import zstandard

from tuiadvisor.stream.columns import MAX_ROWS, Column, pack_columns, unpack_columns
from tuiadvisor.stream.dictionary import DICTIONARY_1
from tuiadvisor.stream.shapes import FrameError, FrameKind, check_payload

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "HEADER_BYTES",
    "HUB_SOURCE",
    "MAGIC",
    "MAX_FRAME_BYTES",
    "MAX_ROWS",
    "Column",
    "Frame",
    "FrameError",
    "FrameHead",
    "FrameKind",
    "decode",
    "encode",
    "frame_length",
    "heads",
    "is_index",
    "pack_columns",
    "peek",
    "split",
    "unpack_columns",
]

MAGIC: Final = b"TUIF"
VERSION: Final = 1
HEADER: Final = struct.Struct("<4sIBBBBIQq")
CRC_FROM: Final = 8
HEADER_BYTES: Final = HEADER.size
HUB_SOURCE: Final = "hub"
MAX_FRAME_BYTES: Final = 16 << 20
MAX_PAYLOAD_BYTES: Final = 64 << 20
MAX_SOURCE_BYTES: Final = 200
# A list of empty objects takes 24 times its JSON in memory: bound the values, not only the bytes.
MAX_PAYLOAD_VALUES: Final = 2_000_000
_COUNT_VALUES_ABOVE_BYTES: Final = 1 << 20
_COMPRESS_ABOVE_BYTES: Final = 64
_COMPRESSED: Final = 1
_WITH_DICTIONARY: Final = 2
_KIND_AT: Final = 9
_KNOWN_FLAGS: Final = (0, _COMPRESSED, _COMPRESSED | _WITH_DICTIONARY)
_of_thread = threading.local()


@dataclass(frozen=True, slots=True)
class Frame:
    """One decoded frame; source is "host/agentpid/startns", or "hub" for the hub's own."""

    kind: FrameKind
    source: str
    seq: int
    time_ns: int
    payload: dict[str, object]


@dataclass(frozen=True, slots=True)
class FrameHead:
    """What a frame says of itself before its payload is opened."""

    kind: FrameKind
    source: str
    seq: int
    time_ns: int
    num_bytes: int


def encode(kind: FrameKind, source: str, seq: int, time_ns: int, payload: dict[str, object]) -> bytes:
    """The frame's bytes. ValueError if the caller's own data cannot be a frame (size, types, source name)."""
    name = source.encode()
    if not 0 < len(name) <= MAX_SOURCE_BYTES or not source.isprintable():
        raise ValueError(f"source {source!r} must be 1..{MAX_SOURCE_BYTES} printable bytes")
    body, flags = orjson.dumps(payload), 0
    if len(body) > _COMPRESS_ABOVE_BYTES:
        small = _compressor().compress(body)
        if len(small) < len(body):
            body, flags = small, _COMPRESSED | _WITH_DICTIONARY
    length = len(name) + len(body)
    if HEADER_BYTES + length > MAX_FRAME_BYTES:
        raise ValueError(f"frame of {length} bytes exceeds {MAX_FRAME_BYTES}; send several frames")
    fields = (VERSION, kind, flags, len(name), length, seq, time_ns)
    blank = HEADER.pack(MAGIC, 0, *fields)
    crc = zlib.crc32(body, zlib.crc32(name, zlib.crc32(blank[CRC_FROM:])))
    return HEADER.pack(MAGIC, crc, *fields) + name + body


def frame_length(data: bytes | memoryview, offset: int = 0) -> int | None:
    """Bytes of the frame whose header begins at offset; None if the header is cut. Checks no CRC."""
    if len(data) - offset < HEADER_BYTES:
        return None
    magic, _, version, kind, flags, name_length, length, _, _ = HEADER.unpack_from(data, offset)
    if magic != MAGIC:
        raise FrameError("frame: these bytes do not begin a frame")
    if version != VERSION:
        raise FrameError(f"frame: version {version}, but this program reads version {VERSION}; update it")
    if not FrameKind.RUN <= kind <= FrameKind.INDEX or flags not in _KNOWN_FLAGS:
        raise FrameError(f"frame: unknown kind {kind} or flags {flags}")
    if not 0 < name_length <= min(MAX_SOURCE_BYTES, length) or HEADER_BYTES + length > MAX_FRAME_BYTES:
        raise FrameError(f"frame: implausible length {length} with a source of {name_length} bytes")
    return HEADER_BYTES + int(length)


def peek(data: bytes | memoryview) -> FrameHead:
    """Header of one whole frame, checked by its CRC; the payload stays closed. FrameError otherwise."""
    num_bytes = frame_length(data)
    if num_bytes is None or num_bytes != len(data):
        raise FrameError(f"frame: {len(data)} bytes where the header promises {num_bytes or HEADER_BYTES}")
    _, crc, _, kind, _, name_length, _, seq, time_ns = HEADER.unpack_from(data)
    view = memoryview(data)
    if crc != zlib.crc32(view[CRC_FROM:]):
        raise FrameError("frame: checksum does not match; the bytes were damaged")
    try:
        source = str(view[HEADER_BYTES : HEADER_BYTES + name_length], "utf-8")
    except UnicodeDecodeError as error:
        raise FrameError("frame: the source's name is not UTF-8") from error
    if not source.isprintable():
        raise FrameError("frame: the source's name is not printable")
    return FrameHead(FrameKind(kind), source, seq, time_ns, num_bytes)


def decode(data: bytes | memoryview) -> Frame:
    """The frame in exactly these bytes, its payload checked field by field. FrameError otherwise."""
    head = peek(data)
    _, _, _, _, flags, name_length, _, _, _ = HEADER.unpack_from(data)
    stored = memoryview(data)[HEADER_BYTES + name_length :]
    body = _decompress(stored, flags) if flags & _COMPRESSED else stored
    if len(body) > _COUNT_VALUES_ABOVE_BYTES:
        _bound_values(bytes(body))
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FrameError("frame: the payload is not JSON") from error
    return Frame(head.kind, head.source, head.seq, head.time_ns, check_payload(head.kind, payload))


def is_index(frame: bytes) -> bool:
    """Whether a whole frame is one of the recording's own, which no reader of frames is shown."""
    return frame[_KIND_AT] == FrameKind.INDEX


def split(buffer: bytes | memoryview) -> Iterator[bytes]:
    """Whole frames from the buffer's start; a partial last one is left. FrameError at other bytes."""
    view, offset = memoryview(buffer), 0
    while (num_bytes := frame_length(view, offset)) is not None and offset + num_bytes <= len(view):
        yield bytes(view[offset : offset + num_bytes])
        offset += num_bytes


def heads(buffer: bytes | memoryview) -> Iterator[tuple[int, int, str, int]]:
    """(offset, kind, source, time_ns) of frames that were checked already; ends where none begins."""
    offset, end = 0, len(buffer)
    while offset + HEADER_BYTES <= end:
        magic, _, _, kind, _, name_length, length, _, time_ns = HEADER.unpack_from(buffer, offset)
        if magic != MAGIC:
            return
        name = offset + HEADER_BYTES
        yield offset, kind, str(buffer[name : name + name_length], "utf-8", "replace"), time_ns
        offset = name + length


def _decompress(body: memoryview, flags: int) -> bytes:
    try:
        num_bytes = zstandard.get_frame_parameters(body).content_size
        if not 0 < num_bytes <= MAX_PAYLOAD_BYTES:
            raise FrameError(f"frame: a payload of {num_bytes} bytes exceeds {MAX_PAYLOAD_BYTES}")
        return _decompressor(with_dictionary=bool(flags & _WITH_DICTIONARY)).decompress(
            body, max_output_size=MAX_PAYLOAD_BYTES, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise FrameError("frame: the payload does not decompress") from error


def _compressor() -> zstandard.ZstdCompressor:
    """One a thread, kept, as of `_decompressor`: digesting the dictionary was half the time of encoding a frame."""
    kept: zstandard.ZstdCompressor | None = getattr(_of_thread, "compressor", None)
    if kept is None:
        kept = _of_thread.compressor = zstandard.ZstdCompressor(level=3, dict_data=DICTIONARY_1)
    return kept


def _decompressor(*, with_dictionary: bool) -> zstandard.ZstdDecompressor:
    """One a thread, kept: digesting the dictionary anew would cost more than decompressing a frame."""
    kept: dict[bool, zstandard.ZstdDecompressor] | None = getattr(_of_thread, "decompressors", None)
    if kept is None:
        kept = _of_thread.decompressors = {
            False: zstandard.ZstdDecompressor(),
            True: zstandard.ZstdDecompressor(dict_data=DICTIONARY_1),
        }
    return kept[with_dictionary]


def _bound_values(body: bytes) -> None:
    num_values = body.count(b",") + body.count(b"[") + body.count(b"{")
    if num_values > MAX_PAYLOAD_VALUES:
        raise FrameError(f"frame: a payload of {num_values} values exceeds {MAX_PAYLOAD_VALUES}")
