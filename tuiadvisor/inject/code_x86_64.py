"""The code of a block for x86-64, System V calling convention.

In: where the text will lie.  Out: machine code of `run` and of the entries, to be laid out in a row.
"""

from __future__ import annotations

import struct

from tuiadvisor.inject.stub_slots import CODE_OFFSET, PY_FILE_INPUT, PYTHON_VARIABLES, slot_offset


def assemble(text_offset: int) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """`run`, then the entries `thread`, `unmap`, `pending` and `start`; as long whatever the offset is."""
    run = _run(text_offset)
    thread_at = CODE_OFFSET + len(run)
    thread = _thread_entry(thread_at)
    unmap_at = thread_at + len(thread)
    unmap = _unmap_entry()
    pending_at = unmap_at + len(unmap)
    pending = _pending_entry(pending_at, unmap_at)
    return run, thread, unmap, pending, _start_entry(pending_at + len(pending), thread_at, pending_at)


def _run(text_offset: int) -> bytes:
    """Runs the text in a fresh dict and leaves what it raised. In: rbx = block."""
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
    with_gil = take_gil + _call_near(run_at, CODE_OFFSET) + _call("PyErr_Clear") + give_gil
    tail = b"\x48\x83\xc4\x08\x41\x5c"  # add rsp, 8; pop r12
    return head + _jump_if_zero(len(with_gil)) + with_gil + _unmap_after(tail)


def _unmap_entry() -> bytes:
    """In: rdi = block.  Out: eax = 0, as munmap returns it."""
    return b"\x53\x48\x89\xfb" + _unmap_after(b"")  # push rbx; mov rbx, rdi


def _pending_entry(offset: int, unmap_at: int) -> bytes:
    """Runs the text right here. In: rdi = block.  Out: eax = 0, or -1 with what a handler of the host's has raised.

    Code that returns to us cannot unmap itself before: then a pending call does so.
    """
    head = b"\x53\x48\x89\xfb"  # push rbx; mov rbx, rdi
    raised = b"".join(
        (
            b"\x48\x8d\xbb" + struct.pack("<I", unmap_at),  # lea rdi, [rbx + unmap]
            b"\x48\x89\xde",  # mov rsi, rbx
            _call("Py_AddPendingCall"),
            b"\xb8\xff\xff\xff\xff",  # mov eax, -1
            b"\x5b",  # pop rbx
            b"\xc3",  # ret
        )
    )
    return b"".join(
        (
            head,
            _call_near(offset + len(head), CODE_OFFSET),
            *map(_forget, PYTHON_VARIABLES),
            _call("PyErr_Occurred"),
            b"\x48\x85\xc0",  # test rax, rax
            _jump_if_zero(len(raised)),
            raised,
            _unmap_after(b""),
        )
    )


def _forget(exception: str) -> bytes:
    """The error of this kind, if it is there."""
    clear = _call("PyErr_Clear")
    return b"".join(
        (
            b"\x48\x8b\x83" + _slot(exception),  # mov rax, [rbx + slot]
            b"\x48\x8b\x38",  # mov rdi, [rax]
            _call("PyErr_ExceptionMatches"),
            b"\x85\xc0",  # test eax, eax
            _jump_if_zero(len(clear)),
            clear,
        )
    )


def _start_entry(offset: int, thread_at: int, pending_at: int) -> bytes:
    """Starts a thread that runs the text, or runs it where none can be started. In: rdi = block.  Out: as `pending`.

    That thread unmaps the block, not before it has had the lock that is held here until we have returned.
    """
    head = b"".join(
        (
            b"\x53",  # push rbx
            b"\x48\x83\xec\x10",  # sub rsp, 16              room for the thread's id; aligned for the call
            b"\x48\x89\xfb",  # mov rbx, rdi
            b"\x48\x89\xe7",  # mov rdi, rsp
            b"\x31\xf6",  # xor esi, esi                  no attributes
            b"\x48\x8d\x93" + struct.pack("<I", thread_at),  # lea rdx, [rbx + thread]
            b"\x48\x89\xd9",  # mov rcx, rbx
            _call("pthread_create"),
            b"\x48\x83\xc4\x10",  # add rsp, 16
            b"\x85\xc0",  # test eax, eax
        )
    )
    here = b"\x48\x89\xdf\x5b"  # mov rdi, rbx; pop rbx
    jump_at = offset + len(head) + len(_jump_if_zero(0)) + len(here)
    here += b"\xe9" + struct.pack("<i", pending_at - (jump_at + 5))  # jmp pending
    return head + _jump_if_zero(len(here)) + here + b"\x5b\xc3"  # pop rbx; ret


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
