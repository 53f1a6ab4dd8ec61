"""ptrace(2) on one thread, x86-64, by ctypes: the few requests an injection needs.

Runs in the tracer process only. Every call must come from the thread that seized. Errors are OSError.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

_CONT, _SINGLESTEP, _DETACH = 7, 9, 17
_GETREGSET, _SETREGSET = 0x4204, 0x4205
_SEIZE, _INTERRUPT = 0x4206, 0x4207
_GETSIGMASK, _SETSIGMASK = 0x420A, 0x420B
_SECCOMP_GET_FILTER = 0x420C
_NT_PRSTATUS, _NT_X86_XSTATE = 1, 0x202
_EVENT_STOP = 128
_WAIT_ALL = 0x40000000  # __WALL: threads are waited for as well
_FILTER_BYTES = 8  # struct sock_filter
_XSTATE_ROOM = 64 * 1024  # AVX-512 needs 2.7 kB, AMX 11 kB

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Registers(ctypes.Structure):
    """struct user_regs_struct of <sys/user.h>."""

    _fields_ = tuple(
        (name, ctypes.c_ulonglong)
        for name in (
            *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx"),
            *("rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base"),
            *("ds", "es", "fs", "gs"),
        )
    )
    orig_rax: int
    rax: int
    rcx: int
    rdi: int
    rdx: int
    rip: int
    rsi: int
    rsp: int
    r8: int
    r9: int
    r10: int
    eflags: int

    def copy(self) -> Registers:
        """An independent copy to be changed."""
        return Registers.from_buffer_copy(self)


class _IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class GoneError(Exception):
    """The thread ended while it was traced."""


class UnreadableError(Exception):
    """The kernel does not show the seccomp filters of the thread."""


class LateError(Exception):
    """The thread did not do in time what was asked of it."""


def seize(tid: int) -> None:
    """Become the tracer without stopping the thread."""
    _request(_SEIZE, tid)


def interrupt(tid: int) -> None:
    """Ask the thread to stop; `wait_stop` tells when."""
    _request(_INTERRUPT, tid)


def resume(tid: int, *, single_step: bool = False, deliver: int = 0) -> None:
    """Let the thread run on, for one instruction if asked, with a signal delivered if given."""
    _request(_SINGLESTEP if single_step else _CONT, tid, data=deliver)


def detach(tid: int) -> None:
    """Let the thread run on, untraced."""
    _request(_DETACH, tid)


def wait_stop(tid: int, deadline_s: float) -> tuple[int, bool]:
    """(signal, is it a stop without a signal) of the next stop.

    Needs SIGCHLD blocked. Raises LateError after `deadline_s` (monotonic), GoneError when the thread ended.
    """
    while True:
        try:
            waited, wait_status = os.waitpid(tid, os.WNOHANG | _WAIT_ALL)
        except ChildProcessError as error:
            raise GoneError from error
        if waited:
            if not os.WIFSTOPPED(wait_status):
                raise GoneError
            return os.WSTOPSIG(wait_status), wait_status >> 16 == _EVENT_STOP
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise LateError
        # Sleeping until the signal, never spinning: at real-time priority a spin could starve the target.
        signal.sigtimedwait({signal.SIGCHLD}, remaining_s)


def registers(tid: int) -> Registers:
    """General registers of a stopped thread."""
    found = Registers()
    _register_set(_GETREGSET, tid, _NT_PRSTATUS, ctypes.addressof(found), ctypes.sizeof(found))
    return found


def set_registers(tid: int, wanted: Registers) -> None:
    """Change the general registers of a stopped thread."""
    _register_set(_SETREGSET, tid, _NT_PRSTATUS, ctypes.addressof(wanted), ctypes.sizeof(wanted))


def extended_state(tid: int) -> bytes:
    """Vector and floating-point registers: without them the target's arithmetic changes silently."""
    room = ctypes.create_string_buffer(_XSTATE_ROOM)
    length = _register_set(_GETREGSET, tid, _NT_X86_XSTATE, ctypes.addressof(room), _XSTATE_ROOM)
    return room.raw[:length]


def set_extended_state(tid: int, state: bytes) -> None:
    """Put back what `extended_state` saved."""
    room = ctypes.create_string_buffer(state, len(state))
    _register_set(_SETREGSET, tid, _NT_X86_XSTATE, ctypes.addressof(room), len(state))


def signal_mask(tid: int) -> int:
    """Blocked signals, bit n - 1 for signal n."""
    mask = ctypes.c_uint64()
    _request(_GETSIGMASK, tid, address=8, data=ctypes.addressof(mask))
    return mask.value


def set_signal_mask(tid: int, blocked: int) -> None:
    """Block these signals and no others."""
    mask = ctypes.c_uint64(blocked)
    _request(_SETSIGMASK, tid, address=8, data=ctypes.addressof(mask))


def seccomp_filters(tid: int) -> list[bytes]:
    """The programs that judge each system call of a stopped thread. Raises UnreadableError without CAP_SYS_ADMIN."""
    programs: list[bytes] = []
    while True:
        try:
            length = _answered(_SECCOMP_GET_FILTER, tid, len(programs), 0)
        except FileNotFoundError:  # ENOENT: there are no more
            return programs
        except OSError as error:  # no right, or a kernel that cannot tell
            raise UnreadableError from error
        room = ctypes.create_string_buffer(_FILTER_BYTES * length)
        _answered(_SECCOMP_GET_FILTER, tid, len(programs), ctypes.addressof(room))
        programs.append(room.raw)


def _register_set(request: int, tid: int, kind: int, base: int, length: int) -> int:
    vector = _IoVector(base, length)
    _request(request, tid, address=kind, data=ctypes.addressof(vector))
    return int(vector.length)


def _request(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    _answered(request, tid, address, data)


def _answered(request: int, tid: int, address: int, data: int) -> int:
    answer: int = _libc.ptrace(request, tid, address, data)
    if answer == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer
