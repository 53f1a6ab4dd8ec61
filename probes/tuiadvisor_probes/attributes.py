"""What an object of the training keeps itself, read without leaving a mark on it.

Asking an object for its `__dict__` makes one where CPython 3.11 and 3.12 had kept the attributes in the object itself,
and from then on every one of its attributes is read three times as slowly, by the training too, after a detach still
(`python tests/benchmarks/marks.py`). So there an attribute is asked for by its name, and the values of all are what the
garbage collector sees.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from typing import Any

HAS_MARKS = (3, 11) <= sys.version_info[:2] <= (3, 12)
KEEPS_INLINE = 1 << 4  # Py_TPFLAGS_MANAGED_DICT
CONTAINERS = (list, tuple, dict, set, frozenset, deque)  # of theirs the collector sees the items as well
NOTHING: Any = object()


class Own:
    """The attributes of one object whose dict is not there, by name."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def get(self, name: str, default: Any = None) -> Any:
        """As a dict's; nothing of the class's is run for it."""
        for kind in type(self.thing).__mro__:
            held = type.__getattribute__(kind, "__dict__").get(name, NOTHING)
            if held is not NOTHING and hasattr(type(held), "__get__"):
                return default
        try:
            return object.__getattribute__(self.thing, name)
        except AttributeError:
            return default


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
        return [one for one in seen if one is not type(thing)] if found is None else list(found.values())
    try:
        held = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return []
    return list(held.values()) if type(held) is dict else []


def _keeps_inline(kind: type) -> bool:
    return bool(kind.__flags__ & KEEPS_INLINE) and not issubclass(kind, CONTAINERS)


def _dict_of(thing: Any, seen: list[Any]) -> dict[str, Any] | None:
    """The object's dict, if there is one already: its keys are names of attributes that have its values."""
    names = Own(thing)
    for one in seen:
        if type(one) is dict and one:
            name, value = next(iter(one.items()))
            if type(name) is str and names.get(name, NOTHING) is value:
                return one
    return None
