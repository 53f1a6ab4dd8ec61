"""Which git commit a training was started from, read from the files of the repository around its working folder.

In: a process.  Out: the commit that HEAD names, in hexadecimal; None where there is no repository or it cannot be
read. No git is run: a repository can be set up to run commands. Nothing is said of changes that are not committed.
The files are a stranger's: only plain ones are opened, below the root and with the rights of the process's user, in a
thread that nobody waits for.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import threading
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from tuiadvisor.inject.identity import the_same
from tuiadvisor.inject.insideroot import open_below
from tuiadvisor.inject.plainfile import read_plain

if TYPE_CHECKING:
    from tuiadvisor.inject.identity import Identity

MAX_LEVELS: Final = 16
MAX_BYTES: Final = 4 << 20  # of packed-refs in a repository with tens of thousands of branches
MAX_LINE_BYTES: Final = 4096  # of every other file: one line
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF: Final = re.compile(r"ref: (refs/[\w./+@-]{1,400})")
_SETGROUPS: Final = {"x86_64": 116, "aarch64": 159}


class CommitLookup:
    """One look for the commit of a process; a file system that hangs holds up neither the attach nor our end."""

    def __init__(self, target: Identity) -> None:
        self.commit: str | None = None  # until it is known
        self._target = target
        threading.Thread(target=self._look, name="git commit", daemon=True).start()

    def _look(self) -> None:
        try:
            with the_same(self._target) as process_fd:
                place = _Place(process_fd)
                rights = _rights(process_fd)
        except (OSError, ValueError):
            return
        try:
            if os.geteuid() == 0:
                _take_rights(*rights)
            self.commit = _find(place)
        except OSError:
            return
        finally:
            place.close()


def git_commit(pid: int, proc: str = "/proc") -> str | None:
    """The commit of the working folder of this process, with our own rights."""
    try:
        process_fd = os.open(f"{proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        place = _Place(process_fd)
    except OSError:
        return None
    finally:
        os.close(process_fd)
    try:
        return _find(place)
    finally:
        place.close()


class _Place:
    """The root of a process, held open, and its working folder below it."""

    def __init__(self, process_fd: int) -> None:
        folder, root = (PurePosixPath(os.readlink(name, dir_fd=process_fd)) for name in ("cwd", "root"))
        inner = folder.relative_to(root) if folder.is_relative_to(root) else folder.relative_to("/")
        self.folder = "/" / inner
        self._root_fd = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process_fd)

    def read(self, path: PurePosixPath, max_bytes: int = MAX_LINE_BYTES) -> str | None:
        """The beginning of a file as text; None where there is none that may be read."""
        try:
            path_fd = open_below(self._root_fd, str(path), os.O_PATH)
        except (OSError, ValueError):
            return None
        try:
            return read_plain(path_fd, max_bytes).decode(errors="replace")
        except OSError:
            return None
        finally:
            os.close(path_fd)

    def close(self) -> None:
        """Let go of the root."""
        os.close(self._root_fd)


def _find(place: _Place) -> str | None:
    for folder in [place.folder, *place.folder.parents][:MAX_LEVELS]:
        git = folder / ".git"
        if (head := place.read(git / "HEAD")) is not None:
            return _commit(place, git, head)
        if (link := place.read(git)) is not None:  # a worktree or a submodule: one line that says where
            git = folder / link.removeprefix("gitdir: ").strip()
            head = place.read(git / "HEAD")
            return None if head is None else _commit(place, git, head)
    return None


def _commit(place: _Place, git: PurePosixPath, head: str) -> str | None:
    """What HEAD names: a commit, or a branch whose commit is in a file of its own or among the packed ones."""
    if _COMMIT.fullmatch(head.strip()):
        return head.strip()
    found = _REF.fullmatch(head.strip())
    if found is None or ".." in found[1]:
        return None
    common = (place.read(git / "commondir") or "").strip()
    for folder in [git, *([git / common] if common else [])]:
        text = (place.read(folder / found[1]) or "").strip()
        if _COMMIT.fullmatch(text):
            return text
        packed = re.search(
            rf"^({_COMMIT.pattern}) {re.escape(found[1])}$",
            place.read(folder / "packed-refs", MAX_BYTES) or "",
            re.MULTILINE,
        )
        if packed:
            return packed[1]
    return None


def _rights(process_fd: int) -> tuple[int, int, list[int]]:
    """User, group and other groups with which the process opens files."""
    with open("status", "rb", opener=lambda name, flags: os.open(name, flags, dir_fd=process_fd)) as file:
        lines = dict(line.split(b":", 1) for line in file.read(1 << 20).splitlines() if b":" in line)
    groups = [int(group) for group in lines[b"Groups"].split()]
    return int(lines[b"Uid"].split()[3]), int(lines[b"Gid"].split()[3]), groups


def _take_rights(uid: int, gid: int, groups: list[int]) -> None:
    """This thread opens files as that user does from now on, and only this thread: the C library is not asked."""
    if uid == 0:
        return
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise OSError("no way to take another user's groups here")
    libc = ctypes.CDLL(None, use_errno=True)
    raw = (ctypes.c_uint32 * len(groups))(*groups)
    if libc.syscall(ctypes.c_long(number), ctypes.c_size_t(len(groups)), raw) != 0:
        raise OSError(ctypes.get_errno(), "its groups cannot be taken")
    libc.setfsgid(gid)
    libc.setfsuid(uid)
    if libc.setfsuid(uid) != uid:  # says what it was before, and nothing else
        raise OSError("its user cannot be taken")
