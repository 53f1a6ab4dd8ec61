"""Plain data from a pickle, without unpickling: nothing that the file names is imported, and nothing of it is called.

In: bytes.  Out: what they hold of None, bool, int, float, str, bytes, list, tuple and dict. Everything else that a
pickle can say (names to import, calls, classes, ids, buffers outside of it) refuses the whole before anything is made.
Dicts have text as keys alone, whose hashes nobody outside can choose. What is stored once and used often is counted as
often as it is used, so that whoever walks through it has a bounded walk.
Format: Python's pickletools, protocols 2 to 5; PyTorch's flight recorder writes protocol 2.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BEGINS: Final = b"\x80"  # then the protocol's number
PROTOCOLS: Final = range(2, 6)
MAX_OPCODES: Final = 8 << 20  # some 70 a call of a flight recorder: 120,000 calls
MAX_CONTAINERS: Final = 1 << 20  # lists, tuples and dicts, up to half a kilobyte each here; some 9 a call
MAX_DEPTH: Final = 64
DEEP: Final = f"nested more than {MAX_DEPTH} deep"
MAX_INT_BYTES: Final = 255  # what LONG1 can say
MAX_EXPANDED: Final = 1 << 29  # objects and characters, each as often as it is used

STOP: Final = b"."
MARK: Final = b"("
LONGS: Final = (b"\x8a", b"\x8b")
# Opcode -> bytes of its argument, or of the length that stands before its argument.
FIXED: Final = {
    **dict.fromkeys((b"N", b"\x88", b"\x89", b"}", b"]", b")", MARK, STOP), 0),
    **dict.fromkeys((b"t", b"\x85", b"\x86", b"\x87", b"a", b"e", b"s", b"u", b"\x94"), 0),
    **dict.fromkeys((b"K", b"q", b"h"), 1),
    **dict.fromkeys((b"J", b"r", b"j"), 4),
    **dict.fromkeys((b"G", b"\x95"), 8),
    b"M": 2,
}
COUNTED: Final = {b"\x8a": 1, b"\x8b": 4, b"\x8c": 1, b"X": 4, b"\x8d": 8, b"C": 1, b"B": 4, b"\x8e": 8}
# For the words of a refusal.
NAMES: Final = {
    b"c": "GLOBAL", b"\x93": "STACK_GLOBAL", b"R": "REDUCE", b"b": "BUILD", b"i": "INST", b"o": "OBJ",
    b"\x81": "NEWOBJ", b"\x92": "NEWOBJ_EX", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4", b"P": "PERSID",
    b"Q": "BINPERSID", b"\x97": "NEXT_BUFFER", b"\x98": "READONLY_BUFFER", b"\x96": "BYTEARRAY8", b"\x8f": "EMPTY_SET",
    b"\x90": "ADDITEMS", b"\x91": "FROZENSET", b"0": "POP", b"1": "POP_MARK", b"2": "DUP",
}  # fmt: skip


class PlainPickleError(ValueError):
    """Why it is not read; one line."""


def plain(data: bytes) -> Any:
    """The value. PlainPickleError: it holds more than plain data, is damaged, or too much of it."""
    for _ in _opcodes(data):
        pass  # all of it is allowed before any of it is made
    made = _Made()
    for code, argument in _opcodes(data):
        made.take(code, argument)
    return made.whole()


def _opcodes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each with its argument, up to STOP."""
    if len(data) < 2 or not data.startswith(BEGINS) or data[1] not in PROTOCOLS:
        raise PlainPickleError("no pickle of protocols 2 to 5")
    at, size = 2, len(data)
    for _ in range(MAX_OPCODES):
        code, width = data[at : at + 1], 0
        if (length := FIXED.get(code)) is None:
            width = _width(code, at)
            length = int.from_bytes(data[at + 1 : at + 1 + width], "little")
        begin = at + 1 + width
        at, code_at = begin + length, at
        if at > size:
            raise PlainPickleError(f"it is cut off within what begins at byte {code_at}")
        if code in LONGS and length > MAX_INT_BYTES:
            raise PlainPickleError(f"a number of {length:,} bytes at byte {code_at}")
        yield code, data[begin:at]
        if code == STOP:
            if at != size:
                raise PlainPickleError(f"{size - at:,} bytes behind its end")
            return
    raise PlainPickleError(f"more than {MAX_OPCODES:,} opcodes")


def _width(code: bytes, at: int) -> int:
    """Of the length of its argument."""
    if not code:
        raise PlainPickleError("it is cut off before its end")
    if code not in COUNTED:
        name = NAMES.get(code, f"opcode 0x{code.hex()}")
        raise PlainPickleError(f"{name} at byte {at} makes something else than plain data")
    return COUNTED[code]


