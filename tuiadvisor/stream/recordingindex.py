"""Where the frames of a recording lie and when they are due: its index, or where that fails all frames, read once.

In: a path.  Out: offsets by time, step and number of frames. What the file's index says is taken for the whole, and
compared with the frames of each stretch before any place within it is told: what does not agree is read from the first
frame on. Frames themselves are never taken on the index's word. Held in memory: a few numbers a stretch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, Self

from tuiadvisor.stream.frames import FrameError, FrameKind, decode, unpack_columns
from tuiadvisor.stream.index import FILE_HEADER_BYTES, Timeline, read_index
from tuiadvisor.stream.recording import RecordingReader, RecordingSummary
from tuiadvisor.stream.scan import Scan, scanned, told

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tuiadvisor.stream.index import Stretch

MAX_AGENTS_IN_TURN: Final = 32
MAX_IN_A_ROW: Final = 1024  # frames of steps without another between: an imported trace of so many hosts
MAX_OPENED: Final = 8


@dataclass(frozen=True, slots=True)
class _Opened:
    """The frames of one stretch."""

    offsets: list[int]
    ends: list[int]
    due_ns: list[int]
    steps: list[int]  # which of them are STEPS


class RecordingIndex:
    """Mutable: grows truer while stretches are looked at. Offsets between frames are ends of the frame before."""

    def __init__(self, path: Path | str) -> None:
        """Open the recording. TuiadvisorError in one line if it is none."""
        self._reader = RecordingReader(path)
        self._spans: dict[int, tuple[int, int]] = {}
        self._opened: OrderedDict[int, _Opened] = OrderedDict()
        self._stretches: list[Stretch] = []
        self._is_believed = False  # what the index says of a stretch that nobody has looked at
        try:
            if not self._open_by_index():
                self._read_whole()
            elif self._stretches:
                self._look(
                    len(self._stretches) - 1
                )  # what the last INDEX frame says, before any of it is told
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """The index itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def __len__(self) -> int:
        """Frames in the recording."""
        return self._nums[-1]

    @property
    def duration_s(self) -> float:
        """From the first frame to the last."""
        return self._stretches[-1].due_ns / 1e9 if self._stretches else 0.0

    # -- places ----------------------------------------------------------------------------------------------

    def offset_at(self, position_s: float) -> int:
        """Where the frames that are due by then end."""
        now_ns = int(position_s * 1e9)
        stretch = bisect_right(self._stretches, now_ns, key=lambda one: one.due_ns)
        if stretch == len(self._stretches):
            return self.end
        opened = self._look(stretch)
        if opened is None:
            return self.offset_at(position_s)
        num = bisect_right(opened.due_ns, now_ns)
        if num:
            return opened.ends[num - 1]
        return self._stretches[stretch - 1].end if stretch else FILE_HEADER_BYTES

    def position_s(self, offset: int) -> float:
        """When the last frame before this offset is due; 0 before the first."""
        stretch = self._stretch_of(offset)
        opened = self._look(stretch) if stretch >= 0 else None
        if opened is None:
            return self.position_s(offset) if stretch >= 0 else 0.0
        num = bisect_left(opened.offsets, offset)
        if num:
            return opened.due_ns[num - 1] / 1e9
        return self._stretches[stretch - 1].due_ns / 1e9 if stretch else 0.0

    def next_end(self, offset: int) -> int:
        """Where the next frame behind this offset ends; at the last one, where it ended."""
        for stretch in range(max(self._stretch_of(offset + 1), 0), len(self._stretches)):
            opened = self._look(stretch)
            if opened is None:
                return self.next_end(offset)
            num = bisect_left(opened.offsets, offset)
            if num < len(opened.ends):
                return opened.ends[num]
        return self.end

    def offset_after(self, num_frames: int) -> int:
        """Where so many frames end."""
        if num_frames <= 0:
            return FILE_HEADER_BYTES
        if num_frames >= len(self):
            return self.end
        stretch = bisect_left(self._nums, num_frames) - 1
        opened = self._look(stretch)
        if opened is None:
            return self.offset_after(num_frames)
        ends = opened.ends[: num_frames - self._nums[stretch]]
        return ends[-1] if ends else self._stretches[stretch].end

    def offset_of_step(self, step: int) -> int:
        """Where the frame ends with which this training step has been seen; the end if it is not there.

        Of frames of steps in a row, as several hosts tell the same ones, the last that holds it. Opens about log2 of
        the STEPS frames, trusting that steps grow along the recording.
        """
        with_steps = [number for number, one in enumerate(self._stretches) if one.steps_at]
        found = bisect_left(
            with_steps, step, key=lambda number: self._last_step(self._stretches[number].steps_at)
        )
        if found == len(with_steps):
            return self.end
        opened = self._look(with_steps[found])
        if opened is None:
            return self.offset_of_step(step)
        frame = bisect_left(opened.steps, step, key=lambda frame: self._last_step(opened.offsets[frame]))
        if frame == len(opened.steps):  # the file is no longer what it was
            return self._stretches[with_steps[found]].end
        return self._told_by_all(with_steps[found], frame, step)

    def _told_by_all(self, stretch: int, frame: int, step: int) -> int:
        """Where the frames of steps end that follow this one without another between, as far as they hold the step."""
        opened = self._look(stretch)
        end = self.end
        for _ in range(MAX_IN_A_ROW):
            if opened is None or frame == len(opened.steps):
                break
            place = opened.steps[frame]
            end = opened.ends[place]
            if place + 1 == len(opened.offsets) and stretch + 1 < len(self._stretches):
                stretch, frame = stretch + 1, 0
                opened = self._look(stretch)
                is_next = opened is not None and opened.steps[:1] == [0]
            else:
                frame += 1
                is_next = opened.steps[frame : frame + 1] == [place + 1]
            if not is_next or opened is None:
                break
            first, last = self._span(opened.offsets[opened.steps[frame]])
            if not first <= step <= last:
                break
        return end

    def last_step(self) -> int | None:
        """The highest step number within the last few STEPS frames, one turn of all agents; None without any."""
        offsets: list[int] = []
        for stretch in range(len(self._stretches) - 1, -1, -1):
            opened = self._look(stretch)
            if opened is None:
                return self.last_step()
            offsets = [opened.offsets[frame] for frame in opened.steps] + offsets
            if len(offsets) >= MAX_AGENTS_IN_TURN:
                break
        found = max(map(self._last_step, offsets[-MAX_AGENTS_IN_TURN:]), default=-1)
        return found if found >= 0 else None

    def _stretch_of(self, offset: int) -> int:
        """The stretch in which the last byte before this offset lies; -1 before the first."""
        return bisect_left(self._stretches, offset, key=lambda one: one.begin) - 1

    def _last_step(self, offset: int) -> int:
        """The highest step of the STEPS frame that begins here; -1 if there is none."""
        return self._span(offset)[1]

    def _span(self, offset: int) -> tuple[int, int]:
        """The lowest and highest step of the STEPS frame that begins here; -1 if there is none."""
        known = self._spans.get(offset)
        if known is None:
            known = self._spans[offset] = self._read_span(offset)
        return known

    def _read_span(self, offset: int) -> tuple[int, int]:
        self._reader.position = offset
        try:
            steps = unpack_columns(decode(self._reader.take(1)[0].data).payload, ("step",))["step"]
        except (FrameError, IndexError):
            return -1, -1
        return (int(steps.min()), int(steps.max())) if len(steps) else (-1, -1)

    # -- opening ---------------------------------------------------------------------------------------------

    def adopt(self, scan: Scan, summary: RecordingSummary) -> None:
        """Take what somebody found who has read all frames; of a file that has grown, only whether it is sound."""
        if scan.end == self.end:
            found = replace(
                self.summary,
                num_frames=sum(stretch.num_frames for stretch in scan.stretches),
                num_bad_bytes=summary.num_bad_bytes,
                num_bad_regions=summary.num_bad_regions,
                num_wrong_indexes=summary.num_wrong_indexes,
            )
            self._set(scan.stretches, scan.end, found)
            self._is_believed = False
        elif self._is_believed:
            begins = {stretch.begin for stretch in scan.stretches}
            known = [stretch.begin for stretch in self._stretches if stretch.end <= scan.end]
            if summary.num_bad_regions or summary.num_wrong_indexes or not begins.issuperset(known):
                self._read_whole()

    def _open_by_index(self) -> bool:
        """Take the file's index for what lies before its last frame, and read what lies behind that."""
        reader = self._reader
        found = read_index(reader.read_at, reader.num_bytes) if reader.version > 1 else None
        self._is_believed = found is not None
        if found is None:
            return False
        stretches, last_index = found
        reader.position = last_index
        reader.take(1, with_index=True)
        begin = reader.position
        scan = Scan(stretches, begin, last_index)
        scan.end = stretches[-1].end
        while taken := reader.take(with_index=True):
            scan.take(taken)
        scan.finish()
        summary = told(scan, reader)
        num_index_bytes = sum(after.begin - before.end for before, after in pairwise(stretches))
        self._set(
            scan.stretches,
            scan.end,
            replace(
                summary,
                num_frames=sum(stretch.num_frames for stretch in scan.stretches),
                num_indexes=summary.num_indexes + len(stretches) - 1,
                num_index_bytes=summary.num_index_bytes + num_index_bytes,
            ),
        )
        behind = summary.num_bytes - begin
        self.opened = f"by its index of {len(stretches):,} parts, {behind:,} bytes behind it read"
        return True

    def _read_whole(self) -> None:
        is_wrong = self._is_believed
        self._is_believed = False
        scan, summary = scanned(self._reader)
        self._set(scan.stretches, scan.end, summary)
        why = "its index does not agree with it" if is_wrong or summary.num_index_bytes else "it has no index"
        self.opened = f"by reading all of it: {why}"

    def _set(self, stretches: Sequence[Stretch], end: int, summary: RecordingSummary) -> None:
        self._stretches = list(stretches)
        self._nums = [0, *accumulate(stretch.num_frames for stretch in stretches)]
        self._bases: dict[str, list[tuple[int, int]]] = {}  # source -> (stretch in which it was set, base)
        for number, stretch in enumerate(stretches):
            for source, base_ns in stretch.bases_ns.items():
                self._bases.setdefault(source, []).append((number, base_ns))
        self.end = end
        self.summary = summary
        self._opened.clear()

    # -- looking into a stretch ------------------------------------------------------------------------------

    def _look(self, number: int) -> _Opened | None:
        """The frames of a stretch. None: it is not what the index said, everything was read, look it up anew."""
        opened = self._opened.get(number)
        if opened is None:
            opened, is_true = self._read(number)
            if not is_true and self._is_believed:
                self._read_whole()
                return None
            self._opened[number] = opened
            if len(self._opened) > MAX_OPENED:
                self._opened.popitem(last=False)
        else:
            self._opened.move_to_end(number)
        return opened

    def _read(self, number: int) -> tuple[_Opened, bool]:
        """The frames of a stretch, and whether they are what is said of it."""
        stretch, reader = self._stretches[number], self._reader
        opened = _Opened([], [], [], [])
        timeline = Timeline(
            self._stretches[number - 1].due_ns if number else 0,
            lambda source: self._base_before(source, number),
        )
        reader.position = stretch.begin
        num_bad_bytes = reader.summary().num_bad_bytes
        while reader.position < stretch.end and (taken := reader.take(stretch.end - reader.position)):
            for located in taken:
                if located.offset >= stretch.end:
                    break
                if located.head.kind is FrameKind.STEPS:
                    opened.steps.append(len(opened.offsets))
                opened.offsets.append(located.offset)
                opened.ends.append(located.offset + located.head.num_bytes)
                opened.due_ns.append(timeline.add(located.head.source, located.head.time_ns))
        is_true = (
            len(opened.offsets) == stretch.num_frames
            and timeline.now_ns == stretch.due_ns
            and timeline.changed_ns == stretch.bases_ns
            and stretch.steps_at == (opened.offsets[opened.steps[-1]] if opened.steps else 0)
            and reader.summary().num_bad_bytes == num_bad_bytes
        )
        return opened, is_true

    def _base_before(self, source: str, number: int) -> int | None:
        """What is taken from a source's clock at the beginning of a stretch; None if it was not heard before."""
        bases = self._bases.get(source, [])
        found = bisect_left(bases, number, key=lambda entry: entry[0])
        return bases[found - 1][1] if found else None
