"""A place among torch's global step hooks of optimizers, taken and left at a moment when that harms nobody.

torch walks through the dict of these hooks while it calls them. A key that comes or goes meanwhile ends the training
with "OrderedDict mutated during iteration", where another tool's hook is among them (torch's own, with
KINETO_USE_DAEMON): the walk stands at that hook while another thread, or a hook itself, changes the dict. An empty
dict may be changed at any time: nobody stands in it.
"""

from __future__ import annotations

from threading import get_ident
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Any

from .compiled import has_compiled, must_not_recompile
from .other_frames import callers, tops, variables

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

PATIENCE_NS = 1_000_000_000
PAUSE_S = 0.0005  # after it the interpreter is ours for 5 ms: nobody moves between our look and our change
NEVER_LEFT = "another tool's step hook was running all the time: attach again"


class StepHook:
    """One registered callback; `remove` gives its place back."""

    def __init__(self, module: Any, register: Callable[..., Any], hooks: Any, callback: Any) -> None:
        """module: torch.optim.optimizer; hooks: the dict that register adds to. Raises RuntimeError if never safe."""
        self._code = walking_code(module)
        self._hooks = hooks
        if hooks and not _is_left(self._code):
            raise RuntimeError(NEVER_LEFT)
        self._handle = register(callback)

    def remove(self) -> None:
        """Out of the dict; where the walk stands at ourselves and others come after us, an empty function remains.

        What was compiled with us in the dict is compiled for just that dict. Where it must not be compiled again, our
        place is kept by the function that it knows, which does nothing any more.
        """
        if has_compiled(self._code) and must_not_recompile():
            return
        key = self._handle.id
        if len(self._hooks) > 1 and key in self._hooks and not _is_left(self._code):
            self._hooks[key] = eval("lambda *_: None", {})  # noqa: S307 - a function that holds nothing of ours
        else:
            self._handle.remove()


def walking_code(module: Any) -> CodeType | None:
    """Of torch's wrapper around `step`, the same for all optimizers; None where this torch has another."""
    outer = getattr(module.Optimizer, "profile_hook_step", None)
    constants = getattr(getattr(outer, "__code__", None), "co_consts", ())
    return next((one for one in constants if getattr(one, "co_name", "") == "wrapper"), None)


def _is_left(code: CodeType | None) -> bool:
    """Wait until no thread stands in a walk; False if it does not end, as where we were called from it."""
    if code is None:
        return True
    deadline_ns = monotonic_ns() + PATIENCE_NS
    while True:
        sleep(PAUSE_S)
        walking = [ident for ident, frame in tops().items() if _is_walking(frame, code)]
        if not walking:
            return True
        if get_ident() in walking or monotonic_ns() > deadline_ns:
            return False


def _is_walking(frame: FrameType, code: CodeType) -> bool:
    """Whether a thread is inside of torch's wrapper, but not in the step that it wraps."""
    called = None
    for caller in callers(frame):
        if caller.f_code is code:
            step = getattr(variables(caller).get("func"), "__code__", None)
            if called is None or called.f_code is not step:
                return True
        called = caller
    return False
