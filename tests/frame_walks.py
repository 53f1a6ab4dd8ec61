"""Walk the frames of a thread that runs on: `frame_walks.py plain 5` crashes CPython 3.11, with `ours` it does not.

Functions with few and many variables call each other up and down, so that what lay where a frame lay is soon another
thing; the collector runs at nearly each new object, and its callback lets them go on. Needs no package; any Python.
"""

from __future__ import annotations

import faulthandler
import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probes"))

from tuiadvisor_probes.other_frames import callers, tops, variables

NUM_FUNCTIONS = 12
DEPTH = 30
FEWEST_WALKS = 11  # however slow the machine
LOOKED_INTO = 20  # walks, of which one looks at variables too


def functions() -> list[Callable[[int], int]]:
    """Each calls another one, to a depth, with its own number of variables."""
    sources = []
    for number in range(NUM_FUNCTIONS):
        slots = ", ".join(f"v{slot}=None" for slot in range(1 + number * 3))
        called = f"found[(n * 7 + {number}) % {NUM_FUNCTIONS}](n - 1)"
        sources.append(f"def f{number}(n, {slots}):\n    return {called} if n else 0\n")
    space: dict[str, Any] = {}
    exec("".join(sources), space)  # noqa: S102 - functions that differ in their variables alone
    space["found"] = [space[f"f{number}"] for number in range(NUM_FUNCTIONS)]
    return list(space["found"])


def plain(ident: int) -> list[Any]:
    """As anybody would."""
    found = []
    frame = sys._current_frames().get(ident)
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def ours(ident: int) -> list[Any]:
    """As the probe does."""
    return callers(tops().get(ident))


def main(how: str, seconds: float) -> int:
    """Number of walks."""
    faulthandler.enable()
    walk, called, over = {"plain": plain, "ours": ours}[how], functions(), threading.Event()

    def work() -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            called[turn % NUM_FUNCTIONS](DEPTH)

    gc.callbacks.append(lambda *_: time.sleep(2e-5))
    gc.set_threshold(1, 1_000_000, 1_000_000)
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    end_s, turn = time.monotonic() + seconds, 0
    while time.monotonic() < end_s or turn < FEWEST_WALKS:
        stack = walk(thread.ident or 0)
        names = [frame.f_code.co_name for frame in stack]
        if how == "ours" and turn % LOOKED_INTO == 0:
            names += [name for frame in stack for name in variables(frame)]
        turn += bool(names)
        if turn % 50 == 0:
            time.sleep(1e-4)
    over.set()
    thread.join()
    return turn if gc.isenabled() else 0


if __name__ == "__main__":
    print(main(sys.argv[1], float(sys.argv[2])))
