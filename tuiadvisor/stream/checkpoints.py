"""States of a fold along a recording, so that going to any place of it folds only the last stretch.

In: whoever folds, and at which offset of the recording.  Out: its nearest state at or before an offset, exactly as it
was there. Held compressed in this process's own memory, within a bound: beyond it every second state goes and the
stretches double.
"""

from __future__ import annotations

import pickle  # what is unpickled here is what this very object pickled: no byte of it comes from outside
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import zstandard

from tuiadvisor.paused_gc import collector_off

if TYPE_CHECKING:
    from collections.abc import Sequence

State = TypeVar("State")

MAX_HELD_BYTES: Final = 128 << 20
# A stretch of 400 kB of recording folds in some 40 ms. Saving a state costs 0.6 ms a MB of it: beyond this share of the
# stretch, a look at the whole recording would save more than it folds.
MIN_STRETCH_BYTES: Final = 100_000
STATE_BYTES_A_STRETCH_BYTE: Final = 150
# Between two states most of the recent steps are the same: a state is kept as what differs, in blocks of eight steps of
# a rank and column, from the state whose number has its lowest bit cleared. So few patches lead to each state, and the
# odd ones may go whenever memory is short. What differs by so much of a whole one is kept whole.
BLOCK_WORDS: Final = 8
BLOCK_BYTES: Final = 8 * BLOCK_WORDS
MIN_PATCHED_BYTES: Final = 4096
MAX_PATCH_SHARE: Final = 2 / 3

Octets = npt.NDArray[np.uint8]
Changed = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Patch:
    """What of an array differs from the array of the same place in the state before."""

    blocks: bytes  # which blocks of BLOCK_WORDS words; these and what they hold compressed
    words: bytes  # what they hold, as `_halved`
    tail: bytes  # the bytes after the last whole block

    @property
    def num_bytes(self) -> int:
        return len(self.blocks) + len(self.words) + len(self.tail)


@dataclass(slots=True)
class _Checkpoint:
    offset: int
    number: int  # since the last whole state
    pickled: bytes  # without its arrays; both compressed
    arrays: tuple[bytes | _Patch, ...]  # whole ones as `_halved`, compressed
    before: _Checkpoint | None  # whose arrays the patches change

    @property
    def num_array_bytes(self) -> int:
        return sum(array.num_bytes if isinstance(array, _Patch) else len(array) for array in self.arrays)

    @property
    def num_bytes(self) -> int:
        """Without the states before."""
        return len(self.pickled) + self.num_array_bytes


@dataclass(slots=True)
class _Ancestor:
    """A state that a later one may be kept as a difference to."""

    state: _Checkpoint
    changed: list[Changed | None]  # blocks of each array since then; None: all, or not known


