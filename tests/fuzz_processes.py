"""Targets of tests/fuzz.py that a hostile process writes: its ring, its texts in /proc, its objects and git folder.

In: a folder to write into.  Out: Targets. What the kernel says must be found whatever the process calls itself.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import struct
import time
from binascii import crc32
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import orjson
from fuzz_target import Target, from_file, hurt_json
from fuzzed_processes import Shown, good_object, hurt_object, names_in, odd_process, odd_repository
from test_agent_attach import rank_process
from test_fuzz import OFFSETS, WORDS, finite

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.agent import procfs
from tuiadvisor.agent.drain import Drain, status_of
from tuiadvisor.agent.info import parse_info
from tuiadvisor.agent.rank_link import RankLink
from tuiadvisor.agent.timespace import RankClock
from tuiadvisor.agent.workingcopy import git_commit
from tuiadvisor.events import RankState
from tuiadvisor.inject import process
from tuiadvisor.inject.elf import NotElfError
from tuiadvisor.stream.frames import FrameKind, decode, encode
from tuiadvisor_probes import ring

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.agent.session import RingSession

NUM_RECORDS = 8
VIEWED = 8  # of so many rings one is folded and judged, too: that takes twenty times as long as the rest
INFO = orjson.dumps(
    {
        "rank": 1,
        "world_size": 4,
        "local_rank": 1,
        "backend": "gloo",
        "python": "3.11",
        "parallel": {"dp": 4},
        "pipeline": {"stages": 2, "schedule": "1F1B"},
        "hooks": {"forward": "ok"},
    }
)
INTEGERS = (0, 1, -1, 63, 1 << 31, 1 << 53, (1 << 62) - 1, (1 << 63) - 1, -(1 << 63))


def process_targets(folder: Path) -> list[Target]:
    """Everything of a process that an agent reads, and the injection."""
    number = struct.Struct("<Q")
    seeds = [number.pack(0)]
    return [
        Target("ring", [good_ring(folder)], hurt_ring, from_file(folder / "ring", read_ring)),
        Target("ring, good marks", [good_ring(folder)], hurt_records, from_file(folder / "ring", drained)),
        Target("info", [INFO], hurt_json, lambda data: check_info(parse_info(data))),
        Target("/proc", seeds, another_seed, lambda data: read_shown(odd_process(_chance(data)))),
        Target("git", seeds, another_seed, repository_reader(folder / "git")),
        Target("ELF", [good_object()], hurt_object, from_file(folder / "object", names_in), (NotElfError,)),
    ]


def another_seed(_: bytes, chance: random.Random) -> bytes:
    """Where what is read is made, not damaged: the number it is made by."""
    return chance.randbytes(8)


def _chance(data: bytes) -> random.Random:
    return random.Random(data)  # noqa: S311 - the same every time


# -- rings ---------------------------------------------------------------------------------------------------


def good_ring(folder: Path) -> bytes:
    """Eight records each, the ring's turn taken once."""
    path = folder / "good-ring"
    ring.create_ring_file(str(path), NUM_RECORDS, NUM_RECORDS)
    writer = ring.RingWriter(str(path))
    for number in range(11):
        writer.put_step(tuple(range(number, number + ring.NUM_STEP_SLOTS)))
        writer.put_event(number % 5, tuple(range(ring.NUM_EVENT_SLOTS)))
    writer.put_info(INFO)
    writer.close()
    data = path.read_bytes()
    path.unlink()
    return data


def hurt_ring(good: bytes, chance: random.Random) -> bytes:
    """Words of the header, bytes of records, or the end."""
    data = bytearray(good)
    for _ in range(chance.randrange(1, 4)):
        word = chance.choice(WORDS) if chance.random() < 0.7 else chance.getrandbits(64)
        struct.pack_into("<Q", data, chance.choice(OFFSETS), word)
    for _ in range(chance.randrange(6)):
        data[chance.randrange(ring.HEADER_BYTES, len(data))] = chance.randrange(256)
    return bytes(data[: chance.choice((len(data), len(data), chance.randrange(1, len(data))))])


