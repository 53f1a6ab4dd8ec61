"""Recordings survive what disks, kills and strangers do to them, and say what it cost."""

from __future__ import annotations

import errno
import os
import struct
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from fuzzing import num_inputs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.stream import recording
from tuiadvisor.stream.frames import HEADER_BYTES, FrameKind, encode, is_index, split
from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.recording import RecordingReader, RecordingSummary, RecordingWriter
from tuiadvisor.stream.scan import read_summary

if TYPE_CHECKING:
    from pathlib import Path

RUN = encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1, "label": "train.py"})
ANY_TMP = settings(max_examples=num_inputs(150), suppress_health_check=[HealthCheck.function_scoped_fixture])


def frame(seq: int, text: str = "x") -> bytes:
    return encode(FrameKind.BYE, "h/1/2", seq, seq * 1000, {"reason": text})


def write(path: Path, frames: list[bytes], stretch_bytes: int = 1 << 20) -> bytes:
    writer = RecordingWriter(path, RUN, stretch_bytes)
    for data in frames:
        writer.append(data)
    writer.close()
    return path.read_bytes()


def read(path: Path) -> tuple[list[bytes], RecordingSummary]:
    with RecordingReader(path) as reader:
        return [located.data for located in reader.frames()], reader.summary()


def frames_in(data: bytes) -> list[bytes]:
    """All frames of a sound recording, INDEX frames too."""
    return list(split(data[FILE_HEADER_BYTES:]))


def test_frames_come_back_in_order_and_owner_only(tmp_path: Path) -> None:
    """What was appended is read back, byte for byte, from a file that only its owner may read."""
    path = tmp_path / "a.tuirec"
    frames = [frame(seq) for seq in range(50)]
    write(path, frames)
    assert ([RUN, *frames], ()) == (read(path)[0], read(path)[1].notes)
    assert 0o600 == path.stat().st_mode & 0o777


def test_a_metadata_only_recording_opens(tmp_path: Path) -> None:
    """A recording whose writer died right after its first frame, or even before it, opens."""
    path = tmp_path / "a.tuirec"
    data = write(path, [])
    assert [RUN] == read(path)[0]
    path.write_bytes(data[:FILE_HEADER_BYTES])
    assert ([], ()) == (read(path)[0], read(path)[1].notes)


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """Cut anywhere: all whole frames before the cut, the rest counted as tail; inside the header: one line."""
    path = tmp_path / "a.tuirec"
    frames = [frame(0), frame(1, "longer " * 60), frame(2)]
    data = write(path, frames, stretch_bytes=60)
    written = frames_in(data)
    assert 3 == sum(map(is_index, written))
    ends = [*accumulate([FILE_HEADER_BYTES, *map(len, written)])]
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        if length < FILE_HEADER_BYTES:
            with pytest.raises(TuiadvisorError, match="cut inside its header") as caught:
                read(path)
            assert "\n" not in str(caught.value)
            continue
        whole = sum(end <= length for end in ends) - 1
        sound = [item for item in written[:whole] if not is_index(item)]
        found, summary = read(path)
        assert sound == found
        assert (len(sound), whole - len(sound)) == (summary.num_frames, summary.num_indexes)
        assert (length - ends[whole], 0) == (summary.num_tail_bytes, summary.num_bad_bytes)


