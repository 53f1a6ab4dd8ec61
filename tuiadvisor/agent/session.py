"""The private directory in which a rank's ring lies: made before the attach, gone after the detach.

In: a process.  Out: a path of the ring for us and one for the process, which may live in another mount namespace.
One directory a rank, for its owner alone. Whoever watches holds a shared lock on it: the last one out removes it,
and a directory nobody locks is a leftover of a killed agent.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

import tuiadvisor_probes
from tuiadvisor.agent import procfs
from tuiadvisor.agent.room import PLACES, check_ring_fits, check_room, take_memory
from tuiadvisor.errors import FailureError
from tuiadvisor.inject.insideroot import open_inside
from tuiadvisor.inject.process import same_root
from tuiadvisor_probes import ring as ring_file

RING_NAME: Final = "rank.ring"
_PROBE_NAME: Final = "tuiadvisor_probes"  # by which stacks know its frames
_DIRECTORY: Final = re.compile(r"tuiadvisor-(\d+)-[0-9a-f]{16}")
_MAPPED: Final = re.compile(rb"\s(/[^\n]*/tuiadvisor-\d+-[0-9a-f]{16}/rank\.ring)( \(deleted\))?\n")
_STALE_AFTER_S: Final = 60.0  # longer than any lease, and than an agent needs to lock what it made
RING_BYTES: Final = ring_file.ring_bytes(ring_file.DEFAULT_STEP_CAPACITY, ring_file.DEFAULT_EVENT_CAPACITY)
LEASE_NS: Final = 30 * 10**9
_SWEEP_S: Final = 2.0  # anybody may fill /tmp with names like ours; an attach does not wait for that
_MAX_DEPTH, _MAX_ENTRIES = 3, 10_000  # of a folder of ours: tuiadvisor_probes/__pycache__, and a trace a rank


@dataclass(slots=True)
class RingSession:
    """A rank's directory, held open: its files stay reachable when the process's namespace is gone."""

    directory: str  # as we see it
    inner_directory: str  # as the process sees it
    directory_fd: int
    parent_fd: int
    probe_folder: str | None  # the probe's files as the process sees them; None: where they are installed
    place_note: str = ""  # where it lies and why, if that is not the best place

    @property
    def ring_path(self) -> str:
        """The ring for us; through the open directory, so that nobody can put another in its place."""
        return f"/proc/self/fd/{self.directory_fd}/{RING_NAME}"

    @property
    def inner_ring_path(self) -> str:
        """The ring for the process."""
        return f"{self.inner_directory}/{RING_NAME}"

    def is_whole(self, num_bytes: int) -> bool:
        """Whether the file is still there and has its size: a shortened one has lost what was written."""
        try:
            return os.stat(RING_NAME, dir_fd=self.directory_fd).st_size >= num_bytes
        except OSError:
            return False

    def has_other_watchers(self) -> bool:
        """Whether another agent reads this ring too."""
        try:
            fcntl.flock(self.directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False

    def remove(self) -> bool:
        """Delete the directory and let go of it; whether it is gone."""
        try:
            _delete(Path(self.directory).name, self.parent_fd, [_MAX_ENTRIES])
        except OSError:
            return False
        else:
            return True
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the directory and leave it to the others."""
        os.close(self.directory_fd)
        os.close(self.parent_fd)


def create_session(pid: int, uid: int) -> RingSession:
    """A new directory with an empty ring that this process can open.

    FailureError if there is no place, or no memory for the probe that will write it.
    """
    take_memory(pid, RING_BYTES)
    owner = _foreign(pid)
    return _first_with_room(owner, uid, places(owner), has_ring=True)


def create_folder(pid: int, uid: int) -> RingSession:
    """A directory of the same kind without a ring, on disk: for what a process writes only once, and large.

    FailureError if there is no place.
    """
    owner = _foreign(pid)
    return _first_with_room(owner, uid, places(owner)[1:], has_ring=False)


