"""The private directory of a ring: who may see it, who may delete it."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tuiadvisor.agent import room
from tuiadvisor.agent import session as session_module
from tuiadvisor.agent.session import LEASE_NS, adopt_session, create_session, mapped_rings, remove_leftovers
from tuiadvisor.errors import FailureError
from tuiadvisor_probes import ring as ring_file

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER_UID = 65534


@pytest.fixture
def own_session() -> Iterator[session_module.RingSession]:
    made = create_session(os.getpid(), os.geteuid())
    yield made
    if Path(made.directory).exists():
        made.remove()


def live_writer(session: session_module.RingSession) -> ring_file.RingWriter:
    """A probe of this very process on the ring."""
    writer = ring_file.RingWriter(session.inner_ring_path)
    writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_LIVE)
    return writer


def test_directory_is_for_its_owner_alone_and_goes_with_everything(
    own_session: session_module.RingSession,
) -> None:
    """Mode 0700 and 0600; after remove nothing is left."""
    directory = Path(own_session.directory)

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "rank.ring").stat().st_mode) == 0o600

    own_session.remove()

    assert not directory.exists()


def test_paths_inside_and_outside_are_one_file(own_session: session_module.RingSession) -> None:
    """What the process opens is what we read."""
    live_writer(own_session).close()
    reader = ring_file.RingReader(own_session.ring_path)

    assert reader.get_u64(ring_file.OFFSET_STATE) == ring_file.STATE_LIVE
    reader.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="no files of another user (be root)")
def test_another_users_process_gets_ring_and_probe_files_it_can_open() -> None:
    """As root everything is handed over: its user owns directory, ring and a copy of the probe."""
    made = create_session(os.getpid(), OTHER_UID)
    try:
        paths = [Path(made.directory), *Path(made.directory).rglob("*")]

        assert {OTHER_UID} == {path.lstat().st_uid for path in paths}
        assert made.probe_folder is not None
        assert (Path(made.probe_folder) / "ring.py").is_file()
        assert f"tuiadvisor-{OTHER_UID}-" in made.directory
    finally:
        made.remove()
    assert not Path(made.directory).exists()


def test_live_probe_in_a_process_is_adopted(own_session: session_module.RingSession) -> None:
    """The path is found in the process's own maps."""
    writer = live_writer(own_session)

    adopted = adopt_session(os.getpid())

    assert adopted is not None
    assert own_session.directory == adopted.directory
    assert own_session.has_other_watchers()
    adopted.close()
    assert not own_session.has_other_watchers()
    writer.close()


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (ring_file.OFFSET_STATE, ring_file.STATE_DETACHED),
        (ring_file.OFFSET_STATE, ring_file.STATE_FAILED),
        (ring_file.OFFSET_COMMAND, ring_file.COMMAND_DETACH),
    ],
)
def test_probe_that_left_or_is_leaving_is_not_adopted(
    own_session: session_module.RingSession, offset: int, value: int
) -> None:
    """Its ring stays mapped for late callbacks, but nobody writes it any more."""
    writer = live_writer(own_session)
    writer.put_u64(offset, value)

    assert adopt_session(os.getpid()) is None
    assert [(own_session.inner_ring_path, False)] == mapped_rings(os.getpid())
    writer.close()


def test_deleted_ring_is_seen_but_not_adopted(own_session: session_module.RingSession) -> None:
    """A probe whose file is gone is still in the process."""
    writer = live_writer(own_session)
    own_session.remove()

    assert adopt_session(os.getpid()) is None
    assert [(own_session.inner_ring_path, True)] == mapped_rings(os.getpid())
    writer.close()


def test_mapped_file_that_only_looks_like_a_ring_is_not_adopted(
    own_session: session_module.RingSession,
) -> None:
    """Any process may map a file of that name; its content decides."""
    path = Path(own_session.inner_ring_path)
    path.write_bytes(b"x" * 8192)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert adopt_session(os.getpid()) is None


def test_ring_of_another_version_is_left_to_whoever_watches_it(
    own_session: session_module.RingSession,
) -> None:
    """To adopt it is impossible, to replace it would end somebody's recording: it is said; a leftover is replaced."""
    writer = live_writer(own_session)
    try:
        with Path(own_session.ring_path).open("r+b") as ring:
            ring.seek(8)
            ring.write((1).to_bytes(4, "little"))
        with pytest.raises(FailureError) as said:
            adopt_session(os.getpid())
        assert str(said.value) == (
            f"process {os.getpid()}: a tuiadvisor of another version watches it (a ring of version 1, not "
            f"{ring_file.VERSION}); end that watch first, or watch with that version"
        )
        fcntl.flock(own_session.directory_fd, fcntl.LOCK_UN)  # its watcher is killed
        assert adopt_session(os.getpid()) is None
    finally:
        writer.close()


def test_shortened_ring_is_noticed(own_session: session_module.RingSession) -> None:
    """Reading the map of a cut file would end the agent by SIGBUS."""
    size = Path(own_session.inner_ring_path).stat().st_size
    assert own_session.is_whole(size)

    os.truncate(own_session.inner_ring_path, size - 1)

    assert not own_session.is_whole(size)


