"""What an object of the training keeps itself, read without leaving a mark on it.

Asking an object for its `__dict__` makes one where CPython 3.11 and 3.12 had kept the attributes in the object itself,
and from then on each of its attributes is read three to four times as slowly, by the training too, after a detach still
(`python tests/benchmarks/marks.py`). So there an attribute is asked for by its name, and the values of all are what the
garbage collector sees.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
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
