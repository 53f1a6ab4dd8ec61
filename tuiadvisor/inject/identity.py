"""Which process is meant: its number alone does not say, for numbers are used again.

In: a process id.  Out: an `Identity` to be checked later, through a descriptor of /proc/PID, which stays with the one
process it was opened for. Runs in the tracer process too, so no dataclass here and nothing that is slow to import.
"""

# Read while a thread of the target stands still: pathlib costs more than the reading.

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMESPACES = ("mnt", "pid", "user")
_READ_BYTES = 1 << 16  # of stat and status, which the kernel hands out in one piece


class OtherProcessError(ProcessLookupError):
    """The process that was found is not there any more: (reason for programs, what for people)."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what)
        self.reason = reason
        self.what = what


class Identity(NamedTuple):
    """What tells a process from every other, and from itself once it has become somebody else's."""

    pid: int
    start_ticks: int
    """Start time since boot."""
    uid: int
    """The user with whose rights it opens files."""
    namespaces: tuple[str, ...] = ()
    """Its mount, PID and user namespace; "" where we may not see it, empty where nobody looked."""


def identify(pid: int) -> Identity:
    """The process that has this id now. Raises ProcessLookupError when there is none."""
    with opened(pid) as process_fd:
        return _identity(pid, process_fd)


@contextmanager
def opened(pid: int) -> Iterator[int]:
    """A descriptor of /proc/PID: reads through it fail once this process is gone, whoever has its id then."""
    try:
        process_fd = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OtherProcessError("gone", "it has ended") from None
    try:
        yield process_fd
    finally:
        os.close(process_fd)


@contextmanager
def the_same(expected: Identity) -> Iterator[int]:
    """Whatever the block does to the process's id or below its /proc/PID is done to that very process.

    Checked before and after: as long as a process is there nobody else gets its id. Raises OtherProcessError; after the
    block the caller has to undo what it did.
    """
    with opened(expected.pid) as process_fd:
        check(expected, process_fd)
        yield process_fd
        check(expected, process_fd)


def confirm(expected: Identity) -> None:
    """Raise OtherProcessError unless the expected process has its id still."""
    with the_same(expected):
        pass


def check(expected: Identity, process_fd: int, tid: int | None = None) -> None:
    """Raise OtherProcessError unless the descriptor, and the thread if one is named, are of the expected process."""
    try:
        found = _identity(expected.pid, process_fd)
        if tid is not None:
            os.stat(f"task/{tid}", dir_fd=process_fd)
    except (ProcessLookupError, FileNotFoundError):
        raise OtherProcessError("gone", "it has ended") from None
    if found.start_ticks != expected.start_ticks:
        raise OtherProcessError("gone", "it has ended, and another process has its id now")
    if found.uid != expected.uid:
        raise OtherProcessError(
            "changed", f"it was found as user {expected.uid}'s and is user {found.uid}'s now"
        )
    if any(
        then and now and then != now for then, now in zip(expected.namespaces, found.namespaces, strict=False)
    ):
        raise OtherProcessError("changed", "it has moved to other namespaces since it was found")


def _identity(pid: int, process_fd: int) -> Identity:
    # The command name may contain blanks and parentheses: count from the last one.
    fields = _read(process_fd, "stat").rpartition(b")")[2].split()
    users = _read(process_fd, "status").partition(b"\nUid:")[2].split(maxsplit=4)
    namespaces = tuple(_namespace(process_fd, name) for name in _NAMESPACES)
    return Identity(pid, int(fields[19]), int(users[3]), namespaces)


def _read(process_fd: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process_fd)
    try:
        return os.read(descriptor, _READ_BYTES)
    finally:
        os.close(descriptor)


def _namespace(process_fd: int, name: str) -> str:
    try:
        return os.readlink(f"ns/{name}", dir_fd=process_fd)
    except (PermissionError, FileNotFoundError):  # another user's; a zombie, a kernel without them
        return ""