def test_leftover_of_a_killed_agent_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlocked, old, lease over: deleted. Young, locked, or with a lease: kept."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    old_s = time.time() + 3600
    kept_folder = tmp_path / "tuiadvisor-notes"
    kept_folder.mkdir()
    made = session_module._create_below(None, str(tmp_path), os.geteuid())
    reader = ring_file.RingReader(made.ring_path)

    assert remove_leftovers((str(tmp_path),), old_s) == 0  # we hold its lock
    reader.put_u64(ring_file.OFFSET_LEASE, time.monotonic_ns() + LEASE_NS)
    made.close()
    assert remove_leftovers((str(tmp_path),), old_s) == 0  # its probe may still be taken over
    reader.put_u64(ring_file.OFFSET_LEASE, time.monotonic_ns() - 1)
    assert remove_leftovers((str(tmp_path),), time.time()) == 0  # just made, perhaps not yet locked
    assert remove_leftovers((str(tmp_path),), old_s) == 1
    assert [kept_folder] == list(tmp_path.iterdir())
    reader.close()


@pytest.mark.parametrize("trap", ["deep", "leased", "fifo", "many"])
def test_what_others_left_under_our_name_neither_ends_nor_holds_up_an_agent(
    trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may make such folders in /tmp, and root's agent looks at them."""
    folder = tmp_path / f"tuiadvisor-65534-{'0' * 16}"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    ring = folder / session_module.RING_NAME
    holder = None
    if trap == "deep":  # deeper than Python recurses
        inner_fd = os.open(folder, os.O_RDONLY)
        for _ in range(sys.getrecursionlimit() + 200):
            os.mkdir("d", dir_fd=inner_fd)
            next_fd = os.open("d", os.O_RDONLY, dir_fd=inner_fd)
            os.close(inner_fd)
            inner_fd = next_fd
        os.close(inner_fd)
    elif trap == "leased":  # whoever opens it waits for its holder, 45 s by default
        ring.write_bytes(b"x")
        holder = os.open(ring, os.O_RDWR)
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    elif trap == "fifo":
        os.mkfifo(ring)
    else:
        monkeypatch.setattr(session_module, "_MAX_ENTRIES", 100)
        for number in range(200):
            (folder / f"f{number}").touch()
    begin_s = time.monotonic()
    try:
        removed = remove_leftovers((str(tmp_path),), time.time() + 3600)
        is_there = folder.exists()
    finally:
        if holder is not None:
            os.close(holder)
            signal.signal(signal.SIGIO, signal.SIG_DFL)
        subprocess.run(["/bin/rm", "-rf", str(folder)], check=True)  # pytest's own way recurses
    if trap == "leased":  # by default the kernel makes one wait for 45 s
        assert time.monotonic() - begin_s < int(Path("/proc/sys/fs/lease-break-time").read_text()) / 2
    assert {"deep": 0, "many": 0}.get(trap, 1) == removed
    assert is_there is not bool(removed)


def test_a_ring_without_pages_is_read_and_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full file system a look at such a page through a map is SIGBUS."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"tuiadvisor-65534-{'1' * 16}"
    folder.mkdir()
    with (folder / session_module.RING_NAME).open("wb") as ring:
        ring.truncate(session_module.RING_BYTES)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("mapped")

    monkeypatch.setattr(ring_file.RingReader, "__init__", refuse)
    assert 1 == remove_leftovers((str(tmp_path),), time.time() + 3600)


def test_no_place_for_a_ring_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full or read-only machine is one clear line."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session_module, "_create_below", refuse)

    with pytest.raises(FailureError, match=r"shm: No space left.*tmp: No space left.*free space in one"):
        create_session(os.getpid(), os.geteuid())


def test_a_ring_goes_to_the_next_place_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first place could not promise room, the second is taken, named with the reason."""
    tried = []

    def crowded(folder_fd: int, num_bytes: int) -> None:
        tried.append(num_bytes)
        if len(tried) == 1:
            raise OSError(28, "0.1 MiB free, 18.3 MiB needed")

    monkeypatch.setattr(session_module, "check_ring_fits", crowded)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    made = create_session(os.getpid(), os.geteuid())
    made.remove()

    assert tmp_path == Path(made.directory).parent
    assert f"its files lie in {tmp_path} (/dev/shm: 0.1 MiB free, 18.3 MiB needed)" == made.place_note


def test_all_of_a_ring_is_there_before_anybody_writes_it(own_session: session_module.RingSession) -> None:
    """A page that is only promised is the training's SIGBUS when it cannot be had."""
    found = Path(own_session.directory, "rank.ring").stat()

    assert session_module.RING_BYTES == found.st_size
    assert found.st_blocks * 512 >= found.st_size


def test_no_ring_lies_where_each_write_may_need_a_new_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a copy-on-write file system a reserved page is no promise; the room there does not matter."""
    folder_fd = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(room, "_kind", lambda _: 0x9123683E)  # btrfs

    with pytest.raises(OSError, match="cannot reserve room"):
        room.check_ring_fits(folder_fd, 1)

    os.close(folder_fd)
