"""Machine code (x86-64, System V calling convention) that runs a Python source inside the target.

One block, position-independent: a table of function addresses, two entry points, the source text. It is
mapped readable and executable, never writable, and unmaps itself by its last jump.

    void *thread_entry(void *block)     new thread: detach, take the GIL, run, release, unmap
    int   pending_entry(void *block)    pending call on the main thread, GIL held: run, unmap, 0
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PYTHON_FUNCTIONS = (
    "Py_IsInitialized",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyDict_New",
    "PyRun_StringFlags",
    "Py_DecRef",
    "PyErr_Clear",
)
LIBC_FUNCTIONS = ("pthread_self", "pthread_detach", "munmap")
_SLOTS = (*PYTHON_FUNCTIONS, *LIBC_FUNCTIONS, "block_size")
_CODE_OFFSET = 128
_PY_FILE_INPUT = 257
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes to be written to the start of a fresh mapping of `len(content)` bytes."""

    content: bytes
    thread_entry: int
    pending_entry: int


def build_block(addresses: Mapping[str, int], source: bytes) -> Block:
    """A block, padded to whole pages. `source` must not contain a zero byte."""
    # The length of the code doesn't depend on where the text lies: assemble once to learn it.
    text_offset = _CODE_OFFSET + sum(map(len, _assemble(0)))
    run, thread, pending = _assemble(text_offset)
    used = text_offset + len(source) + 1
    size = -(-used // _PAGE) * _PAGE
    table = struct.pack(f"<{len(_SLOTS)}Q", *({**addresses, "block_size": size}[slot] for slot in _SLOTS))
    content = table.ljust(_CODE_OFFSET, b"\0") + run + thread + pending + source
    return Block(
        content=content.ljust(size, b"\0"),
        thread_entry=_CODE_OFFSET + len(run),
        pending_entry=_CODE_OFFSET + len(run) + len(thread),
    )


def _assemble(text_offset: int) -> tuple[bytes, bytes, bytes]:
    run = _run(text_offset)
    thread = _thread_entry(_CODE_OFFSET + len(run))
    pending = _pending_entry(_CODE_OFFSET + len(run) + len(thread))
    return run, thread, pending


def _run(text_offset: int) -> bytes:
    """Runs the text in a fresh dict and forgets any error. In: rbx = block."""
    release_result = b"\x48\x89\xc7" + _call("Py_DecRef")  # mov rdi, rax
    execute = b"".join(
        (
            b"\x49\x89\xc5",  # mov r13, rax                 the namespace
            b"\x48\x8d\xbb" + struct.pack("<I", text_offset),  # lea rdi, [rbx + text]
            b"\xbe" + struct.pack("<I", _PY_FILE_INPUT),  # mov esi, Py_file_input
            b"\x4c\x89\xea",  # mov rdx, r13                 globals
            b"\x4c\x89\xe9",  # mov rcx, r13                 locals
            b"\x45\x31\xc0",  # xor r8d, r8d                 no compiler flags
            _call("PyRun_StringFlags"),
            b"\x48\x85\xc0",  # test rax, rax
            _jump_if_zero(len(release_result)),
            release_result,
            b"\x4c\x89\xef",  # mov rdi, r13
            _call("Py_DecRef"),
        )
    )
    return b"".join(
        (
            b"\x41\x55",  # push r13
            _call("PyDict_New"),
            b"\x48\x85\xc0",  # test rax, rax
            _jump_if_zero(len(execute)),
            execute,
            _call("PyErr_Clear"),
            b"\x41\x5d",  # pop r13
            b"\xc3",  # ret
        )
    )


def _thread_entry(offset: int) -> bytes:
    """In: rdi = block."""
    head = b"".join(
        (
            b"\x53",  # push rbx
            b"\x41\x54",  # push r12
            b"\x48\x83\xec\x08",  # sub rsp, 8               keeps the stack aligned for the calls
            b"\x48\x89\xfb",  # mov rbx, rdi
            _call("pthread_self"),
            b"\x48\x89\xc7",  # mov rdi, rax
            _call("pthread_detach"),
            _call("Py_IsInitialized"),
            b"\x85\xc0",  # test eax, eax
        )
    )
    take_gil = _call("PyGILState_Ensure") + b"\x41\x89\xc4"  # mov r12d, eax
    give_gil = b"\x44\x89\xe7" + _call("PyGILState_Release")  # mov edi, r12d
    run_at = offset + len(head) + len(_jump_if_zero(0)) + len(take_gil)
    with_gil = take_gil + _call_near(run_at, _CODE_OFFSET) + give_gil
    tail = b"\x48\x83\xc4\x08\x41\x5c"  # add rsp, 8; pop r12
    return head + _jump_if_zero(len(with_gil)) + with_gil + _unmap_after(tail)


def _pending_entry(offset: int) -> bytes:
    """In: rdi = block.  Out: eax = 0, as munmap returns it; anything else would raise in the host."""
    head = b"\x53\x48\x89\xfb"  # push rbx; mov rbx, rdi
    return head + _call_near(offset + len(head), _CODE_OFFSET) + _unmap_after(b"")


def _unmap_after(pop: bytes) -> bytes:
    """Leaves by a jump, since the code is gone when munmap returns."""
    return b"".join(
        (
            b"\x48\x89\xdf",  # mov rdi, rbx
            b"\x48\x8b\xb3" + _slot("block_size"),  # mov rsi, [rbx + block_size]
            b"\x48\x8b\x83" + _slot("munmap"),  # mov rax, [rbx + munmap]
            pop,
            b"\x5b",  # pop rbx
            b"\xff\xe0",  # jmp rax
        )
    )


def _slot(name: str) -> bytes:
    return struct.pack("<I", 8 * _SLOTS.index(name))


def _call(name: str) -> bytes:
    return b"\xff\x93" + _slot(name)  # call [rbx + slot]


def _call_near(at: int, target: int) -> bytes:
    return b"\xe8" + struct.pack("<i", target - (at + 5))


def _jump_if_zero(distance: int) -> bytes:
    return b"\x0f\x84" + struct.pack("<i", distance)  # jz, 32-bit form: one length for all distances
