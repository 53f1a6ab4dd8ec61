"""Frames of threads that may run on meanwhile, and what their variables are at a moment.

CPython 3.11 makes frame objects and the dicts of their variables only when they are asked for, and may collect garbage
in the middle of that: a callback of the collector lets the other thread go on, the function that is being copied
returns, and what is then read is no frame any more (a segmentation fault: tests/unit/test_probe_other_frames.py). So
the collector rests there meanwhile, for the length of a chain of calls in C: no other thread runs in it or sees it.
3.10 has frame objects of its own, and from 3.12 on garbage is collected between two instructions only.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections import deque
from functools import partial
from itertools import accumulate, chain, repeat, takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

COLLECTS_WITHIN = sys.version_info[:2] == (3, 11)
MAX_CALLERS = 2000
OPTIMIZED = 1  # code whose variables lie in slots: f_locals is a copy of them
# To a dict of variables that its frame keeps: the frame's, our own, and the call's that counts them.
OWN_REFERENCES = 3


def tops() -> dict[int, FrameType]:
    """The innermost frame of each thread, by ident."""
    if not COLLECTS_WITHIN:
        return sys._current_frames()
    found: dict[int, FrameType] = _undisturbed(map(_call(), (sys._current_frames,)))[0]
    return found


def callers(frame: FrameType | None, at_most: int = MAX_CALLERS) -> list[FrameType]:
    """A frame and those it was called from, innermost first; none of None."""
    names = repeat("f_back", at_most - 1)
    outwards: Any = accumulate(chain((frame,), names), getattr)  # type: ignore[arg-type]
    return _undisturbed(takewhile(operator.truth, outwards))


def variables(frame: FrameType) -> dict[str, Any]:
    """What a function's variables are now. Up to Python 3.12 the frame holds them on until they are forgotten."""
    (found,) = _undisturbed(map(operator.attrgetter("f_locals"), (frame,)))
    return dict(found)


def forget_variables(frame: FrameType) -> None:
    """Have the frame let go of what its variables were when somebody looked: a batch, a loss with its graph.

    To be called in the frame's own thread: a tracer or profiler of the training's, at work in it, writes the dict back.
    Whoever else holds the dict (`locals()` is the same one) keeps it as it is.
    """
    code = frame.f_code
    if sys.version_info >= (3, 13) or not code.co_flags & OPTIMIZED:
        return  # nothing is kept, or the names themselves
    kept = frame.f_locals
    if sys.getrefcount(kept) > OWN_REFERENCES:
        return
    for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        kept.pop(name, None)


def _undisturbed(work: Iterable[Any]) -> list[Any]:
    """What an iterator of C code yields; in 3.11 with the collector off, which is then as it was before."""
    if not COLLECTS_WITHIN:
        return list(work)
    call = _call()
    found: list[Any] = []
    was: list[bool] = []
    look = partial(was.extend, map(call, (gc.isenabled,)))
    restore: Callable[[], object] = partial(
        deque, map(call, map((gc.disable, gc.enable).__getitem__, was)), 0
    )
    try:
        deque(map(call, (look, gc.disable, partial(found.extend, work), restore)), 0)
    except BaseException:
        restore()
        raise
    return found


def _call() -> Any:
    """operator.call: of 3.11."""
    return getattr(operator, "call")  # noqa: B009 - 3.10 is checked too
