"""The machine code that is put into a target, run instruction by instruction on emulated processors of both kinds.

Its functions are places that return at once; what is called, with what, in which order, and what is left of the
caller's registers and stack afterwards is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tuiadvisor.inject.machines import AARCH64, X86_64, Machine
from tuiadvisor.inject.stub_slots import (
    CODE_OFFSET,
    LIBC_FUNCTIONS,
    PYTHON_FUNCTIONS,
    PYTHON_VARIABLES,
    SLOTS,
)
from tuiadvisor.inject.stubs import Block, build_block

unicorn = pytest.importorskip("unicorn", reason="pip install unicorn")
from unicorn import arm64_const, x86_const  # noqa: E402

BLOCK, FUNCTIONS, STACK, CALLER = 0x7F0000400000, 0x10000, 0x7FFD00000000, 0x30000
STACK_BYTES = 0x10000
SOURCE = b"print('h\xc3\xa9llo')\n"
NAMESPACE, RESULT, THREAD, GIL_STATE = 0xABC000, 0xDEF000, 0x77000, 1
EXCEPTIONS = {name: 0x5550000 + 16 * number for number, name in enumerate(PYTHON_VARIABLES)}
CALLED = {name: FUNCTIONS + 16 * number for number, name in enumerate((*PYTHON_FUNCTIONS, *LIBC_FUNCTIONS))}
NAMES = {place: name for name, place in CALLED.items()}
VARIABLES = {name: CALLER + 0x100 + 8 * number for number, name in enumerate(PYTHON_VARIABLES)}
PLACES = CALLED | VARIABLES


@dataclass(frozen=True)
class Processor:
    """What the emulator calls its registers, and what a caller relies on."""

    machine: Machine
    kind: tuple[int, int]
    arguments: tuple[int, ...]
    result: int
    stack_pointer: int
    instruction: int
    kept: tuple[int, ...]
    returns: bytes


ARM = Processor(
    AARCH64,
    (unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM),
    tuple(getattr(arm64_const, f"UC_ARM64_REG_X{number}") for number in range(6)),
    arm64_const.UC_ARM64_REG_X0,
    arm64_const.UC_ARM64_REG_SP,
    arm64_const.UC_ARM64_REG_PC,
    tuple(getattr(arm64_const, f"UC_ARM64_REG_X{number}") for number in range(19, 30)),
    b"\xc0\x03\x5f\xd6",  # ret
)
X86 = Processor(
    X86_64,
    (unicorn.UC_ARCH_X86, unicorn.UC_MODE_64),
    tuple(getattr(x86_const, f"UC_X86_REG_{name}") for name in ("RDI", "RSI", "RDX", "RCX", "R8", "R9")),
    x86_const.UC_X86_REG_RAX,
    x86_const.UC_X86_REG_RSP,
    x86_const.UC_X86_REG_RIP,
    tuple(getattr(x86_const, f"UC_X86_REG_{name}") for name in ("RBX", "RBP", "R12", "R13", "R14", "R15")),
    b"\xc3",  # ret
)
PROCESSORS = pytest.mark.parametrize("processor", [ARM, X86], ids=["aarch64", "x86_64"])


@dataclass
class Run:
    """What a run of an entry point did."""

    calls: list[str] = field(default_factory=list)
    arguments: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    misaligned: list[str] = field(default_factory=list)
    result: int = 0
    kept: bool = False
    text: bytes = b""


def run(processor: Processor, block: Block, entry: int, results: dict[str, int]) -> Run:
    """Call an entry point as a C function with the block's address; until it has returned to its caller."""
    machine: Any = unicorn.Uc(*processor.kind)
    told = Run()
    machine.mem_map(BLOCK, len(block.content), unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
    machine.mem_write(BLOCK, block.content)
    for start in (FUNCTIONS, CALLER):
        machine.mem_map(start, 0x1000, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
    for place in NAMES:
        machine.mem_write(place, processor.returns)
    for name, place in VARIABLES.items():
        machine.mem_write(place, EXCEPTIONS[name].to_bytes(8, "little"))
    machine.mem_map(STACK, STACK_BYTES)
    top = STACK + STACK_BYTES // 2
    if processor is ARM:
        machine.reg_write(arm64_const.UC_ARM64_REG_X30, CALLER)
        before = top
    else:
        machine.mem_write(top - 8, CALLER.to_bytes(8, "little"))
        before = top - 8
    machine.reg_write(processor.stack_pointer, before)
    machine.reg_write(processor.arguments[0], BLOCK)
    wanted = {register: 0x1000 + number for number, register in enumerate(processor.kept)}
    for register, value in wanted.items():
        machine.reg_write(register, value)

    def called(_: Any, address: int, _size: int, _data: Any) -> None:
        name = NAMES.get(address)
        if name is None:
            return
        told.calls.append(name)
        given = tuple(machine.reg_read(register) for register in processor.arguments)
        told.arguments.setdefault(name, []).append(given)
        # At a function's first instruction: aligned, on x86-64 but for the return address.
        if (machine.reg_read(processor.stack_pointer) + (0 if processor is ARM else 8)) % 16:
            told.misaligned.append(name)
        if name == "PyRun_StringFlags":
            told.text = bytes(machine.mem_read(given[0], len(SOURCE) + 1))
        clobber(machine, processor)
        machine.reg_write(processor.result, results.get(name, 0))

    machine.hook_add(unicorn.UC_HOOK_CODE, called, begin=FUNCTIONS, end=FUNCTIONS + 0xFFF)
    machine.emu_start(BLOCK + entry, CALLER, count=1000)
    assert CALLER == machine.reg_read(processor.instruction), "it never returned"
    told.result = machine.reg_read(processor.result)
    stack_is_back = machine.reg_read(processor.stack_pointer) == top
    told.kept = stack_is_back and wanted == {register: machine.reg_read(register) for register in wanted}
    return told


def clobber(machine: Any, processor: Processor) -> None:
    """A called function may leave anything in the registers that it need not keep."""
    if processor is ARM:
        others = [getattr(arm64_const, f"UC_ARM64_REG_X{number}") for number in range(1, 18)]
    else:
        names = ("RDI", "RSI", "RDX", "RCX", "R8", "R9", "R10", "R11")
        others = [getattr(x86_const, f"UC_X86_REG_{name}") for name in names]
    for register in others:
        machine.reg_write(register, 0xDEAD0000)


def block_for(processor: Processor, source: bytes = SOURCE) -> Block:
    return build_block(PLACES, source, processor.machine)


WORKING = {
    "pthread_self": THREAD,
    "Py_IsInitialized": 1,
    "PyGILState_Ensure": GIL_STATE,
    "PyDict_New": NAMESPACE,
    "PyRun_StringFlags": RESULT,
}
RUNS = ["PyDict_New", "PyRun_StringFlags", "Py_DecRef", "Py_DecRef"]
FORGETS = ["PyErr_ExceptionMatches", "PyErr_ExceptionMatches", "PyErr_Occurred"]


@PROCESSORS
def test_thread_takes_the_lock_runs_and_unmaps_itself(processor: Processor) -> None:
    """Each call with its arguments; the caller's registers and stack are as they were."""
    block = block_for(processor)
    told = run(processor, block, block.thread_entry, WORKING)
    start = ["pthread_self", "pthread_detach", "Py_IsInitialized", "PyGILState_Ensure"]
    assert [*start, *RUNS, "PyErr_Clear", "PyGILState_Release", "munmap"] == told.calls
    assert THREAD == told.arguments["pthread_detach"][0][0]
    _, kind, names, values, flags, _ = told.arguments["PyRun_StringFlags"][0]
    assert (257, NAMESPACE, NAMESPACE, 0) == (kind, names, values, flags)
    assert SOURCE + b"\0" == told.text
    assert [RESULT, NAMESPACE] == [given[0] for given in told.arguments["Py_DecRef"]]
    assert GIL_STATE == told.arguments["PyGILState_Release"][0][0]
    assert (BLOCK, len(block.content)) == told.arguments["munmap"][0][:2]
    assert told.kept
    assert [] == told.misaligned


@PROCESSORS
def test_a_pending_call_starts_a_thread(processor: Processor) -> None:
    """With the thread's entry and the block, which that thread unmaps; no line of Python in the main thread."""
    block = block_for(processor)
    told = run(processor, block, block.start_entry, WORKING)
    assert ["pthread_create"] == told.calls
    ((room, attributes, entry, argument, *_),) = told.arguments["pthread_create"]
    assert STACK < room < STACK + STACK_BYTES // 2
    assert (0, BLOCK + block.thread_entry, BLOCK) == (attributes, entry, argument)
    assert (0, True, []) == (told.result, told.kept, told.misaligned)


@PROCESSORS
@pytest.mark.parametrize("name", ["pending_entry", "start_entry"])
def test_where_no_thread_can_be_started_the_lock_is_held_and_the_text_runs(
    processor: Processor, name: str
) -> None:
    """No lock is taken; its result is munmap's, for anything but 0 would raise in the host."""
    block = block_for(processor)
    told = run(processor, block, getattr(block, name), {**WORKING, "pthread_create": 11})
    tried = ["pthread_create"] if name == "start_entry" else []
    assert [*tried, *RUNS, *FORGETS, "munmap"] == told.calls
    assert (0, True, []) == (told.result, told.kept, told.misaligned)
    assert (BLOCK, len(block.content)) == told.arguments["munmap"][0][:2]
    assert list(EXCEPTIONS.values()) == [given[0] for given in told.arguments["PyErr_ExceptionMatches"]]


@PROCESSORS
@pytest.mark.parametrize("name", ["pending_entry", "start_entry"])
def test_what_a_handler_raised_is_left_to_python(processor: Processor, name: str) -> None:
    """The result is -1; a block whose code is still needed to return is unmapped by another pending call."""
    block = block_for(processor)
    raising = {**WORKING, "pthread_create": 11, "PyRun_StringFlags": 0, "PyErr_Occurred": 0x77}
    told = run(processor, block, getattr(block, name), raising)
    assert [*FORGETS, "Py_AddPendingCall"] == told.calls[-4:]
    assert "PyErr_Clear" not in told.calls
    assert (0xFFFFFFFF, True, []) == (told.result & 0xFFFFFFFF, told.kept, told.misaligned)
    entry, argument = told.arguments["Py_AddPendingCall"][0][:2]
    later = run(processor, block, entry - BLOCK, WORKING)
    assert (BLOCK, ["munmap"], 0, True, []) == (
        argument, later.calls, later.result, later.kept, later.misaligned
    )  # fmt: skip
    assert (BLOCK, len(block.content)) == later.arguments["munmap"][0][:2]


@PROCESSORS
def test_an_error_before_the_first_line_is_forgotten(processor: Processor) -> None:
    """Python was at its limit of nested calls, or has no memory: that is ours."""
    block = block_for(processor)
    told = run(
        processor,
        block,
        block.pending_entry,
        {**WORKING, "PyRun_StringFlags": 0, "PyErr_ExceptionMatches": 1},
    )
    ours = ["PyErr_ExceptionMatches", "PyErr_Clear"]
    assert [*ours, *ours, "PyErr_Occurred", "munmap"] == told.calls[-6:]
    assert (0, True, []) == (told.result, told.kept, told.misaligned)


@PROCESSORS
@pytest.mark.parametrize(
    ("failing", "calls"),
    [
        ({"PyRun_StringFlags": 0}, ["PyDict_New", "PyRun_StringFlags", "Py_DecRef"]),
        ({"PyDict_New": 0}, ["PyDict_New"]),
    ],
    ids=["the code raised", "no memory"],
)
def test_errors_are_forgotten_and_the_lock_is_given_back(
    processor: Processor, failing: dict[str, int], calls: list[str]
) -> None:
    """Nothing is released that was not had."""
    block = block_for(processor)
    told = run(processor, block, block.thread_entry, {**WORKING, **failing})
    assert [*calls, "PyErr_Clear", "PyGILState_Release", "munmap"] == told.calls[4:]
    assert told.kept


@PROCESSORS
def test_interpreter_that_has_not_begun_is_left_alone(processor: Processor) -> None:
    """No lock is asked for; the block goes all the same."""
    block = block_for(processor)
    told = run(processor, block, block.thread_entry, {**WORKING, "Py_IsInitialized": 0})
    assert ["pthread_self", "pthread_detach", "Py_IsInitialized", "munmap"] == told.calls
    assert told.kept


@PROCESSORS
@pytest.mark.parametrize("num_bytes", [0, 1, 3300, 4096, 50_000])
def test_text_of_any_length_is_found(processor: Processor, num_bytes: int) -> None:
    """The block is whole pages, and the text in it ends in a zero."""
    source = b"#" * num_bytes
    block = block_for(processor, source)
    table = len(SLOTS) * 8
    assert (0, True) == (len(block.content) % 4096, table <= CODE_OFFSET)
    assert source + b"\0" in block.content
    assert run(processor, block, block.thread_entry, WORKING).kept


def entries() -> list[Callable[[Block], int]]:
    return [
        lambda block: block.thread_entry,
        lambda block: block.pending_entry,
        lambda block: block.start_entry,
    ]


@pytest.mark.parametrize("entry", entries(), ids=["thread", "pending", "start"])
def test_instructions_of_aarch64_begin_at_multiples_of_four(entry: Callable[[Block], int]) -> None:
    """The processor faults at any other."""
    assert 0 == entry(block_for(ARM)) % 4
