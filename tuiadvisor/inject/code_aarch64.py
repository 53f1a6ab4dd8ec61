"""The code of a block for aarch64, AAPCS64 calling convention.

In: where the text will lie.  Out: machine code of `run`, `thread_entry` and `pending_entry`, to be laid out in a row.
Calls and the last jump go through x16, from which a function may be entered that begins with a landing pad (BTI).
"""

from __future__ import annotations

import struct

from tuiadvisor.inject.stub_slots import CODE_OFFSET, PY_FILE_INPUT, slot_offset

_ENTER = (0xA9BE7BFD, 0x910003FD)  # stp x29, x30, [sp, #-32]!; mov x29, sp
_KEEP = (0xA90153F3,)  # stp x19, x20, [sp, #16]
_TAKE_BACK = (0xA94153F3, 0xA8C27BFD)  # ldp x19, x20, [sp, #16]; ldp x29, x30, [sp], #32
_BLOCK = 19  # the register that holds the block's address while its code runs
_ZERO = 31


def assemble(text_offset: int) -> tuple[bytes, bytes, bytes]:
    """As long whatever the offset is."""
    run = _run(text_offset)
    thread = _thread_entry(CODE_OFFSET + 4 * len(run))
    pending = _pending_entry(CODE_OFFSET + 4 * (len(run) + len(thread)))
    return _bytes(run), _bytes(thread), _bytes(pending)


def _run(text_offset: int) -> tuple[int, ...]:
    """Runs the text in a fresh dict and forgets any error. In: x19 = block."""
    release_result = _call("Py_DecRef")
    execute = (
        _move(21, 0),  # the namespace
        0x91000000 | text_offset << 10 | _BLOCK << 5,  # add x0, x19, #text
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
        *_call("PyErr_Clear"),
        0xF9400BF5,  # ldr x21, [sp, #16]
        0xA8C27BFD,  # ldp x29, x30, [sp], #32
        0xD65F03C0,  # ret
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
        _move_word(0, 20),
        *_call("PyGILState_Release"),
    )
    return (*head, _skip_if_zero_word(0, with_gil), *with_gil, *_unmap())


def _pending_entry(offset: int) -> tuple[int, ...]:
    """In: x0 = block.  Out: w0 = 0, as munmap returns it; anything else would raise in the host."""
    head = (*_ENTER, *_KEEP, _move(_BLOCK, 0))
    return (*head, _call_near(offset + 4 * len(head), CODE_OFFSET), *_unmap())


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
