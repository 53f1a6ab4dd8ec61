"""The code of a block for x86-64, System V calling convention.

In: where the text will lie.  Out: machine code of `run`, `thread_entry` and `pending_entry`, to be laid out in a row.
"""

from __future__ import annotations

import struct

from tuiadvisor.inject.stub_slots import CODE_OFFSET, PY_FILE_INPUT, slot_offset


def assemble(text_offset: int) -> tuple[bytes, bytes, bytes]:
    """As long whatever the offset is."""
    run = _run(text_offset)
    thread = _thread_entry(CODE_OFFSET + len(run))
    pending = _pending_entry(CODE_OFFSET + len(run) + len(thread))
    return run, thread, pending


def _run(text_offset: int) -> bytes:
    """Runs the text in a fresh dict and forgets any error. In: rbx = block."""
    release_result = b"\x48\x89\xc7" + _call("Py_DecRef")  # mov rdi, rax
    execute = b"".join(
        (
            b"\x49\x89\xc5",  # mov r13, rax                 the namespace
            b"\x48\x8d\xbb" + struct.pack("<I", text_offset),  # lea rdi, [rbx + text]
            b"\xbe" + struct.pack("<I", PY_FILE_INPUT),  # mov esi, Py_file_input
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
    with_gil = take_gil + _call_near(run_at, CODE_OFFSET) + give_gil
    tail = b"\x48\x83\xc4\x08\x41\x5c"  # add rsp, 8; pop r12
    return head + _jump_if_zero(len(with_gil)) + with_gil + _unmap_after(tail)


def _pending_entry(offset: int) -> bytes:
    """In: rdi = block.  Out: eax = 0, as munmap returns it; anything else would raise in the host."""
    head = b"\x53\x48\x89\xfb"  # push rbx; mov rbx, rdi
    return head + _call_near(offset + len(head), CODE_OFFSET) + _unmap_after(b"")


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
    return struct.pack("<I", slot_offset(name))


def _call(name: str) -> bytes:
    return b"\xff\x93" + _slot(name)  # call [rbx + slot]


def _call_near(at: int, target: int) -> bytes:
    return b"\xe8" + struct.pack("<i", target - (at + 5))


def _jump_if_zero(distance: int) -> bytes:
    return b"\x0f\x84" + struct.pack("<i", distance)  # jz, 32-bit form: one length for all distances
