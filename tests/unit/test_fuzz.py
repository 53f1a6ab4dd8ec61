"""Hostile bytes behind right checksums, in rings, recordings and rule files: an answer or one line, bounded, no hang.

Few inputs here, so that every change is tried; `make fuzz` tries as many as one likes. Importers are in
test_import_damage, which `make fuzz` runs too.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import zlib
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson
import pytest
import zstandard
from fuzzing import TOML_ODD, chances, damaged
from synthetic_run import STEP_NAMES, Fault, Job, encoded, frames

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.report.document import document
from tuiadvisor.stream.frames import HEADER, FrameError, FrameKind, decode, encode, peek, unpack_columns
from tuiadvisor.stream.recording import RecordingReader, RecordingWriter
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.contract.feed import End
from tuiadvisor_probes import ring
from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.evaluate import judge
from tuiadvisor_rules.loader import catalog_dir, load_rule

if TYPE_CHECKING:
    import random
    from pathlib import Path

JOB = Job(num_steps=60, faults=(Fault("backward", (2,), 0.015, onset=20),))
RUN = encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1})
FRAMES: Final = [RUN, *map(encoded, frames(JOB, rows_per_frame=6))]
BODY_FLAG: Final = 1  # the payload is compressed
WORDS: Final = (0, 1, 2, 63, 1 << 24, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
OFFSETS: Final = (12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152)


def resealed(data: bytes, chance: random.Random) -> bytes:
    """The frame with a damaged payload and a checksum that fits it; cut within its header it stays as it is."""
    if len(data) < HEADER.size:
        return data
    magic, _, version, kind, flags, source_bytes, _, seq, time_ns = HEADER.unpack_from(data)
    source, body = data[HEADER.size : HEADER.size + source_bytes], data[HEADER.size + source_bytes :]
    if chance.random() < 0.8:  # what is inside the compression; else the compressed bytes themselves
        flags &= ~BODY_FLAG
        body = damaged(opened(data), chance)
        if chance.random() < 0.2:
            flags |= BODY_FLAG
            body = zstandard.compress(body)
    else:
        body = damaged(body, chance)
    fields = (version, kind, flags, source_bytes, source_bytes + len(body), seq, time_ns)
    crc = zlib.crc32(HEADER.pack(magic, 0, *fields)[8:] + source + body)
    return HEADER.pack(magic, crc, *fields) + source + body


def opened(data: bytes) -> bytes:
    """A good frame's payload as JSON."""
    return orjson.dumps(decode(data).payload)


def test_damaged_payloads_behind_a_right_checksum() -> None:
    """The decoder refuses or answers columns of the promised length; whoever folds it all still has a view."""
    num_decoded, refusals, advisor = 0, [], Advisor()
    for chance in chances(1600):  # few are decoded
        data = resealed(chance.choice(FRAMES), chance)
        advisor.feed(data)
        try:
            frame = decode(data)
            columns = unpack_columns(frame.payload, STEP_NAMES)
        except FrameError as error:
            refusals.append(str(error))
            continue
        num_decoded += 1
        assert {frame.payload["rows"]} == {len(column) for column in columns.values()}
    assert num_decoded
    assert one_line(refusals)
    assert finite(dataclasses.asdict(advisor.view()))


def one_line(refusals: list[str]) -> bool:
    """There were some, and each is one line."""
    return bool(refusals) and not any("\n" in each or not each for each in refusals)


