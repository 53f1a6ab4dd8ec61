"""Stretches of a recording as they are, found by reading its frames, and whether its INDEX frames say the same.

In: all whole frames in order, INDEX frames too.  Out: Stretch after Stretch, and how many INDEX frames are wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuiadvisor.stream.frames import FrameError, FrameKind, decode
from tuiadvisor.stream.index import FILE_HEADER_BYTES, STRETCH_BYTES, Tally, Timeline, index_payload
from tuiadvisor.stream.recording import RecordingReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tuiadvisor.stream.index import Stretch
    from tuiadvisor.stream.recording import Located, RecordingSummary


class Scan:
    """Mutable: `take` the frames; the stretches are whole after `finish`."""

    def __init__(
        self, known: Sequence[Stretch] = (), begin: int = FILE_HEADER_BYTES, previous: int = 0
    ) -> None:
        """known: what lies before `begin`, where the scan begins; previous: the INDEX frame that told it."""
        self.stretches = list(known)
        self.end = FILE_HEADER_BYTES  # of the last whole frame
        self.num_wrong = 0
        bases = {source: base for stretch in known for source, base in stretch.bases_ns.items()}
        timeline = Timeline(known[-1].due_ns if known else 0, bases.get)
        self._tally = Tally(timeline, begin)
        self._previous = previous  # INDEX frame
        self._first_since = len(self.stretches)  # of the stretches since then

    def take(self, taken: Iterable[Located]) -> list[Located]:
        """Note the next frames; returns them without INDEX frames."""
        frames = []
        for located in taken:
            head = located.head
            if head.kind is FrameKind.INDEX:
                self._meet(located)
                continue
            if self.end - self._tally.begin >= STRETCH_BYTES:
                self._end_stretch(self.end, located.offset)
            self._tally.add(located.offset, head.kind, head.source, head.time_ns)
            self.end = located.offset + head.num_bytes
            frames.append(located)
        return frames

    def finish(self) -> None:
        """No more frames."""
        self._end_stretch(self.end, self.end)

    def _end_stretch(self, end: int, begin: int) -> None:
        if self._tally.num_frames:
            self.stretches.append(self._tally.stretch(end))
        self._tally.restart(begin)

    def _meet(self, index: Located) -> None:
        self._end_stretch(index.offset, index.offset + index.head.num_bytes)
        since = self.stretches[self._first_since :]
        try:
            payload: dict[str, object] | None = decode(index.data).payload
        except FrameError:
            payload = None
        if not since or payload != index_payload(index.offset, self._previous, since):
            self.num_wrong += 1
        self._previous, self._first_since = index.offset, len(self.stretches)


def scanned(reader: RecordingReader) -> tuple[Scan, RecordingSummary]:
    """Everything from the first frame to the present end."""
    reader.rewind()
    scan = Scan()
    while taken := reader.take(with_index=True):
        scan.take(taken)
    scan.finish()
    return scan, told(scan, reader)


def told(scan: Scan, reader: RecordingReader) -> RecordingSummary:
    """What the reader found, with what the scan says of the index; damage makes it wrong without its fault."""
    summary = reader.summary()
    return summary if summary.num_bad_regions else replace(summary, num_wrong_indexes=scan.num_wrong)


def read_summary(path: Path | str) -> RecordingSummary:
    """Read a recording from end to end and say what is in it and what is wrong with it."""
    with RecordingReader(path) as reader:
        return scanned(reader)[1]
