"""States of a fold along a recording, so that going to any place of it folds only the last stretch.

In: whoever folds, after so many frames.  Out: its nearest state at or before a frame, exactly as it was then. Held
compressed in this process's own memory, within a bound: beyond it every second state goes and the stretches double.
"""

from __future__ import annotations

import pickle  # what is unpickled here is what this very object pickled: no byte of it comes from outside
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
import zstandard

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

State = TypeVar("State")

MAX_HELD_BYTES: Final = 256 << 20
# A stretch of this much recording folds in about 30 ms. Saving a state costs 1.5 ms a MB of it: beyond this share of
# the stretch, a look at the whole recording would save more than it folds.
MIN_STRETCH_BYTES: Final = 100_000
STATE_BYTES_A_STRETCH_BYTE: Final = 130
# Between two states most of the recent steps are the same: a state is kept as what differs from a whole one before it,
# in blocks of eight steps of a rank and column, until that makes up so much of the whole one.
BLOCK_WORDS: Final = 8
BLOCK_BYTES: Final = 8 * BLOCK_WORDS
MIN_PATCHED_BYTES: Final = 4096
MAX_PATCH_SHARE: Final = 1 / 3


@dataclass(frozen=True, slots=True)
class _Patch:
    """What of an array differs from the base's array of the same place."""

    blocks: bytes  # which blocks of BLOCK_WORDS words; these and all below compressed
    words: bytes  # what they hold
    tail: bytes  # the bytes after the last whole block

    @property
    def num_bytes(self) -> int:
        return len(self.blocks) + len(self.words) + len(self.tail)


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    num_frames: int
    pickled: bytes  # without its arrays; both compressed
    arrays: tuple[bytes | _Patch, ...]
    base: _Checkpoint | None  # whose arrays the patches change

    @property
    def num_array_bytes(self) -> int:
        """Without the base's."""
        return sum(array.num_bytes if isinstance(array, _Patch) else len(array) for array in self.arrays)

    @property
    def num_bytes(self) -> int:
        """Without the base."""
        return len(self.pickled) + self.num_array_bytes