class Checkpoints(Generic[State]):
    """Mutable: offer it the state after every few frames, in order."""

    def __init__(self, max_held_bytes: int = MAX_HELD_BYTES, stretch_bytes: int = MIN_STRETCH_BYTES) -> None:
        self._max_held_bytes = max_held_bytes
        self._stretch_bytes = stretch_bytes
        self._held: list[_Checkpoint] = []
        self._num_held_bytes = 0
        self._num_bytes_since = 0
        self._newest: list[Octets] = []  # the arrays of the state that was kept last
        self._ancestors: list[_Ancestor] = []  # of the next state: numbers with ever more low bits set
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
        buffers: list[pickle.PickleBuffer] = []
        pickled = _packed(pickle.dumps(state, protocol=5, buffer_callback=buffers.append))
        raws = [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers]
        self._note_changes(raws)
        taken = self._difference(offset, pickled, raws)
        whole = self._ancestors[0].state if self._ancestors else None
        if taken is None or whole is None or taken.num_array_bytes > whole.num_array_bytes * MAX_PATCH_SHARE:
            taken = _Checkpoint(offset, 0, pickled, tuple(_packed(_halved(raw)) for raw in raws), None)
            self._ancestors = []
        while self._ancestors and self._ancestors[-1].state is not taken.before:
            self._ancestors.pop()
        nothing = [_no_blocks(raw) if len(raw) >= MIN_PATCHED_BYTES else None for raw in raws]
        self._ancestors.append(_Ancestor(taken, nothing))
        self._held.append(taken)
        self._num_held_bytes += taken.num_bytes
        num_state_bytes = sum(map(len, raws))
        self._stretch_bytes = max(self._stretch_bytes, num_state_bytes // STATE_BYTES_A_STRETCH_BYTE)
        while self._num_held_bytes > self._max_held_bytes and len(self._held) > 1:
            self._thin()

    def seal(self) -> None:
        """Nothing more is offered: let go of what only later states would have been compared with."""
        self._newest, self._ancestors = [], []

    def _note_changes(self, raws: Sequence[Octets]) -> None:
        """Take these arrays as the newest, and note for every ancestor which of their blocks have changed."""
        changes: list[Changed | None] = []
        newest = self._newest[: len(raws)]
        for place, raw in enumerate(raws):
            if place < len(newest) and len(newest[place]) == len(raw) >= MIN_PATCHED_BYTES:
                blocks, former = _blocks(raw), _blocks(newest[place])
                changed = _differ(blocks, former)
                at = np.flatnonzero(changed)
                former[at] = blocks[at]  # in place: a copy of everything would cost more than the comparison
                newest[place][former.nbytes :] = raw[former.nbytes :]
                changes.append(changed)
            else:
                newest[place : place + 1] = [raw.copy()]
                changes.append(None)
        self._newest = newest
        for ancestor in self._ancestors:
            held = [*ancestor.changed, *[None] * (len(raws) - len(ancestor.changed))]
            ancestor.changed = [
                None if one is None or now is None or len(one) != len(now) else one | now
                for one, now in zip(held, changes, strict=False)
            ]

    def _difference(self, offset: int, pickled: bytes, raws: Sequence[Octets]) -> _Checkpoint | None:
        """This state as what differs from the one with its lowest bit cleared; None without one."""
        if not self._ancestors:
            return None
        number = self._ancestors[-1].state.number + 1
        before = next(one for one in self._ancestors if one.state.number == number & (number - 1))
        arrays = tuple(
            _packed(_halved(raw)) if changed is None else _patch(raw, changed)
            for raw, changed in zip(raws, before.changed, strict=True)
        )
        return _Checkpoint(offset, number, pickled, arrays, before.state)

    def _thin(self) -> None:
        """Every second state goes, and stretches double: no state that is left differs from an odd one."""
        if all(one.number == 0 for one in self._held):
            self._held = self._held[1::2] if len(self._held) > 2 else self._held[1:]
        else:
            self._held = [one for one in self._held if one.number % 2 == 0]
            self._ancestors = [one for one in self._ancestors if one.state.number % 2 == 0]
        for one in self._held:
            one.number //= 2
        self._stretch_bytes *= 2
        self._num_held_bytes = sum(one.num_bytes for one in self._held)

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
        spares: list[Octets | None] = [*lent, *[None] * len(one.arrays)]
        unpacked = _Unpacked()
        arrays = [_restored(one, place, spares[place], unpacked) for place in range(len(one.arrays))]
        state: State = pickle.loads(zstandard.decompress(one.pickled), buffers=arrays)  # noqa: S301  # pickled above
        self._lent = state, arrays
        return state


def _packed(raw: bytes | memoryview) -> bytes:
    # A negative level: half again as large as level 1 at worst, and unpacked, as every seek does, in half the time.
    # Copied: what the compressor returns keeps the room for the worst case behind its end, three times its size.
    return bytes(memoryview(zstandard.ZstdCompressor(level=-3).compress(raw)))


def _halved(octets: Octets) -> bytes:
    """The lower halves of all words, then their upper ones, then what is left of them.

    Most numbers are small and neighbours alike, so upper halves take no room, and lower ones nothing can shorten: both
    unpack at once. Word by word it took five times as long, a quarter of a seek at 512 ranks.
    """
    end = len(octets) // 8 * 8
    halves = octets[:end].view(np.uint32)
    return np.concatenate((halves[0::2], halves[1::2])).tobytes() + octets[end:].tobytes()


class _Unpacked:
    """Memory that is used again for each array that is unpacked."""

    def __init__(self) -> None:
        self._memory = np.empty(0, dtype=np.uint8)

    def octets(self, packed: bytes) -> Octets:
        """As they were packed; to be read before the next ones are asked for."""
        num_bytes = zstandard.get_frame_parameters(packed).content_size
        if len(self._memory) < num_bytes:
            self._memory = np.empty(num_bytes, dtype=np.uint8)
        octets = self._memory[:num_bytes]
        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            reader.readinto(octets.data)
        return octets

    def words(self, packed: bytes, into: Octets) -> None:
        """What `_halved` was given."""
        octets, end = self.octets(packed), len(into) // 8 * 8
        lower, upper = octets[:end].view(np.uint32).reshape(2, -1)
        halves = into[:end].view(np.uint32)
        halves[0::2], halves[1::2] = lower, upper
        into[end:] = octets[end:]


def _blocks(octets: Octets) -> npt.NDArray[np.uint64]:
    """All whole blocks, a view."""
    return octets[: len(octets) // BLOCK_BYTES * BLOCK_BYTES].view(np.uint64).reshape(-1, BLOCK_WORDS)


def _differ(blocks: npt.NDArray[np.uint64], others: npt.NDArray[np.uint64]) -> Changed:
    """Which blocks differ. The flags of a block's words are looked at as one number: `any` takes four times as long."""
    flags = blocks != others
    return np.asarray(flags.view(f"u{BLOCK_WORDS}").reshape(-1) != 0)


def _no_blocks(octets: Octets) -> Changed:
    return np.zeros(len(octets) // BLOCK_BYTES, dtype=np.bool_)


def _patch(raw: Octets, changed: Changed) -> _Patch:
    blocks, words = np.flatnonzero(changed), _blocks(raw)
    return _Patch(
        _packed(blocks.astype(np.uint32).tobytes()),
        _packed(_halved(words[blocks].view(np.uint8).reshape(-1))),
        raw[words.nbytes :].tobytes(),
    )


def _restored(state: _Checkpoint, place: int, spare: Octets | None, unpacked: _Unpacked) -> Octets:
    """In the spare memory if it fits. Else in new one: numpy asks for large pages, which saves much of the time."""
    patches: list[_Patch] = []
    array = state.arrays[place]
    while isinstance(array, _Patch):
        patches.append(array)
        assert state.before is not None  # noqa: S101  # a whole state has no patches
        state = state.before
        array = state.arrays[place]
    num_bytes = zstandard.get_frame_parameters(array).content_size
    fits = spare is not None and len(spare) == num_bytes
    memory = spare if spare is not None and fits else np.empty(num_bytes, dtype=np.uint8)
    unpacked.words(array, into=memory)
    words = _blocks(memory)
    for patch in reversed(patches):
        blocks = unpacked.octets(patch.blocks).view(np.uint32).copy()
        held = np.empty((blocks.size, BLOCK_WORDS), dtype=np.uint64)
        unpacked.words(patch.words, into=held.view(np.uint8).reshape(-1))
        words[blocks] = held
        memory[words.nbytes :] = np.frombuffer(patch.tail, dtype=np.uint8)
    return memory
