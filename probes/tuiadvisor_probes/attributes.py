"""What an object of the training keeps itself, read without leaving a mark on it.

Asking an object for its `__dict__` makes one where CPython 3.11 and 3.12 had kept the attributes in the object itself,
and from then on each of its attributes is read three to four times as slowly, by the training too, after a detach still
(`python tests/benchmarks/marks.py`). So there an attribute is asked for by its name, and the values of all are what the
garbage collector sees.

Looking may have an effect too: a batch that gives up or makes what is read of it, a lazy object that is made when
somebody asks for its class, a tensor whose attributes a `__torch_function__` of the training's answers. So what holds
something is read by the methods of Python's own classes, and tensors past those functions.
"""

from __future__ import annotations

import gc
import sys
from collections import UserDict, deque
from contextlib import nullcontext
from types import FunctionType, MethodType
from typing import Any

HAS_MARKS = (3, 11) <= sys.version_info[:2] <= (3, 12)
KEEPS_INLINE = 1 << 4  # Py_TPFLAGS_MANAGED_DICT
CONTAINERS = (list, tuple, dict, set, frozenset, deque)  # of theirs the collector sees the items as well
NOTHING: Any = object()
MAX_NAMES = 64  # of a dict, looked at


class Own:
    """The attributes of one object whose dict is not there, by name."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def get(self, name: str, default: Any = None) -> Any:
        """As a dict's, or a plain value of the class where it has none itself; nothing of the class's is run."""
        function: Any = NOTHING
        for kind in type(self.thing).__mro__:
            held = type.__getattribute__(kind, "__dict__").get(name, NOTHING)
            if type(held) is FunctionType:
                function = held if function is NOTHING else function
            elif held is not NOTHING and hasattr(type(held), "__get__"):
                return default
        try:
            found = object.__getattribute__(self.thing, name)
        except AttributeError:
            return default
        return default if type(found) is MethodType and found.__func__ is function else found


def own(thing: Any) -> Any:
    """Something with a dict's `get` of what an object keeps itself; empty where it has no plain dict."""
    if HAS_MARKS and _keeps_inline(type(thing)):
        return _dict_of(thing, gc.get_referents(thing)) or Own(thing)
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def values_of(thing: Any) -> list[Any]:
    """What an object keeps itself, without the names."""
    if HAS_MARKS and _keeps_inline(type(thing)):
        seen = gc.get_referents(thing)
        found = _dict_of(thing, seen)
        if found is not None:
            return list(found.values())
        values = [one for one in seen if one is not type(thing)]
        # A dict alone is the only attribute, or all of them where the class has properties of all these names.
        return [*values, *values[0].values()] if len(values) == 1 and type(values[0]) is dict else values
    try:
        held = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return []
    return list(held.values()) if type(held) is dict else []


def kept(thing: Any, name: str) -> Any:
    """What it keeps under a name that its class knows nothing of; else None. Quicker than `own` where that is so."""
    for kind in type(thing).__mro__:
        if name in kind.__dict__:  # a property, perhaps
            return None
    try:
        return object.__getattribute__(thing, name)
    except AttributeError:
        return None


def parameters_of(module: Any) -> list[Any]:
    """Each parameter in it once; by what modules keep, for the training's own `parameters()` may do anything."""
    modules, waiting, found = {id(module)}, [module], {}
    held: Any
    while waiting:
        one = waiting.pop()
        names, children = kept(one, "_parameters"), kept(one, "_modules")
        if issubclass(type(names), dict) and issubclass(type(children), dict):
            held = dict.values(names)
            for child in dict.values(children):
                if child is not None and id(child) not in modules:
                    modules.add(id(child))
                    waiting.append(child)
        else:  # of a scripted module, which keeps them elsewhere
            held = one.parameters() if type(one).__module__.startswith("torch.") else ()
        for parameter in held:
            if parameter is not None:
                found[id(parameter)] = parameter
    return list(found.values())


def entries(thing: Any) -> Any:
    """The dict in which a thing keeps what it holds by name, to be read by `dict`'s own methods; None: it has none.

    A UserDict's (a tokenizer's BatchEncoding) is one of its attributes.
    """
    kind = type(thing)
    if issubclass(kind, dict):
        return thing
    if UserDict not in kind.__mro__:  # an abstract class is asked dearly
        return None
    held = kept(thing, "data")
    return held if issubclass(type(held), dict) else None


def items(thing: Any) -> Any:
    """A list or tuple as a plain one, without what a class of its own makes of reading it; None of anything else."""
    kind = type(thing)
    if kind is list or kind is tuple:
        return thing
    if issubclass(kind, list):
        return list.copy(thing)
    return tuple.__getitem__(thing, slice(None)) if issubclass(kind, tuple) else None


def unheard() -> Any:
    """While it is entered no `__torch_function__` answers what is asked of tensors: of a mode, nor of their classes."""
    core = getattr(sys.modules.get("torch"), "_C", None)
    return getattr(core, "DisableTorchFunction", nullcontext)()


def is_heard(torch: Any) -> bool:
    """Whether a mode of the training's own would be told that we ask a plain tensor for something."""
    try:
        return bool(torch._C._is_torch_function_mode_enabled())
    except AttributeError:  # of an older torch, or of a test's
        return bool(getattr(getattr(torch, "_C", None), "_len_torch_function_stack", int)())


def is_operated_unheard() -> bool:
    """Whether no mode of the training's own sees operations on plain tensors."""
    core = getattr(sys.modules["torch"], "_C", None)
    functions = getattr(core, "_len_torch_function_stack", int)
    operators = getattr(core, "_len_torch_dispatch_stack", int)
    return not functions() and not operators()


def shape_and_type(thing: Any) -> tuple[Any, Any] | None:
    """Of a tensor with dimensions. None of all else, and where only code of its class could tell them."""
    torch = sys.modules["torch"]
    tensor_class, kind = torch.Tensor, type(thing)
    if kind is tensor_class:
        if not is_heard(torch):
            shape = thing.shape
            return (shape, thing.dtype) if shape else None
    elif not issubclass(kind, tensor_class) or kind.__torch_dispatch__ is not tensor_class.__torch_dispatch__:
        return None
    with unheard():
        shape = tensor_class.shape.__get__(thing)
        return (shape, tensor_class.dtype.__get__(thing)) if shape else None


def _keeps_inline(kind: type) -> bool:
    return bool(kind.__flags__ & KEEPS_INLINE) and not issubclass(kind, CONTAINERS)


def _dict_of(thing: Any, seen: list[Any]) -> dict[str, Any] | None:
    """The object's dict, if there is one already.

    Its keys are names of attributes that have its values, and these are in no other place of the object: what an object
    keeps without a dict the collector sees itself, as that of a dict which only happens to hold the same (`to_save`).
    """
    names, places = Own(thing), set(map(id, seen))
    for one in seen:
        if type(one) is dict and any(
            type(name) is str and id(value) not in places and names.get(name, NOTHING) is value
            for name, value in list(one.items())[:MAX_NAMES]
        ):
            return one
    return None
