"""What of a frame's payload may be shared as it is: numbers, and texts that pass a filter.

In: a payload as it was read.  Out: the part of it that names nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.exporters.words import is_harmless_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.exporters.pseudonyms import Names

Payload = dict[str, object]

BACKENDS: Final = frozenset({"gloo", "nccl", "mpi", "ucc", "xccl", "hccl", "cpu:gloo,cuda:nccl"})


def numbers(payload: Payload) -> Payload:
    """Measurements."""
    return {name: value for name, value in payload.items() if is_number(value) and is_harmless_key(name)}


def is_number(value: object) -> bool:
    """True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_of(payload: Payload, name: str, replace: Callable[[str], str | None]) -> Payload:
    """One text, replaced; nothing where there is none."""
    value = payload.get(name)
    return {name: replace(value)} if isinstance(value, str) else {}


def one_of(allowed: frozenset[str], otherwise: str | None) -> Callable[[str], str | None]:
    """A filter of texts."""
    return lambda text: text if text in allowed else otherwise


def objects(payload: Payload, name: str) -> list[Payload]:
    """The objects of a list; what is none is left out."""
    value = payload.get(name)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def lists(payload: Payload, name: str) -> list[list[object]]:
    """The lists of a list."""
    value = payload.get(name)
    return [entry for entry in value if isinstance(entry, list)] if isinstance(value, list) else []


def integers(value: object) -> list[int] | None:
    """The integers of a list; None: it is none."""
    return [one for one in value if type(one) is int] if isinstance(value, list) else None


def pid_of(payload: Payload, name: str, names: Names) -> Payload:
    """A process id, replaced."""
    value = payload.get(name)
    return {name: names.pid(value)} if isinstance(value, int) and not isinstance(value, bool) else {}
