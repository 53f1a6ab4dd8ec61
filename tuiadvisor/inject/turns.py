"""A few at a time, of what all ranks of a node would have done to them at once.

In: how many.  Out: turns. Nobody waits for long: what has a turn may hang, as a read below /proc does that never
returns, and must not keep all others out.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S: Final = 1.0


class Turns:
    """So many at once."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._changed = threading.Condition()
        self._since_s: dict[
            object, float
        ] = {}  # of those that have a turn, in the order in which they came to it

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Begin when it is our turn, or after a while without one; who hangs loses its turn to the one that waited."""
        ours = object()
        with self._changed:
            if self._changed.wait_for(self._is_free, WAIT_S) or self._has_hung():
                self._since_s[ours] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                if self._since_s.pop(ours, None) is not None:
                    self._changed.notify()

    def _is_free(self) -> bool:
        return len(self._since_s) < self.at_once

    def _has_hung(self) -> bool:
        """Take the turn of whoever has had it longest, if that is as long as anybody waits."""
        oldest = next(iter(self._since_s))
        hangs = time.monotonic() - self._since_s[oldest] >= WAIT_S
        if hangs:
            del self._since_s[oldest]
        return hangs


# Threads that attach share one interpreter: each read of a file gives it away, and whoever follows the ranks meanwhile
# got it back behind all sixteen of them, hundreds of times a look. They waited for each other just as long.
COMPUTING: Final = Turns(2)
