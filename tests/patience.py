"""How long a test waits for what must come, and the wait itself.

A wait that ends when what was meant has happened costs nothing on a calm machine, so there is one limit for all of
them, beyond what half a core with three tests beside each other needs: torch in four ranks is imported in two minutes
there. It is no promise about the program; what is to be quick is measured in `make bench`.
"""

from __future__ import annotations

import linecache
import re
import sys
import time
from collections.abc import Callable
from types import FrameType

PATIENCE_S = 300.0
RECORD_FOR = "4m"  # of `record --steps N --for ...`: the steps end it, this only if they never come
INJECT_S = 30.0  # of one injection: its tracer is a Python to be started
PROGRESS = re.compile(r"reading .*: \d+%")


def wait_until(
    condition: Callable[[], object],
    what: str = "",
    every_s: float = 0.02,
    seen: Callable[[], object] = lambda: "",
) -> None:
    """Return as soon as the condition holds; fail with what was awaited, and what is seen instead, if it never does.

    what: without it the line that waits says so itself.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        awaited = what or _line_of(sys._getframe(1))
        assert time.monotonic() < deadline_s, f"not within {PATIENCE_S:.0f} s: {awaited}; {seen()}"
        time.sleep(every_s)


def _line_of(frame: FrameType) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()


def complaints(stderr: str) -> str:
    """What a command said there beside how far it is, which it says of whatever takes longer than a second."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not PROGRESS.fullmatch(line.strip()))