def _first_with_room(owner: int | None, uid: int, parents: list[str], *, has_ring: bool) -> RingSession:
    """The first place that takes it; which one it became and why is said where it is not the first."""
    failed = []
    for parent in parents:
        try:
            session = _create_below(owner, parent, uid, has_ring=has_ring)
        except OSError as error:
            failed.append(f"{parent}: {error.strerror or error}")
        else:
            session.place_note = f"its files lie in {parent} ({'; '.join(failed)})" if failed else ""
            return session
    what = "its ring" if has_ring else "its files"
    raise FailureError(
        f"no room for {what} ({'; '.join(failed)}); free space in one of them, then watch again"
    )


def places(owner: int | None = None) -> list[str]:
    """Where a rank's files may lie, best first: in memory, then on disk."""
    memory, disk, *others = PLACES
    return list(dict.fromkeys((memory, tempfile.gettempdir() if owner is None else disk, *others)))


def room_for_ring(place: str) -> int | None:
    """Bytes free where a ring would fit; None: as many as there is memory. OSError where none may lie."""
    folder_fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "not writable")
        check_ring_fits(folder_fd, RING_BYTES)
        found = os.fstatvfs(folder_fd)
    finally:
        os.close(folder_fd)
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def adopt_session(pid: int) -> RingSession | None:
    """The directory of a probe that is already in the process and alive; None if there is none."""
    for inner, is_deleted in mapped_rings(pid):
        if not is_deleted:
            with suppress(OSError, ring_file.RingError):
                return _open_existing(_foreign(pid), str(PurePath(inner).parent), pid)
    return None


def mapped_rings(pid: int) -> list[tuple[str, bool]]:
    """(path inside the process, deleted) of every ring that the process maps."""
    found = _MAPPED.findall(procfs.read(pid, "maps") or b"")
    root = _root_path(pid)
    unique = dict.fromkeys(
        (path.decode(errors="replace").removeprefix(root), bool(deleted)) for path, deleted in found
    )
    return list(unique)


def _root_path(pid: int) -> str:
    """What stands before paths in its maps: the kernel writes them as we see them, also those of a chroot."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/root").rstrip("/")  # noqa: PTH115  a Path would lose the empty one
    return ""


def remove_leftovers(parents: tuple[str, ...] = PLACES, now_s: float | None = None) -> int:
    """Delete our directories that no agent holds and whose lease ran out; how many there were."""
    num_removed = 0
    deadline_s = time.monotonic() + _SWEEP_S
    for parent in dict.fromkeys((*parents, tempfile.gettempdir())):
        with suppress(OSError), os.scandir(parent) as entries:
            for entry in entries:
                if time.monotonic() > deadline_s:
                    return num_removed
                if _DIRECTORY.fullmatch(entry.name):
                    num_removed += _remove_if_stale(
                        parent, entry.name, time.time() if now_s is None else now_s
                    )
    return num_removed


def _remove_if_stale(parent: str, name: str, now_s: float) -> bool:
    try:
        session = _open_directory(None, parent, name)
    except OSError:
        return False
    found = os.fstat(session.directory_fd)
    is_ours = found.st_uid == os.geteuid() or os.geteuid() == 0
    is_old = now_s - found.st_mtime > _STALE_AFTER_S
    if is_ours and is_old and not session.has_other_watchers() and not _has_lease(session):
        return session.remove()
    session.close()
    return False


def _has_lease(session: RingSession) -> bool:
    # Never mapped: a file of somebody else may have no pages, and reading those through a map would end us.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        ring_fd = os.open(RING_NAME, flags, dir_fd=session.directory_fd)
    except OSError:
        return False
    try:
        is_plain = stat.S_ISREG(os.fstat(ring_fd).st_mode)
        raw = os.pread(ring_fd, 8, ring_file.OFFSET_LEASE) if is_plain else b""
    except OSError:
        raw = b""
    finally:
        os.close(ring_fd)
    lease_ns = int.from_bytes(raw, sys.byteorder)
    # A lease from before a reboot lies in the future: no lease is longer than LEASE_NS.
    return time.monotonic_ns() < lease_ns <= time.monotonic_ns() + LEASE_NS


def _delete(name: str, parent_fd: int, left: list[int], depth: int = 0) -> None:
    """Delete a folder of a rank's user: no deeper and no more than ours are, whatever he has put there.

    left: how many entries may still be looked at. OSError where something stays.
    """
    folder_fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    try:
        with os.scandir(folder_fd) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.E2BIG, "more than any of ours", name)
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder_fd)
                elif depth < _MAX_DEPTH:
                    _delete(entry.name, folder_fd, left, depth + 1)
    finally:
        os.close(folder_fd)
    os.rmdir(name, dir_fd=parent_fd)


def _create_below(owner: int | None, parent: str, uid: int, *, has_ring: bool = True) -> RingSession:
    session = _open_directory(owner, parent, f"tuiadvisor-{uid}-{secrets.token_hex(8)}", is_new=True)
    try:
        found = os.fstat(session.directory_fd)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:  # put in the place of the one we made
            raise PermissionError(errno.EPERM, "somebody else's folder", session.directory)
        fcntl.flock(session.directory_fd, fcntl.LOCK_SH)
        if has_ring:
            check_ring_fits(session.directory_fd, RING_BYTES)
            ring_file.create_ring_file(session.ring_path)
        else:
            check_room(session.directory_fd, 0)
        is_strange = owner is not None or uid != os.geteuid()
        if is_strange:  # another user or another root may not see where we are installed
            _copy_probe(session)
        if uid != os.geteuid():
            _hand_over(session, uid)
    except OSError:
        session.remove()
        raise
    return session


def _copy_probe(session: RingSession) -> None:
    source = Path(tuiadvisor_probes.__file__).parent
    target = Path(f"/proc/self/fd/{session.directory_fd}/{_PROBE_NAME}")
    shutil.copytree(
        source, target, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile
    )
    session.probe_folder = f"{session.inner_directory}/{_PROBE_NAME}"


def _hand_over(session: RingSession, uid: int) -> None:
    """Give everything to the process's user; the directory last, so that he cannot swap a file before."""
    for folder, _, files, folder_fd in os.fwalk(".", topdown=False, dir_fd=session.directory_fd):
        for name in files:
            os.chown(name, uid, -1, dir_fd=folder_fd, follow_symlinks=False)
        if folder != ".":
            os.chown(folder_fd, uid, -1)
    os.chown(session.directory_fd, uid, -1)


