"""The index inside a recording, written as it grows: an INDEX frame after each stretch of frames.

    offset    its own: in a file that was put together of others it is another one
    previous  offset of the INDEX frame before; 0: this is the first one. The stretch begins behind it
    frames    how many lie in the stretch
    steps_at  offset of its last STEPS frame; 0: it has none
    due_ns    when its last frame is due, nanoseconds after the recording's first one (Timeline)
    bases     source -> what was taken from its clock, of sources that first came, or leapt, in the stretch

It holds nothing that the headers of the frames do not hold: whoever reads a stretch, or all of it, can tell whether it
is true. In: bytes of a file, frames.  Out: Stretch, and whether a chain of INDEX frames is sound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.stream.frames import (
    HEADER_BYTES,
    HUB_SOURCE,
    MAGIC,
    FrameError,
    FrameKind,
    decode,
    encode,
    frame_length,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.stream.frames import Frame

    Read = Callable[[int, int], bytes]  # (offset, bytes) -> what the file holds there

FILE_HEADER_BYTES: Final = 16
# Reading a stretch to find a place in it costs 2 ms, an INDEX frame some 150 bytes.
STRETCH_BYTES: Final = 256 << 10
MAX_SILENCE_NS: Final = 60 * 1_000_000_000
# What is looked for an INDEX frame from the end of a file: behind the last one lie a stretch and a batch of the hub.
SEARCHES_BYTES: Final = (64 << 10, 1 << 20, 8 << 20)
MAX_INDEX_FRAMES: Final = 1 << 17  # of 256 KiB each: beyond this the file is read instead
MAX_INDEX_BYTES: Final = 4 << 20
_LOOK_BYTES: Final = 1024
MAX_LOOKS: Final = 64


def _unheard(_source: str) -> int | None:
    return None


class Timeline:
    """When each frame is due, nanoseconds after the first one; never runs backwards."""

    def __init__(self, now_ns: int = 0, earlier: Callable[[str], int | None] = _unheard) -> None:
        """now_ns: when the frame before was due. earlier: the base of a source that was heard before."""
        self.now_ns = now_ns
        self.changed_ns: dict[str, int] = {}  # bases set since the last stretch ended
        self._bases_ns: dict[str, int] = {}
        self._earlier = earlier

    def add(self, source: str, time_ns: int) -> int:
        """Place the next frame by the clock of its own source."""
        base_ns = self._bases_ns.get(source)
        if base_ns is None:
            base_ns = self._earlier(source)
            if base_ns is None:
                base_ns = self.changed_ns[source] = time_ns - self.now_ns
            self._bases_ns[source] = base_ns
        due_ns = time_ns - base_ns
        if due_ns > self.now_ns:
            if due_ns > self.now_ns + MAX_SILENCE_NS:
                due_ns = self.now_ns + MAX_SILENCE_NS
                self._bases_ns[source] = self.changed_ns[source] = time_ns - due_ns
            self.now_ns = due_ns
        return self.now_ns


@dataclass(frozen=True, slots=True)
class Stretch:
    """Frames that lie between two offsets, and what it takes to place them in time."""

    begin: int
    end: int
    num_frames: int
    steps_at: int  # 0: no STEPS frame
    due_ns: int  # of the last frame
    bases_ns: dict[str, int] = field(default_factory=dict)


class Tally:
    """What there is to say of the frames since the last stretch ended. Mutable: offer it every frame."""

    def __init__(self, timeline: Timeline | None = None, begin: int = FILE_HEADER_BYTES) -> None:
        self.timeline = timeline or Timeline()
        self.begin = begin
        self.num_frames = 0
        self.steps_at = 0

    def add(self, offset: int, kind: int, source: str, time_ns: int) -> None:
        """The next frame."""
        self.num_frames += 1
        if kind == FrameKind.STEPS:
            self.steps_at = offset
        self.timeline.add(source, time_ns)

    def stretch(self, end: int) -> Stretch:
        """The stretch, if it ends here."""
        timeline = self.timeline
        return Stretch(self.begin, end, self.num_frames, self.steps_at, timeline.now_ns, timeline.changed_ns)

    def restart(self, begin: int) -> None:
        """The next stretch begins here."""
        self.begin, self.num_frames, self.steps_at, self.timeline.changed_ns = begin, 0, 0, {}


def index_frame(previous: int, stretches: Sequence[Stretch], number: int) -> bytes:
    """The INDEX frame about these. ValueError or TypeError if a frame cannot hold it (clocks of 2^63, sources)."""
    return encode(
        FrameKind.INDEX, HUB_SOURCE, number, 0, index_payload(stretches[-1].end, previous, stretches)
    )


def index_payload(offset: int, previous: int, stretches: Sequence[Stretch]) -> dict[str, object]:
    """What an INDEX frame says of the frames in these stretches, which follow each other."""
    bases: dict[str, int] = {}
    for stretch in stretches:
        bases |= stretch.bases_ns
    return {
        "offset": offset,
        "previous": previous,
        "frames": sum(stretch.num_frames for stretch in stretches),
        "steps_at": max((stretch.steps_at for stretch in stretches), default=0),
        "due_ns": stretches[-1].due_ns,
        "bases": bases,
    }


def read_index(read: Read, size: int) -> tuple[list[Stretch], int] | None:
    """The stretches that INDEX frames tell, back from the last one, and its offset.

    None if there is none, or if one of them is not where the next one says, overlaps it, or says what cannot be.
    """
    last = _last_index(read, size)
    if last is None:
        return None
    chain: list[tuple[int, int, Frame]] = []
    offset, limit = last, size
    while offset:
        found = _index_at(read, offset, limit)
        if found is None or len(chain) >= MAX_INDEX_FRAMES:
            return None
        chain.append((offset, *found))
        limit, offset = offset, _number(found[1], "previous")
        if offset and not FILE_HEADER_BYTES < offset < limit:
            return None
    stretches: list[Stretch] = []
    begin = FILE_HEADER_BYTES
    for number, (offset, num_bytes, frame) in enumerate(reversed(chain)):
        if frame.seq != number or _number(frame, "offset") != offset:
            return None
        stretch = _stretch(frame, begin, offset, stretches[-1].due_ns if stretches else 0)
        if stretch is None:
            return None
        stretches.append(stretch)
        begin = offset + num_bytes
    return stretches, last


def _last_index(read: Read, size: int) -> int | None:
    """Where the last whole INDEX frame begins, as far as one searches from the end."""
    num_looks = 0
    for num_bytes in SEARCHES_BYTES:
        first = max(FILE_HEADER_BYTES, size - num_bytes)
        window = read(first, size - first)
        at = len(window)
        while (at := window.rfind(MAGIC, 0, at)) >= 0:
            if window[at + 9 : at + 10] != bytes((FrameKind.INDEX,)):
                continue
            if _index_at(read, first + at, size):
                return first + at
            num_looks += 1
            if num_looks >= MAX_LOOKS:
                return None
        if first == FILE_HEADER_BYTES:
            break
    return None


def _index_at(read: Read, offset: int, limit: int) -> tuple[int, Frame] | None:
    """(bytes, frame) of the INDEX frame that begins here and ends at the limit at most; None if there is none."""
    data = read(offset, min(_LOOK_BYTES, limit - offset))
    try:
        num_bytes = frame_length(data)
        if num_bytes is None or num_bytes > min(MAX_INDEX_BYTES, limit - offset):
            return None
        frame = decode(data[:num_bytes] if num_bytes <= len(data) else read(offset, num_bytes))
    except FrameError:
        return None
    return (num_bytes, frame) if frame.kind is FrameKind.INDEX and frame.source == HUB_SOURCE else None


def _stretch(frame: Frame, begin: int, end: int, earliest_ns: int) -> Stretch | None:
    """What the frame says of the bytes before it; None if it cannot be so."""
    num_frames, steps_at, due_ns = (_number(frame, name) for name in ("frames", "steps_at", "due_ns"))
    bases = frame.payload.get("bases")
    plausible = (
        0 < num_frames * HEADER_BYTES < end - begin
        and (steps_at == 0 or begin <= steps_at < end)
        and earliest_ns <= due_ns <= earliest_ns + num_frames * MAX_SILENCE_NS
        and isinstance(bases, dict)
        and all(isinstance(base, int) for base in bases.values())
    )
    return Stretch(begin, end, num_frames, steps_at, due_ns, bases) if plausible else None  # type: ignore[arg-type]


def _number(frame: Frame, name: str) -> int:
    """Below 0 where the frame does not say it: no offset, count or time."""
    value = frame.payload.get(name)
    return value if isinstance(value, int) else -1
