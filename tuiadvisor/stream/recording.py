r"""A recording on disk: sixteen bytes of header, then raw frames back to back, appended and never changed.

    0   magic     8s   b"TUIREC\r\n"   (a transfer in text mode breaks it visibly)
    8   version   u32  2; files of version 1 have no INDEX frames
    12  reserved  u32  0
    16  frames         the first one is RUN; an INDEX frame after each stretch of them and at the end

Every append is one write of whole frames, so a killed writer costs at most the last frame and a full disk costs
none that was there. INDEX frames (stream.index) are the file's own, readers of frames never see them. Reading checks
every frame's CRC, resumes after damage at the next whole frame, and counts what it passed over: `RecordingSummary`
says it, nothing is left out in silence.
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tuiadvisor.errors import FailureError, TuiadvisorError, exists_already
from tuiadvisor.stream.frames import (
    HEADER_BYTES,
    MAGIC,
    FrameError,
    FrameHead,
    FrameKind,
    frame_length,
    heads,
    peek,
)
from tuiadvisor.stream.index import FILE_HEADER_BYTES, STRETCH_BYTES, Tally, index_frame
from tuiadvisor.stream.packed import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_MAGIC: Final = b"TUIREC\r\n"
FILE_VERSION: Final = 2
OLD_VERSIONS: Final = (1,)  # that are read too
FILE_HEADER: Final = struct.Struct("<8sII")
CHUNK_BYTES: Final = 4 << 20
# A hostile file can name a huge frame every 32 bytes: after this much vain checksumming only small frames are
# looked for in damaged regions.
MAX_VAIN_BYTES: Final = 1 << 30
SMALL_FRAME_BYTES: Final = 4096
NOT_CLOSED: Final = "recording was not closed: it is still being written, or its writer was killed"


@dataclass(frozen=True, slots=True)
class Located:
    """A whole frame and where it lies in the file."""

    offset: int
    head: FrameHead
    data: bytes


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """What reading a recording found so far."""

    num_bytes: int
    num_frames: int
    num_bad_bytes: int
    num_bad_regions: int
    num_tail_bytes: int  # a frame that was being written when the writer died
    num_indexes: int = 0  # INDEX frames
    num_index_bytes: int = 0
    num_wrong_indexes: int = 0  # INDEX frames that do not say what lies before them, in a file without damage
    is_open: bool = False  # nobody closed it: its writer goes on, or was killed between two frames

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes, and that the end is missing; a recording that is watched while it grows has none yet."""
        return (*self.notes, NOT_CLOSED) if self.is_open else self.notes

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each thing that is wrong; none for a sound recording."""
        notes = []
        if self.num_bad_regions:
            notes.append(
                f"recording damaged in {self.num_bad_regions} place(s), {self.num_bad_bytes} bytes passed over"
            )
        if self.num_tail_bytes:
            notes.append(
                f"recording ends inside a frame: it was cut, {self.num_tail_bytes} bytes passed over"
            )
        if self.num_wrong_indexes:
            notes.append(f"recording's index is wrong in {self.num_wrong_indexes} place(s) and not used")
        return tuple(notes)


def check_place(path: str) -> None:
    """TuiadvisorError unless a recording can be created there; said before a training is started for it."""
    os.close(_create(path))
    Path(path).unlink()


def _create(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        raise exists_already(path) from None
    except OSError as error:
        raise TuiadvisorError(
            f"{path}: cannot create the recording: {error.strerror}; choose another place"
        ) from None


class RecordingWriter:
    """The one who appends. `num_bytes` is always the end of the last whole frame."""

    def __init__(self, path: Path | str, first_frame: bytes, stretch_bytes: int = STRETCH_BYTES) -> None:
        """Create the file, owner-only, with its header and its RUN frame; refuses whatever is there already.

        stretch_bytes: after so many an INDEX frame is written.
        """
        self.path = str(path)
        self._fd = _create(self.path)
        self.num_bytes = 0
        self.num_frames = 0
        self._stretch_bytes = stretch_bytes
        self._tally: Tally | None = Tally()
        self._last_index = self._num_indexes = 0
        try:
            self._write(FILE_HEADER.pack(FILE_MAGIC, FILE_VERSION, 0) + first_frame)
        except FailureError:
            self.close()
            Path(self.path).unlink()  # ours since O_EXCL, and nothing is in it
            raise
        self._count(first_frame, 1)

    @property
    def descriptor(self) -> int:
        """The open file's."""
        return self._fd

    def append(self, data: bytes, num_frames: int = 1) -> None:
        """Write whole frames at the end. FailureError if the disk takes them not: none of them is kept then."""
        self._write(data)
        self._count(data, num_frames)
        if self._tally is not None and self.num_bytes - self._tally.begin >= self._stretch_bytes:
            self._write_index(self._tally)

    def _count(self, data: bytes, num_frames: int) -> None:
        """Take note of what was just written."""
        self.num_frames += num_frames
        if self._tally is not None:
            begin = self.num_bytes - len(data)
            for offset, kind, source, time_ns in heads(data):
                self._tally.add(begin + offset, kind, source, time_ns)

    def _write_index(self, tally: Tally) -> None:
        """End the stretch. On a full disk it goes on: the frames count, and without an index they are read."""
        offset = self.num_bytes
        try:
            self._write(index_frame(self._last_index, [tally.stretch(offset)], self._num_indexes))
        except FailureError:
            return
        except (ValueError, TypeError):  # more sources or later clocks than a frame holds
            self._tally = None
            return
        tally.restart(self.num_bytes)
        self._last_index = offset
        self._num_indexes += 1

    def _write(self, data: bytes) -> None:
        view, done = memoryview(data), 0
        try:
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], self.num_bytes + done)
        except OSError as error:
            if done:
                os.ftruncate(self._fd, self.num_bytes)
            raise FailureError(
                f"{self.path}: {error.strerror}; the recording keeps its {self.num_frames} frames "
                f"({self.num_bytes} bytes); free space to go on"
            ) from error
        self.num_bytes += done

    def read(self, offset: int, num_bytes: int) -> bytes:
        """Bytes already appended, for those who watch while it grows."""
        return os.pread(self._fd, max(0, min(num_bytes, self.num_bytes - offset)), offset)

    def close(self) -> None:
        """Close the file; what was appended stays."""
        if self._tally is not None and self._tally.num_frames:
            self._write_index(self._tally)
        os.close(self._fd)