def finite(value: object) -> bool:
    """No NaN and no infinity within."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(finite, value))


def test_damaged_rings(tmp_path: Path) -> None:
    """Any words in the header, any bytes in the records: refused, or no more whole records than it holds."""
    path = tmp_path / "ring"
    ring.create_ring_file(str(path), 8, 8)
    writer = ring.RingWriter(str(path))
    for number in range(11):
        writer.put_step(tuple(range(number, number + ring.NUM_STEP_SLOTS)))
        writer.put_event(number % 5, tuple(range(ring.NUM_EVENT_SLOTS)))
    writer.put_info(b'{"rank": 1}')
    writer.close()
    good, num_rows, refusals = path.read_bytes(), 0, []
    for chance in chances(300):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            word = chance.choice(WORDS) if chance.random() < 0.7 else chance.getrandbits(64)
            struct.pack_into("<Q", data, chance.choice(OFFSETS), word)
        for _ in range(chance.randrange(6)):
            data[chance.randrange(ring.HEADER_BYTES, len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice((len(data), len(data), chance.randrange(1, len(data))))])
        try:
            reader = ring.RingReader(str(path))
        except ring.RingError as error:
            refusals.append(str(error))
            continue
        steps, events = reader.take_steps(), reader.take_events()
        assert 8 >= max(len(steps), len(events))
        assert {ring.NUM_STEP_SLOTS} >= set(map(len, steps))
        assert ring.INFO_BYTES >= len(reader.info())
        assert 0 <= min(reader.num_lost_steps, reader.num_lost_events)
        assert ([], []) == (reader.take_steps(), reader.take_events())  # what was taken does not come again
        reader.now()
        reader.close()
        num_rows += len(steps)
    assert num_rows
    assert one_line(refusals)


@pytest.fixture(scope="module")
def good_recording(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "run.tuirec"
    writer = RecordingWriter(path, FRAMES[0])
    for data in FRAMES[1:]:
        writer.append(data)
    writer.close()
    return path.read_bytes()


@pytest.mark.slow
def test_damaged_recordings_show_their_whole_frames(tmp_path: Path, good_recording: bytes) -> None:
    """Every frame handed over is whole; the view is that of the frames that were sound, and the damage is said."""
    path, refusals = tmp_path / "run.tuirec", []
    for chance in chances(6):
        data = damaged(good_recording, chance, odd=(b"TUIF", b"\0" * 16, RUN[:40], FRAMES[3]))
        path.write_bytes(data)
        try:
            with RecordingReader(path) as reader:
                found = [located.data for located in reader.frames()]
                summary = reader.summary()
        except TuiadvisorError as error:
            refusals.append(str(error))
            continue
        assert set(FRAMES) >= set(found)
        num_passed = summary.num_bad_bytes + summary.num_tail_bytes + summary.num_index_bytes
        assert len(data) == 16 + sum(map(len, found)) + num_passed
        advisor = Advisor()
        for each in found:
            peek(each)
            advisor.feed(each)
        view = advisor.view()
        assert 0 == view.losses.frames_bad
        assert finite(document(view))
        feed = ReplayFeed(ReplaySource(path))
        feed.command(End())
        while not (feed._survey.is_done and feed.latest().view is not None):
            feed._cycle()
        assert view == feed._survey.view
        feed.stop()
    assert not refusals or one_line(refusals)


def test_a_recording_cut_at_every_byte_has_the_views_of_its_whole_frames(
    tmp_path: Path, good_recording: bytes
) -> None:
    """Cut at the first frames' every byte: what opens is what lies before the cut."""
    path = tmp_path / "run.tuirec"
    ends = np.cumsum([16, *map(len, FRAMES)])
    for length in range(int(ends[2]) + 40):  # far before the INDEX frame
        path.write_bytes(good_recording[:length])
        if length < 16:
            with pytest.raises(TuiadvisorError):
                RecordingReader(path)
            continue
        source = ReplaySource(path)
        source.clock.set_speed(1e8)
        source.seek(1e9)
        num_whole = int(np.searchsorted(ends, length, side="right")) - 1
        assert FRAMES[:num_whole] == source.read(0.0)
        assert (length > ends[num_whole]) == bool(source.status.note)
        source.close()


def test_damaged_rules(tmp_path: Path) -> None:
    """A rule file is refused in one line that names it, or judges its own cases without harm."""
    path = tmp_path / "rule.toml"
    files = [file.read_bytes() for file in sorted(catalog_dir().glob("*.toml"))]
    num_judged, refusals = 0, []
    for chance in chances(250):
        path.write_bytes(damaged(chance.choice(files), chance, TOML_ODD))
        try:
            rule = load_rule(path)
        except RuleError as error:
            refusals.append(str(error))
            continue
        num_judged += sum(judge(rule, case.metrics).fires for case in rule.cases)
    assert num_judged
    assert one_line(refusals)
    assert all(each.startswith(str(path)) for each in refusals)
