"""Hold one thread of a stranger's process, call a function in it, and leave no trace.

Everything taken is put back when the `with` block ends, however it ends: general registers, extended state,
signal mask. Runs in the tracer process only.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuiadvisor.inject import idle_thread, ptrace
from tuiadvisor.inject.machines import HERE, begins_anew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tuiadvisor.inject.registers import Registers

# A fault of our own call must stop at us; blocking these would reset the host's handlers for them.
_FAULTS = (signal.SIGTRAP, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_BLOCKED = ~sum(1 << (number - 1) for number in _FAULTS) & 0xFFFFFFFFFFFFFFFF
_RED_ZONE = 128  # bytes below the stack pointer that a leaf function may use unannounced
_MAX_ERROR = 4095
# A call that is under way and does not sleep is never abandoned: it may hold a lock of the allocator's or of Python's
# queue of pending calls, for which the process would wait for ever. Without a processor to run on it may take long.
_PATIENCE_S = 300.0
_LOOK_AGAIN_S = 0.2
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
        ptrace.refuse_modes(tid)
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
        self.registers: Registers = ptrace.registers(tid)
        self.stopped_ns = 0
        self._extended_state = ptrace.extended_state(tid)
        self._signal_mask = ptrace.signal_mask(tid)
        self._tid = tid
        self._memory_fd = memory_fd
        self._deadline_s = deadline_s
        self._running = False

    def answer_within(self, seconds: float) -> None:
        """Give each further call no longer than this, if it sleeps then."""
        self._deadline_s = min(self._deadline_s, time.monotonic() + seconds)

    def put_back(self) -> None:
        """Restore everything and let the thread run on. Raises GoneError when it ended meanwhile."""
        try:
            if self._running:  # a call that came too late is abandoned
                self._stop_in_call()
            ptrace.set_extended_state(self._tid, self._extended_state)
            ptrace.set_registers(self._tid, self.registers)
            ptrace.set_signal_mask(self._tid, self._signal_mask)
            ptrace.detach(self._tid)
        except ProcessLookupError as error:
            raise ptrace.GoneError from error

    def sleeps_anew(self) -> bool:
        """Whether a sleep of its would take its whole length again if anything was called now."""
        call, arguments = self.registers.pending_call()
        if not begins_anew(HERE, call, arguments):
            return False
        return self.read(self.registers.instruction, len(HERE.system_call)) == HERE.system_call

    def system_call(self, syscall_at: int, number: int, *arguments: int) -> int:
        """Run one system call through such an instruction of the target. Raises OSError."""
        wanted = self.registers.for_system_call(syscall_at, self.scratch(), number, arguments)
        ptrace.set_registers(self._tid, wanted)
        self._run(single_step=True)
        result = ptrace.registers(self._tid).result()
        error = (1 << 64) - result
        if error <= _MAX_ERROR:
            raise OSError(error, os.strerror(error))
        return result

    def call(self, function: int, arguments: tuple[int, ...], trap_at: int) -> int:
        """Call a C function; it returns into the breakpoint at `trap_at`. The result's low 32 bits."""
        wanted, on_stack = self.registers.for_call(function, self.scratch(), arguments, trap_at)
        if on_stack:
            self.write(wanted.stack_pointer, on_stack)
        ptrace.set_registers(self._tid, wanted)
        self._run(single_step=False)
        stopped = ptrace.registers(self._tid)
        if stopped.instruction != trap_at + stopped.trap_bytes:
            raise FaultError(f"trap at {stopped.instruction:#x}")
        return stopped.result() & 0xFFFFFFFF

    def scratch(self) -> int:
        """Sixteen bytes on the thread's stack for a result, above the frames of `call`."""
        return (self.registers.stack_pointer - _RED_ZONE - 16) & ~15

    def write(self, address: int, content: bytes) -> None:
        """Write into the target, whatever the protection of the page."""
        if os.pwrite(self._memory_fd, content, address) != len(content):
            raise FaultError(f"short write at {address:#x}")

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the target; fewer where there are none."""
        try:
            return os.pread(self._memory_fd, size, address)
        except OSError:
            return b""

    def _stop_in_call(self) -> None:
        """Stop the thread in the middle of a call of ours, with no signal of that call's left behind.

        It may reach its breakpoint, or a fault, before it sees that it is to stop. Such a signal waits behind the stop,
        and would end the process as soon as nobody traces it.
        """
        ptrace.interrupt(self._tid)
        _, without_signal = ptrace.wait_stop(self._tid, time.monotonic() + _RESTORE_S)
        while without_signal and ptrace.pending_signals(self._tid) & ~_BLOCKED:
            ptrace.resume(self._tid)
            _, without_signal = ptrace.wait_stop(self._tid, time.monotonic() + _RESTORE_S)

    def _next_stop(self) -> tuple[int, bool]:
        """As `ptrace.wait_stop`; too late is only a call that sleeps, waiting for a lock that we are in the way of."""
        give_up_s = time.monotonic() + _PATIENCE_S
        deadline_s = self._deadline_s
        while True:
            try:
                return ptrace.wait_stop(self._tid, deadline_s)
            except ptrace.LateError:
                if idle_thread.waits_for_lock(self._tid) or time.monotonic() > give_up_s:
                    raise
                deadline_s = time.monotonic() + _LOOK_AGAIN_S

    def _run(self, *, single_step: bool) -> None:
        self._running = True
        ptrace.resume(self._tid, single_step=single_step)
        while True:
            number, without_signal = self._next_stop()
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
