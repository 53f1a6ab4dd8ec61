"""A recording leaves room on its file system, and asks for it without asking all the time."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import zmq

from tuiadvisor.advisor.fold import diagnose
from tuiadvisor.errors import FailureError
from tuiadvisor.stream import hub as hub_module
from tuiadvisor.stream.diskroom import LOOK_BYTES, MAX_LEFT_BYTES, MIB, DiskRoom
from tuiadvisor.stream.frames import FrameKind, decode, encode
from tuiadvisor.stream.recording import RecordingReader

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30


class Disk:
    """A file system of some size."""

    def __init__(self, size: int, free: int) -> None:
        self.size, self.free, self.num_looks = size, free, 0

    def statvfs(self, _descriptor: int) -> Any:
        self.num_looks += 1
        return SimpleNamespace(f_bavail=self.free // 4096, f_frsize=4096, f_blocks=self.size // 4096)


@pytest.mark.parametrize(
    ("size", "left"), [(64 * MIB, 64 * MIB // 20), (4 * GIB, 4 * GIB // 20), (4000 * GIB, MAX_LEFT_BYTES)]
)
def test_a_twentieth_of_a_disk_is_left_and_a_bounded_part_of_a_large_one(size: int, left: int) -> None:
    """One block above there is room, one below there is none."""
    assert DiskRoom(0, Disk(size, left + 8192).statvfs).shortage(0.0, 0) == ""
    sentence = DiskRoom(0, Disk(size, left - 8192).statvfs).shortage(0.0, 0)
    assert f"{left / MIB:.1f} MiB are left to the training" in sentence


def test_the_system_is_asked_once_a_second_or_after_some_bytes() -> None:
    """A flood does not outrun it, and quiet frames cost no system call each."""
    disk = Disk(GIB, GIB)
    room = DiskRoom(0, disk.statvfs)
    for number in range(1000):
        assert room.shortage(5.0 + number / 1001, number) == ""
    assert disk.num_looks == 1
    assert room.shortage(6.1, 1000) == ""
    assert disk.num_looks == 2
    disk.free = 0
    assert room.shortage(6.2, 1000 + LOOK_BYTES - 1) == ""
    assert room.shortage(6.2, 1000 + LOOK_BYTES) != ""


def test_where_the_system_does_not_say_there_is_room() -> None:
    """No limit, or no answer: then writing itself tells."""

    def fails(_descriptor: int) -> Any:
        raise OSError(5, "an I/O error")

    assert DiskRoom(0, fails).shortage(0.0, 0) == ""
    assert DiskRoom(0, Disk(0, 0).statvfs).shortage(0.0, 0) == ""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The one that hubs of this process record on."""
    made = Disk(GIB, GIB)
    monkeypatch.setattr(hub_module, "DiskRoom", lambda descriptor: DiskRoom(descriptor, made.statvfs))
    return made


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a name short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def hub_at(place: Path) -> hub_module.Hub:
    """A hub that records there."""
    endpoints = (f"ipc://{place}/agent", f"ipc://{place}/viewer")
    return hub_module.Hub(hub_module.HubConfig(str(place / "run.tuirec"), *endpoints))


def frame(seq: int) -> bytes:
    """One of an agent."""
    return encode(FrameKind.STATUS, "h/1/2", seq, 1 + seq, {"host": "h", "mono_ns": 1 + seq})


def test_a_flood_ends_the_recording_before_the_disk_is_full(
    place: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with what was lost and why, the file is whole, and not a byte goes beyond what is left to others."""
    hub = hub_at(place)
    hub._write(hub._admit(zmq.Frame(frame(0))))
    disk.free = 10 * MIB
    later_s = time.monotonic() + 1.5
    clock = SimpleNamespace(monotonic=lambda: later_s, monotonic_ns=time.monotonic_ns, time_ns=time.time_ns)
    monkeypatch.setattr(hub_module, "time", clock)
    hub._tick()
    size = (place / "run.tuirec").stat().st_size
    for seq in range(1, 500):
        hub._write(hub._admit(zmq.Frame(frame(seq))))
    assert (place / "run.tuirec").stat().st_size == size
    with pytest.raises(
        FailureError, match=r"10\.0 MiB free, 51\.2 MiB are left to the training; the recording ends"
    ):
        hub.run()
    with RecordingReader(place / "run.tuirec") as reader:
        data = [located.data for located in reader.frames()]
        assert reader.summary().notes == ()
    frames = [decode(one) for one in data]
    assert [one.kind for one in frames] == [
        FrameKind.RUN,
        FrameKind.STATUS,
        FrameKind.GAP,
        FrameKind.BYE,
    ]
    assert (frames[2].payload["what"], frames[2].payload["num_frames"]) == ("not recorded", 499)
    assert "the recording ends here and is whole (2 frames)" in str(frames[3].payload["reason"])
    view = diagnose(data)
    assert "left to the training" in view.ended
    assert "499 frames could not be recorded" in view.losses.notes


def test_bytes_alone_end_it_within_a_second(place: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands: what was written since the last look makes it look again."""
    clock = SimpleNamespace(monotonic=lambda: 1000.0, monotonic_ns=time.monotonic_ns, time_ns=time.time_ns)
    monkeypatch.setattr(hub_module, "time", clock)
    hub = hub_at(place)
    disk.free = 0
    large = encode(FrameKind.STATUS, "h/1/2", 0, 1, {"host": os.urandom(600_000).hex()})
    for _ in range(40):
        hub._write([large])
    monkeypatch.undo()
    assert (place / "run.tuirec").stat().st_size < LOOK_BYTES + len(large)
    with pytest.raises(FailureError, match="left to the training"):
        hub.run()


def test_a_disk_that_is_full_already_is_refused_and_nothing_is_left_on_it(place: Path, disk: Disk) -> None:
    """In one line, before anything is attached to."""
    disk.free = MIB
    with pytest.raises(FailureError, match=r"run\.tuirec: 1\.0 MiB free, 51\.2 MiB are left"):
        hub_at(place)
    assert not (place / "run.tuirec").exists()
