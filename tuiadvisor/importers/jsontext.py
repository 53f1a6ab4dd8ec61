"""JSON as other tools write it: with NaN, line by line, or one object over several lines.

In: bytes, or an open file.  Out: values, None for NaN and infinities, which JSON does not have and Python writes.
"""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINE: Final = 1 << 20
MAX_OBJECT: Final = 1 << 20  # over several lines
BRACKETS: Final = (b"", b"[", b"]", b",")  # lines of a list, or blank
NO_NUMBERS: Final = (b"NaN", b"Infinity")


def parsed(text: bytes) -> Any:
    """The value. orjson.JSONDecodeError for what is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not any(name in text for name in NO_NUMBERS):
            raise
        try:
            return json.loads(text, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            raise error from None


class Records:
    """Objects of a file, one a line or over several, alone or in a list. num_bad: lines that are of none."""

    def __init__(self, file: IO[bytes]) -> None:
        self.num_bad = 0
        self._file = file
        self._begun: list[bytes] = []  # lines of an object that has no end yet
        self._size = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Those that can be read, in order."""
        while line := self._file.readline(MAX_LINE):
            value = self._value(line)
            for one in value if isinstance(value, list) else (value,):
                if isinstance(one, dict):
                    yield one
        self._give_up()

    def _value(self, line: bytes) -> Any:
        """Of this line, or of the object that ends in it; None of neither."""
        bare = line.strip()
        if self._begun and _indent(line) > _indent(self._begun[0]) and self._size < MAX_OBJECT:
            self._keep(line)
            return None
        if self._begun and bare.startswith(b"}"):
            return self._ended(line)
        self._give_up()
        if bare in BRACKETS:
            return None
        try:
            return parsed(bare.rstrip(b","))
        except orjson.JSONDecodeError:
            self._keep(line)
            if not bare.startswith(b"{"):
                self._give_up()
            return None

    def _keep(self, line: bytes) -> None:
        self._begun.append(line)
        self._size += len(line)

    def _ended(self, line: bytes) -> Any:
        self._keep(line)
        try:
            value = parsed(b"".join(self._begun).strip().rstrip(b","))
        except orjson.JSONDecodeError:
            self._give_up()
            return None
        self._begun, self._size = [], 0
        return value

    def _give_up(self) -> None:
        """What was begun is no object."""
        self.num_bad += len(self._begun)
        self._begun, self._size = [], 0


def _indent(line: bytes) -> int:
    """Blank lines within an object belong to it."""
    return len(line) - len(line.lstrip()) if line.strip() else MAX_LINE