class RecordingReader:
    """Whole frames in order, from a finished or a growing recording, a bounded piece at a time."""

    def __init__(self, path: Path | str) -> None:
        """Open and check the file's header. TuiadvisorError in one line if this is no recording."""
        self.path = str(path)
        self._fd = _open(self.path)
        try:
            self.version = _check_header(self.path, os.pread(self._fd, FILE_HEADER_BYTES, 0))
        except BaseException:
            self.close()
            raise
        self.position = FILE_HEADER_BYTES
        self._num_frames = 0
        self._num_indexes = self._num_index_bytes = 0
        self._ends_with_frame = (
            False  # the last one that was read is no INDEX frame, as one that was closed has
        )
        self._num_bad_bytes = 0
        self._num_bad_regions = 0
        self._bad_end = -1
        self._num_vain_bytes = 0

    def __enter__(self) -> Self:
        """The reader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    @property
    def num_bytes(self) -> int:
        """Size of the file now."""
        return os.fstat(self._fd).st_size

    def summary(self) -> RecordingSummary:
        """What was found up to the current position; the tail counts as broken once `take` returned nothing."""
        size = self.num_bytes
        return RecordingSummary(
            num_bytes=size,
            num_frames=self._num_frames,
            num_bad_bytes=self._num_bad_bytes,
            num_bad_regions=self._num_bad_regions,
            num_tail_bytes=max(0, size - self.position),
            is_open=size == self.position and self.version == FILE_VERSION and self._ends_with_frame,
            num_indexes=self._num_indexes,
            num_index_bytes=self._num_index_bytes,
        )

    def rewind(self) -> None:
        """Back to the first frame, counts from zero."""
        self.position = FILE_HEADER_BYTES
        self._num_frames = self._num_indexes = self._num_index_bytes = 0
        self._num_bad_bytes = self._num_bad_regions = self._num_vain_bytes = 0
        self._ends_with_frame = False
        self._bad_end = -1

    def frames(self) -> Iterator[Located]:
        """All whole frames from the current position to the present end."""
        while taken := self.take():
            yield from taken

    def read_at(self, offset: int, num_bytes: int) -> bytes:
        """What the file holds there, unchecked."""
        return os.pread(self._fd, num_bytes, offset)

    def take(self, max_bytes: int = CHUNK_BYTES, *, with_index: bool = False) -> list[Located]:
        """The next whole frames, about max_bytes of them but at least one; none at the present end.

        with_index: INDEX frames too.
        """
        window_bytes = max(max_bytes, HEADER_BYTES)
        while True:
            size = self.num_bytes
            window = os.pread(self._fd, window_bytes, self.position)
            taken, needed = self._walk(window, at_end=self.position + len(window) >= size)
            frames = [located for located in taken if located.head.kind is not FrameKind.INDEX]
            self._num_frames += len(frames)
            if taken:
                self._ends_with_frame = taken[-1].head.kind is not FrameKind.INDEX
            if len(frames) < len(taken):
                self._num_indexes += len(taken) - len(frames)
                self._num_index_bytes += sum(
                    len(located.data) for located in taken if located.head.kind is FrameKind.INDEX
                )
            if with_index:
                frames = taken
            if frames or not (taken or needed):
                return frames
            window_bytes = max(window_bytes, needed)

    def _walk(self, window: bytes, *, at_end: bool) -> tuple[list[Located], int]:
        """Frames in the window, and how many bytes are needed to go on if there were none; moves position."""
        taken: list[Located] = []
        view, start, offset = memoryview(window), self.position, 0
        while offset < len(view):
            try:
                num_bytes = frame_length(view, offset)
            except FrameError:
                offset = self._pass_over(offset, self._next_candidate(window, offset + 1))
                continue
            if num_bytes is None or offset + num_bytes > len(view):
                if not at_end:
                    self.position = start + offset
                    return taken, num_bytes or HEADER_BYTES
                following = self._next_whole(window, offset)
                if following is None:
                    break
                offset = self._pass_over(offset, following)
                continue
            try:
                head = peek(view[offset : offset + num_bytes])
            except FrameError:
                self._num_vain_bytes += num_bytes
                offset = self._pass_over(offset, self._next_candidate(window, offset + 1))
                continue
            taken.append(Located(start + offset, head, window[offset : offset + num_bytes]))
            offset += num_bytes
        self.position = start + offset
        return taken, 0 if at_end else HEADER_BYTES

    def _next_candidate(self, window: bytes, offset: int) -> int:
        """Where the next frame may begin: a plausible header, or the start of one that the window cuts."""
        while (found := window.find(MAGIC, offset)) >= 0:
            try:
                num_bytes = frame_length(window, found)
            except FrameError:
                offset = found + 1
                continue
            if num_bytes is None or num_bytes <= self._patience_bytes():
                return found
            offset = found + 1
        for length in range(len(MAGIC) - 1, 0, -1):
            if window.endswith(MAGIC[:length]) and len(window) - length >= offset:
                return len(window) - length
        return len(window)

    def _next_whole(self, window: bytes, offset: int) -> int | None:
        """The next sound frame after a header that promises more than the file holds; None: the file was cut."""
        if not MAGIC.startswith(window[offset : offset + len(MAGIC)]):
            return self._next_candidate(window, offset + 1)
        found = offset
        while (found := self._next_candidate(window, found + 1)) < len(window):
            num_bytes = frame_length(window, found) if len(window) - found >= len(MAGIC) else None
            if num_bytes is None or found + num_bytes > len(window):
                continue
            try:
                peek(memoryview(window)[found : found + num_bytes])
            except FrameError:
                self._num_vain_bytes += num_bytes
                continue
            return found
        return None

    def _patience_bytes(self) -> int:
        return SMALL_FRAME_BYTES if self._num_vain_bytes > MAX_VAIN_BYTES else 1 << 62

    def _pass_over(self, begin: int, end: int) -> int:
        """Count damaged bytes; two stretches that touch are one region."""
        if self.position + begin != self._bad_end:
            self._num_bad_regions += 1
        self._bad_end = self.position + end
        self._num_bad_bytes += end - begin
        return end


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise TuiadvisorError(f"{path}: no such recording; check the name") from None
    except OSError as error:
        raise TuiadvisorError(f"{path}: cannot open the recording: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TuiadvisorError(f"{path}: not a file; give the path of a recording")
    return plain(path, descriptor, FILE_MAGIC)


def _check_header(path: str, header: bytes) -> int:
    """Its version."""
    if len(header) < FILE_HEADER_BYTES:
        wholes = [FILE_HEADER.pack(FILE_MAGIC, version, 0) for version in (FILE_VERSION, *OLD_VERSIONS)]
        is_cut = any(whole.startswith(header) for whole in wholes)
        what = "cut inside its header, no frame is left" if is_cut else "not a recording"
        raise TuiadvisorError(f"{path}: {what}; record again or give another file")
    magic, version, _ = FILE_HEADER.unpack(header)
    if magic != FILE_MAGIC:
        raise TuiadvisorError(f"{path}: not a recording of tuiadvisor; give a file that `record` wrote")
    if version not in {FILE_VERSION, *OLD_VERSIONS}:
        raise TuiadvisorError(
            f"{path}: recording of version {version}, this program reads {FILE_VERSION}; update it"
        )
    return int(version)
