"""Replace an attribute of the host and put the identical object back.

If somebody patched on top of us meanwhile, their patch stays and ours goes inert: removing it would remove theirs.
"""

from __future__ import annotations

from functools import update_wrapper
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .pickled import is_by_value, stand_in

if TYPE_CHECKING:
    from collections.abc import Callable


class Patch:
    """One replaced attribute of a class or module."""

    __slots__ = ("had_own", "name", "original", "owner", "replacement", "wrapped")

    def __init__(
        self, owner: Any, name: str, make_replacement: Callable[[Any], Any], *, by_value: bool = False
    ) -> None:
        """make_replacement(callable) -> callable. Raises AttributeError if the owner has no such attribute.

        by_value: the owner is a class, which may be one that is pickled with all that is in its dict.
        """
        self.owner = owner
        self.name = name
        self.had_own = name in vars(owner)
        # vars() keeps descriptors (staticmethod, pybind's instancemethod) as the identical objects to restore.
        self.original = vars(owner)[name] if self.had_own else getattr(owner, name)
        self.wrapped = getattr(owner, name)
        if not self.had_own and isinstance(self.wrapped, FunctionType):
            self.replacement = make_replacement(_inherited(owner, name, self.wrapped))
            self.replacement._torchdynamo_inline = self.wrapped  # what torch.compile traces
        else:
            self.replacement = make_replacement(self.wrapped)
        if by_value and is_by_value(owner):
            original = self.original if self.had_own else None
            self.replacement = stand_in(self.replacement, owner, name, original)
        setattr(owner, name, self.replacement)

    def exchange(self, replacement: Any) -> bool:
        """Put another of ours in the place of ours; False if another patch sits on top."""
        if vars(self.owner).get(self.name) is not self.replacement:
            return False
        setattr(self.owner, self.name, replacement)
        self.replacement = replacement
        return True

    def remove(self) -> bool:
        """Restore; False if another patch sits on top of ours."""
        if vars(self.owner).get(self.name) is not self.replacement:
            return False
        if self.had_own:
            setattr(self.owner, self.name, self.original)
        else:
            delattr(self.owner, self.name)
        return True


def _inherited(owner: Any, name: str, found: Callable[..., Any]) -> Callable[..., Any]:
    """What `owner` inherits under this name at each call: torch.fx and others put their own there for a while.

    Both functions name nothing of ours: a pickler that takes them by value can load them elsewhere.
    """

    def above_copy(thing: Any) -> Any:
        """The same for an object of a class that was made of the owner's dict, with what stands there for us."""
        ours = vars(owner).get(name)  # None after we have left
        kinds = [kind for kind in type(thing).__mro__ if name in vars(kind)]
        copy = next((kind for kind in kinds if vars(kind)[name] is ours), kinds[0])
        return super(copy, thing)

    def tuiadvisor_inherited(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            above: Any = super(owner, self)
        except TypeError:
            above = above_copy(self)
        return getattr(above, name)(*args, **kwargs)

    # For the native core.
    tuiadvisor_inherited.inherits = owner, name, _only_base(owner, name)  # type: ignore[attr-defined]
    return update_wrapper(tuiadvisor_inherited, found, updated=())


def _only_base(owner: type, name: str) -> type | None:
    """The class whose attribute is what super() finds: no other one lies beside it, and it is a plain function."""
    _, *above = owner.__mro__
    found = next((vars(one)[name] for one in above if name in vars(one)), None)
    is_chain = above[0].__mro__ == tuple(above)
    return above[0] if is_chain and isinstance(found, FunctionType) else None
