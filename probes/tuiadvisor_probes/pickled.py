"""What a pickler finds where a function of ours stands: the training's objects are pickled as if we were not there.

A class of the training's own script is pickled by value (cloudpickle for Ray, joblib and mlflow, and dill): the pickler
walks the class's dict and whatever its functions hold and name, and would meet our mapping and locks there. Functions
cannot say how they are pickled; objects can, and picklers of every kind ask them.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable


# Cloudpickle and the copies that others bring; each has a registry of its own.
CLOUDPICKLES = (
    *("cloudpickle", "cloudpickle.cloudpickle", "ray.cloudpickle.cloudpickle"),
    *("joblib.externals.cloudpickle.cloudpickle", "pyspark.cloudpickle.cloudpickle"),
)


def is_by_value(owner: type) -> bool:
    """Whether picklers take the class with its dict: what imports its module does not find it there.

    It is of the script itself, of no module to be imported, made in a function, hidden by another of its name, or its
    module is one that cloudpickle has been told to take by value.
    """
    home = owner.__module__
    module = sys.modules.get(home) if home != "__main__" else None
    if module is None:
        return True
    found: Any = module
    for name in owner.__qualname__.split("."):
        names = getattr(found, "__dict__", None)
        if names is None or name not in names:
            return True
        found = names[name]
    return found is not owner or _is_registered(home)


def _is_registered(home: str) -> bool:
    """Whether cloudpickle has been told so of this module or of a package that it is in."""
    for name in CLOUDPICKLES:
        names = getattr(sys.modules.get(name), "_PICKLE_BY_VALUE_MODULES", ())
        part = home if names else ""
        while part:
            if part in names:
                return True
            part = part.rpartition(".")[0]
    return False


class StandIn:
    """A method of ours in a class's dict: called and looked up as the function, pickled as what it stands for.

    Made by `stand_in`. A bound method holds the stand-in and not the function: it is pickled with what it holds.
    """

    __slots__ = ("function", "name", "original", "owner")
    __call__: Any

    def __init__(self, function: Any, owner: type, name: str, original: Any) -> None:
        self.function = function
        self.owner = owner
        self.name = name
        self.original = original

    def __get__(self, instance: Any, _owner: Any = None) -> Any:
        return self.function if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Loaded as the original itself: `cast` hands its second argument back."""
        return cast, (None, self.original if self.original is not None else self._inherited())

    def _inherited(self) -> Any:
        """The entry of the next class that has one: a copy with the same object has as good as none of its own."""
        followers = self.owner.__mro__[1:]
        return next(vars(base)[self.name] for base in followers if self.name in vars(base))


def stand_in(function: Callable[..., Any], owner: type, name: str, original: Any) -> Any:
    """original: what the class's own dict held; None if the class inherits it."""
    return _calling(StandIn, function)(function, owner, name, original)


def does_nothing() -> tuple[Any, ...]:
    """What a pickler makes a callable of Python's own of that does nothing."""
    return getattr, (nullcontext(), "__exit__")


class Callback:
    """A callback of ours in a table of the host's; pickled as a callable of Python's own that does nothing."""

    __slots__ = ()
    _torchdynamo_disable = True  # as in guard.not_traced

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return does_nothing()


def callback(function: Callable[..., None]) -> Any:
    """A `Callback` that calls function."""
    return _calling(Callback, function)()


def _calling(base: type, function: Callable[..., Any]) -> Any:
    """A class whose instances are called as the function: without a frame more."""
    return type(base.__name__, (base,), {"__slots__": (), "__call__": staticmethod(function)})
