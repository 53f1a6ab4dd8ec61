"""States of a fold along a recording, so that going to any place of it folds only the last stretch.

In: whoever folds, and at which offset of the recording.  Out: its nearest state at or before an offset, exactly as it
was there. Held compressed in this process's own memory, within a bound: beyond it every second state goes and the
stretches double.
"""

from __future__ import annotations

import pickle  # what is unpickled here is what this very object pickled: no byte of it comes from outside
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
import zstandard

from tuiadvisor.paused_gc import collector_off
from tuiadvisor.stream.state_pieces import (
    Octets,
    Part,
    Piece,
    Unpacker,
    blocks_of,
    differ,
    merged,
    pack,
    packed,
    tail_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

State = TypeVar("State")

MAX_HELD_BYTES: Final = 128 << 20
# A stretch of 200 kB of recording folds in some 20 ms. Saving a state costs 0.45 ms a MB of it: beyond this share of
# the stretch, a look at the whole recording would save more than it folds.
MIN_STRETCH_BYTES: Final = 100_000
STATE_BYTES_A_STRETCH_BYTE: Final = 225
# A state is kept as what has changed since the one before, so whatever it takes from earlier ones is read from each of
# these once. What would have to be fetched from further back, or has changed by so much of it, is kept whole.
MAX_STATES_BACK: Final = 64
MAX_CHANGED_SHARE: Final = 2 / 3


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    offset: int
    number: int  # of the states that were ever kept
    pickled: bytes  # without its arrays, compressed
    sizes: tuple[int, ...]  # bytes of each array
    reaches: tuple[int, ...]  # of each: the number of the earliest state that it takes something from
    pieces: tuple[Piece, ...]  # what has changed since the state before

    @property
    def num_bytes(self) -> int:
        """Without the states before."""
        return len(self.pickled) + sum(piece.num_bytes for piece in self.pieces)

    def takes(self, number: int, earlier: _Checkpoint) -> bool:
        """Whether something of this array is as that state, or this one itself, has changed it."""
        return number < len(self.reaches) and self.reaches[number] <= earlier.number


class _Newest:
    """An array as it was when the last state was kept, and in which state each block last changed."""

    def __init__(self, octets: Octets, state: int) -> None:
        self._octets = octets.copy()
        self._changed_in = np.full(blocks_of(octets).size, state)
        self._tail_changed_in = state

    @property
    def num_bytes(self) -> int:
        return len(self._octets)

    @property
    def reaches(self) -> int:
        """The number of the earliest state that has something of it. Each has all of its tail."""
        return int(self._changed_in.min()) if self._changed_in.size else self._tail_changed_in

    def whole(self) -> Part:
        return Part(None, blocks_of(self._octets), tail_of(self._octets))

    def change(self, octets: Octets, state: int) -> Part | None:
        """Become this one, of the same length; what differs, None if nothing does."""
        blocks, former, tail = blocks_of(octets), blocks_of(self._octets), tail_of(octets)
        at = np.flatnonzero(differ(blocks, former))
        has_other_tail = tail != tail_of(self._octets)
        if not at.size and not has_other_tail:
            return None
        former[at] = blocks[at]  # in place: a copy of everything would cost more than the comparison
        self._octets[former.nbytes :] = octets[former.nbytes :]
        if has_other_tail:
            self._tail_changed_in = state
        if at.size > former.size * MAX_CHANGED_SHARE or self.reaches < state - MAX_STATES_BACK:
            self._changed_in[:] = state
            return self.whole()
        self._changed_in[at] = state
        return Part(at, blocks[at], tail)


class Checkpoints(Generic[State]):
    """Mutable: offer it the state after every few frames, in order."""

    def __init__(self, max_held_bytes: int = MAX_HELD_BYTES, stretch_bytes: int = MIN_STRETCH_BYTES) -> None:
        self._max_held_bytes = max_held_bytes
        self._stretch_bytes = stretch_bytes
        self._held: list[_Checkpoint] = []
        self._num_kept = 0
        self._num_held_bytes = 0
        self._num_bytes_since = 0
        self._newest: list[_Newest] = []
        self._unpacker = Unpacker()
        self._num_to_go = self._next_to_go = (
            0  # while every second one goes: how many more, the next one's place
        )
        self._lent: tuple[State, list[Octets]] | None = (
            None  # the state restored last, and the memory it lies in
        )

    def __len__(self) -> int:
        """States held."""
        return len(self._held)

    def offer(self, state: State, offset: int, frame_bytes: int) -> None:
        """Keep this state if the last one is far enough away; frame_bytes: of the frames since the last offer."""
        self._num_bytes_since += frame_bytes
        if self._num_bytes_since >= self._stretch_bytes:
            self.keep(state, offset)

    def keep(self, state: State, offset: int) -> None:
        """Keep this state, whatever lies before it."""
        self._num_bytes_since = 0
        self._num_kept += 1
        buffers: list[pickle.PickleBuffer] = []
        pickled = packed(pickle.dumps(state, protocol=5, buffer_callback=buffers.append))
        raws = [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers]
        pieces = pack(self._changes(raws))
        sizes, reaches = tuple(map(len, raws)), tuple(array.reaches for array in self._newest)
        self._held.append(_Checkpoint(offset, self._num_kept, pickled, sizes, reaches, pieces))
        self._num_held_bytes += self._held[-1].num_bytes
        self._stretch_bytes = max(self._stretch_bytes, sum(sizes) // STATE_BYTES_A_STRETCH_BYTE)
        while self._num_held_bytes > self._max_held_bytes and len(self._held) > 1:
            self._thin()

    def seal(self) -> None:
        """Nothing more is offered: let go of what only later states would have been compared with."""
        self._newest = []

    def _changes(self, raws: Sequence[Octets]) -> dict[int, Part]:
        """Take these arrays as the newest ones; what has changed of each that has, by its number."""
        changes = {}
        del self._newest[len(raws) :]
        for number, raw in enumerate(raws):
            if number < len(self._newest) and self._newest[number].num_bytes == len(raw):
                part = self._newest[number].change(raw, self._num_kept)
            else:
                self._newest[number : number + 1] = [_Newest(raw, self._num_kept)]
                part = self._newest[number].whole()
            if part is not None:
                changes[number] = part
        return changes

    def _thin(self) -> None:
        """The next one of every second state goes; whenever it begins anew with the second, stretches double.

        One at a time: what it has changed is packed anew with the changes of the state after it. The first state, from
        which every place can be reached, and the newest stay as long as there are others.
        """
        if not self._num_to_go:
            self._num_to_go, self._next_to_go = (len(self._held) - 1) // 2, 1
            if not self._num_to_go:
                self._num_to_go, self._next_to_go = 1, 0
            self._stretch_bytes *= 2
        gone, after = self._held[self._next_to_go : self._next_to_go + 2]
        joined = replace(after, pieces=merged(gone.pieces, after.pieces))
        self._held[self._next_to_go : self._next_to_go + 2] = [joined]
        self._num_held_bytes += joined.num_bytes - gone.num_bytes - after.num_bytes
        self._num_to_go -= 1
        self._next_to_go += 1

    def offset_before(self, offset: int) -> int | None:
        """Where the nearest state at or before this offset was kept; None if there is none."""
        found = bisect_right(self._held, offset, key=lambda one: one.offset)
        return self._held[found - 1].offset if found else None

    @collector_off()
    def restore(self, offset: int, spare: State | None = None) -> State:
        """An object of its own in the state that `offset_before` named.

        spare: a state that nobody will use again. If it is the one restored last, its memory is written over:
        the system has no tens of megabytes to find and to clear, which costs more than filling them where it is short.
        """
        found = bisect_right(self._held, offset, key=lambda one: one.offset)
        one = self._held[found - 1]
        lent = self._lent[1] if self._lent is not None and self._lent[0] is spare else []
        self._lent = None
        arrays = [
            lent[number]
            if number < len(lent) and len(lent[number]) == size
            else np.empty(size, dtype=np.uint8)
            for number, size in enumerate(one.sizes)
        ]
        first = bisect_left(self._held, min(one.reaches, default=one.number), key=lambda each: each.number)
        for each in self._held[first:found]:
            for piece in each.pieces:
                wanted = [number for number in piece.arrays if one.takes(number, each)]
                if wanted:
                    self._unpacker.put(piece, {number: arrays[number] for number in wanted})
        state: State = pickle.loads(zstandard.decompress(one.pickled), buffers=arrays)  # noqa: S301  # pickled above
        self._lent = state, arrays
        return state
