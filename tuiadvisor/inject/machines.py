"""What differs between the machines whose processes can be entered by tracing.

Numbers of system calls, instructions to look for, and the sleeps that a stop does not disturb. Runs in the tracer
process as well, so no dataclass here. Everywhere else only the armed way and Python's own are open.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

_TIMER_ABSTIME: Final = 1


class Machine(NamedTuple):
    """Facts of one kind of machine."""

    name: str
    """As uname calls it."""
    elf_machine: int
    audit: int
    """As seccomp calls it."""
    calls: dict[str, int]
    """Numbers of system calls by name."""
    system_call: bytes
    """The instruction that makes one."""
    trap: bytes
    """A breakpoint, as a regular expression over bytes."""
    instruction_bytes: int
    """Instructions begin at multiples of this; of a fixed length where it is more than one."""
    restarted: frozenset[int]
    """Sleeps, beside a futex's, that the kernel takes up again unseen after a stop.

    Not so epoll_wait and socket reads with a time-out: they would return EINTR to code that may not expect it.
    """
    event_waits: frozenset[int]
    """Of the main thread alone, and last of all: where it waits for an event no pending call runs either, and for
    that it would be stopped in just the same way. epoll_wait returns EINTR then; Python and event loops ask again.
    """
    forgets_remaining: bool
    """Whether a sleep for a span begins anew, in its whole length, after a function was called in its thread."""


def _named(calls: dict[str, int], *names: str) -> frozenset[int]:
    return frozenset(calls[name] for name in names)


_X86_64_CALLS: Final = {
    "read": 0, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11,
    "rt_sigprocmask": 14, "ioctl": 16, "select": 23, "madvise": 28, "nanosleep": 35, "getpid": 39, "accept": 43,
    "recvfrom": 45, "clone": 56, "exit": 60, "wait4": 61, "fcntl": 72, "futex": 202, "clock_nanosleep": 230,
    "epoll_wait": 232, "openat": 257, "newfstatat": 262, "pselect6": 270, "ppoll": 271, "set_robust_list": 273,
    "epoll_pwait": 281, "accept4": 288, "rseq": 334, "clone3": 435, "futex_wait": 449,
}  # fmt: skip
_AARCH64_CALLS: Final = {
    "epoll_pwait": 22, "fcntl": 25, "ioctl": 29, "openat": 56, "close": 57, "lseek": 62, "read": 63, "pselect6": 72,
    "ppoll": 73, "newfstatat": 79, "fstat": 80, "exit": 93, "futex": 98, "set_robust_list": 99, "nanosleep": 101,
    "clock_nanosleep": 115, "rt_sigprocmask": 135, "getpid": 172, "accept": 202, "recvfrom": 207, "munmap": 215,
    "clone": 220, "mmap": 222, "mprotect": 226, "madvise": 233, "accept4": 242, "wait4": 260, "rseq": 293,
    "clone3": 435, "futex_wait": 449,
}  # fmt: skip

X86_64: Final = Machine(
    name="x86_64",
    elf_machine=62,
    audit=0xC000003E,
    calls=_X86_64_CALLS,
    system_call=b"\x0f\x05",
    trap=rb"\xcc",  # int3
    instruction_bytes=1,
    restarted=_named(
        _X86_64_CALLS, "poll", "ppoll", "select", "pselect6", "nanosleep", "clock_nanosleep", "wait4"
    ),
    event_waits=_named(_X86_64_CALLS, "epoll_wait", "epoll_pwait", "read", "recvfrom", "accept", "accept4"),
    forgets_remaining=False,
)
AARCH64: Final = Machine(
    name="aarch64",
    elf_machine=183,
    audit=0xC00000B7,
    calls=_AARCH64_CALLS,
    system_call=b"\x01\x00\x00\xd4",  # svc #0
    trap=rb"[\x00\x20\x40\x60\x80\xa0\xc0\xe0].[\x20-\x3f]\xd4",  # brk #N
    instruction_bytes=4,
    restarted=_named(_AARCH64_CALLS, "ppoll", "pselect6", "nanosleep", "clock_nanosleep", "wait4"),
    event_waits=_named(_AARCH64_CALLS, "epoll_pwait", "read", "recvfrom", "accept", "accept4"),
    # The kernel decides on `restart_syscall` before the tracer sees the thread, and only if its place is not changed.
    forgets_remaining=True,
)
MACHINES: Final = {machine.name: machine for machine in (X86_64, AARCH64)}
IS_KNOWN: Final = os.uname().machine in MACHINES
HERE: Final = MACHINES.get(os.uname().machine, X86_64)  # where it is not known nothing is traced (refusals)


def begins_anew(machine: Machine, call: int, arguments: tuple[int, ...]) -> bool:
    """Whether a sleep would take its whole length again if its thread were borrowed."""
    if not machine.forgets_remaining:
        return False
    calls = machine.calls
    if call == calls["futex"]:
        return not arguments[1] & 0x7F and bool(arguments[3])  # FUTEX_WAIT with a time-out, which is a span
    return call == calls["nanosleep"] or (
        call == calls["clock_nanosleep"] and not arguments[1] & _TIMER_ABSTIME
    )
