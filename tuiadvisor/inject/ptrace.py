"""ptrace(2) on one thread by ctypes: the few requests an injection needs.

Runs in the tracer process only. Every call must come from the thread that seized. Errors are OSError.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import time

from tuiadvisor.inject.machines import AARCH64, HERE
from tuiadvisor.inject.registers import OURS, Registers

_CONT, _SINGLESTEP, _DETACH = 7, 9, 17
_GETREGSET, _SETREGSET = 0x4204, 0x4205
_SEIZE, _INTERRUPT = 0x4206, 0x4207
_GETSIGMASK, _SETSIGMASK = 0x420A, 0x420B
_SECCOMP_GET_FILTER = 0x420C
_NT_PRSTATUS, _NT_PRFPREG, _NT_X86_XSTATE = 1, 2, 0x202
_NT_ARM_SVE, _NT_ARM_SSVE, _NT_ARM_ZA, _NT_ARM_GCS = 0x405, 0x40B, 0x40C, 0x410
_SVE_HEADER = struct.Struct("<IIHHHH")  # struct user_sve_header: size, max_size, vl, max_vl, flags, reserved
_SVE_REGISTERS = 1  # in its flags: what follows are SVE's registers, not FPSIMD's alone
_GUARDED_STACK = 1
_EVENT_STOP = 128
_WAIT_ALL = 0x40000000  # __WALL: threads are waited for as well
_FILTER_BYTES = 8  # struct sock_filter
_STATE_ROOM = 64 * 1024  # AVX-512 needs 2.7 kB, AMX 11 kB, SVE at 2,048 bits 8.7 kB, ZA at 2,048 bits 64 kB

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class _IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class GoneError(Exception):
    """The thread ended while it was traced."""


class UnreadableError(Exception):
    """The kernel does not show the seccomp filters of the thread."""


class LateError(Exception):
    """The thread did not do in time what was asked of it."""


class ShadowStackError(Exception):
    """The processor compares each return with a stack of its own, on which our call would not be."""


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
    found = OURS()
    _register_set(_GETREGSET, tid, _NT_PRSTATUS, ctypes.addressof(found), ctypes.sizeof(found))
    return found


def set_registers(tid: int, wanted: Registers) -> None:
    """Change the general registers of a stopped thread."""
    _register_set(_SETREGSET, tid, _NT_PRSTATUS, ctypes.addressof(wanted), ctypes.sizeof(wanted))


def extended_state(tid: int) -> tuple[int, bytes]:
    """Vector and floating-point registers, and their kind: without them the target's arithmetic changes silently."""
    if HERE != AARCH64:
        return _NT_X86_XSTATE, _whole_set(tid, _NT_X86_XSTATE)
    sve = _set_if_there(tid, _NT_ARM_SVE)
    return (_NT_ARM_SVE, sve) if sve else (_NT_PRFPREG, _whole_set(tid, _NT_PRFPREG))


def set_extended_state(tid: int, state: tuple[int, bytes]) -> None:
    """Put back what `extended_state` saved."""
    kind, content = state
    room = ctypes.create_string_buffer(content, len(content))
    _register_set(_SETREGSET, tid, kind, ctypes.addressof(room), len(content))


def refuse_modes(tid: int) -> None:
    """Raise where a function may not be called as if nothing was: ShadowStackError, or LateError if only for now."""
    if HERE != AARCH64:
        return  # /proc tells of a shadow stack there
    if _set_if_there(tid, _NT_ARM_GCS)[:1] and _set_if_there(tid, _NT_ARM_GCS)[0] & _GUARDED_STACK:
        raise ShadowStackError
    if _is_in_use(_set_if_there(tid, _NT_ARM_SSVE), flagged=True) or _is_in_use(
        _set_if_there(tid, _NT_ARM_ZA)
    ):
        raise LateError  # it computes in SME's modes, which no function that knows nothing of them may be entered in


def _is_in_use(state: bytes, *, flagged: bool = False) -> bool:
    """Whether one of SME's register sets holds more than its header."""
    if len(state) < _SVE_HEADER.size:
        return False
    size, _, _, _, flags, _ = _SVE_HEADER.unpack_from(state)
    return bool(flags & _SVE_REGISTERS) if flagged else size > _SVE_HEADER.size


def _set_if_there(tid: int, kind: int) -> bytes:
    try:
        return _whole_set(tid, kind)
    except OSError:  # EINVAL: this kernel or this processor has no such registers
        return b""


def _whole_set(tid: int, kind: int) -> bytes:
    room = ctypes.create_string_buffer(_STATE_ROOM)
    length = _register_set(_GETREGSET, tid, kind, ctypes.addressof(room), _STATE_ROOM)
    return room.raw[:length]


def signal_mask(tid: int) -> int:
    """Blocked signals, bit n - 1 for signal n."""
    mask = ctypes.c_uint64()
    _request(_GETSIGMASK, tid, address=8, data=ctypes.addressof(mask))
    return mask.value


def set_signal_mask(tid: int, blocked: int) -> None:
    """Block these signals and no others."""
    mask = ctypes.c_uint64(blocked)
    _request(_SETSIGMASK, tid, address=8, data=ctypes.addressof(mask))


def pending_signals(tid: int) -> int:
    """Signals that wait to be delivered to this very thread, bit n - 1 for signal n."""
    with open(f"/proc/{tid}/status", "rb") as status:  # noqa: PTH123  pathlib costs more and says no more
        return int(status.read().partition(b"\nSigPnd:")[2].split(None, 1)[0], 16)


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
