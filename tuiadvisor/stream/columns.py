"""Many rows of integers as columns: small on the wire, one numpy pass to read.

In: rows of int64.  Out: {"rows": n, "columns": {name: column}} in plain JSON, and back to int64 arrays.
A column is one of

    7                      every row has this value
    [1, 2, 3]              the values themselves (accepted, never written)
    {"w": bytes a value, "lo": smallest, "p": base64}
                           value - lo, little endian, all low bytes first, then all second bytes, ...
                           and at most one of
    "d": first             these are differences to the row before; the first row is `first`
    "at": [[plus], [minus]]  these are differences to plus columns less minus columns of the same row
    "d", "after": name     these are differences to the row before plus its stored `name`, a column that is
                           itself stored "at" this one: begin_ns after end_ns is the gap between two steps

Byte planes of differences leave zstd only the noise: 28 columns of real-shaped steps take half of what JSON
numbers take and decode ten times as fast. Arithmetic wraps at 64 bits both ways, so any int64 survives.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tuiadvisor.events import UNKNOWN
from tuiadvisor.stream.shapes import INT64_MAX, INT64_MIN, FrameError

if TYPE_CHECKING:
    from collections.abc import Sequence

Column = npt.NDArray[np.int64]

MAX_ROWS: Final = 1 << 18
MAX_COLUMNS: Final = 256
MAX_REFERENCES: Final = 16
MAX_CHAIN: Final = 16  # columns that lead to one another; ours are four at most
MAX_CELLS: Final = 1 << 24  # 128 MiB unfolded, twice what the most rows of all our columns take
_MAX_SAMPLE: Final = 512
_MARGIN_BITS: Final = 0.25  # differencing pure noise adds half a bit: leave a plain column plain

# What a column is likely to be near: candidates, of which the least noisy one is written.
_NEAR: Final[dict[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]]] = {
    "end_ns": ((("begin_ns",), ()),),
    "arrive_ns": (
        (("begin_ns",), ()),
        (("begin_ns", "data_wait_ns", "h2d_ns", "forward_ns", "backward_ns"), ()),
    ),
    "release_ns": ((("arrive_ns",), ()), (("arrive_ns", "comm_exposed_ns"), ())),
    "other_ns": (
        (
            ("end_ns",),
            (
                "begin_ns",
                "data_wait_ns",
                "h2d_ns",
                "forward_ns",
                "backward_ns",
                "comm_exposed_ns",
                "optimizer_ns",
                "checkpoint_ns",
                "eval_ns",
                "pipeline_idle_ns",
            ),
        ),
    ),
}
_BEGIN, _END = "begin_ns", "end_ns"


def pack_columns(rows: Sequence[tuple[int, ...]] | Column, names: Sequence[str]) -> dict[str, object]:
    """Rows as columns for a STEPS or EVENTS frame. ValueError: rows of another width or over MAX_ROWS."""
    if len(rows) > MAX_ROWS:
        raise ValueError(f"{len(rows)} rows exceed {MAX_ROWS} a frame; send several frames")
    if len(rows) == 0:
        return {"rows": 0, "columns": dict.fromkeys(names, UNKNOWN)}
    table = np.array(rows, dtype=np.int64)
    if table.ndim != 2 or table.shape[1] != len(names):
        raise ValueError(f"rows of shape {table.shape} do not match {len(names)} names")
    by_column = np.ascontiguousarray(table.T)
    values = dict(zip(names, by_column, strict=True))
    is_varying = (by_column != by_column[:, :1]).any(axis=1)
    varying = [name for name, varies in zip(names, is_varying, strict=True) if varies]
    packed = _pack(varying, by_column[is_varying], values) if varying else {}
    first = dict(zip(names, by_column[:, 0].tolist(), strict=True))
    return {"rows": len(rows), "columns": {name: packed.get(name, first[name]) for name in names}}


def unpack_columns(payload: dict[str, object], names: Sequence[str]) -> dict[str, Column]:
    """One int64 array a name, all of equal length; an absent column is UNKNOWN. FrameError if hostile."""
    num_rows, columns = payload.get("rows"), payload.get("columns")
    if type(num_rows) is not int or not 0 <= num_rows <= MAX_ROWS:
        raise FrameError(f"frame columns: row count {str(num_rows)[:20]} is not within 0..{MAX_ROWS}")
    if type(columns) is not dict or len(columns) > MAX_COLUMNS:
        raise FrameError(f"frame columns: not an object of at most {MAX_COLUMNS} columns")
    reader = _Reader(num_rows, columns)
    return {name: reader.value(name) for name in names}


def _pack(names: Sequence[str], plain: Column, values: dict[str, Column]) -> dict[str, object]:
    """Each of these columns written in the least noisy way. plain: (len(names), rows). All at once: calls cost."""
    difference = np.diff(plain, axis=1, prepend=plain[:, :1])
    near, how = _near_others(names, difference, values)
    ways = [*plain, *difference, *near]
    thin = slice(None, None, plain.shape[1] // _MAX_SAMPLE + 1)
    sampled = plain[:, thin], difference[:, thin], *(one[None, thin] for one in near)
    bits = _noise_bits(np.concatenate(sampled)).tolist()
    chosen, written = list(range(len(names))), [dict[str, object]() for _ in names]
    least = bits[: len(names)]

    def try_way(index: int, way: int, its: dict[str, object]) -> None:
        if bits[way] + _MARGIN_BITS < least[index]:
            least[index], chosen[index], written[index] = bits[way], way, its

    for index, first in enumerate(plain[:, 0].tolist()):
        try_way(index, len(names) + index, {"d": first})
    is_at_begin = False
    for way, (name, its) in enumerate(how, 2 * len(names)):
        if "after" not in its:
            try_way(names.index(name), way, its)
            is_at_begin = is_at_begin or (
                name == _END and written[names.index(name)].get("at") == [[_BEGIN], []]
            )
        elif is_at_begin:
            try_way(names.index(name), way, its)
    best = np.stack([ways[way] for way in chosen])
    low, high = best.min(axis=1), best.max(axis=1).tolist()
    planes = (best - low[:, None]).view(np.uint8).reshape(len(names), -1, 8)
    result: dict[str, object] = {}
    for index, (name, lowest) in enumerate(zip(names, low.tolist(), strict=True)):
        num_bytes = max(1, ((high[index] - lowest).bit_length() + 7) // 8)
        part = planes[index, :, :num_bytes].T
        result[name] = {
            "w": num_bytes,
            "lo": lowest,
            "p": binascii.b2a_base64(part.tobytes(), newline=False).decode("ascii"),
            **written[index],
        }
    return result


def _noise_bits(samples: Column) -> npt.NDArray[np.float64]:
    """(ways, rows) -> mean bits of a value's distance to the median: what zstd cannot take off.

    A rare jump costs little.
    """
    values = samples.astype(np.float64)
    middle = values.shape[1] // 2
    values -= np.partition(values, middle, axis=1)[:, middle, None]
    np.abs(values, out=values)
    values += 1.0
    mean: npt.NDArray[np.float64] = np.log2(values, out=values).mean(axis=1)
    return mean


def _near_others(
    names: Sequence[str], difference: Column, values: dict[str, Column]
) -> tuple[list[Column], list[tuple[str, dict[str, object]]]]:
    """What is left of columns that others are likely to be near, and how that is written; `after` comes last."""
    found: list[Column] = []
    how: list[tuple[str, dict[str, object]]] = []
    for name in names:
        for plus, minus in _NEAR.get(name, ()):
            if all(other in values for other in (*plus, *minus)):
                found.append(values[name] - _combine(values, plus, minus))
                how.append((name, {"at": [list(plus), list(minus)]}))
    if _BEGIN in names and _END in names:
        gap = difference[names.index(_BEGIN)].copy()
        gap[1:] -= (values[_END] - values[_BEGIN])[:-1]
        found.append(gap)
        how.append((_BEGIN, {"d": int(values[_BEGIN][0]), "after": _END}))
    return found, how


def _combine(values: dict[str, Column], plus: Sequence[str], minus: Sequence[str]) -> Column:
    near = values[plus[0]].copy()
    for other in plus[1:]:
        near += values[other]
    for other in minus:
        near -= values[other]
    return near


class _Reader:
    """Columns of one payload, resolved on demand; every field is checked before it is used."""

    def __init__(self, num_rows: int, columns: dict[str, object]) -> None:
        self.num_rows = num_rows
        self.columns = columns
        self._values: dict[str, Column] = {}
        self._open: set[str] = set()

    def value(self, name: str) -> Column:
        """The column's values; UNKNOWN throughout when it is not in the payload."""
        done = self._values.get(name)
        if done is not None:
            return done
        if name in self._open:
            raise FrameError(f"frame columns: {name[:40]} is defined by itself")
        if len(self._open) >= MAX_CHAIN:
            raise FrameError(f"frame columns: {name[:40]} is more than {MAX_CHAIN} references away")
        if len(self._values) * self.num_rows > MAX_CELLS:
            raise FrameError(f"frame columns: more than {MAX_CELLS} values")
        self._open.add(name)
        value = self._resolve(name, self.columns.get(name, UNKNOWN))
        self._open.discard(name)
        self._values[name] = value
        return value

    def _resolve(self, name: str, column: object) -> Column:
        if type(column) is int:
            return np.full(self.num_rows, _int64(column, name), dtype=np.int64)
        if type(column) is list:
            return self._listed(column, name)
        if type(column) is not dict:
            raise FrameError(f"frame columns: {name[:40]} is neither a number nor a column")
        residual = self._planes(column, name)
        if "at" in column:
            return residual + self._near(column["at"], name)
        if "d" in column and self.num_rows:
            if "after" in column:
                residual[1:] += self._length(name, column["after"])[:-1]
            residual[0] = _int64(column["d"], name)
            return np.cumsum(residual)
        return residual

    def _listed(self, column: list[object], name: str) -> Column:
        if len(column) != self.num_rows or not all(type(item) is int for item in column):
            raise FrameError(f"frame columns: {name[:40]} does not list {self.num_rows} integers")
        try:
            return np.array(column, dtype=np.int64)
        except OverflowError as error:
            raise FrameError(f"frame columns: {name[:40]} exceeds 64 bits") from error

    def _planes(self, column: dict[str, object], name: str) -> Column:
        num_bytes, text = column.get("w"), column.get("p")
        if type(num_bytes) is not int or not 1 <= num_bytes <= 8 or type(text) is not str:
            raise FrameError(f"frame columns: {name[:40]} has no readable bytes")
        try:
            raw = binascii.a2b_base64(text, strict_mode=True)
        except ValueError as error:
            raise FrameError(f"frame columns: {name[:40]} is not base64") from error
        if len(raw) != num_bytes * self.num_rows:
            raise FrameError(f"frame columns: {name[:40]} does not hold {self.num_rows} values")
        table = np.zeros((self.num_rows, 8), dtype=np.uint8)
        table[:, :num_bytes] = np.frombuffer(raw, dtype=np.uint8).reshape(num_bytes, self.num_rows).T
        value: Column = table.view("<i8").reshape(self.num_rows)
        value += _int64(column.get("lo"), name)
        return value

    def _near(self, at: object, name: str) -> Column:
        if type(at) is not list or len(at) != 2:
            raise FrameError(f"frame columns: {name[:40]} has no readable reference")
        plus, minus = (self._names(part, name) for part in at)
        if not plus:
            raise FrameError(f"frame columns: {name[:40]} has no reference")
        return _combine({other: self.value(other) for other in (*plus, *minus)}, plus, minus)

    def _names(self, part: object, name: str) -> list[str]:
        if type(part) is not list or len(part) > MAX_REFERENCES:
            raise FrameError(f"frame columns: {name[:40]} has no readable reference")
        for other in part:
            if type(other) is not str or other not in self.columns or not other.isprintable():
                raise FrameError(f"frame columns: {name[:40]} refers to a column that is not there")
        return part

    def _length(self, name: str, after: object) -> Column:
        """The stored difference of the column that is written relative to this one."""
        column = self.columns.get(after) if type(after) is str else None
        if type(column) is not dict or column.get("at") != [[name], []]:
            raise FrameError(f"frame columns: {name[:40]} follows a column that does not depend on it")
        return self._planes(column, name)


def _int64(value: object, name: str) -> int:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise FrameError(f"frame columns: {name[:40]} holds what is not a 64-bit integer")
    return value
