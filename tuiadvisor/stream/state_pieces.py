"""Arrays of a state, kept as what has changed of them since the state before: blocks of words.

In: arrays, as bytes.  Out: pieces of them, packed, and the arrays again. Arrays that changed in the same blocks (the
columns of a table whose newest rows were written) lie in one piece: a piece costs a few calls, whatever it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt
import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BLOCK_BYTES: Final = 64  # eight words: of a rank and column some eight steps
# A block as one thing: numpy copies it at once, a fifth of the time that its eight words take one by one.
BLOCK: Final = np.dtype(f"V{BLOCK_BYTES}")

# What does not get smaller by so much is kept as it is: times in nanoseconds are mostly noise, and to unpack them was
# a third of a restore.
MAX_COMPRESSED_SHARE: Final = 0.25

Octets = npt.NDArray[np.uint8]
Blocks = npt.NDArray[np.void]  # of BLOCK
Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.signedinteger]  # of blocks in an array
Width = Literal[4, 8]
Changed = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Part:
    """Of one array."""

    at: Places | None  # which blocks; None: all of them
    blocks: Blocks
    tail: bytes  # what lies behind the last whole block


@dataclass(frozen=True, slots=True)
class Piece:
    """Parts of arrays, one array after the other."""

    arrays: tuple[int, ...]  # their numbers within the state
    at: Places | None  # which blocks, of all of them alike; None: all
    words: bytes
    width: Width  # bytes of a word in `words`
    is_compressed: bool
    tails: tuple[bytes, ...]

    @property
    def num_bytes(self) -> int:
        """In memory."""
        at_bytes = 0 if self.at is None else self.at.nbytes
        return at_bytes + len(self.words) + sum(map(len, self.tails))


def blocks_of(octets: Octets) -> Blocks:
    """All whole blocks, a view."""
    return octets[: len(octets) // BLOCK_BYTES * BLOCK_BYTES].view(BLOCK)


def tail_of(octets: Octets) -> bytes:
    """What lies behind the last whole block."""
    return octets[len(octets) // BLOCK_BYTES * BLOCK_BYTES :].tobytes()


def differ(blocks: Blocks, others: Blocks) -> Changed:
    """Which blocks differ. The flags of a block's words are looked at as one number: `any` takes four times as long."""
    flags = blocks.view(np.uint64) != others.view(np.uint64)
    return np.asarray(flags.view(np.uint64) != 0)


def pack(parts: Mapping[int, Part]) -> tuple[Piece, ...]:
    """Parts of arrays, by the number of the array."""
    alike: dict[tuple[bytes | int, Width], list[int]] = {}
    for number, part in parts.items():
        # Most numbers are small: their upper halves are left out.
        width: Width = 8 if part.blocks.view(np.uint32)[1::2].any() else 4
        # A whole array stays alone: long afterwards something may still be taken from it, and nothing from the others.
        same = number if part.at is None else part.at.tobytes()
        alike.setdefault((same, width), []).append(number)
    return tuple(
        _piece(numbers, [parts[number] for number in numbers], width) for (_, width), numbers in alike.items()
    )


def _piece(numbers: list[int], parts: list[Part], width: Width) -> Piece:
    words = np.concatenate([part.blocks for part in parts]).view(np.uint64)
    raw = words.tobytes() if width == 8 else words.astype(np.uint32).tobytes()
    compressed = packed(raw)
    is_compressed = len(compressed) < len(raw) * MAX_COMPRESSED_SHARE
    return Piece(
        tuple(numbers),
        None if parts[0].at is None else parts[0].at.astype(np.int32),
        compressed if is_compressed else raw,
        width,
        is_compressed,
        tuple(part.tail for part in parts),
    )


def packed(raw: bytes) -> bytes:
    """Compressed, to be unpacked fast: a negative level, half again as large as level 1 at worst."""
    # Copied: what the compressor returns keeps the room for the worst case behind its end, three times its size.
    return bytes(memoryview(zstandard.ZstdCompressor(level=-3).compress(raw)))


class Unpacker:
    """Unpacks piece after piece into memory that is used again for each."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()
        self._raw = np.empty(0, dtype=np.uint8)
        self._words = np.empty(0, dtype=np.uint64)

    def parts(self, piece: Piece) -> Iterator[tuple[int, Part]]:
        """Each array's, with its number; to be read before the next piece is unpacked."""
        blocks = self._all_words(piece).view(BLOCK).reshape(len(piece.arrays), -1)
        for number, own, tail in zip(piece.arrays, blocks, piece.tails, strict=True):
            yield number, Part(piece.at, own, tail)

    def put(self, piece: Piece, into: Mapping[int, Octets]) -> None:
        """Write what it has of these arrays over them."""
        for number, part in self.parts(piece):
            if number in into:
                octets = into[number]
                blocks = blocks_of(octets)
                if part.at is None:
                    blocks[:] = part.blocks
                else:
                    blocks[part.at] = part.blocks
                octets[blocks.nbytes :] = np.frombuffer(part.tail, dtype=np.uint8)

    def _all_words(self, piece: Piece) -> Words:
        octets = self._octets(piece.words) if piece.is_compressed else np.frombuffer(piece.words, np.uint8)
        if piece.width == 8:
            return octets.view(np.uint64)
        lower = octets.view(np.uint32)
        if self._words.size < lower.size:
            self._words = np.empty(lower.size, dtype=np.uint64)
        words = self._words[: lower.size]
        words[:] = lower
        return words

    def _octets(self, compressed: bytes) -> Octets:
        num_bytes = zstandard.get_frame_parameters(compressed).content_size
        if self._raw.size < num_bytes:
            self._raw = np.empty(num_bytes, dtype=np.uint8)
        octets = self._raw[:num_bytes]
        with self._zstd.stream_reader(compressed) as reader:
            reader.readinto(octets.data)
        return octets


def merged(earlier: Iterable[Piece], later: Iterable[Piece]) -> tuple[Piece, ...]:
    """What two states in a row have changed together."""
    parts = _copied(earlier)
    for number, part in _copied(later).items():
        before = parts.get(number)
        parts[number] = part if before is None or part.at is None else _over(before, part, part.at)
    return pack(parts)


def _copied(pieces: Iterable[Piece]) -> dict[int, Part]:
    unpacker = Unpacker()
    return {
        number: Part(part.at, part.blocks.copy(), part.tail)
        for piece in pieces
        for number, part in unpacker.parts(piece)
    }


def _over(before: Part, part: Part, at: Places) -> Part:
    """at: the blocks of the later part."""
    if before.at is None:
        before.blocks[at] = part.blocks
        return Part(None, before.blocks, part.tail)
    both = np.union1d(before.at, at)
    blocks = np.empty(both.size, dtype=BLOCK)
    blocks[np.searchsorted(both, before.at)] = before.blocks
    blocks[np.searchsorted(both, at)] = part.blocks
    return Part(both, blocks, part.tail)
