"""The ring on processors that show each other's stores, and take their loads, in any order.

A simulation: the words that a writer stores are let through to the reader's file in random order (those to one place
stay in order), some of them while the reader is in the middle of a record. What it believes must be what was written.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tuiadvisor_probes import ring

CAPACITY = 8
NUM_RECORDS = 60
FIRST_RECORD = ring.HEADER_BYTES
WORD = struct.Struct("<Q")


class Processor:
    """A writer's ring, and another file to which its stores get in any order."""

    def __init__(self, folder: Path, chance: random.Random, *, summed: bool) -> None:
        self._mine, self.theirs = folder / "writer", folder / "reader"
        for path in (self._mine, self.theirs):
            ring.create_ring_file(str(path), CAPACITY, CAPACITY, summed=summed)
        self.writer = ring.RingWriter(str(self._mine))
        self._seen = bytearray(self.writer.map)
        self._chance = chance
        self._on_their_way: list[tuple[int, bytes]] = []
        self._file = self.theirs.open("r+b", buffering=0)

    def stored(self) -> None:
        """Take the words that differ from before; the order in which they were stored is not kept."""
        now = bytes(self.writer.map)
        for at in range(0, len(now), 8):
            if now[at : at + 8] != self._seen[at : at + 8]:
                self._on_their_way.append((at, now[at : at + 8]))
        self._seen[:] = now

    def let_through(self, count: int) -> None:
        """So many of the stores, any of them, but the oldest of each place first."""
        for _ in range(min(count, len(self._on_their_way))):
            place = self._chance.choice(self._on_their_way)[0]
            at = next(n for n, (where, _) in enumerate(self._on_their_way) if where == place)
            where, word = self._on_their_way.pop(at)
            self._file.seek(where)
            self._file.write(word)

    def let_all_through(self) -> None:
        self.let_through(len(self._on_their_way))

    def close(self) -> None:
        self.writer.close()
        self._file.close()


class SlowReader(ring.RingReader):
    """Loads word by word in any order, while stores arrive."""

    def __init__(self, processor: Processor, chance: random.Random) -> None:
        self._processor, self._chance = processor, chance
        super().__init__(str(processor.theirs))

    def _read(self, offset: int, num_bytes: int) -> bytes:
        found = bytearray(num_bytes)
        places = list(range(0, num_bytes, 8))
        self._chance.shuffle(places)
        for at in places:
            if self._chance.random() < 0.3:
                self._processor.let_through(self._chance.randrange(4))
            found[at : at + 8] = super()._read(offset + at, min(8, num_bytes - at))
        return bytes(found)


def step(number: int) -> tuple[int, ...]:
    """A record of which no word is that of another record, as every new step's differ."""
    return tuple(number * 1000 + slot for slot in range(ring.NUM_STEP_SLOTS))


def event(number: int) -> tuple[int, ...]:
    return tuple(number * 1000 + slot for slot in range(ring.NUM_EVENT_SLOTS))


def believed(
    seed: int, folder: Path, *, summed: bool
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], int]:
    """Steps and events that a reader took from a writer on such a processor, and how many it counts as lost."""
    chance = random.Random(seed)  # noqa: S311 - synthetic data
    folder.mkdir()
    processor = Processor(folder, chance, summed=summed)
    reader = SlowReader(processor, chance)
    steps: list[tuple[int, ...]] = []
    events: list[tuple[int, ...]] = []
    for number in range(NUM_RECORDS):
        processor.writer.put_step(step(number))
        processor.writer.put_event(3, event(number))
        processor.stored()
        processor.let_through(chance.randrange(80))
        if chance.random() < 0.4:
            steps += reader.take_steps()
            events += reader.take_events()
    processor.let_all_through()
    for _ in range(3):
        steps += reader.take_steps()
        events += reader.take_events()
    lost = reader.num_lost_steps + reader.num_lost_events
    reader.close()
    processor.close()
    return steps, events, lost


