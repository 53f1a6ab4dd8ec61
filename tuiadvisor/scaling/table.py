"""Reads and validates a table of measured sizes.

In: a CSV file from anybody.  Out: a frozen Table of rows, or one TuiadvisorError that names the line.
A row without a measured value asks for a prediction at its devices, batch and layout.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.scaling.columns import EXAMPLE, Columns, Quantity, TimeUnit, columns_of
from tuiadvisor.unpacking import DAMAGED, MAGIC_BYTES, packing, unpacked

MAX_BYTES: Final = 1 << 20  # a table of sizes is a page of text; a megabyte is a mistake
MAX_ROWS: Final = 1000
MAX_DEVICES: Final = 10**8
NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
THOUSANDS: Final = re.compile(r"\d{1,3}(,\d{3})+")
# Data parallel is what grows with the devices: "tp8 dp4" and "tp8 dp8" are the same layout.
DATA_PARALLEL: Final = re.compile(r"(?<![a-z])(?:dp|ddp|data_parallel)\s*[=:_x-]?\s*\d+(?![a-z0-9])")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    line: int
    devices: int
    value: float | None  # in the table's own unit; None: predict this row
    global_batch: float | None
    layout: str | None  # without its data-parallel part; None: not given
    label: str | None


@dataclass(frozen=True, slots=True)
class Table:
    """All rows of a file, as given."""

    name: str
    quantity: Quantity
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    doubt: str | None = None  # why nothing should be decided on these rows

    @property
    def time_unit(self) -> TimeUnit:
        """In which people are told its times."""
        values = [row.value for row in self.rows if row.value is not None]
        times = [1 / value for value in values] if self.quantity.kind == "throughput" else values
        return self.quantity.unit_for(max(times, default=0.0))


def read_table(path: str) -> Table:
    """The table in a CSV file. TuiadvisorError: what is wrong, on which line, what next."""
    name = printable(path, 4096)  # whole: a path without its end names no file
    text = _text(path, name)
    header, lines = _lines(text, name)
    columns = columns_of(header, name)
    # Of what is spread over columns, only what tells rows apart: a constant would only make names long.
    spread = [*columns.label, *(index for index in columns.layout if columns.names[index] != "layout")]
    varying = {index for index in spread if len({_cell(cells, index) for _, cells in lines}) > 1}
    rows = tuple(_row(cells, columns, varying, f"{name} line {line}", line) for line, cells in lines)
    if not any(row.value is not None for row in rows):
        raise TuiadvisorError(f"{name}: no measured row; give at least two sizes, with {EXAMPLE}")
    return Table(name, columns.quantity, rows, columns.notes)


def normal_layout(text: str) -> str:
    """A layout without spelling differences and without its data-parallel degree."""
    bare = DATA_PARALLEL.sub(" ", text.lower())
    return " ".join(re.split(r"[\s,;/+|]+", bare.strip(" ,;/+|-_"))) or "data parallel"


def printable(text: str, limit: int = 80) -> str:
    """A stranger's text on one line, without anything a terminal would obey."""
    clean = one_line(text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _text(path: str, name: str) -> str:
    try:
        with Path(path).open("rb") as file:
            kind = packing(file.read(MAGIC_BYTES))
            file.seek(0)
            raw = (unpacked(file, kind) if kind else file).read(MAX_BYTES + 1)
    except DAMAGED as error:
        raise TuiadvisorError(f"{name}: truncated or damaged {kind} ({error}); copy it again") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TuiadvisorError(f"{name}: can't be read ({reason}); give a CSV with {EXAMPLE}") from error
    if len(raw) > MAX_BYTES:
        raise TuiadvisorError(
            f"{name}: larger than {MAX_BYTES >> 20} MiB; a table has a line per measured size"
        )
    is_wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as spreadsheets save text
    try:
        text = raw.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise TuiadvisorError(
            f"{name}: byte {error.start} is not UTF-8; save the table as UTF-8 CSV"
        ) from error
    if "\0" in text:
        raise TuiadvisorError(f"{name}: holds zero bytes, so it is no text; save the table as UTF-8 CSV")
    return text


def _lines(text: str, name: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    found = []
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells) and not cells[0].startswith("#"):
                found.append((reader.line_num, cells))
            if len(found) > MAX_ROWS + 1:
                raise TuiadvisorError(
                    f"{name}: more than {MAX_ROWS} rows; a table has a line per measured size"
                )
    except csv.Error as error:
        raise TuiadvisorError(
            f"{name} line {reader.line_num}: {printable(str(error))}; is it a CSV?"
        ) from error
    if not found:
        raise TuiadvisorError(f"{name}: empty; give a header line with {EXAMPLE}")
    header, lines = found[0][1], found[1:]
    for line, cells in lines:
        if len(cells) > len(header):
            raise TuiadvisorError(
                f"{name} line {line}: {len(cells)} cells under {len(header)} columns; quote commas"
            )
    return header, lines


def _row(cells: list[str], columns: Columns, varying: set[int], where: str, line: int) -> Row:
    devices = _number(cells, columns.devices, columns, where)
    if devices is None or devices != int(devices) or devices > MAX_DEVICES:
        raise TuiadvisorError(f"{where}: devices must be a whole number from 1 to {MAX_DEVICES:,}")
    batch = None if columns.global_batch is None else _number(cells, columns.global_batch, columns, where)
    return Row(
        line=line,
        devices=int(devices),
        value=_number(cells, columns.value, columns, where),
        global_batch=batch,
        layout=_layout(cells, columns, varying),
        label=_label(cells, columns, varying),
    )


def _label(cells: list[str], columns: Columns, varying: set[int]) -> str | None:
    parts = [_cell(cells, index) for index in columns.label if index in varying]
    return printable(" ".join(part for part in parts if part)) or None


def _layout(cells: list[str], columns: Columns, varying: set[int]) -> str | None:
    parts = []
    for index in columns.layout:
        text = printable(_cell(cells, index))
        if text and columns.names[index] == "layout":
            parts.append(text)
        elif text and index in varying:
            parts.append(f"{columns.names[index]}={text}")
    return normal_layout(" ".join(parts)) if parts else None


def _number(cells: list[str], index: int, columns: Columns, where: str) -> float | None:
    text = _cell(cells, index)
    if not text:
        return None
    plain = text.replace(",", "") if THOUSANDS.fullmatch(text) else text
    # Python itself would also take nan, inf, 1_000 and digits of other scripts: none of them is a measurement.
    value = float(plain) if len(plain) <= 40 and plain.isascii() and NUMBER.fullmatch(plain) else None
    if value is None or not 1e-12 <= value <= 1e15:
        name = columns.names[index]
        raise TuiadvisorError(
            f"{where}: {name} {printable(text, 24)!r} is not a positive number; correct it or leave it empty"
        )
    return value


def _cell(cells: list[str], index: int) -> str:
    return cells[index].strip() if index < len(cells) else ""
