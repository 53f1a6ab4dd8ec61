"""The memory-mapped file between a training rank and its agent: fixed binary records, one writer, one reader.

It outlives the writer: after SIGKILL the last records are still there. Layout, version 2, little endian:

    0     magic       8s    b"TUIARING"
    8     version     u32
    12    header      u32   HEADER_BYTES
    16    step_cap    u64   records in the step ring
    24    event_cap   u64   records in the event ring
    32    pid         u64   writer, as it sees itself
    40    state       u64   0 empty, 1 installing, 2 live, 3 detached, 4 failed
    48    step_head   u64   step records written so far
    56    event_head  u64   event records written so far
    64    lease_ns    u64   written by the AGENT: monotonic clock at which the probe may remove itself
    72    command     u64   written by the AGENT: 0 none, 1 detach
    80    now         i64   what the training thread is in, and since when: ns << 4 | index into PHASES; -1 unknown
    88    thread      u64   native id of the thread that trains, as it sees itself; 0: the main thread
    96    step        u64   the step it is in
    104   clock_wall  u64   time.time_ns() when installed
    112   clock_mono  u64   time.monotonic_ns() at that moment
    120   disabled    u64   bit i: hook i was disabled after an error
    128   errors      u64   exceptions caught by the guard
    136   info_len    u64   bytes of JSON in the info area
    144   budget      u64   written by the AGENT: share of step time for detail (duty)
    152   burst       u64   written by the AGENT: monotonic clock until which each step is in detail
    160   summed      u64   1: records end in a sum; written by whoever creates the file
    168   info_sum    u64   CRC-32 of the info area
    256   info        3840s JSON: rank, world size, versions, hooks
    4096  step ring   step_cap x 240 bytes:  index+1 u64, 28 x i64 (a phase more is 8 bytes more), index+1 u64
    ...   event ring  event_cap x 80 bytes:  index+1 u64, kind u64, 7 x i64, index+1 u64

The index is written before and after each record's body, so a torn or overwritten record never passes for a
good one. x86-64 keeps stores in order; the head moves after the body. On other machines a reader may see the marks
before the body, and no barrier can be had from Python: there the last word is the lower half of the index and, above
it, a CRC-32 of all that comes before. What does not match is looked at once more a moment later, then it is lost.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from binascii import crc32
from contextlib import suppress
from typing import TYPE_CHECKING

from .phases import NUM_PHASES

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"TUIARING"
LAYOUT = 2  # 1 had phase and since when in two words: one store less in every hook
VERSION = (
    LAYOUT | NUM_PHASES - 10 << 16
)  # whose records have a column for each of ten phases; another number is another
HEADER_BYTES = 4096
INFO_OFFSET = 256
INFO_BYTES = HEADER_BYTES - INFO_OFFSET
NUM_STEP_SLOTS = NUM_PHASES + 18  # another number of columns is another LAYOUT
NUM_EVENT_SLOTS = 7
STEP_STRUCT = struct.Struct(f"<Q{NUM_STEP_SLOTS}qQ")
EVENT_STRUCT = struct.Struct(f"<QQ{NUM_EVENT_SLOTS}qQ")
DEFAULT_STEP_CAPACITY = 4096
DEFAULT_EVENT_CAPACITY = 16384
# 1 MiB of steps + 1.25 MiB of events a rank: 12 s of 3 ms steps, far beyond the agent's 0.1 s drain.

STATE_EMPTY, STATE_INSTALLING, STATE_LIVE, STATE_DETACHED, STATE_FAILED = range(5)
COMMAND_NONE, COMMAND_DETACH = range(2)
# What the info of a failed one says where an exception that is not ours came into the attach: the next may go through.
BROKEN_OFF = "an exception broke the attach off, as one of a signal's handler in the training"

_RESERVE_BYTES = 1 << 18
_RECORDS_A_READ = 1024
_PREFIX = struct.Struct("<8sIIQQ")
_U64 = struct.Struct("<Q")
_STEP_BODY = struct.Struct(f"<Q{NUM_STEP_SLOTS}q")
_STEP_BYTES = STEP_STRUCT.size
_EVENT_BODY = struct.Struct(f"<QQ{NUM_EVENT_SLOTS}q")
_KEEPS_STORES_IN_ORDER = frozenset({"x86_64"})
_LOW = 0xFFFFFFFF
_NOW = struct.Struct("<q8xQ")  # since ns << 4 | phase, step

OFFSET_PID = 32
OFFSET_STATE = 40
OFFSET_STEP_HEAD = 48
OFFSET_EVENT_HEAD = 56
OFFSET_LEASE = 64
OFFSET_COMMAND = 72
OFFSET_NOW = 80  # three words: the writer's clock stores first and last by index (step_clock)
OFFSET_THREAD = 88
OFFSET_CLOCKS = 104
OFFSET_DISABLED = 120
OFFSET_ERRORS = 128
OFFSET_INFO_LEN = 136
OFFSET_BUDGET = 144
OFFSET_BURST = 152
OFFSET_SUMMED = 160
OFFSET_INFO_SUM = 168


class RingError(ValueError):
    """The file is not a ring of this version, or its header contradicts its size."""


class RingVersionError(RingError):
    """The file is a ring of another version."""


def ring_bytes(step_capacity: int, event_capacity: int) -> int:
    """Size in bytes of a ring file with these capacities."""
    return HEADER_BYTES + step_capacity * STEP_STRUCT.size + event_capacity * EVENT_STRUCT.size


def needs_sums() -> bool:
    """Whether this machine's processors may see another one's stores in another order than they were made."""
    return os.uname().machine not in _KEEPS_STORES_IN_ORDER


def create_ring_file(
    path: str,
    step_capacity: int = DEFAULT_STEP_CAPACITY,
    event_capacity: int = DEFAULT_EVENT_CAPACITY,
    *,
    summed: bool | None = None,
) -> None:
    """Create an empty ring, owner-only, with room for all of it; refuses an existing path or a symlink (OSError).

    summed: whether its records end in a sum; None where this machine needs it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _reserve(descriptor, ring_bytes(step_capacity, event_capacity))
        prefix = _PREFIX.pack(MAGIC, VERSION, HEADER_BYTES, step_capacity, event_capacity)
        os.pwrite(descriptor, prefix, 0)
        os.pwrite(descriptor, _U64.pack(needs_sums() if summed is None else summed), OFFSET_SUMMED)
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, num_bytes: int) -> None:
    """Give the file all its pages now: the first write to a page that cannot be had ends the writer by SIGBUS.

    They are charged to the memory cgroup of whoever calls this, not to the training's.
    """
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            raise
    # Blocks that were only promised are still to be had where a file system cannot promise; and so all pages are here.
    zeros = bytes(_RESERVE_BYTES)
    for offset in range(0, num_bytes, _RESERVE_BYTES):
        part = zeros[: num_bytes - offset]
        if os.pwrite(descriptor, part, offset) != len(part):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _open(path: str) -> tuple[int, int, int, int]:
    """Descriptor, size and both capacities of a ring whose header can be true."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return (descriptor, *_checked(descriptor, path))
    except BaseException:
        os.close(descriptor)
        raise


def _checked(descriptor: int, path: str) -> tuple[int, int, int]:
    size = os.fstat(descriptor).st_size
    if size < HEADER_BYTES:
        raise RingError(f"{path}: {size} bytes is too short for a ring header")
    prefix = os.pread(descriptor, _PREFIX.size, 0).ljust(_PREFIX.size, b"\0")
    magic, version, header, step_capacity, event_capacity = _PREFIX.unpack(prefix)
    if magic == MAGIC and version != VERSION:
        raise RingVersionError(f"a ring of version {version}, not {VERSION}")
    if magic != MAGIC or header != HEADER_BYTES:
        raise RingError(f"{path}: not a ring of version {VERSION}")
    plausible = 0 < step_capacity < 1 << 24 and 0 < event_capacity < 1 << 24
    if not plausible or size < ring_bytes(step_capacity, event_capacity):
        raise RingError(f"{path}: its header promises more records than its {size} bytes hold")
    return size, step_capacity, event_capacity


def closing(mark: int, before: bytes) -> int:
    """The last word of a record that says what must lie before it."""
    return crc32(before) << 32 | mark & _LOW


class RingWriter:
    """The probe's end. The caller hands over complete tuples; nothing is allocated beyond them."""

    def __init__(self, path: str) -> None:
        descriptor, size, self.step_capacity, self.event_capacity = _open(path)
        try:
            self.map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self.path = path
        # Header words by index: an item assignment costs a quarter of struct's pack_into with cold caches.
        self.words = memoryview(self.map)[:INFO_OFFSET].cast("q")
        self.num_steps: int = _U64.unpack_from(self.map, OFFSET_STEP_HEAD)[0]
        self.num_events: int = _U64.unpack_from(self.map, OFFSET_EVENT_HEAD)[0]
        self._event_start = HEADER_BYTES + self.step_capacity * STEP_STRUCT.size
        self.is_summed = bool(self.get_u64(OFFSET_SUMMED))
        self.put_u64(OFFSET_PID, os.getpid())

    def put_step(self, slots: tuple[int, ...]) -> None:
        """Append one step record; slots in the order of events.STEP_COLUMNS, NUM_STEP_SLOTS integers."""
        index = self.num_steps
        mark = index + 1
        offset = HEADER_BYTES + index % self.step_capacity * _STEP_BYTES
        if self.is_summed:
            self._put_summed(offset, mark, _STEP_BODY.pack(mark, *slots))
        else:
            STEP_STRUCT.pack_into(self.map, offset, mark, *slots, mark)
        self.num_steps = mark
        self.words[OFFSET_STEP_HEAD // 8] = mark

    def put_event(self, kind: int, slots: tuple[int, ...]) -> None:
        """Append one event record, 7 integers. One writing thread, as for steps."""
        self.num_events = mark = self.num_events + 1
        offset = self._event_start + (mark - 1) % self.event_capacity * 80
        if self.is_summed:
            self._put_summed(offset, mark, _EVENT_BODY.pack(mark, kind, *slots))
        else:
            EVENT_STRUCT.pack_into(self.map, offset, mark, kind, *slots, mark)
        self.words[OFFSET_EVENT_HEAD // 8] = mark

    def _put_summed(self, offset: int, mark: int, body: bytes) -> None:
        end = offset + len(body)
        self.map[offset:end] = body
        _U64.pack_into(self.map, end, closing(mark, body))

    def put_u64(self, offset: int, value: int) -> None:
        """Write one header word."""
        _U64.pack_into(self.map, offset, value)

    def get_u64(self, offset: int) -> int:
        """Read one header word (the lease and the command are written by the agent)."""
        value: int = _U64.unpack_from(self.map, offset)[0]
        return value

    def put_info(self, text: bytes) -> None:
        """Replace the JSON info area; text beyond its size is a ValueError."""
        if len(text) > INFO_BYTES:
            raise ValueError(f"info of {len(text)} bytes exceeds {INFO_BYTES}")
        self.put_u64(OFFSET_INFO_LEN, 0)
        self.put_u64(OFFSET_INFO_SUM, crc32(text))
        self.map[INFO_OFFSET : INFO_OFFSET + len(text)] = text
        self.put_u64(OFFSET_INFO_LEN, len(text))

    def close(self) -> None:
        """Unmap; the file stays for its reader."""
        self.words.release()
        self.map.close()


class RingReader:
    """The agent's end. Everything in the file is checked before it is believed.

    Read and written through its descriptor: its owner may shorten the file or punch holes into it at any moment, and
    a mapped page that cannot be had would end the agent, who may be root, by SIGBUS. What is not there reads as zeros.
    """

    def __init__(self, path: str) -> None:
        self._descriptor, self.num_bytes, self.step_capacity, self.event_capacity = _open(path)
        self.path = path
        self.next_step = 0
        self.next_event = 0
        self.num_lost_steps = 0
        self.num_lost_events = 0
        self._event_start = HEADER_BYTES + self.step_capacity * STEP_STRUCT.size
        self._is_summed = bool(self.get_u64(OFFSET_SUMMED))
        self._unmatched: set[tuple[int, int]] = set()

    def get_u64(self, offset: int) -> int:
        """Read one header word."""
        value: int = _U64.unpack(self._read(offset, 8))[0]
        return value

    def put_u64(self, offset: int, value: int) -> None:
        """Write one of the agent's header words (lease, command)."""
        with suppress(
            OSError
        ):  # a hole in a full file system is its owner's doing: the probe leaves with its lease
            os.pwrite(self._descriptor, _U64.pack(value), offset)

    def now(self) -> tuple[int, int, int]:
        """(phase index or -1, since ns, step) of the training thread."""
        now, step = _NOW.unpack(self._read(OFFSET_NOW, _NOW.size))
        return (now & 15, now >> 4, step) if now >= 0 else (-1, 0, step)

    def thread(self) -> int:
        """Native id of the thread that trains, as its process sees it; 0: the main thread."""
        return self.get_u64(OFFSET_THREAD)

    def info(self) -> bytes:
        """The JSON info area, empty until the probe has written it, and while it is being replaced."""
        length = min(self.get_u64(OFFSET_INFO_LEN), INFO_BYTES)
        text = self._read(INFO_OFFSET, length)
        return text if crc32(text) == self.get_u64(OFFSET_INFO_SUM) else b""

    def take_steps(self) -> list[tuple[int, ...]]:
        """All whole step records not yet taken, oldest first, NUM_STEP_SLOTS integers each."""
        rows, self.next_step, lost = self._take(
            STEP_STRUCT, HEADER_BYTES, self.step_capacity, OFFSET_STEP_HEAD, self.next_step
        )
        self.num_lost_steps += lost
        return [row[1:-1] for row in rows]

    def take_events(self) -> list[tuple[int, ...]]:
        """All whole event records not yet taken: kind, then 7 integers each."""
        rows, self.next_event, lost = self._take(
            EVENT_STRUCT, self._event_start, self.event_capacity, OFFSET_EVENT_HEAD, self.next_event
        )
        self.num_lost_events += lost
        return [row[1:-1] for row in rows]

    def last_event(self) -> tuple[int, ...] | None:
        """The newest event record, which is not taken by this; None where there is none, or not a whole one."""
        return self._last(EVENT_STRUCT, self._event_start, self.event_capacity, OFFSET_EVENT_HEAD)

    def last_step(self) -> tuple[int, ...] | None:
        """The newest step record likewise."""
        return self._last(STEP_STRUCT, HEADER_BYTES, self.step_capacity, OFFSET_STEP_HEAD)

    def _last(
        self, record: struct.Struct, start: int, capacity: int, head_offset: int
    ) -> tuple[int, ...] | None:
        head = self.get_u64(head_offset)
        if not 0 < head < 1 << 63:
            return None
        raw = self._read(start + (head - 1) % capacity * record.size, record.size)
        row = record.unpack(raw)
        is_whole = row[0] == head and row[-1] == (closing(head, raw[:-8]) if self._is_summed else head)
        return row[1:-1] if is_whole else None

    def _take(
        self, record: struct.Struct, start: int, capacity: int, head_offset: int, index: int
    ) -> tuple[list[tuple[int, ...]], int, int]:
        head = self.get_u64(head_offset)
        if head < index or head - index > 1 << 40:  # a head that runs backwards or leaps is not believed
            return [], index, 0
        lost = max(0, head - capacity - index)
        index += lost
        rows: list[tuple[int, ...]] = []
        waited = (start, index) in self._unmatched
        self._unmatched.discard((start, index))
        for raw in self._records(record, start, capacity, index, head):
            row = record.unpack(raw)
            mark, end = row[0], row[-1]
            if mark == index + 1 and end == (closing(mark, raw[:-8]) if self._is_summed else mark):
                rows.append(row)
            elif mark <= index and head - index < capacity // 2:
                break  # another thread of the writer took this slot and has not filled it yet
            elif self._is_summed and mark == index + 1 and not waited and head - index < capacity // 2:
                self._unmatched.add((start, index))
                break  # its other words are still on their way to us
            else:
                lost += 1
            index += 1
            waited = False
        return rows, index, lost

    def _records(
        self, record: struct.Struct, start: int, capacity: int, index: int, head: int
    ) -> Iterator[bytes]:
        while index < head:
            slot = index % capacity
            num = min(head - index, capacity - slot, _RECORDS_A_READ)
            part = self._read(start + slot * record.size, num * record.size)
            yield from (part[at : at + record.size] for at in range(0, len(part), record.size))
            index += num

    def _read(self, offset: int, num_bytes: int) -> bytes:
        return os.pread(self._descriptor, num_bytes, offset).ljust(num_bytes, b"\0")

    def close(self) -> None:
        """Let go of the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
