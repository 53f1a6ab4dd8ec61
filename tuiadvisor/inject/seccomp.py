"""Whether a thread's seccomp filters would end it at one of the system calls that an injection makes in it.

In: a thread, and its filters where they may be read.  Out: a sentence where it has to be left alone. A filter may kill
for a call, so nothing is tried. Who has CAP_SYS_ADMIN can read the filters and run them on our calls. For others a
filter is taken for harmless that was in force before the program was started, for the program has loaded its
libraries and started its threads under it; that is how containers do it. One that the training has put on
later is not. Runs in the tracer process, so no dataclass here.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.inject.machines import HERE

if TYPE_CHECKING:
    from collections.abc import Iterable

    Calls = Iterable[tuple[str, int, tuple[int, ...]]]

_OFF, _STRICT = 0, 1
_CAP_SYS_ADMIN: Final = 21
_DATA: Final = struct.Struct("<IIQ6Q")  # struct seccomp_data
_INSTRUCTION: Final = struct.Struct("<HBBI")  # struct sock_filter
_WORD: Final = 0xFFFFFFFF
_ACTION: Final = 0xFFFF0000
_ALLOW, _LOG, _ERRNO = 0x7FFF0000, 0x7FFC0000, 0x00050000
_MAX_FORKS: Final = 16
_HARMLESS: Final = frozenset(
    {_ALLOW, _LOG, _ERRNO}
)  # a call that fails is undone or said; all else may end it
_SIZE, _RW, _NO_FD = 1 << 16, 3, _WORD

_NUMBERS: Final = HERE.calls
# What the probe's code calls on any way in.
INSIDE: Final[Calls] = (
    ("openat", _NUMBERS["openat"], (_WORD - 99, 0, 0o2000002)),
    ("newfstatat", _NUMBERS["newfstatat"], ()),
    ("fstat", _NUMBERS["fstat"], (9,)),
    ("ioctl", _NUMBERS["ioctl"], (9, 0x5451)),
    ("lseek", _NUMBERS["lseek"], (9,)),
    ("read", _NUMBERS["read"], (9, 0, _SIZE)),
    ("fcntl", _NUMBERS["fcntl"], (9, 1030)),
    ("mmap of a file", _NUMBERS["mmap"], (0, _SIZE, _RW, 1, 9, 0)),
    ("close", _NUMBERS["close"], (9,)),
    ("clock_nanosleep", _NUMBERS["clock_nanosleep"], (1,)),
    ("getpid", _NUMBERS["getpid"], ()),
    ("futex", _NUMBERS["futex"], (0, 0x189)),
    ("munmap", _NUMBERS["munmap"], (1 << 32, _SIZE)),
)
BY_TRACING: Final[Calls] = (("mmap of executable memory", _NUMBERS["mmap"], (0, _SIZE, 5, 0x22, _NO_FD, 0)),)
BY_THREAD: Final[Calls] = (
    ("mmap of a stack", _NUMBERS["mmap"], (0, 1 << 23, 0, 0x20022, _NO_FD, 0)),
    ("mprotect", _NUMBERS["mprotect"], (1 << 32, 1 << 23, _RW)),
    ("rt_sigprocmask", _NUMBERS["rt_sigprocmask"], (0,)),
    ("clone3", _NUMBERS["clone3"], (0, 88)),
    ("clone", _NUMBERS["clone"], (0x3D0F00,)),
    ("set_robust_list", _NUMBERS["set_robust_list"], (1 << 32, 24)),
    ("rseq", _NUMBERS["rseq"], (1 << 32, 32)),
    ("madvise", _NUMBERS["madvise"], (1 << 32, 1 << 22, 4)),
    ("exit", _NUMBERS["exit"], (0,)),
)
STRICT: Final = "it runs in seccomp's strict mode, where any new system call ends it"
UNREADABLE: Final = "it has put itself under a seccomp filter that only root can read and that may end it"


def is_free(pid: int, tid: int) -> bool:
    """Whether no filter judges this thread."""
    return _is_free(_status(f"{pid}/task/{tid}"))


def harm_unread(pid: int, tid: int) -> str | None:
    """What stands against a thread whose filters cannot be read; None where it has shown what they allow."""
    status = _status(f"{pid}/task/{tid}")
    if _is_free(status):
        return None
    if _field(status, "Seccomp", 0) == _STRICT:
        return STRICT
    return None if _is_older_than_program(pid, status) else UNREADABLE


def _is_older_than_program(pid: int, status: str) -> bool:
    """Whether the process was started, not only forked, by one that was under as many filters."""
    for _ in range(_MAX_FORKS):
        parent = _field(status, "PPid", 0)
        above = _status(str(parent) if parent else "self")  # of a container's first process we see no parent
        if not _is_same(status, above):
            return False
        if not parent or _stack(parent) != _stack(pid):
            return True
        pid, status = parent, above
    return False


def harm(programs: list[bytes], calls: Calls) -> str | None:
    """The first of our calls at which one of these filters would do more than refuse it."""
    for name, number, arguments in calls:
        for program in programs:
            if run(program, number, arguments) & _ACTION not in _HARMLESS:
                return f"its seccomp filter would end it, or ask its supervisor, at our {name}"
    return None


def may_read() -> bool:
    """Whether the kernel lets us read filters at all."""
    status = _status("self")
    return _is_free(status) and bool(_field(status, "CapEff", 0, 16) >> _CAP_SYS_ADMIN & 1)


def run(program: bytes, number: int, arguments: tuple[int, ...]) -> int:
    """What a filter, in classic BPF, answers to one system call."""
    data = _DATA.pack(number, HERE.audit, 0, *arguments, *(0,) * (6 - len(arguments)))
    code, a, x, memory, at = list(_INSTRUCTION.iter_unpack(program)), 0, 0, [0] * 16, 0
    while at < len(code):
        operation, if_true, if_false, k = code[at]
        at += 1
        kind, operand = operation & 7, x if operation & 8 else k
        if kind == 6:  # return
            return a if operation & 0x10 else k
        if kind == 5:  # jump; never backwards, the kernel has checked it
            at += k if not operation & 0xF0 else if_true if _holds(operation & 0xF0, a, operand) else if_false
        elif kind in {0, 1}:  # load
            value = _loaded(operation & 0xE0, k, data, memory)
            a, x = (value, x) if kind == 0 else (a, value)
        elif kind in {2, 3}:  # store
            memory[k & 15] = a if kind == 2 else x
        elif kind == 4:
            a = _computed(operation & 0xF0, a, operand)
        else:
            a, x = (x, x) if operation & 0x80 else (a, a)
    return 0


def _loaded(mode: int, k: int, data: bytes, memory: list[int]) -> int:
    if mode == 0x20:
        return int(struct.unpack_from("<I", data, k)[0])
    return {0x60: memory[k & 15], 0x80: _DATA.size}.get(mode, k)


def _holds(test: int, a: int, operand: int) -> bool:
    return {0x10: a == operand, 0x20: a > operand, 0x30: a >= operand}.get(test, bool(a & operand))


def _computed(operation: int, a: int, operand: int) -> int:
    if operation in {0x30, 0x90} and not operand:
        return 0
    results = {
        0x00: a + operand, 0x10: a - operand, 0x20: a * operand, 0x40: a | operand, 0x50: a & operand,
        0x60: a << (operand & 31), 0x70: a >> (operand & 31), 0x80: -a, 0xA0: a ^ operand,
    }  # fmt: skip
    if operation in results:
        return results[operation] & _WORD
    return a // operand if operation == 0x30 else a % operand


def _is_free(status: str) -> bool:
    return _field(status, "Seccomp", 0) == _OFF


def _is_same(status: str, other: str) -> bool:
    """Whether both are under as many filters; kernels before 5.9 tell only that there are some."""
    return not _is_free(other) and _field(status, "Seccomp_filters", -1) == _field(
        other, "Seccomp_filters", -1
    )


def _stack(pid: int) -> int:
    """Where the stack began: a program's own, while a child that was only forked has its parent's."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[25])
    except OSError:
        return 0


def _status(name: str) -> str:
    try:
        return Path(f"/proc/{name}/status").read_text(errors="replace")
    except OSError:
        return ""


def _field(status: str, name: str, default: int, base: int = 10) -> int:
    value = status.partition(f"\n{name}:")[2].split(None, 1)
    return int(value[0], base) if value else default