@pytest.mark.parametrize("seed", range(12))
def test_torn_record_is_not_believed_whatever_the_order_of_stores(seed: int, tmp_path: Path) -> None:
    """All that is taken was written, once and in order; what is missing is counted."""
    steps, events, lost = believed(seed, tmp_path / "ring", summed=True)
    taken = [row[0] // 1000 for row in steps]
    assert [step(number) for number in taken] == steps
    assert sorted(set(taken)) == taken
    named = [row[1] // 1000 for row in events]
    assert [(3, *event(number)) for number in named] == events
    assert sorted(set(named)) == named
    assert 2 * NUM_RECORDS == len(taken) + len(named) + lost
    assert taken


@pytest.mark.slow
def test_simulation_tears_records_that_carry_no_sum(tmp_path: Path) -> None:
    """Else the test above could not fail: marks alone are believed with another record's words between them."""
    torn = 0
    for seed in range(12):
        steps, _, _ = believed(seed, tmp_path / f"ring{seed}", summed=False)
        torn += sum(row != step(row[0] // 1000) for row in steps)
    assert torn


@pytest.mark.parametrize("summed", [True, False])
def test_records_come_out_whole_with_and_without_sums(summed: bool, tmp_path: Path) -> None:
    """Both forms, several times around the ring, whatever the numbers."""
    path = str(tmp_path / "ring")
    ring.create_ring_file(path, CAPACITY, CAPACITY, summed=summed)
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    for number in range(3 * CAPACITY):
        body = (-1, -(1 << 63), (1 << 63) - 1, *range(number, number + ring.NUM_STEP_SLOTS - 3))
        writer.put_step(body)
        writer.put_event(7, body[:7])
        assert ([body], [(7, *body[:7])]) == (reader.take_steps(), reader.take_events())
    assert (0, 0) == (reader.num_lost_steps, reader.num_lost_events)
    writer.close()
    reader.close()


def test_damaged_record_is_waited_for_once_then_lost(tmp_path: Path) -> None:
    """A word that never comes does not hold up those behind it."""
    path = str(tmp_path / "ring")
    ring.create_ring_file(path, CAPACITY, CAPACITY, summed=True)
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    for number in range(3):
        writer.put_step(step(number))
    WORD.pack_into(writer.map, FIRST_RECORD + ring.STEP_STRUCT.size + 80, 12345)
    assert [step(0)] == reader.take_steps()
    assert 0 == reader.num_lost_steps
    assert [step(2)] == reader.take_steps()
    assert 1 == reader.num_lost_steps
    writer.close()
    reader.close()


def test_info_that_is_being_replaced_is_not_believed(tmp_path: Path) -> None:
    """Half of one text and half of the other would be JSON that nobody wrote."""
    path = str(tmp_path / "ring")
    ring.create_ring_file(path, CAPACITY, CAPACITY)
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    writer.put_info(b'{"rank": 3, "world_size": 4}')
    writer.map[ring.INFO_OFFSET + 9 : ring.INFO_OFFSET + 10] = b"7"
    assert b"" == reader.info()
    writer.put_info(b'{"rank": 7, "world_size": 8}')
    assert b'{"rank": 7, "world_size": 8}' == reader.info()
    writer.close()
    reader.close()


@pytest.mark.parametrize(("machine", "summed"), [("x86_64", False), ("aarch64", True), ("riscv64", True)])
def test_sums_are_there_where_the_machine_needs_them(
    machine: str, summed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever creates the ring decides; x86-64 pays nothing."""
    names = ring.os.uname()
    monkeypatch.setattr(ring.os, "uname", lambda: type(names)((*names[:4], machine)))
    path = str(tmp_path / "ring")
    ring.create_ring_file(path, CAPACITY, CAPACITY)
    writer = ring.RingWriter(path)
    assert summed == writer.is_summed
    writer.close()
