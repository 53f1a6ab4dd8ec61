"""Of what computes in this process for an attach, a few at a time.

All ranks of a node are attached at once, by sixteen threads that share one interpreter: each read of a file gives it
away, and whoever follows the ranks meanwhile got it back behind all of them, hundreds of times a look. They waited for
each other just as long. What waits for a rank or a tracer needs no turn.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_ONCE: Final = 2
WAIT_S: Final = (
    1.0  # a turn takes some ms; a read below /proc may never return, and must not keep all others out
)

_turns: Final = threading.BoundedSemaphore(AT_ONCE)


@contextmanager
def in_turn() -> Iterator[None]:
    """Begin when it is our turn, or after a while without one."""
    is_ours = _turns.acquire(timeout=WAIT_S)
    try:
        yield
    finally:
        if is_ours:
            _turns.release()
