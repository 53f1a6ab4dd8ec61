"""Columns of many frames as tables, in few numpy passes.

In: payloads of STEPS frames.  Out: one table of names x rows each, or what is wrong with it: exactly what
`unpack_columns` gives of each alone. A frame of sixty rows costs numpy's calls, not its work, so payloads of equal
length are read in the same passes. Only the form that `pack_columns` writes is read here; any other goes to
`unpack_columns`, which also has the words for what is wrong.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

import numpy as np

from tuiadvisor.events import UNKNOWN
from tuiadvisor.stream.columns import MAX_CHAIN, MAX_COLUMNS, MAX_REFERENCES, MAX_ROWS, Column, unpack_columns
from tuiadvisor.stream.shapes import INT64_MAX, INT64_MIN, FrameError

if TYPE_CHECKING:
    from collections.abc import Sequence

_Near = tuple[int, tuple[int, ...], tuple[int, ...]]  # column, plus these, less those


def unpack_tables(payloads: Sequence[dict[str, object]], names: Sequence[str]) -> list[Column | FrameError]:
    """Each payload as a table, names x rows of int64, or the FrameError that `unpack_columns` raises of it."""
    index = {name: number for number, name in enumerate(names)}
    found: dict[int, Column | FrameError] = {}
    groups: dict[int, _Group] = {}
    for number, payload in enumerate(payloads):
        num_rows = payload.get("rows")
        if type(num_rows) is int and 0 < num_rows <= MAX_ROWS:
            group = groups.get(num_rows)
            if group is None:
                group = groups[num_rows] = _Group(num_rows, index)
            if group.take(number, payload.get("columns")):
                continue
        found[number] = _alone(payload, names)
    for group in groups.values():
        found.update(zip(group.numbers, group.tables(), strict=True))
    return [found[number] for number in range(len(payloads))]


def _alone(payload: dict[str, object], names: Sequence[str]) -> Column | FrameError:
    try:
        columns = unpack_columns(payload, names)
    except FrameError as error:
        return error
    return np.stack([columns[name] for name in names])


class _UnusualError(Exception):
    """Not the form that `pack_columns` writes."""


class _Noted:
    """Where everything of one payload lies."""

    __slots__ = ("gaps", "lows", "near", "planes", "running")

    def __init__(self) -> None:
        self.lows: list[int] = []  # of every column: its value, or the smallest one
        self.planes: list[tuple[int, int, bytes]] = []  # (bytes a value, column, planes)
        self.running: list[tuple[int, int]] = []  # differences to the row before: (column, first value)
        self.gaps: list[tuple[int, int]] = []  # (column, the one it comes after)
        self.near: list[_Near] = []


class _Group:
    """Payloads of equal length."""

    def __init__(self, num_rows: int, index: dict[str, int]) -> None:
        self.numbers: list[int] = []  # whose payloads
        self._num_rows = num_rows
        self._index = index
        self._lows: list[list[int]] = []
        self._places: dict[
            int, list[tuple[int, int]]
        ] = {}  # by bytes a value: (payload of the group, column)
        self._planes: dict[int, list[bytes]] = {}
        self._running: list[tuple[int, int, int]] = []  # (payload of the group, column, first value)
        self._gaps: dict[tuple[int, int], list[int]] = {}
        self._near: dict[_Near, list[int]] = {}

    def take(self, number: int, columns: object) -> bool:
        """Note where everything lies; False if this payload needs a closer look."""
        try:
            noted = self._look(columns)
        except (
            _UnusualError,
            ValueError,
            KeyError,
            TypeError,
        ):  # not base64, a column that is not there or no name
            return False
        at = len(self.numbers)
        self.numbers.append(number)
        self._lows.append(noted.lows)
        for num_bytes, column, raw in noted.planes:
            self._places.setdefault(num_bytes, []).append((at, column))
            self._planes.setdefault(num_bytes, []).append(raw)
        self._running += [(at, column, first) for column, first in noted.running]
        for place in noted.gaps:
            self._gaps.setdefault(place, []).append(at)
        for key in noted.near:
            self._near.setdefault(key, []).append(at)
        return True

    def _look(self, columns: object) -> _Noted:
        if type(columns) is not dict or len(columns) > MAX_COLUMNS:
            raise _UnusualError
        noted = _Noted()
        for name, column in self._index.items():
            value = columns.get(name, UNKNOWN)
            if type(value) is dict:
                noted.planes.append(self._raw(value, column))
                if "at" in value:
                    noted.near.append(self._reference(columns, value["at"], column))
                elif "d" in value:
                    noted.running.append((column, _int64(value["d"])))
                    if "after" in value:
                        noted.gaps.append((column, self._follows(columns, name, value["after"])))
                value = value["lo"]
            noted.lows.append(_int64(value))
        # Tables are resolved column by column: one may only be near an earlier one, if that is near another itself.
        if len(noted.near) > MAX_CHAIN // 2:
            raise _UnusualError
        is_near = {column for column, _, _ in noted.near}
        for column, plus, minus in noted.near:
            if any(other >= column and other in is_near for other in plus + minus):
                raise _UnusualError
        return noted

    def _raw(self, value: dict[str, object], column: int) -> tuple[int, int, bytes]:
        num_bytes, text = value["w"], value["p"]
        if type(num_bytes) is not int or not 1 <= num_bytes <= 8 or type(text) is not str:
            raise _UnusualError
        raw = binascii.a2b_base64(text, strict_mode=True)
        if len(raw) != num_bytes * self._num_rows:
            raise _UnusualError
        return num_bytes, column, raw

    def _reference(self, columns: dict[str, object], at: object, column: int) -> _Near:
        if type(at) is not list or len(at) != 2:
            raise _UnusualError
        plus, minus = at
        if type(plus) is not list or type(minus) is not list or not plus:
            raise _UnusualError
        if len(plus) > MAX_REFERENCES or len(minus) > MAX_REFERENCES:
            raise _UnusualError
        if any(other not in columns for other in (*plus, *minus)):
            raise _UnusualError
        index = self._index
        return column, tuple([index[name] for name in plus]), tuple([index[name] for name in minus])

    def _follows(self, columns: dict[str, object], name: str, after: object) -> int:
        if type(after) is not str:
            raise _UnusualError
        other = columns[after]
        if type(other) is not dict or other.get("at") != [[name], []]:
            raise _UnusualError
        return self._index[after]

    def tables(self) -> Column:
        """Payloads x columns x rows."""
        num, num_columns, num_rows = len(self.numbers), len(self._index), self._num_rows
        octets = np.zeros((num * num_columns, num_rows, 8), dtype=np.uint8)
        for num_bytes, raws in self._planes.items():
            at, column = np.array(self._places[num_bytes], dtype=np.intp).T
            planes = np.frombuffer(b"".join(raws), dtype=np.uint8).reshape(-1, num_bytes, num_rows)
            octets[at * num_columns + column, :, :num_bytes] = planes.transpose(0, 2, 1)
        table: Column = octets.view("<i8").reshape(num, num_columns, num_rows)
        table += np.array(self._lows, dtype=np.int64).reshape(num, num_columns, 1)
        for (number, after), those in self._gaps.items():
            table[those, number, 1:] += table[those, after, :-1]
        if self._running:
            at, column, first = np.array(self._running, dtype=np.int64).T
            differences = table[at, column]
            differences[:, 0] = first
            table[at, column] = np.cumsum(differences, axis=1)
        for (number, plus, minus), those in sorted(self._near.items()):
            near = table[those, number]
            for other in plus:
                near += table[those, other]
            for other in minus:
                near -= table[those, other]
            table[those, number] = near
        return table


def _int64(value: object) -> int:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise _UnusualError
    return value
