"""Chakra's linked execution traces (.et): Protocol Buffers, one message behind the other, its length before each.

In: bytes of a file (mlcommons/chakra, schema/protobuf/et_def.proto: GlobalMetadata, then Node).  Out: EtNode.
A linked trace has the profiler's times in it: of an operator its own, without what it calls (pytorch_converter.py
writes exclusive_dur). An operator that calls others is in parts, "aten::add(0)", "aten::add(1)".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    Field = tuple[int, int, int | bytes]  # number, wire type, value

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_VARINT: Final = 10  # bytes
MAX_NUMBER: Final = 1 << 62
LONGEST_US: Final = 1 << 40
PART: Final = re.compile(r"\((\d{1,6})\)$")
# Fields of a Node and of an AttributeProto.
ID, NAME, DURATION, ATTRIBUTE = 1, 2, 7, 10
ATTRIBUTE_NAME: Final = 1
INTEGERS: Final = frozenset((7, 9, 11, 13, 27))  # int32, int64, uint32, uint64, bool


class NoEtError(ValueError):
    """The bytes are no such trace, or end within a message."""


@dataclass(frozen=True, slots=True)
class EtNode:
    """seconds: its own; None where the trace does not say. num_bytes: of what a collective sends."""

    name: str
    is_first: bool  # part of its operator, which the calls are counted by
    is_on_host: bool
    seconds: float | None
    num_bytes: int | None


def is_et(head: bytes) -> bool:
    """By its first messages: metadata, then a node or the end."""
    try:
        messages = _messages(head)
        metadata = list(_fields(next(messages, b"")))
        if not metadata or not all(number in (1, 2) and wire == BYTES for number, wire, _ in metadata):
            return False
        first = next(messages, None)
        return first is None or _node(first) is not None
    except NoEtError:
        return False


def nodes_of(data: bytes) -> Iterator[EtNode]:
    """Those with a name, in order. NoEtError where the file is damaged."""
    messages = _messages(data)
    next(messages, None)
    for message in messages:
        node = _node(message)
        if node is not None:
            yield node


def _node(message: bytes) -> EtNode | None:
    name, has_id, took, told = "", False, None, dict[str, int | str]()
    for number, wire, value in _fields(message):
        if number == ID and wire == VARINT:
            has_id = True
        elif number == NAME and isinstance(value, bytes):
            name = "".join(char for char in value.decode("utf-8", "replace")[:160] if char.isprintable())
        elif number == DURATION and isinstance(value, int) and value < LONGEST_US:
            took = value / 1e6
        elif number == ATTRIBUTE and isinstance(value, bytes):
            told |= _attribute(value)
    if not name or not has_id:
        return None
    is_on_host = told.get("is_cpu_op", 1) != 0
    part = PART.search(name) if is_on_host else None
    size = told.get("comm_size")
    return EtNode(
        name[: part.start()] if part else name,
        part is None or part[1] == "0",
        is_on_host,
        took,
        size if isinstance(size, int) and 0 < size < MAX_NUMBER else None,
    )


def _attribute(message: bytes) -> dict[str, int | str]:
    """A number or a text by its name; others are left out."""
    name, found = "", None
    for number, _, value in _fields(message):
        if number == ATTRIBUTE_NAME and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")
        elif number in INTEGERS and isinstance(value, int):
            found = value
    return {} if found is None else {name: found}


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = _varint(data, at)
        if at + size > len(data):
            raise NoEtError
        yield data[at : at + size]
        at += size


def _fields(message: bytes) -> Iterator[Field]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = _varint(message, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = _varint(message, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise NoEtError
        if at + size > len(message):
            raise NoEtError
        yield number, wire, message[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(MAX_VARINT):
        if at >= len(data):
            raise NoEtError
        byte = data[at]
        at += 1
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, at
    raise NoEtError
