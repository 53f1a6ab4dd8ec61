"""The ring: what a writer puts in comes out whole, and nothing that is torn or foreign is believed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS
from tuiadvisor.phases import PHASES
from tuiadvisor_probes import phases, ring


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A small ring file."""
    name = str(tmp_path / "ring")
    ring.create_ring_file(name, step_capacity=8, event_capacity=8)
    return name


def step(number: int) -> tuple[int, ...]:
    """A recognisable step record."""
    return (number, *range(100, 99 + ring.NUM_STEP_SLOTS))


def test_layout_and_vocabulary_agree() -> None:
    """The ring cannot import the vocabulary, so this test keeps the two equal."""
    assert len(STEP_COLUMNS) == ring.NUM_STEP_SLOTS
    assert len(EVENT_COLUMNS) == ring.NUM_EVENT_SLOTS
    assert PHASES[phases.DATA_WAIT] == "data_wait"
    assert PHASES[phases.COMM_EXPOSED] == "comm_exposed"
    assert PHASES[phases.OTHER] == "other"
    assert [name.removesuffix("_ns") for name in STEP_COLUMNS[3 : 3 + len(PHASES)]] == list(PHASES)


def test_records_come_out_in_order_and_once(path: str) -> None:
    """Steps and events are taken in the order written; a second take has nothing."""
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    for number in range(5):
        writer.put_step(step(number))
        writer.put_event(9, (number, 1, 2, 3, 4, 5, 6))
    assert [step(number) for number in range(5)] == reader.take_steps()
    assert [(9, number, 1, 2, 3, 4, 5, 6) for number in range(5)] == reader.take_events()
    assert reader.take_steps() == []
    writer.close()
    reader.close()


def test_overrun_is_counted_not_hidden(path: str) -> None:
    """Twenty records in a ring of eight: the last eight are there, twelve are counted as lost."""
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    for number in range(20):
        writer.put_step(step(number))
    assert [step(number) for number in range(12, 20)] == reader.take_steps()
    assert reader.num_lost_steps == 12
    writer.close()
    reader.close()


def test_torn_record_is_lost_not_believed(path: str) -> None:
    """A record whose two indices differ was overwritten while being read; its neighbours survive."""
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    for number in range(8):
        writer.put_step(step(number))
    ring._U64.pack_into(writer.map, ring.HEADER_BYTES + 3 * ring.STEP_STRUCT.size, 99)
    assert [row[0] for row in reader.take_steps()] == [0, 1, 2, 4, 5, 6, 7]
    assert reader.num_lost_steps == 1
    writer.close()
    reader.close()


def test_reader_sees_what_a_killed_writer_left(path: str) -> None:
    """The file outlives its writer: a child that dies without closing leaves its records."""
    child = os.fork()
    if child == 0:
        writer = ring.RingWriter(path)
        writer.put_step(step(41))
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    reader = ring.RingReader(path)
    assert [step(41)] == reader.take_steps()
    reader.close()


@pytest.mark.parametrize(
    ("change", "at"),
    [(b"X", 0), (b"\xff", 8), (b"\x01", 13), (b"\xff\xff\xff\xff", 16), (b"\xff\xff\xff\xff", 24)],
)
def test_foreign_or_lying_header_is_refused(path: str, change: bytes, at: int) -> None:
    """Wrong magic, version, header size or capacities beyond the file: RingError, never a wild read."""
    with Path(path).open("r+b") as file:
        file.seek(at)
        file.write(change)
    with pytest.raises(ring.RingError, match="ring"):
        ring.RingReader(path)


def test_short_file_is_refused(tmp_path: Path) -> None:
    """A file that ends inside the header is no ring."""
    (tmp_path / "short").write_bytes(b"TUIARING")
    with pytest.raises(ring.RingError, match="too short"):
        ring.RingReader(str(tmp_path / "short"))


def test_head_that_leaps_is_not_believed(path: str) -> None:
    """A hostile head cannot make the reader loop for ever or count losses that never were."""
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    writer.put_u64(ring.OFFSET_STEP_HEAD, 1 << 62)
    assert reader.take_steps() == []
    assert reader.num_lost_steps == 0
    writer.close()
    reader.close()


def test_file_is_owner_only_and_never_replaces_another(path: str, tmp_path: Path) -> None:
    """Created 0600; an existing path or a symlink is refused."""
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        ring.create_ring_file(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match=r"symbolic links|Too many levels"):
        ring.RingReader(str(link))


def test_info_survives_a_round_trip_and_is_bounded(path: str) -> None:
    """The JSON area holds what was put last; too long a text is an error of ours; what is replaced is not believed."""
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    writer.put_info(b'{"rank": 3}')
    assert reader.info() == b'{"rank": 3}'
    with pytest.raises(ValueError, match="exceeds"):
        writer.put_info(b"x" * (ring.INFO_BYTES + 1))
    writer.put_u64(ring.OFFSET_INFO_LEN, 1 << 60)
    assert reader.info() == b""
    writer.close()
    reader.close()