class Checkpoints(Generic[State]):
    """Mutable: offer it the state after every few frames, in order."""

    def __init__(self, max_held_bytes: int = MAX_HELD_BYTES, stretch_bytes: int = MIN_STRETCH_BYTES) -> None:
        self._max_held_bytes = max_held_bytes
        self._stretch_bytes = stretch_bytes
        self._held: list[_Checkpoint] = []
        self._num_held_bytes = 0
        self._num_bytes_since = 0
        self._base: _Checkpoint | None = None
        self._base_raws: list[bytes] = []

    def __len__(self) -> int:
        """States held."""
        return len(self._held)

    @property
    def num_held_bytes(self) -> int:
        """Memory they take."""
        return self._num_held_bytes

    def offer(self, state: State, num_frames: int, frame_bytes: int) -> None:
        """Keep this state if the last one is far enough away; frame_bytes: of the frames since the last offer."""
        self._num_bytes_since += frame_bytes
        if self._num_bytes_since >= self._stretch_bytes:
            self.keep(state, num_frames)

    def keep(self, state: State, num_frames: int) -> None:
        """Keep this state, whatever lies before it."""
        self._num_bytes_since = 0
        buffers: list[pickle.PickleBuffer] = []
        pickled = _packed(pickle.dumps(state, protocol=5, buffer_callback=buffers.append))
        raws = [buffer.raw() for buffer in buffers]
        taken = _Checkpoint(num_frames, pickled, self._patched(raws), self._base)
        if self._base is None or taken.num_array_bytes > self._base.num_array_bytes * MAX_PATCH_SHARE:
            taken = _Checkpoint(num_frames, pickled, tuple(map(_packed, raws)), None)
            self._base, self._base_raws = taken, [bytes(raw) for raw in raws]
        self._held.append(taken)
        self._count()
        num_state_bytes = sum(map(len, raws))
        self._stretch_bytes = max(self._stretch_bytes, num_state_bytes // STATE_BYTES_A_STRETCH_BYTE)
        while self._num_held_bytes > self._max_held_bytes and len(self._held) > 1:
            self._held = self._held[1::2] if len(self._held) > 2 else self._held[1:]
            self._stretch_bytes *= 2
            self._count()

    def seal(self) -> None:
        """Nothing more is offered: let go of what only later states would have been compared with."""
        self._base, self._base_raws = None, []

    def _patched(self, raws: Sequence[memoryview]) -> tuple[bytes | _Patch, ...]:
        """Each array as what it differs by, where the base has one of its size in this place."""
        former = self._base_raws
        return tuple(
            _patch(raw, former[place])
            if place < len(former) and len(former[place]) == len(raw) >= MIN_PATCHED_BYTES
            else _packed(raw)
            for place, raw in enumerate(raws)
        )

    def _count(self) -> None:
        kept = {id(one): one for state in self._held for one in (state, state.base) if one is not None}
        self._num_held_bytes = sum(one.num_bytes for one in kept.values())

    def frame_before(self, num_frames: int) -> int | None:
        """After how many frames the nearest state at or before this one was kept; None if there is none."""
        found = bisect_right(self._held, num_frames, key=lambda one: one.num_frames)
        return self._held[found - 1].num_frames if found else None

    def restore(self, num_frames: int) -> State:
        """An object of its own in the state that `frame_before` named."""
        found = bisect_right(self._held, num_frames, key=lambda one: one.num_frames)
        one = self._held[found - 1]
        bases = one.base.arrays if one.base is not None else one.arrays
        arrays = [_restored(array, base) for array, base in zip(one.arrays, bases, strict=False)]
        arrays += [_restored(array, array) for array in one.arrays[len(bases) :]]
        state: State = pickle.loads(zstandard.decompress(one.pickled), buffers=arrays)  # noqa: S301  # pickled above
        return state


def _packed(raw: bytes | memoryview) -> bytes:
    # A negative level: half again as large as level 1 at worst, and unpacked, as every seek does, in half the time.
    return zstandard.ZstdCompressor(level=-3).compress(raw)


def _patch(raw: memoryview, former: bytes) -> _Patch:
    num_words = len(raw) // BLOCK_BYTES * BLOCK_WORDS
    words = np.frombuffer(raw, dtype=np.uint64, count=num_words).reshape(-1, BLOCK_WORDS)
    before = np.frombuffer(former, dtype=np.uint64, count=num_words).reshape(-1, BLOCK_WORDS)
    blocks = np.flatnonzero((words != before).any(axis=1))
    return _Patch(
        _packed(blocks.astype(np.uint32).tobytes()),
        _packed(words[blocks].tobytes()),
        bytes(raw[num_words * 8 :]),
    )


def _restored(array: bytes | _Patch, base: bytes | _Patch) -> npt.NDArray[np.uint8]:
    """Memory of its own, written once: numpy asks for large pages, which saves much of the time of a large state."""
    whole = base if isinstance(array, _Patch) else array
    assert isinstance(whole, bytes)  # noqa: S101  # a base has no patches
    memory = np.empty(zstandard.get_frame_parameters(whole).content_size, dtype=np.uint8)
    with zstandard.ZstdDecompressor().stream_reader(whole) as reader:
        reader.readinto(memory.data)
    if isinstance(array, _Patch):
        blocks = np.frombuffer(zstandard.decompress(array.blocks), dtype=np.uint32)
        words = memory[: len(memory) // BLOCK_BYTES * BLOCK_BYTES].view(np.uint64).reshape(-1, BLOCK_WORDS)
        words[blocks] = np.frombuffer(zstandard.decompress(array.words), dtype=np.uint64).reshape(
            -1, BLOCK_WORDS
        )
        memory[words.nbytes :] = np.frombuffer(array.tail, dtype=np.uint8)
    return memory
