"""A few at a time, of what all ranks of a node would have done to them at once.

In: how many.  Out: turns. Nobody waits for long: what has a turn may hang, as a read below /proc does that never
returns, and must not keep all others out.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S: Final = 1.0


class Turns:
    """So many at once."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._free = threading.BoundedSemaphore(at_once)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Begin when it is our turn, or after a while without one."""
        is_ours = self._free.acquire(timeout=WAIT_S)
        try:
            yield
        finally:
            if is_ours:
                self._free.release()


# Threads that attach share one interpreter: each read of a file gives it away, and whoever follows the ranks meanwhile
# got it back behind all sixteen of them, hundreds of times a look. They waited for each other just as long.
COMPUTING: Final = Turns(2)
