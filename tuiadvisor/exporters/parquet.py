"""A recording as Parquet tables in a new folder: steps, events, hosts, ranks, and SCHEMA.md that explains them.

    duckdb -c "select rank, avg(backward_ns)/1e6 from 'run/steps.parquet' where not is_checkpoint group by rank"

Opens in DuckDB, Polars, pandas, Spark. Written a row group at a time: memory does not grow with the recording.
"""

from __future__ import annotations

import importlib
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import UNKNOWN
from tuiadvisor.exporters.outfile import new_file, new_folder
from tuiadvisor.exporters.survey import Reading, believed, survey
from tuiadvisor.exporters.tables import TABLES, ColumnSpec, Values, schema_document, tables_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

ROWS_A_GROUP: Final = 1 << 16


def export_parquet(reading: Reading, path: Path) -> dict[str, int]:
    """Write the tables, return their rows. TuiadvisorError where pyarrow is missing or the folder exists."""
    load_pyarrow()
    if path.exists() or path.is_symlink():
        raise TuiadvisorError(f"{path}: exists already; choose another name or remove it")
    found = survey(reading)
    with new_folder(path), ExitStack() as stack:
        writers = {
            name: _TableWriter(stack.enter_context(new_file(path / f"{name}.parquet")), columns)
            for name, columns in TABLES.items()
        }
        for writer in writers.values():
            stack.callback(writer.abandon)
        for table, values in tables_of(believed(reading("writing"), found), found):
            writers[table].add(values)
        for writer in writers.values():
            writer.close()
        with new_file(path / "SCHEMA.md") as file:
            file.write(schema_document().encode())
    return {name: writer.num_rows for name, writer in writers.items()}


def load_pyarrow() -> tuple[Any, Any]:
    """(pyarrow, pyarrow.parquet); one line on how to get it where it is missing."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise TuiadvisorError(
            "export --format parquet needs pyarrow: pip install 'tuiadvisor[parquet]', or use --format chrome-trace"
        ) from None


class _TableWriter:
    """Rows of one table, buffered to row groups."""

    def __init__(self, file: IO[bytes], columns: tuple[ColumnSpec, ...]) -> None:
        self.num_rows = 0
        self._columns = columns
        self._arrow, parquet = load_pyarrow()
        fields = [
            self._arrow.field(column.name, self._type(column), metadata={"meaning": column.meaning})
            for column in columns
        ]
        self._schema = self._arrow.schema(fields)
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._batches: list[Any] = []
        self._num_buffered = 0

    def add(self, values: Values) -> None:
        """Some rows."""
        arrays = [self._array(column, values[column.name]) for column in self._columns]
        batch = self._arrow.record_batch(arrays, schema=self._schema)
        self._batches.append(batch)
        self._num_buffered += batch.num_rows
        if self._num_buffered >= ROWS_A_GROUP:
            self._flush()

    def close(self) -> None:
        """Write what is left and the footer."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Let go of the file before it is closed, whatever happened; nothing after `close`."""
        self._batches = []
        with suppress(OSError, ValueError):
            self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            table = self._arrow.Table.from_batches(self._batches)
            self._writer.write_table(table, row_group_size=ROWS_A_GROUP)
            self.num_rows += table.num_rows
        self._batches, self._num_buffered = [], 0

    def _type(self, column: ColumnSpec) -> Any:
        arrow = self._arrow
        return {
            "int64": arrow.int64(),
            "int32": arrow.int32(),
            "float64": arrow.float64(),
            "bool": arrow.bool_(),
            "text": arrow.dictionary(arrow.int32(), arrow.string()),
            # Spark and plain Python read no nanoseconds; *_ns has them.
            "time": arrow.timestamp("us", tz="UTC"),
        }[column.kind]

    def _array(self, column: ColumnSpec, values: Any) -> Any:
        kind = self._type(column)
        if column.kind == "text":
            return self._arrow.array(values, self._arrow.string()).dictionary_encode()
        if column.kind == "time":
            values = np.array([UNKNOWN if value is None else value for value in values], dtype=np.int64)
            return self._arrow.array(values // 1000, self._arrow.int64(), mask=values == UNKNOWN).cast(kind)
        if isinstance(values, np.ndarray) and values.dtype == np.int64:
            return self._arrow.array(values, self._arrow.int64(), mask=values == UNKNOWN).cast(kind)
        return self._arrow.array(values, kind)
