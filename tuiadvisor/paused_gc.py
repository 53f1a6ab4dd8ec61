"""Python's cycle collector, off while much is made that holds no cycle.

It looks at everything alive again and again while thousands of rows and payloads come into being: a third of a view of
65,536 ranks. What is let go is freed by its count as ever.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collector_off() -> Iterator[None]:
    """No looking for cycles in this block, nor in other threads meanwhile: it must end soon."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def keep_for_good() -> None:
    """Look no more at what is alive now: of what was imported nothing goes, and a full look at it takes 30 ms."""
    gc.freeze()
