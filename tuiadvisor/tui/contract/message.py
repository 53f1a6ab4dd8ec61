"""What the screens send back: small values that say what is wanted, and nothing else.

In: a class that names its fields.  Out: the same as a frozen dataclass, but for `replace`. There are some forty, all of
them loaded before the first frame: writing and compiling the methods of a dataclass takes 0.4 ms each.
"""

from __future__ import annotations

from typing import Any, ClassVar, Never, dataclass_transform


@dataclass_transform(frozen_default=True)
class Message:
    """Equal to another one of its class with the same fields; a field with a default need not be given."""

    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.__match_args__ = tuple(vars(cls).get("__annotations__", ()))  # type: ignore[misc]

    def __init__(self, *values: Any, **named: Any) -> None:
        """TypeError for what is no field, was given twice or is missing."""
        names = self.__match_args__
        given = dict(zip(names, values, strict=False))
        missing = {
            name for name in names if name not in given and name not in named and not hasattr(self, name)
        }
        if len(values) > len(names) or given.keys() & named or named.keys() - set(names) or missing:
            raise TypeError(f"{type(self).__name__} has the fields {names}")
        vars(self).update(given, **named)

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Message) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({shown})"

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"{type(self).__name__} is not changed once it was sent")
