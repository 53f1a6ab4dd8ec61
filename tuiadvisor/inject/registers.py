"""General registers of a stopped thread, as the kernel hands them over, and what a call into it sets.

One class a machine, all with the same methods. Runs in the tracer process only.
"""
# ruff: noqa: D102 - the base class says what each method does

from __future__ import annotations

import ctypes
import struct
from typing import Final

from tuiadvisor.inject.machines import AARCH64, HERE, X86_64

_LAST = 0xFFFFFFFFFFFFFFFF
_NO_SYSCALL = _LAST  # orig_rax = -1: the kernel must not restart a call that was not ours
_PLAIN_FLAGS = 0x202  # direction flag clear, as every function expects
_EINTR = 4
_BRANCH_TYPE = 0b11 << 10  # PSTATE.BTYPE: set where the thread stands right behind an indirect jump


class Registers(ctypes.Structure):
    """What every machine's registers can tell and be told; a copy is independent."""

    instruction: int
    stack_pointer: int
    trap_bytes: int
    """How far the breakpoint itself moves the instruction pointer."""

    def result(self) -> int:
        """Of a function or a system call that has just returned, unsigned."""
        raise NotImplementedError

    def pending_call(self) -> tuple[int, tuple[int, ...]]:
        """Number and four arguments of the system call that the thread makes, or would make here."""
        raise NotImplementedError

    def is_asleep_in(self, call: int, stack_pointer: int, instruction: int) -> bool:
        """Whether it still is in the sleep that /proc told of, or was ended there by our stop alone."""
        raise NotImplementedError

    def for_system_call(
        self, at: int, stack_pointer: int, number: int, arguments: tuple[int, ...]
    ) -> Registers:
        """A copy about to make a system call by the instruction that lies there."""
        raise NotImplementedError

    def for_call(
        self, function: int, stack_pointer: int, arguments: tuple[int, ...], back_to: int
    ) -> tuple[Registers, bytes]:
        """A copy about to run a function that returns to `back_to`, and what must lie where its stack begins."""
        raise NotImplementedError


class X8664(Registers):
    """struct user_regs_struct of <sys/user.h>."""

    trap_bytes = 1
    _fields_ = tuple(
        (name, ctypes.c_ulonglong)
        for name in (
            *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx"),
            *("rsi", "rdi", "orig_rax", "instruction", "cs", "eflags", "stack_pointer", "ss"),
            *("fs_base", "gs_base", "ds", "es", "fs", "gs"),
        )
    )
    orig_rax: int
    rax: int
    rcx: int
    rdi: int
    rdx: int
    rsi: int
    r10: int
    eflags: int

    def result(self) -> int:
        return self.rax

    def pending_call(self) -> tuple[int, tuple[int, ...]]:
        return self.orig_rax, (self.rdi, self.rsi, self.rdx, self.r10)

    def is_asleep_in(self, call: int, stack_pointer: int, instruction: int) -> bool:
        return (self.orig_rax, self.stack_pointer, self.instruction) == (call, stack_pointer, instruction)

    def for_system_call(
        self, at: int, stack_pointer: int, number: int, arguments: tuple[int, ...]
    ) -> Registers:
        wanted = self._fresh(at, stack_pointer, arguments)
        wanted.rax = number
        wanted.r10 = wanted.rcx  # system calls take the fourth argument here
        return wanted

    def for_call(
        self, function: int, stack_pointer: int, arguments: tuple[int, ...], back_to: int
    ) -> tuple[Registers, bytes]:
        # The return address: the callee finds the stack as after a call instruction.
        return self._fresh(function, stack_pointer - 8, arguments), struct.pack("<Q", back_to)

    def _fresh(self, at: int, stack_pointer: int, arguments: tuple[int, ...]) -> X8664:
        wanted = X8664.from_buffer_copy(self)
        wanted.orig_rax = _NO_SYSCALL
        wanted.eflags = _PLAIN_FLAGS
        wanted.instruction = at
        wanted.stack_pointer = stack_pointer
        wanted.rax = 0
        for name, value in zip(("rdi", "rsi", "rdx", "rcx", "r8", "r9"), arguments, strict=False):
            setattr(wanted, name, value)
        return wanted


class Aarch64(Registers):
    """struct user_pt_regs of <asm/ptrace.h>: x0 to x30, sp, pc, pstate.

    A system call that is to be made again after a stop is told by the instruction pointer, which then stands on it: the
    kernel has set it back, with x0 as it was, before the tracer sees the thread. So nothing is to be kept from it.
    """

    trap_bytes = 0
    _fields_ = (
        ("x", ctypes.c_ulonglong * 31),
        ("stack_pointer", ctypes.c_ulonglong),
        ("instruction", ctypes.c_ulonglong),
        ("pstate", ctypes.c_ulonglong),
    )
    x: ctypes.Array[ctypes.c_ulonglong]
    pstate: int

    def result(self) -> int:
        return int(self.x[0])

    def pending_call(self) -> tuple[int, tuple[int, ...]]:
        return int(self.x[8]), tuple(int(self.x[number]) for number in range(4))

    def is_asleep_in(self, call: int, stack_pointer: int, instruction: int) -> bool:
        if (self.x[8], self.stack_pointer) != (call, stack_pointer):
            return False
        if call in AARCH64.event_waits and self.instruction == instruction:
            return self.x[0] == _LAST + 1 - _EINTR
        return self.instruction == instruction - 4

    def for_system_call(
        self, at: int, stack_pointer: int, number: int, arguments: tuple[int, ...]
    ) -> Registers:
        wanted = self._fresh(at, stack_pointer, arguments)
        wanted.x[8] = number
        return wanted

    def for_call(
        self, function: int, stack_pointer: int, arguments: tuple[int, ...], back_to: int
    ) -> tuple[Registers, bytes]:
        wanted = self._fresh(function, stack_pointer, arguments)
        wanted.x[29] = 0  # the end of the chain of frames
        wanted.x[30] = back_to
        return wanted, b""

    def _fresh(self, at: int, stack_pointer: int, arguments: tuple[int, ...]) -> Aarch64:
        wanted = Aarch64.from_buffer_copy(self)
        wanted.pstate &= ~_BRANCH_TYPE
        wanted.instruction = at
        wanted.stack_pointer = stack_pointer
        for number, value in enumerate(arguments):
            wanted.x[number] = value
        return wanted


_CLASSES: Final[dict[str, type[Registers]]] = {X86_64.name: X8664, AARCH64.name: Aarch64}
OURS: Final = _CLASSES[HERE.name]
