"""What a call into a stopped thread sets in its registers, on both machines, and when its sleep goes on unseen."""

from __future__ import annotations

import ctypes
import os
import struct

import pytest

from tuiadvisor.inject import machines, ptrace, seccomp
from tuiadvisor.inject.machines import AARCH64, X86_64, Machine, begins_anew
from tuiadvisor.inject.registers import X8664, Aarch64, Registers

MINUS_EINTR = (1 << 64) - 4
AT, STACK, FUNCTION, TRAP = 0x7F0000410000, 0x7FFD1000, 0x7F0000500000, 0x7F0000600004


def filled(kind: type[Registers]) -> Registers:
    """A number of its own in each register."""
    size = ctypes.sizeof(kind)
    return kind.from_buffer_copy(b"".join(struct.pack("<Q", 0x100 + 8 * at) for at in range(size // 8)))


@pytest.mark.parametrize(("kind", "words"), [(X8664, 27), (Aarch64, 34)])
def test_registers_are_as_large_as_the_kernels(kind: type[Registers], words: int) -> None:
    """user_regs_struct has 27 words, user_pt_regs 34."""
    assert 8 * words == ctypes.sizeof(kind)


def test_call_on_aarch64_returns_by_the_link_register() -> None:
    """Arguments from x0 on, x30 the breakpoint, no branch type, the stack where it was put; nothing else."""
    before = filled(Aarch64)
    assert isinstance(before, Aarch64)
    before.pstate = 0x60001000 | 0b10 << 10
    wanted, on_stack = before.for_call(FUNCTION, STACK, (1, 2, 3, 4), TRAP)
    assert isinstance(wanted, Aarch64)
    assert ([1, 2, 3, 4], TRAP, 0) == (list(wanted.x[:4]), wanted.x[30], wanted.x[29])
    assert (FUNCTION, STACK, 0x60001000, b"") == (
        wanted.instruction,
        wanted.stack_pointer,
        wanted.pstate,
        on_stack,
    )
    assert list(before.x[4:29]) == list(wanted.x[4:29])
    assert before.x[0] == 0x100, "the copy is independent"


def test_system_call_on_aarch64_takes_its_number_in_x8() -> None:
    """And its arguments as a function does."""
    wanted = filled(Aarch64).for_system_call(AT, STACK, 222, (0, 4096, 5, 34, 0xFFFFFFFF, 0))
    assert isinstance(wanted, Aarch64)
    assert (222, [0, 4096, 5, 34, 0xFFFFFFFF, 0]) == (wanted.x[8], list(wanted.x[:6]))
    assert (222, (0, 4096, 5, 34)) == wanted.pending_call()


def test_call_on_x86_64_finds_its_return_address_on_the_stack() -> None:
    """As after a call instruction; the kernel restarts no system call of ours."""
    wanted, on_stack = filled(X8664).for_call(FUNCTION, STACK, (1, 2), TRAP)
    assert isinstance(wanted, X8664)
    assert (STACK - 8, struct.pack("<Q", TRAP)) == (wanted.stack_pointer, on_stack)
    assert (1, 2, (1 << 64) - 1) == (wanted.rdi, wanted.rsi, wanted.orig_rax)


@pytest.mark.parametrize(
    ("call", "instruction", "result", "asleep"),
    [
        ("futex", AT - 4, 0, True),  # to be made again: the kernel has set it back
        ("futex", AT, 0, False),  # it was woken while it was looked at
        ("futex", AT + 8, 0, False),  # and has gone on
        ("epoll_pwait", AT, MINUS_EINTR, True),  # ended by our stop; who called it asks again
        ("epoll_pwait", AT, 3, False),  # three events have come: they are its own
        ("read", AT - 4, 0, True),
    ],
)
def test_who_still_sleeps_on_aarch64(call: str, instruction: int, result: int, asleep: bool) -> None:
    """/proc names the place behind the call, the stopped thread stands on it."""
    registers = Aarch64()
    registers.x[8], registers.x[0] = AARCH64.calls[call], result
    registers.stack_pointer, registers.instruction = STACK, instruction
    assert asleep == registers.is_asleep_in(AARCH64.calls[call], STACK, AT)
    assert not registers.is_asleep_in(AARCH64.calls[call], STACK + 16, AT)
    assert not registers.is_asleep_in(AARCH64.calls["wait4"], STACK, AT)


@pytest.mark.parametrize(
    ("call", "arguments", "anew"),
    [
        ("nanosleep", (1, 2, 0, 0), True),
        ("clock_nanosleep", (1, 0, 3, 0), True),
        ("clock_nanosleep", (1, 1, 3, 0), False),  # until a moment
        ("futex", (1, 0x80, 0, 0x5000), True),
        ("futex", (1, 0x80, 0, 0), False),  # for ever
        ("futex", (1, 0x189, 0, 0x5000), False),  # FUTEX_WAIT_BITSET: until a moment
        ("ppoll", (1, 2, 0x5000, 0), False),  # the kernel writes what is left where the time-out lies
    ],
)
def test_sleeps_that_would_begin_anew(call: str, arguments: tuple[int, ...], anew: bool) -> None:
    """On x86-64 none does: what the kernel needs to go on is in a register that is put back."""
    assert anew == begins_anew(AARCH64, AARCH64.calls[call], arguments)
    assert not begins_anew(X86_64, X86_64.calls[call], arguments)


@pytest.mark.parametrize("machine", [X86_64, AARCH64], ids=lambda machine: machine.name)
def test_every_call_that_a_filter_is_asked_about_has_a_number(machine: Machine) -> None:
    """Of both machines, and no number twice."""
    named = {name.split(" ")[0] for name, _, _ in (*seccomp.INSIDE, *seccomp.BY_TRACING, *seccomp.BY_THREAD)}
    assert named <= machine.calls.keys()
    assert len(machine.calls) == len(set(machine.calls.values()))


@pytest.mark.skipif(not machines.IS_KNOWN, reason="another machine than these two")
@pytest.mark.parametrize("name", ["getpid", "close", "lseek"])
def test_numbers_are_this_kernels(name: str) -> None:
    """The call of that number does what its name says."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open("/proc/self/stat", os.O_RDONLY)
    answer = libc.syscall(
        ctypes.c_long(machines.HERE.calls[name]), ctypes.c_long(descriptor), ctypes.c_long(0), 0
    )
    expected = {"getpid": os.getpid(), "close": 0, "lseek": 0}[name]
    if name == "close":
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    else:
        os.close(descriptor)
    assert expected == answer


def sme(size: int, flags: int) -> bytes:
    return struct.pack("<IIHHHH", size, 8208, 64, 256, flags, 0) + bytes(max(0, size - 16))


@pytest.mark.parametrize(
    ("sets", "refusal"),
    [
        ({}, None),  # a processor without any of them
        ({0x410: struct.pack("<QQQ", 0, 0, 0), 0x40B: sme(16, 0), 0x40C: sme(16, 0)}, None),
        ({0x410: struct.pack("<QQQ", 1, 0, 0x7000)}, ptrace.ShadowStackError),
        ({0x40B: sme(4096, 1)}, ptrace.LateError),  # in streaming mode
        ({0x40B: sme(528, 0)}, None),  # not in streaming mode, as some kernels tell it
        ({0x40C: sme(4112, 0)}, ptrace.LateError),  # its array is in use
    ],
)
def test_modes_in_which_no_function_may_be_called(
    sets: dict[int, bytes], refusal: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guarded stack for ever, SME's modes for now."""
    monkeypatch.setattr(ptrace, "HERE", AARCH64)
    monkeypatch.setattr(ptrace, "_set_if_there", lambda _tid, kind: sets.get(kind, b""))
    if refusal is None:
        ptrace.refuse_modes(1)
        return
    with pytest.raises(refusal):
        ptrace.refuse_modes(1)
