"""A recording as Parquet tables in a new folder: steps, events, hosts, ranks, and SCHEMA.md that explains them.

    duckdb -c "select rank, avg(backward_ns)/1e6 from 'run/steps.parquet' where not is_checkpoint group by rank"

Opens in DuckDB, Polars, pandas, Spark. Written a row group at a time: memory does not grow with the recording.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import exists_already
from tuiadvisor.exporters.arrow import ArrowColumns, load_pyarrow
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
        raise exists_already(path)
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


class _TableWriter:
    """Rows of one table, buffered to row groups."""

    def __init__(self, file: IO[bytes], columns: tuple[ColumnSpec, ...]) -> None:
        self.num_rows = 0
        self._arrow, parquet = load_pyarrow()
        self._columns = ArrowColumns(columns)
        self._writer = parquet.ParquetWriter(file, self._columns.schema, compression="zstd")
        self._batches: list[Any] = []
        self._num_buffered = 0

    def add(self, values: Values) -> None:
        """Some rows."""
        batch = self._columns.batch(values)
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