def hurt_records(good: bytes, chance: random.Random) -> bytes:
    """Whole records with wrong numbers in them, another info, and a clock that says what it likes."""
    data = bytearray(good)
    struct.pack_into("<Q", data, ring.OFFSET_PID, chance.randrange(1 << 22))
    for _ in range(chance.randrange(1, 30)):
        if chance.random() < 0.6:
            record, begin, slots = ring.STEP_STRUCT, ring.HEADER_BYTES, ring.NUM_STEP_SLOTS
        else:
            begin = ring.HEADER_BYTES + NUM_RECORDS * ring.STEP_STRUCT.size
            record, slots = ring.EVENT_STRUCT, ring.NUM_EVENT_SLOTS + 1
        at = begin + chance.randrange(NUM_RECORDS) * record.size + 8 * (1 + chance.randrange(slots))
        value = chance.choice(INTEGERS) if chance.random() < 0.7 else chance.randrange(-(1 << 63), 1 << 63)
        struct.pack_into("<q", data, at, value)
    if chance.random() < 0.5:
        info = hurt_json(INFO, chance)[: ring.INFO_BYTES]
        data[ring.INFO_OFFSET : ring.INFO_OFFSET + len(info)] = info
        struct.pack_into("<Q", data, ring.OFFSET_INFO_LEN, len(info))
        struct.pack_into("<Q", data, ring.OFFSET_INFO_SUM, crc32(info))
    for offset in range(ring.OFFSET_NOW, ring.OFFSET_INFO_LEN, 8):
        if chance.random() < 0.3:
            struct.pack_into("<Q", data, offset, chance.choice(WORDS))
    return bytes(data)


def read_ring(path: Path) -> object:
    """No more whole records than it holds, and a header that does not move what is read out of the file."""
    reader = ring.RingReader(str(path))
    try:
        steps, events = reader.take_steps(), reader.take_events()
        assert max(len(steps), len(events)) <= NUM_RECORDS
        assert min(reader.num_lost_steps, reader.num_lost_events) >= 0
        assert len(reader.info()) <= ring.INFO_BYTES
        return check_info(parse_info(reader.info())), reader.now()
    finally:
        reader.close()


def drained(path: Path) -> object:
    """The way of a rank's records: ring, frames, fold, view; every frame is one, the view is finite."""
    reader = ring.RingReader(str(path))
    try:
        info, number = parse_info(reader.info()), reader.get_u64(ring.OFFSET_PID)
        check_info(info)
        # A rank as the agent holds it: whatever is asked of one later is asked here too.
        link = RankLink(rank_process(os.getpid(), 1))
        link.reader, link.state, link.info = reader, RankState.LIVE, dataclasses.replace(info, rank=1)
        link.session = cast("RingSession", SimpleNamespace(is_whole=lambda _: True))
        link.clock = RankClock((number % 3 - 1) * 10**18)
        link.stepless.look(reader, link.info, time.monotonic_ns(), time.monotonic_ns())
        link.under_way.look(*reader.now())
        drain = Drain()
        drain.take(link)
        advisor = Advisor() if number % VIEWED == 0 else None
        status: dict[str, object] = {"ranks": [status_of(link)]}
        payloads = [*drain.frames(), (FrameKind.STATUS, status)]
        for number, (kind, payload) in enumerate(payloads):
            data = encode(kind, "node", number, 1_000_000 * number, payload)
            decode(data)
            if advisor is not None:
                advisor.feed(data)
        if advisor is not None:
            assert finite(dataclasses.asdict(advisor.view()))
        return info
    finally:
        reader.close()


def check_info(info: Any) -> object:
    """Its texts and numbers are short and small, whatever was written."""
    assert info.rank is None or 0 <= info.rank < (info.world_size or 1 << 24)
    assert all(len(text) <= 300 for text in (info.backend, info.error, *info.hooks.values()) if text)
    assert max(len(info.hooks), len(info.parallel), len(info.pipeline)) <= 100
    return info


# -- /proc ---------------------------------------------------------------------------------------------------


def read_shown(shown: Shown) -> object:
    """The kernel's facts, found by the agent and by the injection, whatever the names say."""
    texts = {"status": shown.status, "maps": shown.maps, "environ": shown.environ, "cmdline": shown.environ}
    with (
        mock.patch.object(procfs, "read", lambda _, name: texts[name]),
        mock.patch.object(process, "_read", lambda _, name: texts[name]),
    ):
        stat = procfs.parse_stat(shown.stat)
        status, mappings = process.status(shown.pid), process.maps(shown.pid)
        process.mapped_objects(mappings)
        process.environ(shown.pid)
        process.command_line(shown.pid)
        owner, arguments = procfs.owner(shown.pid), procfs.arguments(shown.pid)
        found = procfs.environment(shown.pid, frozenset({"RANK"}))
    assert (shown.pid, 1, "S") == (stat.pid, stat.ppid, stat.state)
    assert (shown.pid, shown.uid, 0, "S") == (status.inner_pid, status.uid, status.tracer_pid, status.state)
    assert shown.uid == owner
    assert shown.starts == tuple(mapping.start for mapping in mappings)
    assert shown.rank is None or found is not None
    return arguments


def repository_reader(folder: Path) -> Callable[[bytes], object]:
    """A process whose working folder is such a repository."""
    place = folder / "1"
    place.mkdir(parents=True)
    (folder / "work").mkdir()
    (place / "cwd").symlink_to(folder / "work")
    (place / "root").symlink_to("/")

    def read(data: bytes) -> object:
        odd_repository(folder / "work", _chance(data))
        found = git_commit(1, str(folder))
        assert found is None or re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", found)
        return found

    return read
