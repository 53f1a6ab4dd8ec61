"""The code of a block for aarch64, AAPCS64 calling convention.

In: where the text will lie.  Out: machine code of `run` and of the entries, to be laid out in a row.
Calls and the last jump go through x16, from which a function may be entered that begins with a landing pad (BTI).
"""

from __future__ import annotations

import struct

from tuiadvisor.inject.stub_slots import CODE_OFFSET, PY_FILE_INPUT, PYTHON_VARIABLES, slot_offset

_ENTER = (0xA9BE7BFD, 0x910003FD)  # stp x29, x30, [sp, #-32]!; mov x29, sp
_KEEP = (0xA90153F3,)  # stp x19, x20, [sp, #16]
_TAKE_BACK = (0xA94153F3, 0xA8C27BFD)  # ldp x19, x20, [sp, #16]; ldp x29, x30, [sp], #32
_BLOCK = 19  # the register that holds the block's address while its code runs
_ZERO = 31
_RETURN = 0xD65F03C0


def assemble(text_offset: int) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """`run`, then the entries `thread`, `unmap`, `pending` and `start`; as long whatever the offset is."""
    run = _run(text_offset)
    thread_at = CODE_OFFSET + 4 * len(run)
    thread = _thread_entry(thread_at)
    unmap_at = thread_at + 4 * len(thread)
    unmap = (*_ENTER, *_KEEP, _move(_BLOCK, 0), *_unmap())
    pending_at = unmap_at + 4 * len(unmap)
    pending = _pending_entry(pending_at, unmap_at)
    start = _start_entry(pending_at + 4 * len(pending), thread_at, pending_at)
    return _bytes(run), _bytes(thread), _bytes(unmap), _bytes(pending), _bytes(start)


def _run(text_offset: int) -> tuple[int, ...]:
    """Runs the text in a fresh dict and leaves what it raised. In: x19 = block."""
    release_result = _call("Py_DecRef")
    execute = (
        _move(21, 0),  # the namespace
        _inside(0, text_offset),
        0x52800000 | PY_FILE_INPUT << 5 | 1,  # mov w1, #Py_file_input
        _move(2, 21),  # globals
        _move(3, 21),  # locals
        _move(4, _ZERO),  # no compiler flags
        *_call("PyRun_StringFlags"),
        _skip_if_zero(0, release_result),
        *release_result,
        _move(0, 21),
        *_call("Py_DecRef"),
    )
    return (
        *_ENTER,
        0xF9000BF5,  # str x21, [sp, #16]
        *_call("PyDict_New"),
        _skip_if_zero(0, execute),
        *execute,
        0xF9400BF5,  # ldr x21, [sp, #16]
        0xA8C27BFD,  # ldp x29, x30, [sp], #32
        _RETURN,
    )


def _thread_entry(offset: int) -> tuple[int, ...]:
    """In: x0 = block."""
    head = (
        *_ENTER,
        *_KEEP,
        _move(_BLOCK, 0),
        *_call("pthread_self"),
        *_call("pthread_detach"),
        *_call("Py_IsInitialized"),
    )
    take_gil = (*_call("PyGILState_Ensure"), _move_word(20, 0))
    run_at = offset + 4 * (len(head) + 1 + len(take_gil))
    with_gil = (
        *take_gil,
        _call_near(run_at, CODE_OFFSET),
        *_call("PyErr_Clear"),
        _move_word(0, 20),
        *_call("PyGILState_Release"),
    )
    return (*head, _skip_if_zero_word(0, with_gil), *with_gil, *_unmap())


def _pending_entry(offset: int, unmap_at: int) -> tuple[int, ...]:
    """Runs the text right here. In: x0 = block.  Out: w0 = 0, or -1 with what a handler of the host's has raised.

    Code that returns to us cannot unmap itself before: then a pending call does so.
    """
    head = (*_ENTER, *_KEEP, _move(_BLOCK, 0))
    raised = (
        _inside(0, unmap_at),
        _move(1, _BLOCK),
        *_call("Py_AddPendingCall"),
        0x12800000,  # mov w0, #-1
        *_TAKE_BACK,
        _RETURN,
    )
    return (
        *head,
        _call_near(offset + 4 * len(head), CODE_OFFSET),
        *(word for exception in PYTHON_VARIABLES for word in _forget(exception)),
        *_call("PyErr_Occurred"),
        _skip_if_zero(0, raised),
        *raised,
        *_unmap(),
    )


def _forget(exception: str) -> tuple[int, ...]:
    """The error of this kind, if it is there."""
    clear = _call("PyErr_Clear")
    kind = (_load(16, exception), 0xF9400200)  # ldr x0, [x16]
    return (*kind, *_call("PyErr_ExceptionMatches"), _skip_if_zero_word(0, clear), *clear)


def _start_entry(offset: int, thread_at: int, pending_at: int) -> tuple[int, ...]:
    """Starts a thread that runs the text, or runs it where none can be started. In: x0 = block.  Out: as `pending`.

    That thread unmaps the block, not before it has had the lock that is held here until we have returned.
    """
    head = (
        *_ENTER,
        *_KEEP,
        _move(_BLOCK, 0),
        0xD10043FF,  # sub sp, sp, #16                     room for the thread's id
        0x910003E0,  # mov x0, sp
        _move(1, _ZERO),  # no attributes
        _inside(2, thread_at),
        _move(3, _BLOCK),
        *_call("pthread_create"),
        0x910043FF,  # add sp, sp, #16
    )
    back = (_move(0, _BLOCK), *_TAKE_BACK)
    jump_at = offset + 4 * (len(head) + 1 + len(back))
    here = (*back, 0x14000000 | (pending_at - jump_at) // 4 & 0x03FFFFFF)  # b pending
    return (*head, _skip_if_zero_word(0, here), *here, *_TAKE_BACK, _RETURN)


def _unmap() -> tuple[int, ...]:
    """Leaves by a jump, since the code is gone when munmap returns."""
    return (
        _move(0, _BLOCK),
        _load(1, "block_size"),
        _load(16, "munmap"),
        *_TAKE_BACK,
        0xD61F0000 | 16 << 5,  # br x16
    )


def _bytes(words: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _inside(register: int, offset: int) -> int:
    return 0x91000000 | offset << 10 | _BLOCK << 5 | register  # add xN, x19, #offset


def _load(register: int, name: str) -> int:
    return 0xF9400000 | slot_offset(name) // 8 << 10 | _BLOCK << 5 | register  # ldr xN, [x19, #slot]


def _call(name: str) -> tuple[int, ...]:
    return _load(16, name), 0xD63F0000 | 16 << 5  # blr x16


def _call_near(at: int, target: int) -> int:
    return 0x94000000 | (target - at) // 4 & 0x03FFFFFF  # bl


def _move(to: int, source: int) -> int:
    return 0xAA0003E0 | source << 16 | to  # mov xTO, xSOURCE


def _move_word(to: int, source: int) -> int:
    return 0x2A0003E0 | source << 16 | to  # mov wTO, wSOURCE


def _skip_if_zero(register: int, skipped: tuple[int, ...]) -> int:
    return 0xB4000000 | 1 + len(skipped) << 5 | register  # cbz xN


def _skip_if_zero_word(register: int, skipped: tuple[int, ...]) -> int:
    return 0x34000000 | 1 + len(skipped) << 5 | register  # cbz wN
