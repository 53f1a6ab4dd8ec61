"""States of a fold along a recording, so that going to any place of it folds only the last stretch.

In: whoever folds, after so many frames.  Out: its nearest state at or before a frame, exactly as it was then. Held
compressed in this process's own memory, within a bound: beyond it every second state goes and the stretches double.
"""

from __future__ import annotations

import pickle  # what is unpickled here is what this very object pickled: no byte of it comes from outside
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import zstandard

State = TypeVar("State")

MAX_HELD_BYTES: Final = 256 << 20
# A stretch of this much recording folds in about 30 ms. Saving a state costs 1.5 ms a MB of it: beyond this share of
# the stretch, a look at the whole recording would save more than it folds.
MIN_STRETCH_BYTES: Final = 100_000
STATE_BYTES_A_STRETCH_BYTE: Final = 130


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    num_frames: int
    pickled: bytes  # without its arrays; both compressed
    arrays: tuple[bytes, ...]

    @property
    def num_bytes(self) -> int:
        return len(self.pickled) + sum(map(len, self.arrays))


class Checkpoints(Generic[State]):
    """Mutable: offer it the state after every few frames, in order."""

    def __init__(self, max_held_bytes: int = MAX_HELD_BYTES, stretch_bytes: int = MIN_STRETCH_BYTES) -> None:
        self._max_held_bytes = max_held_bytes
        self._stretch_bytes = stretch_bytes
        self._held: list[_Checkpoint] = []
        self._num_held_bytes = 0
        self._num_bytes_since = 0

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
        pickled = pickle.dumps(state, protocol=5, buffer_callback=buffers.append)
        packer = zstandard.ZstdCompressor(level=1)
        taken = _Checkpoint(
            num_frames, packer.compress(pickled), tuple(packer.compress(buffer.raw()) for buffer in buffers)
        )
        self._held.append(taken)
        self._num_held_bytes += taken.num_bytes
        num_state_bytes = sum(len(buffer.raw()) for buffer in buffers)
        self._stretch_bytes = max(self._stretch_bytes, num_state_bytes // STATE_BYTES_A_STRETCH_BYTE)
        while self._num_held_bytes > self._max_held_bytes and len(self._held) > 1:
            self._held = self._held[1::2] if len(self._held) > 2 else self._held[1:]
            self._num_held_bytes = sum(one.num_bytes for one in self._held)
            self._stretch_bytes *= 2

    def frame_before(self, num_frames: int) -> int | None:
        """After how many frames the nearest state at or before this one was kept; None if there is none."""
        found = bisect_right(self._held, num_frames, key=lambda one: one.num_frames)
        return self._held[found - 1].num_frames if found else None

    def restore(self, num_frames: int) -> State:
        """An object of its own in the state that `frame_before` named."""
        found = bisect_right(self._held, num_frames, key=lambda one: one.num_frames)
        one = self._held[found - 1]
        unpack = zstandard.ZstdDecompressor()
        arrays = [bytearray(unpack.decompress(array)) for array in one.arrays]
        state: State = pickle.loads(unpack.decompress(one.pickled), buffers=arrays)  # noqa: S301  # pickled above
        return state
