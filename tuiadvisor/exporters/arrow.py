"""Columns of a recording as Arrow: the one place that knows which type a column has.

In: ColumnSpecs and Values.  Out: record batches; a whole table for who wants it in memory.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import UNKNOWN
from tuiadvisor.exporters.survey import Reading, believed, survey
from tuiadvisor.exporters.tables import TABLES, ColumnSpec, Values, tables_of


def load_pyarrow() -> tuple[Any, Any]:
    """(pyarrow, pyarrow.parquet); one line on how to get it where it is missing."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise TuiadvisorError(
            "tables need pyarrow: pip install 'tuiadvisor[parquet]' (export --format chrome-trace does without)"
        ) from None


class ArrowColumns:
    """Makes record batches of one table."""

    def __init__(self, columns: tuple[ColumnSpec, ...]) -> None:
        self._columns = columns
        self._arrow, _ = load_pyarrow()
        fields = [
            self._arrow.field(column.name, self._type(column), metadata={"meaning": column.meaning})
            for column in columns
        ]
        self.schema = self._arrow.schema(fields)

    def batch(self, values: Values) -> Any:
        """Some rows; what is unknown is null."""
        arrays = [self._array(column, values[column.name]) for column in self._columns]
        return self._arrow.record_batch(arrays, schema=self.schema)

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


def arrow_table(reading: Reading, name: str) -> Any:
    """One of TABLES as a pyarrow.Table. TuiadvisorError where pyarrow is missing."""
    arrow, _ = load_pyarrow()
    found, columns = survey(reading), ArrowColumns(TABLES[name])
    batches = [
        columns.batch(values)
        for table, values in tables_of(believed(reading("reading"), found), found)
        if table == name
    ]
    # Dictionaries grow from batch to batch: one for all is what readers expect of a column. And one chunk: who takes a
    # column as one array would copy it together each time.
    return arrow.Table.from_batches(batches, schema=columns.schema).unify_dictionaries().combine_chunks()
