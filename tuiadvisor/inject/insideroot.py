"""Open what a process sees under a path, below its own root: no link leads out of there.

Below `/proc/PID/root` the kernel resolves an absolute symlink in the root of whoever asks, so a container's /tmp that
is a link would have us write elsewhere on the host, with our rights. Here links are resolved in the process's root
(openat2), or, where the kernel has no such call or a filter forbids it, not followed at all.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
_OPENAT2: Final = 437  # the same number on x86-64 and aarch64
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10
_HOW: Final = struct.Struct("=3Q")  # struct open_how: flags, mode, resolve
_TRIES: Final = 8  # somebody renames folders while the kernel walks through them: EAGAIN
_NOT_TO_BE_HAD: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG})


def open_inside(pid: int, path: str, flags: int = FOLDER) -> int:
    """A descriptor of an absolute path as the process sees it. OSError if there is none; nothing is created."""
    root_fd = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_below(root_fd, path, flags)
    finally:
        os.close(root_fd)


@contextmanager
def folder_inside(pid: int, path: str) -> Iterator[int]:
    """The same for the time of a block, a folder."""
    folder_fd = open_inside(pid, path)
    try:
        yield folder_fd
    finally:
        os.close(folder_fd)


def open_below(root_fd: int, path: str, flags: int) -> int:
    """A descriptor of a path below this folder, which is its root: an absolute link and `..` stay below it."""
    for _ in range(_TRIES):
        try:
            return _openat2(root_fd, path, flags | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _NOT_TO_BE_HAD:
                return _walk(root_fd, path, flags | os.O_CLOEXEC)
            if error.errno != errno.EAGAIN:
                raise
    raise OSError(errno.EAGAIN, "its folders are being moved", path)


def _openat2(root_fd: int, path: str, flags: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    how = _HOW.pack(flags, 0, _IN_ROOT | _NO_MAGICLINKS)
    name, size = os.fsencode(path), ctypes.c_size_t(len(how))
    descriptor: int = libc.syscall(ctypes.c_long(_OPENAT2), root_fd, name, how, size)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return descriptor


def _walk(root_fd: int, path: str, flags: int) -> int:
    """Folder by folder, following nothing: a link in the way is an error (ENOTDIR or ELOOP)."""
    *folders, last = [part for part in path.split("/") if part not in {"", "."}] or ["."]
    if ".." in {*folders, last}:
        raise OSError(errno.EXDEV, "it leads upwards", path)
    here = os.dup(root_fd)
    try:
        for name in folders:
            there = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = there
        return os.open(last, flags | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)