def _open_existing(owner: int | None, inner_directory: str, pid: int) -> RingSession:
    parent, name = os.path.split(inner_directory)
    if not _DIRECTORY.fullmatch(name):
        raise FileNotFoundError(inner_directory)
    session = _open_directory(owner, parent, name)
    try:
        found = os.stat(RING_NAME, dir_fd=session.directory_fd, follow_symlinks=False)
        # A process may map a file of any name: believe only a plain file that its own user owns.
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {procfs.owner(pid), os.geteuid()}:
            raise PermissionError(inner_directory)
        fcntl.flock(session.directory_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        _check_alive(session)
    except ring_file.RingVersionError as error:
        is_watched = session.has_other_watchers()
        session.close()
        if is_watched:  # to put in a probe of ours would end what somebody else records
            what = f"process {pid}: a tuiadvisor of another version watches it ({error})"
            raise FailureError(f"{what}; end that watch first, or watch with that version") from None
        raise
    except (OSError, ring_file.RingError):
        session.close()
        raise
    return session


def _check_alive(session: RingSession) -> None:
    reader = ring_file.RingReader(session.ring_path)
    state, command = reader.get_u64(ring_file.OFFSET_STATE), reader.get_u64(ring_file.OFFSET_COMMAND)
    reader.close()
    if state not in {ring_file.STATE_INSTALLING, ring_file.STATE_LIVE} or command != ring_file.COMMAND_NONE:
        raise FileNotFoundError(session.directory)


def _open_directory(owner: int | None, parent: str, name: str, *, is_new: bool = False) -> RingSession:
    """owner: the process in whose root the parent is looked up; None: ours."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    parent_fd = os.open(parent, flags) if owner is None else open_inside(owner, parent, flags)
    try:
        if is_new:
            os.mkdir(name, 0o700, dir_fd=parent_fd)
        directory_fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent_fd)
    except OSError:
        os.close(parent_fd)
        raise
    prefix = "" if owner is None else f"/proc/{owner}/root"
    return RingSession(f"{prefix}{parent}/{name}", f"{parent}/{name}", directory_fd, parent_fd, None)


def _foreign(pid: int) -> int | None:
    """The process if its paths mean something else than ours, as in a container or a chroot; None where they do not."""
    return None if same_root(pid) else pid
