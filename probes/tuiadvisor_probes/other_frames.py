"""Frames of threads that may run on meanwhile, and what their variables are at a moment.

Up to CPython 3.11 garbage may be collected while frame objects and dicts are made. A callback of the collector, or what
it destroys, lets the other thread go on: the function that is being copied returns, and what is read next is no frame
any more (a segmentation fault), or a thread waits for ever for the list of threads that we hold. So the collector rests
there meanwhile, for the length of a chain of calls in C: no other thread runs in it or sees it off. From 3.12 on the
collector runs between two instructions only.

Up to 3.12 a look at a function's variables leaves a dict with its frame, which holds them until somebody looks again
or the function returns. `locals()` is that dict: of a function that may have kept it nothing is looked at.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections import deque
from functools import partial
from itertools import accumulate, chain, repeat, takewhile
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType, FrameType

COLLECTS_WITHIN = sys.version_info < (3, 12)
LEAVES_A_DICT = sys.version_info < (3, 13)
MAX_CALLERS = 2000
MAX_READ_BYTES = 20_000  # of code: a microsecond an instruction under the interpreter's lock
GLOBAL_NAMES = ("LOAD_GLOBAL", "LOAD_NAME")  # no attribute of that name, which is something else
OPTIMIZED = 1  # code whose variables lie in slots: f_locals is a copy of them
# To a dict of variables that its frame keeps: the frame's, our own, and the call's that counts them.
OWN_REFERENCES = 3
_call = partial.__call__  # of C, on each Python


def tops() -> dict[int, FrameType]:
    """The innermost frame of each thread, by ident; of our own the one that called who asks.

    (A function that held its own frame would be a cycle, and hold all the others until the next collection.) Only our
    own where threads run at once: frames of the others change under our eyes.
    """
    ident, outer = get_ident(), sys._getframe(1).f_back
    found: dict[int, FrameType] = {}
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        (found,) = _undisturbed(map(_call, (partial(sys._current_frames),)))
    found.pop(ident, None)
    return found if outer is None else {ident: outer, **found}


def exceptions() -> dict[int, Any]:
    """What each thread handles, by ident: an exception, up to Python 3.11 its (type, value, traceback); None."""
    (found,) = _undisturbed(map(_call, (partial(sys._current_exceptions),)))
    return dict(found)


def callers(frame: FrameType | None, at_most: int = MAX_CALLERS) -> list[FrameType]:
    """A frame and those it was called from, innermost first; none of None."""
    names = repeat("f_back", at_most - 1)
    outwards: Any = accumulate(chain((frame,), names), getattr)  # type: ignore[arg-type]
    return _undisturbed(takewhile(operator.truth, outwards))


def variables(frame: FrameType) -> dict[str, Any]:
    """What a function's variables are now; none of one that may hold its `locals()`, which a look would change.

    Of another thread's function that goes on, at most once until it has forgotten them: a second look lets go of what
    the first one left, and what that destroys may let the function return in the middle of it.
    """
    if _may_hold_its_own(frame.f_code):
        return {}
    (found,) = _undisturbed(map(operator.attrgetter("f_locals"), (frame,)))
    return dict(found)


def forget_variables(frame: FrameType) -> None:
    """Have the frame let go of what its variables were when somebody looked: a batch, a loss with its graph.

    To be called in the frame's own thread: a tracer or profiler of the training's, at work in it, writes the dict back.
    """
    code = frame.f_code
    if not LEAVES_A_DICT or not code.co_flags & OPTIMIZED or _may_hold_its_own(code):
        return  # nothing is left there, or it is the names themselves
    left = frame.f_locals
    if sys.getrefcount(left) > OWN_REFERENCES:
        return
    for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        left.pop(name, None)


def _may_hold_its_own(code: CodeType) -> bool:
    """Whether a function calls `locals()`, or `vars()` of nothing, by its code."""
    if not LEAVES_A_DICT or not code.co_flags & OPTIMIZED:
        return False
    if "locals" not in code.co_names and "vars" not in code.co_names:
        return False
    dis: Any = sys.modules.get("dis")  # torch has imported it
    if dis is None or len(code.co_code) > MAX_READ_BYTES:
        return True
    asks = False
    for instruction in dis.get_instructions(code):
        if asks and "CALL" in instruction.opname and instruction.argval == 0:
            return True
        name = instruction.argval if instruction.opname in GLOBAL_NAMES else None
        if name == "locals":
            return True
        asks = name == "vars"
    return False


def _undisturbed(work: Iterable[Any]) -> list[Any]:
    """What an iterator of C code yields; up to 3.11 with the collector off, which is then as it was before."""
    if not COLLECTS_WITHIN:
        return list(work)
    found: list[Any] = []
    was: list[bool] = []
    switches = partial(gc.disable), partial(gc.enable)
    look = partial(was.extend, map(_call, (partial(gc.isenabled),)))
    restore: partial[Any] = partial(deque, map(_call, map(switches.__getitem__, was)), 0)
    try:
        deque(map(_call, (look, switches[0], partial(found.extend, work), restore)), 0)
    except BaseException:
        restore()
        raise
    return found