@pytest.mark.slow
@ANY_TMP
@given(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=6))
def test_flipped_bits_cost_only_the_frames_they_hit(tmp_path: Path, flips: list[int]) -> None:
    """Bits flipped anywhere: every untouched frame is read, no touched one is, all bytes are accounted for."""
    path = tmp_path / "a.tuirec"
    path.unlink(missing_ok=True)
    frames = [frame(seq, f"{seq} " * (seq * 7 % 40)) for seq in range(12)]
    data = bytearray(write(path, frames, stretch_bytes=300))
    written = frames_in(data)
    positions = {flip % ((len(data) - FILE_HEADER_BYTES) * 8) + FILE_HEADER_BYTES * 8 for flip in flips}
    for position in positions:
        data[position // 8] ^= 1 << position % 8
    path.write_bytes(data)
    begin, sound = FILE_HEADER_BYTES, []
    for item in written:
        if data[begin : begin + len(item)] == item:
            sound.append(item)
        begin += len(item)
    found, summary = read(path)
    assert [item for item in sound if not is_index(item)] == found
    num_passed = summary.num_index_bytes + summary.num_bad_bytes + summary.num_tail_bytes
    assert len(data) - FILE_HEADER_BYTES == sum(map(len, found)) + num_passed
    assert (len(sound) < len(written)) == bool(summary.notes)


@ANY_TMP
@given(st.binary(max_size=400), st.integers(0, 3))
def test_foreign_bytes_between_frames_are_passed_over(tmp_path: Path, junk: bytes, place: int) -> None:
    """Any bytes wedged in between frames are counted; the frames around them are all read."""
    path = tmp_path / "a.tuirec"
    path.unlink(missing_ok=True)
    frames = [RUN, frame(0), frame(1)]
    data = write(path, frames[1:])
    cut = FILE_HEADER_BYTES + sum(map(len, frames[:place]))
    path.write_bytes(data[:cut] + junk + data[cut:])
    found, summary = read(path)
    assert frames == found
    assert len(junk) == summary.num_bad_bytes + summary.num_tail_bytes


def test_small_reads_see_the_same_frames(tmp_path: Path) -> None:
    """The size of the reading window changes nothing, damage at its edges included."""
    path = tmp_path / "a.tuirec"
    frames = [frame(seq, "y" * (seq * 37 % 300)) for seq in range(40)]
    data = bytearray(write(path, frames))
    data[1000:1003] = b"TUI"
    data[2000] ^= 1
    path.write_bytes(data)
    whole = read(path)
    for max_bytes in (1, *range(33, 400), 1000):
        with RecordingReader(path) as reader:
            found = []
            while taken := reader.take(max_bytes):
                found += [located.data for located in taken]
            assert whole == (found, reader.summary())


def test_a_header_that_promises_too_much_hides_nothing(tmp_path: Path) -> None:
    """A length damaged to reach beyond the end of the file does not swallow the frames behind it."""
    path = tmp_path / "a.tuirec"
    frames = [frame(seq) for seq in range(4)]
    data = bytearray(write(path, frames))
    struct.pack_into("<I", data, FILE_HEADER_BYTES + len(RUN) + 12, 10_000)
    path.write_bytes(data)
    found, summary = read(path)
    assert [RUN, *frames[1:]] == found
    assert (len(frames[0]), 1) == (summary.num_bad_bytes, summary.num_bad_regions)


def test_a_hostile_recording_cannot_make_reading_endless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of headers that each promise a huge frame: bounded work, and the good small frame is found."""
    monkeypatch.setattr(recording, "MAX_VAIN_BYTES", 1 << 20)
    path = tmp_path / "a.tuirec"
    header = encode(FrameKind.BYE, "h/1/2", 0, 0, {})[:HEADER_BYTES]
    fake = bytearray(header + b"h/1/2")
    struct.pack_into("<I", fake, 12, 200_000)
    write(path, [bytes(fake) * 20_000, frame(1)])
    with RecordingReader(path) as reader:
        found = [located.data for located in reader.frames()]
        assert [RUN, frame(1)] == found
        assert reader._num_vain_bytes < (1 << 20) + 200_000 + 2 * 20_000 * recording.SMALL_FRAME_BYTES
        assert len(fake) * 20_000 == reader.summary().num_bad_bytes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut inside its header"),
        (b"short", "not a recording"),
        (b"PK\x03\x04" + bytes(100), "not a recording of tuiadvisor"),
        (b"TUIREC\r\n\x63\0\0\0\0\0\0\0", "version 99"),
    ],
)
def test_what_is_no_recording_is_one_clear_line(tmp_path: Path, content: bytes, message: str) -> None:
    """Other files, folders, pipes and nothing at all: one line that names the path."""
    path = tmp_path / "file"
    path.write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    for given_path, expected in [
        (path, message),
        (tmp_path, "not a file"),
        (tmp_path / "pipe", "not a file"),
        (tmp_path / "none", "no such recording"),
    ]:
        with pytest.raises(TuiadvisorError, match=expected) as caught:
            RecordingReader(given_path)
        assert str(caught.value).startswith(f"{given_path}: ")
        assert "\n" not in str(caught.value)


def test_nothing_is_overwritten_and_no_link_followed(tmp_path: Path) -> None:
    """An existing file, and a link planted at the recording's name, are refused and left as they are."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    link, dangling = tmp_path / "link", tmp_path / "dangling"
    link.symlink_to(precious)
    dangling.symlink_to(tmp_path / "elsewhere")
    for path in (precious, link, dangling):
        with pytest.raises(TuiadvisorError, match="exists already"):
            RecordingWriter(path, RUN)
    assert ("mine", False) == (precious.read_text(), (tmp_path / "elsewhere").exists())


def test_a_full_disk_keeps_every_whole_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a write stops half way, the half is taken back, the error says what is kept, and later writes go on."""
    path = tmp_path / "a.tuirec"
    writer = RecordingWriter(path, RUN)
    writer.append(frame(0))
    kept = path.read_bytes()
    real_pwrite, room = os.pwrite, 10

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real_pwrite(descriptor, data[:room], offset)
        room -= done
        return done

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(FailureError, match=r"No space left.*keeps its 2 frames"):
        writer.append(frame(1))
    assert kept == path.read_bytes()
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real_pwrite(fd, data[:7], offset))
    writer.append(frame(2))
    writer.close()
    assert [RUN, frame(0), frame(2)] == read(path)[0]


def test_a_recording_can_be_read_while_it_grows(tmp_path: Path) -> None:
    """A frame of which only a part is there yet is not damage: it comes with the next look."""
    path = tmp_path / "a.tuirec"
    data = write(path, [frame(0), frame(1)])
    data = b"".join([data[:FILE_HEADER_BYTES], *frames_in(data)[:-1]])  # not closed yet
    cut = len(data) - 5
    path.write_bytes(data[:cut])
    with RecordingReader(path) as reader:
        assert [RUN, frame(0)] == [located.data for located in reader.frames()]
        with path.open("ab") as growing:
            growing.write(data[cut:])
        assert [frame(1)] == [located.data for located in reader.take()]
        assert () == reader.summary().notes


def test_summary_of_a_sound_recording(tmp_path: Path) -> None:
    """Frames and bytes are counted; nothing is wrong."""
    path = tmp_path / "a.tuirec"
    data = write(path, [frame(0)])
    index = frames_in(data)[-1]
    assert RecordingSummary(len(data), 2, 0, 0, 0, num_indexes=1, num_index_bytes=len(index)) == read_summary(
        path
    )
