"""Keep the probe out of torch.compile: its frames are never traced, and what it wraps is traced as if unwrapped.

Dynamo looks at every Python frame that runs below a compiled call, ours too. Each code object of the probe is marked
"skip" (the frames it calls, the host's, are looked at as before), and each wrapper names its original in
`_torchdynamo_inline`, which tracing follows. So attaching breaks no graph and invalidates no compiled one.
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from .other_frames import callers, tops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# What stands around the model's own calls: the first compilation after the attach would trace into it.
AROUND_THE_MODEL = (
    "guard",
    "patch",
    "pickled",
    "model_hooks",
    "roots",
    "other_frames",
    "eval_span",
    "step_clock",
    "books",
    "forward_look",
    "functional_waits",
    "sharded_waits",
    "attributes",
)

# Stances of torch.compiler in which a guard that fails is answered by compiling anew.
RECOMPILES = ("default", "eager_then_compile", "aot_eager_then_compile")


def is_in_use() -> bool:
    """Whether dynamo has looked at a frame of this process: until then there is nothing to hide from.

    A mark costs 300 bytes of torch's that it never gives back, 77 KiB for the whole probe at every attach. The
    training thread may be in the middle of importing dynamo: a module in the table need not have its names yet.
    """
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters) and bool(counters.get("frames"))


def must_not_recompile() -> bool:
    """Whether compiling anew would end the training, or leave what was compiled behind for good.

    The training says so with torch.compiler.set_stance or dynamo's error_on_recompile. A stance may hold for a part of
    the loop only, so that a look at the wrong moment misses it: a function on a thread's stack that names set_stance
    counts as well. Of whatever thread: which of them trains is not known yet when the probe comes.
    """
    frames = sys.modules.get("torch._dynamo.eval_frame")
    stance = getattr(getattr(frames, "_stance", None), "stance", "default")
    config = sys.modules.get("torch._dynamo.config")
    if stance not in RECOMPILES or getattr(config, "error_on_recompile", False):
        return True
    stacks = (callers(top) for top in tops().values())
    return any("set_stance" in frame.f_code.co_names for stack in stacks for frame in stack)


def has_compiled(code: CodeType | None) -> bool:
    """Whether dynamo keeps compiled code for this code object; where it cannot be asked, whether it is in use."""
    torch: Any = sys.modules.get("torch")
    frames = getattr(getattr(getattr(torch, "_C", None), "_dynamo", None), "eval_frame", None)
    entries = getattr(frames, "_debug_get_cache_entry_list", None)
    return is_in_use() if entries is None or code is None else bool(entries(code))


def hide_from_tracing(
    package: str, stems: tuple[str, ...] = (), breathe: Callable[[], None] | None = None
) -> bool:
    """Mark the code of the package's loaded modules (stems: of these only); False if this torch has no such mark.

    breathe: called after each module; marking all of them takes a millisecond.
    """
    mark = _marker()
    if mark is None:
        return False
    for name, module in list(sys.modules.items()):
        if name.startswith(package + ".") and (not stems or name.rpartition(".")[2] in stems):
            for code in _codes_of(module):
                mark(code)
            if breathe is not None:
                breathe()
    return True


def _marker() -> Callable[[CodeType], None] | None:
    """The C function that marks one code object: no import of dynamo, which costs seconds."""
    torch: Any = sys.modules.get("torch")
    frames: Any = getattr(getattr(getattr(torch, "_C", None), "_dynamo", None), "eval_frame", None)
    if hasattr(frames, "skip_code"):  # until 2.6
        skip: Callable[[CodeType], None] = frames.skip_code
        return skip
    if hasattr(frames, "set_code_exec_strategy"):
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)
        return lambda code: frames.set_code_exec_strategy(code, strategy)
    return None


def _codes_of(module: Any) -> Iterator[CodeType]:
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if isinstance(value, type) else (value,)
        for member in members:
            for function in _functions_of(member):
                yield from _nested(function.__code__)


def _functions_of(member: Any) -> Iterator[FunctionType]:
    """What runs Python of ours when a name of a class or module is called, read or set."""
    parts: tuple[object, ...]
    if isinstance(member, property):
        parts = (member.fget, member.fset, member.fdel)
    else:
        parts = (getattr(member, "__func__", member),)  # of static and class methods
    yield from (part for part in parts if isinstance(part, FunctionType))


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
