"""Machine code that runs a Python source inside the target.

One block, position-independent: a table of addresses, the entry points, the source text. It is
mapped readable and executable, never writable, and unmaps itself by its last jump.

    void *thread_entry(void *block)     new thread: detach, take the GIL, run, release, unmap
    int   start_entry(void *block)      pending call on the main thread, GIL held: start that thread, 0
    int   pending_entry(void *block)    likewise, where there can be no thread: run, unmap, 0

Handlers of the host's signals run in the main thread, between any two lines of Python: what they raise while the text
runs there would be raised in our frames. So it runs in a thread wherever that can be. Where it cannot, what a handler
raised is left as it is, and -1 returned: Python then raises it where the main thread was.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from tuiadvisor.inject import code_aarch64, code_x86_64
from tuiadvisor.inject.machines import AARCH64, HERE, X86_64
from tuiadvisor.inject.stub_slots import (
    CODE_OFFSET,
    LIBC_FUNCTIONS,
    PYTHON_FUNCTIONS,
    PYTHON_VARIABLES,
    SLOTS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.inject.machines import Machine

__all__ = ["LIBC_FUNCTIONS", "PYTHON_FUNCTIONS", "PYTHON_VARIABLES", "Block", "build_block"]

_ASSEMBLERS: Final = {X86_64.name: code_x86_64.assemble, AARCH64.name: code_aarch64.assemble}
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes to be written to the start of a fresh mapping of `len(content)` bytes."""

    content: bytes
    thread_entry: int
    pending_entry: int
    start_entry: int


def build_block(addresses: Mapping[str, int], source: bytes, machine: Machine = HERE) -> Block:
    """A block, padded to whole pages. `source` must not contain a zero byte."""
    assemble = _ASSEMBLERS[machine.name]
    # The length of the code doesn't depend on where the text lies: assemble once to learn it.
    text_offset = CODE_OFFSET + sum(map(len, assemble(0)))
    parts = assemble(text_offset)
    used = text_offset + len(source) + 1
    size = -(-used // _PAGE) * _PAGE
    table = struct.pack(f"<{len(SLOTS)}Q", *({**addresses, "block_size": size}[slot] for slot in SLOTS))
    content = table.ljust(CODE_OFFSET, b"\0") + b"".join(parts) + source
    ends = list(accumulate(map(len, parts), initial=CODE_OFFSET))
    _run, thread, _unmap, pending, start, _text = ends
    return Block(content.ljust(size, b"\0"), thread_entry=thread, pending_entry=pending, start_entry=start)
