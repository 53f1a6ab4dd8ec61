"""When Python collected garbage, noted without a line of Python's.

The collector drops what a callback raises. Between two lines of Python a signal's handler may run: what it raised at
the first line of a callback of ours, a Ctrl-C, a time limit, was lost, and nowhere else would it have been. So the
callback is made of C functions alone, which look after no signals, and what it noted is read at the end of a step.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import chain
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = 4  # of a collection: the clock and the thread at its start, the clock and the thread at its end
MOST = 64 * ITEMS  # that a step may have: the older ones are dropped, whole


def collections_log() -> tuple[deque[int], Callable[..., Any]]:
    """Where collections are noted, and the callback that does so: 450 ns each time it is called."""
    log: deque[int] = deque(maxlen=MOST)
    items = chain.from_iterable(zip(iter(monotonic_ns, None), iter(get_ident, None), strict=False))
    # `min` asks the key of both arguments, the phase and what is told of it, so each call notes two items; `next` takes
    # them for what to return at the end, which never comes. Results of `zip` are tuples: they compare without an error.
    noted = zip(map(log.append, items), strict=False)
    return log, partial(min, key=partial(next, noted))


def taken(log: deque[int]) -> list[tuple[int, int, int]]:
    """(begin, end, thread) of the collections that have ended; they are noted no more."""
    items = list(log)  # to read them one by one makes garbage, and may collect it
    num = len(items) // ITEMS * ITEMS  # one under way stays: another thread may collect while we read
    for _ in range(num):
        log.popleft()
    found = list(
        zip(items[0:num:ITEMS], items[2:num:ITEMS], items[1:num:ITEMS], items[3:num:ITEMS], strict=True)
    )
    if any(ident != same for _, _, ident, same in found):  # what was dropped took a half of one with it
        log.clear()
        return []
    return [(begin_ns, end_ns, ident) for begin_ns, end_ns, ident, _ in found]
