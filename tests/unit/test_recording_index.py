"""The index inside a recording: it saves reading, and nothing that is shown is ever taken on its word."""

from __future__ import annotations

import errno
import os
import zlib
from typing import TYPE_CHECKING, Final

import pytest
from fuzzing import num_inputs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_run import Fault, Job, encoded, frames

from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.stream.frames import HEADER as FRAME_HEADER
from tuiadvisor.stream.frames import FrameKind, encode, heads, is_index, split
from tuiadvisor.stream.index import FILE_HEADER_BYTES, Stretch, Tally, index_payload
from tuiadvisor.stream.recording import (
    FILE_HEADER,
    FILE_MAGIC,
    FILE_VERSION,
    RecordingReader,
    RecordingWriter,
)
from tuiadvisor.stream.recordingindex import RecordingIndex
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.stream.scan import Scan, read_summary, scanned
from tuiadvisor.stream.source import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Payload = dict[str, object]

JOB: Final = Job(
    num_steps=90, num_ranks=4, ranks_per_host=2, faults=(Fault("backward", (2,), 0.015, onset=20),)
)
RUN: Final = encode(FrameKind.RUN, "hub", 0, 5, {"schema": 1})
FRAMES: Final = [RUN, *map(encoded, frames(JOB, rows_per_frame=6))]
STRETCH_BYTES: Final = 2500
HEADER: Final = FILE_HEADER.pack(FILE_MAGIC, FILE_VERSION, 0)
MANY: Final = settings(
    max_examples=num_inputs(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write(path: Path, parts: list[bytes] = FRAMES) -> list[bytes]:
    """A recording with several INDEX frames; all that is in it."""
    writer = RecordingWriter(path, parts[0], STRETCH_BYTES)
    for data in parts[1:]:
        writer.append(data)
    writer.close()
    return list(split(path.read_bytes()[FILE_HEADER_BYTES:]))


def forged(lie: Callable[[int, Payload], Payload]) -> bytes:
    """A recording whose INDEX frames say what `lie` makes of the truth, at the right places with right checksums."""
    data, tally, previous, number = bytearray(HEADER), Tally(), 0, 0
    for frame in FRAMES:
        for _, kind, source, time_ns in heads(frame):
            tally.add(len(data), kind, source, time_ns)
        data += frame
        if len(data) - tally.begin >= STRETCH_BYTES or frame is FRAMES[-1]:
            payload = lie(number, index_payload(len(data), previous, [tally.stretch(len(data))]))
            index = encode(FrameKind.INDEX, "hub", number, 0, payload)
            previous, number = len(data), number + 1
            data += index
            tally.restart(len(data))
    return bytes(data)


def places(index: RecordingIndex) -> list[object]:
    """Every answer that an index gives."""
    ends = [index.offset_after(number) for number in range(len(index) + 2)]
    return [
        len(index),
        index.end,
        index.duration_s,
        index.last_step(),
        ends,
        [index.position_s(offset) for offset in ends],
        [index.next_end(offset) for offset in ends],
        [index.offset_at(index.duration_s * share / 50) for share in range(-1, 52)],
        [index.offset_of_step(step) for step in range(-1, 95)],
    ]


def truth(path: Path) -> list[object]:
    """The same from reading all frames."""
    with RecordingReader(path) as reader, RecordingIndex(path) as index:
        index.adopt(*scanned(reader))
        return places(index)


def test_the_index_says_what_reading_all_of_it_finds(tmp_path: Path) -> None:
    """Every place by time, step and number of frames; in a recording of an older version, and one that was cut."""
    path = tmp_path / "run.tuirec"
    written = write(path)
    assert 4 <= sum(map(is_index, written))
    with RecordingIndex(path) as index:
        assert index.opened.startswith("by its index of")
        assert index.opened.endswith(" 0 bytes behind it read")
        assert truth(path) == places(index)
        assert len(FRAMES) == index.summary.num_frames == len(index)
        assert index.summary == read_summary(path)
    by_index = truth(path)
    data = path.read_bytes()
    path.write_bytes(HEADER + b"".join(data for data in written if not is_index(data)))
    with RecordingIndex(path) as index:
        assert index.opened == "by reading all of it: it has no index"
        assert truth(path) == places(index)
        same = [2, 3, 5]  # times and steps, not offsets
        assert [by_index[one] for one in same] == [places(index)[one] for one in same]
    path.write_bytes(data[: len(data) * 2 // 3])
    with RecordingIndex(path) as index:
        assert index.opened.startswith("by its index of")
        assert 1 == len(index.summary.notes)
        assert truth(path) == places(index)


def test_opening_reads_what_lies_behind_the_last_index_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a recording whose writer was killed, the frames of one stretch; of a closed one, none."""
    path = tmp_path / "run.tuirec"
    written = write(path)
    data, num_read = path.read_bytes(), 0
    real = Scan.take

    def take(self: Scan, taken: list[object]) -> object:
        nonlocal num_read
        num_read += len(taken)
        return real(self, taken)  # type: ignore[arg-type]

    monkeypatch.setattr(Scan, "take", take)
    RecordingIndex(path).close()
    assert 0 == num_read
    path.write_bytes(data[: -len(written[-1]) - 1])
    RecordingIndex(path).close()
    last = max(number for number, frame in enumerate(written[:-1]) if is_index(frame))
    assert len(written) - last - 3 == num_read


LIES: Final = st.dictionaries(
    st.integers(0, 4),
    st.dictionaries(
        st.sampled_from(["offset", "previous", "frames", "steps_at", "due_ns", "bases", "novel"]),
        st.one_of(
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.integers(-3, 20_000),
            st.none(),
            st.dictionaries(st.sampled_from(["node0/1/1", "hub", "x"]), st.integers(-5, 1 << 50)),
        ),
        min_size=1,
    ),
    min_size=1,
)


@pytest.mark.slow
@MANY
@given(LIES, st.lists(st.integers(0, 95), min_size=1, max_size=4))
def test_an_index_that_lies_shows_no_wrong_frame_and_is_found_out(
    tmp_path: Path, lies: dict[int, Payload], steps: list[int]
) -> None:
    """Whatever it says: frames come whole and in order from the first one, and what is looked at is right or noted."""
    path = tmp_path / "run.tuirec"
    numbers = []

    def lie(number: int, payload: Payload) -> Payload:
        said = payload | lies.get(number, {})
        numbers.append(said != payload)
        return said

    def count(number: int, payload: Payload) -> Payload:
        try:
            encode(FrameKind.INDEX, "hub", 0, 0, lie(number, payload))
        except TypeError:
            return payload
        return payload | lies.get(number, {})

    path.write_bytes(forged(count))
    feed = ReplayFeed(ReplaySource(path))
    source = feed.replay
    source.clock.pause()
    for step in steps:
        if source.seek_step(step):
            source.resume_at(FILE_HEADER_BYTES)
            source.seek_step(step)
        before = sum(1 for frame in shown(path, source.offset))
        taken = []
        while more := source.read(0.0):
            taken += more
        assert FRAMES[before : before + len(taken)] == taken
    while not feed._survey.is_done:
        feed._cycle()
    assert truth(path) == places(source.index)
    assert any(numbers) == any("index is wrong" in note for note in source.index.summary.notes)
    assert len(FRAMES) == source.index.summary.num_frames
    feed.stop()


def shown(path: Path, end: int) -> list[bytes]:
    """Frames that readers see before an offset."""
    with RecordingReader(path) as reader:
        return [located.data for located in reader.frames() if located.offset < end]


@pytest.mark.parametrize(
    "name",
    ["frames", "steps_at", "due_ns", "bases"],
)
def test_a_lie_about_a_stretch_is_found_out_by_looking_into_it(tmp_path: Path, name: str) -> None:
    """Before the place is told; from then on all of it was read."""
    path = tmp_path / "run.tuirec"
    changed: Payload = {"bases": {"x": 5}}

    def lie(number: int, payload: Payload) -> Payload:
        value = payload[name]
        return (
            payload | (changed if name == "bases" else {name: int(str(value)) - 1})
            if number == 2
            else payload
        )

    path.write_bytes(forged(lie))
    with RecordingIndex(path) as index:
        assert index.opened.startswith("by its index of")
        third = index._stretches[2]
        assert index.position_s(third.end) >= 0
        assert index.opened == "by reading all of it: its index does not agree with it"
        assert truth(path) == places(index)
        assert ("recording's index is wrong in 1 place(s) and not used",) == index.summary.notes


@pytest.mark.parametrize("previous", [-1, 1, 15, 16, 17, 2000, 1 << 40, "itself", "behind", "first"])
def test_a_chain_that_leads_nowhere_or_in_a_ring_is_not_followed(tmp_path: Path, previous: int | str) -> None:
    """Offsets outside the file, into frames, at itself, forward, over others: everything is read instead."""
    path = tmp_path / "run.tuirec"
    honest = forged(lambda _, payload: payload)
    indexes, offset = [], FILE_HEADER_BYTES
    for frame in split(honest[FILE_HEADER_BYTES:]):
        if is_index(frame):
            indexes.append(offset)
        offset += len(frame)
    named = {"itself": indexes[3], "behind": indexes[4], "first": indexes[0]}
    said = named[previous] if isinstance(previous, str) else previous
    path.write_bytes(forged(lambda number, payload: payload | ({"previous": said} if number == 3 else {})))
    with RecordingIndex(path) as index:
        assert index.opened == "by reading all of it: its index does not agree with it"
        assert truth(path) == places(index)


def test_an_index_inside_a_payload_is_none(tmp_path: Path) -> None:
    """An agent that sends the bytes of an INDEX frame as its text cannot move anything."""
    path = tmp_path / "run.tuirec"
    end = FILE_HEADER_BYTES + sum(map(len, FRAMES))
    fake = encode(
        FrameKind.INDEX,
        "hub",
        0,
        0,
        {"offset": end + 37, "previous": 0, "frames": 3, "steps_at": 0, "due_ns": 0, "bases": {}},
    )
    loud = _with_body(encode(FrameKind.BYE, "x/1/1", 0, 7, {}), fake)
    path.write_bytes(HEADER + b"".join(FRAMES) + loud)
    with RecordingIndex(path) as index:
        assert index.opened == "by reading all of it: its index does not agree with it"
        assert (len(FRAMES) + 1, end + len(loud)) == (len(index), index.end)
        assert truth(path) == places(index)


def _with_body(frame: bytes, body: bytes) -> bytes:
    """The frame with another payload, uncompressed, and a checksum that fits."""
    magic, _, version, kind, _, name_length, _, seq, time_ns = FRAME_HEADER.unpack_from(frame)
    name = frame[FRAME_HEADER.size : FRAME_HEADER.size + name_length]
    fields = (version, kind, 0, name_length, name_length + len(body), seq, time_ns)
    crc = zlib.crc32(FRAME_HEADER.pack(magic, 0, *fields)[8:] + name + body)
    return FRAME_HEADER.pack(magic, crc, *fields) + name + body


def test_two_recordings_in_one_file_are_read(tmp_path: Path) -> None:
    """The second one's index speaks of other places: all frames are there, the header between them is said."""
    path = tmp_path / "run.tuirec"
    written = write(path)
    data = path.read_bytes()
    path.write_bytes(data + data)
    with RecordingIndex(path) as index:
        assert index.opened == "by reading all of it: its index does not agree with it"
        assert 2 * len(FRAMES) == len(index)
        assert 16 == index.summary.num_bad_bytes
        assert truth(path) == places(index)
    assert 2 * sum(map(is_index, written)) == index.summary.num_indexes


def test_damage_in_the_middle_is_said_once_it_was_seen(tmp_path: Path) -> None:
    """The index knows nothing of it; the look at the whole recording does, and then every place is right."""
    path = tmp_path / "run.tuirec"
    write(path)
    data = bytearray(path.read_bytes())
    data[FILE_HEADER_BYTES + sum(map(len, FRAMES[:9])) + 200] ^= 4
    path.write_bytes(data)
    with RecordingReader(path) as reader, RecordingIndex(path) as index:
        assert () == index.summary.notes
        index.adopt(*scanned(reader))
        damaged = f"recording damaged in 1 place(s), {len(FRAMES[9]):,} bytes passed over"
        assert damaged == index.summary.notes[0]
        assert len(FRAMES) - 1 == len(index)
    with RecordingIndex(path) as index:
        places(index)  # whoever comes to the damaged stretch finds it
        assert truth(path) == places(index)


def test_whoever_follows_a_growing_recording_sees_every_frame_and_no_index(tmp_path: Path) -> None:
    """After each append what was appended; opened anew meanwhile, the same places as by reading."""
    path = tmp_path / "run.tuirec"
    writer = RecordingWriter(path, FRAMES[0], STRETCH_BYTES)
    source = FileSource(path, follow=True)
    assert FRAMES[:1] == source.read(0.0)
    for number, data in enumerate(FRAMES[1:], 1):
        writer.append(data)
        assert [data] == source.read(0.0)
        with RecordingIndex(path) as index:
            assert number + 1 == len(index)
            assert ("by its" in index.opened) == bool(read_summary(path).num_indexes)
            assert truth(path) == places(index)
    writer.close()
    assert [] == source.read(0.0)
    assert ("", 0) == (source.status.note, source.status.bytes_behind)
    source.close()


def test_a_disk_too_full_for_the_index_costs_no_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an INDEX frame is taken back; it comes with a later append, or the frames are read."""
    path = tmp_path / "run.tuirec"
    writer = RecordingWriter(path, FRAMES[0], STRETCH_BYTES)
    real, is_full = os.pwrite, True

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        if is_full and data[:4] == b"TUIF" and is_index(bytes(data)):
            return real(descriptor, data[:40], offset)
        if is_full and data[:4] != b"TUIF" and offset:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    half = len(FRAMES) // 2
    for data in FRAMES[1:half]:
        writer.append(data)
    with RecordingIndex(path) as index:
        assert (index.opened, half) == ("by reading all of it: it has no index", len(index))
        assert () == index.summary.notes
    is_full = False
    for data in FRAMES[half:]:
        writer.append(data)
    writer.close()
    with RecordingIndex(path) as index:
        assert index.opened.startswith("by its index of")
        assert len(FRAMES) == len(index)
        assert truth(path) == places(index)
        assert () == read_summary(path).notes


def test_a_clock_no_index_can_hold_leaves_the_recording_without_one(tmp_path: Path) -> None:
    """Nothing is lost, all is read."""
    path = tmp_path / "run.tuirec"
    odd = [
        encode(FrameKind.BYE, f"{number}/1/1", 0, time_ns, {})
        for number, time_ns in enumerate((5, 9, -(1 << 63)))
    ]
    write(path, [*FRAMES[:20], *odd, encode(FrameKind.BYE, "0/1/1", 1, 10**9, {}), odd[2], *FRAMES[20:]])
    with RecordingIndex(path) as index:
        assert truth(path) == places(index)
        assert len(FRAMES) + 5 == len(index)
        assert () == index.summary.notes


def test_a_stretch_is_what_its_frames_are() -> None:
    """Counted frames, the last STEPS frame, time and the sources that came."""
    tally = Tally()
    tally.add(16, FrameKind.RUN, "hub", 5)
    tally.add(50, FrameKind.STEPS, "a", 100)
    tally.add(90, FrameKind.HOST, "a", 107)
    assert Stretch(16, 130, 3, 50, 7, {"hub": 5, "a": 100}) == tally.stretch(130)
    tally.restart(200)
    tally.add(200, FrameKind.HOST, "a", 112)
    assert Stretch(200, 240, 1, 0, 12, {}) == tally.stretch(240)
