"""Hold one thread of a stranger's process, call a function in it, and leave no trace.

Everything taken is put back when the `with` block ends, however it ends: general registers, extended state,
signal mask. Runs in the tracer process only.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuiadvisor.inject import ptrace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A fault of our own call must stop at us; blocking these would reset the host's handlers for them.
_FAULTS = (signal.SIGTRAP, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_BLOCKED = ~sum(1 << (number - 1) for number in _FAULTS) & 0xFFFFFFFFFFFFFFFF
_RED_ZONE = 128  # bytes below rsp a leaf function may use unannounced
_NO_SYSCALL = 0xFFFFFFFFFFFFFFFF  # orig_rax = -1: the kernel must not restart a call that was not ours
_PLAIN_FLAGS = 0x202  # direction flag clear, as every function expects
_RESTORE_S = 5.0


class FaultError(Exception):
    """The remote call raised a signal; the thread was put back where it was."""


class StoppedByUserError(Exception):
    """The whole process is being stopped (job control): not the moment."""


@contextmanager
def held(
    tid: int, memory_fd: int, deadline_s: float, prove: Callable[[], None] = lambda: None
) -> Iterator[HeldThread]:
    """Stop one thread and let it go as it was. `memory_fd` is /proc/PID/mem, open for writing.

    prove: raises where it is not the one that is meant; asked once it stands still, before anything is written.
    """
    ptrace.seize(tid)
    stopped_at_ns = time.monotonic_ns()
    ptrace.interrupt(tid)
    _wait_until_interrupted(tid, deadline_s)
    try:
        prove()
    except BaseException:
        ptrace.detach(tid)
        raise
    thread = HeldThread(tid, memory_fd, deadline_s)
    try:
        ptrace.set_signal_mask(tid, _BLOCKED)
        yield thread
    finally:
        thread.put_back()
        thread.stopped_ns = time.monotonic_ns() - stopped_at_ns


class HeldThread:
    """One seized and stopped thread; made by `held`."""

    def __init__(self, tid: int, memory_fd: int, deadline_s: float) -> None:
        self.registers = ptrace.registers(tid)
        self.stopped_ns = 0
        self._extended_state = ptrace.extended_state(tid)
        self._signal_mask = ptrace.signal_mask(tid)
        self._tid = tid
        self._memory_fd = memory_fd
        self._deadline_s = deadline_s
        self._running = False

    def answer_within(self, seconds: float) -> None:
        """Give each further call no longer than this."""
        self._deadline_s = min(self._deadline_s, time.monotonic() + seconds)

    def put_back(self) -> None:
        """Restore everything and let the thread run on. Raises GoneError when it ended meanwhile."""
        try:
            if self._running:  # a call that came too late is abandoned
                ptrace.interrupt(self._tid)
                ptrace.wait_stop(self._tid, time.monotonic() + _RESTORE_S)
            ptrace.set_extended_state(self._tid, self._extended_state)
            ptrace.set_registers(self._tid, self.registers)
            ptrace.set_signal_mask(self._tid, self._signal_mask)
            ptrace.detach(self._tid)
        except ProcessLookupError as error:
            raise ptrace.GoneError from error

    def system_call(self, syscall_at: int, number: int, *arguments: int) -> int:
        """Run one system call through a `syscall` instruction of the target. Raises OSError."""
        registers = self._fresh_registers(syscall_at)
        registers.rax = number
        _set_arguments(registers, arguments)
        registers.r10 = registers.rcx  # system calls take the fourth argument here
        ptrace.set_registers(self._tid, registers)
        self._run(single_step=True)
        result = ptrace.registers(self._tid).rax
        if result > _NO_SYSCALL - 4095:
            code = _NO_SYSCALL + 1 - result
            raise OSError(code, os.strerror(code))
        return result

    def call(self, function: int, arguments: tuple[int, ...], trap_at: int) -> int:
        """Call a C function; it returns into the breakpoint at `trap_at`. The result's low 32 bits."""
        registers = self._fresh_registers(function)
        _set_arguments(registers, arguments)
        registers.rsp -= 8  # the return address: the callee finds the stack as after a call instruction
        self.write(registers.rsp, struct.pack("<Q", trap_at))
        ptrace.set_registers(self._tid, registers)
        self._run(single_step=False)
        stopped = ptrace.registers(self._tid)
        if stopped.rip != trap_at + 1:
            raise FaultError(f"trap at {stopped.rip:#x}")
        return stopped.rax & 0xFFFFFFFF

    def scratch(self) -> int:
        """Sixteen bytes on the thread's stack for a result, above the frames of `call`."""
        return (self.registers.rsp - _RED_ZONE - 16) & ~15

    def write(self, address: int, content: bytes) -> None:
        """Write into the target, whatever the protection of the page."""
        if os.pwrite(self._memory_fd, content, address) != len(content):
            raise FaultError(f"short write at {address:#x}")

    def _fresh_registers(self, instruction: int) -> ptrace.Registers:
        registers = self.registers.copy()
        registers.orig_rax = _NO_SYSCALL
        registers.eflags = _PLAIN_FLAGS
        registers.rip = instruction
        registers.rsp = self.scratch()
        registers.rax = 0
        return registers

    def _run(self, *, single_step: bool) -> None:
        self._running = True
        ptrace.resume(self._tid, single_step=single_step)
        while True:
            number, without_signal = ptrace.wait_stop(self._tid, self._deadline_s)
            if number == signal.SIGTRAP and not without_signal:
                break
            if number in _FAULTS and not without_signal:
                self._running = False
                raise FaultError(signal.Signals(number).name)
            # SIGSTOP can't be blocked. A process that is being stopped stays stopped when we detach.
            ptrace.resume(self._tid, single_step=single_step, deliver=0 if without_signal else number)
        self._running = False


def _wait_until_interrupted(tid: int, deadline_s: float) -> None:
    while True:
        number, without_signal = ptrace.wait_stop(tid, deadline_s)
        if not without_signal:  # a signal was on its way: it takes its course first
            ptrace.resume(tid, deliver=number)
        elif number == signal.SIGTRAP:
            return
        else:
            ptrace.detach(tid)
            raise StoppedByUserError


def _set_arguments(registers: ptrace.Registers, arguments: tuple[int, ...]) -> None:
    for name, value in zip(("rdi", "rsi", "rdx", "rcx", "r8", "r9"), arguments, strict=False):
        setattr(registers, name, value)