def _unsigned(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")  # a file's name in a frame may be of any bytes


def _float(raw: bytes) -> float:
    return float(struct.unpack(">d", raw)[0])


LEAVES: Final[dict[bytes, Callable[[bytes], Any]]] = {
    b"N": lambda _: None,
    b"\x88": lambda _: True,
    b"\x89": lambda _: False,
    **dict.fromkeys((b"K", b"M"), _unsigned),
    **dict.fromkeys((b"J", *LONGS), _signed),
    **dict.fromkeys((b"X", b"\x8c", b"\x8d"), _text),
    **dict.fromkeys((b"C", b"B", b"\x8e"), lambda raw: raw),
    b"G": _float,
    b")": lambda _: (),  # one object, wherever it is used
}
EMPTY: Final[dict[bytes, type]] = {b"}": dict, b"]": list}
TUPLES: Final = {b"\x85": 1, b"\x86": 2, b"\x87": 3}


class _Extent:
    """How deep a container goes, how much it is with all that it holds, and whether it is done."""

    __slots__ = ("depth", "expanded", "is_done")

    def __init__(self) -> None:
        self.depth = self.expanded = 1
        self.is_done = False


class _Made:
    """What was made so far. Every container lives until the end, so that its id stands for it."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # stacks below each mark
        self._memo: list[Any] = []
        self._extents: dict[int, _Extent] = {}
        self._all: list[Any] = []

    def take(self, code: bytes, argument: bytes) -> None:
        """One opcode."""
        if (leaf := LEAVES.get(code)) is not None:
            self._stack.append(leaf(argument))
        elif code in b"hj":
            self._get(_unsigned(argument))
        elif code in b"qr\x94":
            self._put(None if code == b"\x94" else _unsigned(argument))
        elif code == MARK:
            self._mark()
        elif (kind := EMPTY.get(code)) is not None:
            self._add(kind())
        elif code == b"t":
            self._tuple(self._since_mark())
        elif (num := TUPLES.get(code)) is not None:
            self._tuple(self._last(num))
        elif code in b"ae":
            self._append(self._last(1) if code == b"a" else self._since_mark())
        elif code in b"su":
            self._set(self._last(2) if code == b"s" else self._since_mark())

    def whole(self) -> Any:
        """The one value that is left."""
        if len(self._stack) != 1 or self._below:
            raise PlainPickleError("it does not end in one value")
        return self._stack[0]

    def _mark(self) -> None:
        if len(self._below) >= MAX_DEPTH:  # no more of them are open at a time than containers
            raise PlainPickleError(DEEP)
        self._below.append(self._stack)
        self._stack = []

    def _add(self, made: Any) -> _Extent:
        if len(self._all) >= MAX_CONTAINERS:
            raise PlainPickleError(f"more than {MAX_CONTAINERS:,} lists, tuples and dicts")
        self._all.append(made)
        self._stack.append(made)
        extent = self._extents[id(made)] = _Extent()
        return extent

    def _last(self, num: int) -> list[Any]:
        if len(self._stack) < num:
            raise PlainPickleError("it takes from an empty stack")
        items = self._stack[len(self._stack) - num :]
        del self._stack[len(self._stack) - num :]
        return items

    def _since_mark(self) -> list[Any]:
        if not self._below:
            raise PlainPickleError("it takes up to a mark that is not there")
        items, self._stack = self._stack, self._below.pop()
        return items

    def _get(self, place: int) -> None:
        if place >= len(self._memo):
            raise PlainPickleError(f"it uses memo {place} before that is made")
        shared = self._memo[place]
        if (extent := self._extents.get(id(shared))) is not None:
            extent.is_done = True
        self._stack.append(shared)

    def _put(self, place: int | None) -> None:
        if not self._stack:
            raise PlainPickleError("it takes from an empty stack")
        if place is not None and place != len(self._memo):
            raise PlainPickleError(f"memo {place} out of turn")  # who writes pickles counts
        self._memo.append(self._stack[-1])

    def _tuple(self, items: list[Any]) -> None:
        if items:
            self._hold(self._add(tuple(items)), items)
        else:
            self._stack.append(())

    def _target(self, kind: type) -> tuple[Any, _Extent]:
        target = self._stack[-1] if self._stack else None
        if type(target) is not kind:
            raise PlainPickleError(f"it fills a {kind.__name__} that is not there")
        extent = self._extents[id(target)]
        # What holds itself is used before it is done; who writes pickles never goes on with what was used.
        if extent.is_done:
            raise PlainPickleError(f"a {kind.__name__} that holds itself, or that changes after it was used")
        return target, extent

    def _append(self, items: list[Any]) -> None:
        target, extent = self._target(list)
        self._hold(extent, items)
        target.extend(items)

    def _set(self, items: list[Any]) -> None:
        target, extent = self._target(dict)
        keys, values = items[::2], items[1::2]
        if len(keys) != len(values):
            raise PlainPickleError("a key without a value")
        if not all(type(key) is str for key in keys):
            raise PlainPickleError("a dict with a key that is no text")
        self._hold(extent, items)
        target.update(zip(keys, values, strict=True))

    def _hold(self, extent: _Extent, items: list[Any]) -> None:
        """Count what a container gets."""
        for item in items:
            inner = self._extents.get(id(item))
            if inner is not None:
                inner.is_done = True
                extent.depth = max(extent.depth, inner.depth + 1)
                extent.expanded += inner.expanded
            else:
                extent.expanded += 1 + (len(item) if isinstance(item, str | bytes) else 0)
        if extent.depth > MAX_DEPTH:
            raise PlainPickleError(DEEP)
        if extent.expanded > MAX_EXPANDED:
            raise PlainPickleError("what it holds once and uses often is too much in all")
