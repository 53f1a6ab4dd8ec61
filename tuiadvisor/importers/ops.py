"""`import ops TABLE`: a per-operation trace, parquet or CSV, into the what-if analysis.

In: one row an operation with rank, step, operation type, start, duration, stage and data-parallel rank.
Out: an OpTable for `metrics.traces.op_table`. Start and duration are seconds unless the column's name says otherwise.
"""

from __future__ import annotations

import csv
import importlib
import io
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import opened, separator, unpacked_file
from tuiadvisor.metrics.traces.op_graph import KNOWN
from tuiadvisor.metrics.traces.op_table import OpTable
from tuiadvisor.unpacking import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tuiadvisor.metrics.steps.arrays import Floats, Ints

MAX_ROWS: Final = 20_000_000
MAX_OPTYPES: Final = 1000
MAX_LINE: Final = 1 << 16
BLOCK_ROWS: Final = 1 << 16
SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

# Our name -> names seen in the wild, the first that is there counts.
NAMES: Final = {
    "step": ("step", "iteration", "iter"),
    "rank": ("rank", "global_rank"),
    "dp_rank": ("dp_rank", "dp"),
    "stage": ("stage", "pp_rank", "pp_stage", "pipeline_stage"),
    "optype": ("optype", "op_type", "op", "type"),
    "start": ("start_s", "start_ts", "start", "ts", "start_ms", "start_us", "start_ns"),
    "duration": ("dur_s", "duration", "duration_s", "dur", "duration_ms", "duration_us", "duration_ns"),
    "seq": ("seq_id", "seq"),
    "chunk": ("mc", "model_chunk", "chunk"),
}
NEXT_STEP: Final = {
    "step": "number the training steps",
    "rank": "write each operation's rank",
    "dp_rank": "write 0 everywhere if there is no data parallelism",
    "stage": "write 0 everywhere if there is no pipeline",
    "optype": "use names such as forward-compute, backward-compute, grads-reduce-scatter",
    "start": "write start_s in seconds",
    "duration": "write dur_s in seconds",
}
LARGEST: Final = {
    "step": 1 << 53,
    "rank": 1 << 31,
    "dp_rank": 1 << 20,
    "stage": 1 << 16,
    "seq": 1 << 31,
    "chunk": 1 << 16,
}

LEAST: Final = {"chunk": -1, "seq": -1}  # -1: does not apply to this operation


def read_ops(path: Path) -> OpTable:
    """The table of one file, parquet by its content, otherwise CSV."""
    with opened(path) as file:
        is_parquet = file.read(4) == b"PAR1"
    columns = _read_parquet(path) if is_parquet else _read_csv(path)
    return _table(path, columns)


def _chosen(path: Path, present: Iterable[str]) -> dict[str, str]:
    there = set(present)
    chosen = {}
    for name, candidates in NAMES.items():
        found = next((candidate for candidate in candidates if candidate in there), None)
        if found is not None:
            chosen[name] = found
        elif name in NEXT_STEP:
            names = " or ".join(candidates[:2])
            raise TuiadvisorError(f"{path}: no column {names}: {NEXT_STEP[name]} and import again")
    return chosen


def _read_parquet(path: Path) -> dict[str, tuple[str, npt.NDArray[Any]]]:
    try:
        # An extra, and untyped: only its few calls below matter.
        pa: Any = importlib.import_module("pyarrow")
        pq: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise TuiadvisorError(
            f"{path} is parquet, which needs pyarrow: pip install 'tuiadvisor[parquet]', or write it as CSV"
        ) from None
    try:
        with unpacked_file(path) as plain:
            file = pq.ParquetFile(plain)
            num_rows = file.metadata.num_rows
            if num_rows > MAX_ROWS:
                raise TuiadvisorError(f"{path} has {num_rows} rows, more than {MAX_ROWS}: keep fewer steps")
            chosen = _chosen(path, file.schema_arrow.names)
            table = file.read(columns=list(chosen.values()), use_threads=False)
        columns = {}
        for name, source in chosen.items():
            column = table.column(source)
            if column.null_count:
                raise TuiadvisorError(
                    f"{path}: column {source} has {column.null_count} empty cells: fill them"
                )
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if pa.types.is_nested(column.type):
                raise TuiadvisorError(
                    f"{path}: column {source} holds {column.type}: write one number or name a cell"[:300]
                )
            columns[name] = source, column.to_numpy()
    except (
        pa.ArrowException,
        OSError,
        UnicodeDecodeError,
    ) as error:  # the last: names or cells that are no UTF-8
        line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise TuiadvisorError(f"{path}: no readable parquet ({line}); write it again") from None
    return columns


def _read_csv(path: Path) -> dict[str, tuple[str, npt.NDArray[Any]]]:
    with opened(path) as file:
        lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        bounded = iter(_bounded(path, lines))
        try:
            first = next(bounded, "")
            rows = csv.reader(chain([first], bounded), delimiter=separator(first))
            header = [name.strip() for name in next(rows, [])]
            chosen = _chosen(path, header)
            places = {name: header.index(source) for name, source in chosen.items()}
            blocks = _blocks(path, rows, places)
        except (csv.Error, UnicodeDecodeError) as error:
            raise TuiadvisorError(
                f"{path}: no readable CSV ({error}); write it as UTF-8 with a header"
            ) from None
    return {name: (source, blocks[name]) for name, source in chosen.items()}


def _bounded(path: Path, lines: io.TextIOWrapper) -> Iterable[str]:
    total = 0
    while line := lines.readline(MAX_LINE):
        total += len(line)
        if len(line) == MAX_LINE:
            raise TuiadvisorError(f"{path}: a line longer than {MAX_LINE} characters: this is no table")
        if total > MAX_FILE_BYTES:
            raise TuiadvisorError(
                f"{path} is larger than {MAX_FILE_BYTES >> 30} GiB unpacked: keep fewer steps"
            )
        yield line


def _blocks(
    path: Path, rows: Iterable[Sequence[str]], places: Mapping[str, int]
) -> dict[str, npt.NDArray[Any]]:
    """Columns as arrays, converted block by block so that text never piles up."""
    done: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in places}
    block: list[Sequence[str]] = []
    num_rows = 0

    def convert() -> None:
        for name, place in places.items():
            texts = [row[place] for row in block]
            done[name].append(_parsed(path, name, texts))
        block.clear()

    needed = max(places.values()) + 1
    for number, row in enumerate(rows, 2):
        if not row:
            continue
        if len(row) < needed:
            raise TuiadvisorError(
                f"{path}, line {number}: {len(row)} cells, {needed} needed: the file is cut; write it again"
            )
        block.append(row)
        num_rows += 1
        if len(block) == BLOCK_ROWS:
            convert()
        if num_rows > MAX_ROWS:
            raise TuiadvisorError(f"{path} has more than {MAX_ROWS} rows: keep fewer steps")
    convert()
    return {name: np.concatenate(parts) for name, parts in done.items()}


def _parsed(path: Path, name: str, texts: list[str]) -> npt.NDArray[Any]:
    if name == "optype":
        return np.array(texts, dtype=object)
    try:
        return np.array(texts, dtype=np.float64)
    except ValueError as error:
        raise TuiadvisorError(f"{path}, column {name}: {error}; write plain numbers") from None


def _table(path: Path, columns: Mapping[str, tuple[str, npt.NDArray[Any]]]) -> OpTable:
    num_rows = columns["step"][1].size
    if num_rows == 0:
        raise TuiadvisorError(f"{path}: a header and no rows: record at least one whole step")
    optypes, optype = _categories(path, columns["optype"][1])
    none = np.full(num_rows, -1, dtype=np.int64)
    numbered = {name: _integers(path, name, *columns[name]) for name in LARGEST if name in columns}
    return OpTable(
        step=numbered["step"],
        rank=numbered["rank"],
        dp_rank=numbered["dp_rank"],
        stage=numbered["stage"],
        optype=optype,
        start_s=_seconds(path, *columns["start"]),
        dur_s=_seconds(path, *columns["duration"], least=0.0),
        seq=numbered.get("seq", none),
        chunk=numbered.get("chunk", np.zeros(num_rows, dtype=np.int64)),
        optypes=optypes,
    )


def _categories(path: Path, values: npt.NDArray[Any]) -> tuple[tuple[str, ...], Ints]:
    code: dict[object, int] = {}
    codes = np.empty(values.size, dtype=np.int64)
    for at, value in enumerate(values.tolist()):
        codes[at] = code.setdefault(value, len(code))
        if len(code) > MAX_OPTYPES:
            raise TuiadvisorError(
                f"{path}: more than {MAX_OPTYPES} operation types: name types, not single operations"
            )
    names = tuple(str(name).strip()[:80] for name in code)
    unknown = sorted(set(names) - KNOWN)
    if unknown:
        known = ", ".join(sorted(KNOWN))
        raise TuiadvisorError(f"{path}: unknown operation type {unknown[0]!r}: use one of {known}")
    return names, codes


def _integers(path: Path, name: str, source: str, values: npt.NDArray[Any]) -> Ints:
    try:
        with np.errstate(invalid="ignore"):  # a signalling NaN is refused below like any other
            floats = values.astype(np.float64)
    except (TypeError, ValueError):
        raise TuiadvisorError(
            f"{path}, column {source}: not all cells are numbers: write plain integers"
        ) from None
    whole = np.isfinite(floats) & (floats == np.floor(np.where(np.isfinite(floats), floats, 0)))
    fits = whole & (floats >= LEAST.get(name, 0)) & (floats < LARGEST[name])
    if not fits.all():
        bad = values[~fits][0]
        raise TuiadvisorError(
            f"{path}, column {source}: {str(bad)[:40]!r} is no number from 0 up: number from 0"
        )
    return floats.astype(np.int64)


def _seconds(path: Path, source: str, values: npt.NDArray[Any], least: float = -np.inf) -> Floats:
    try:
        with np.errstate(invalid="ignore"):  # a signalling NaN is refused below like any other
            floats = values.astype(np.float64)
    except (TypeError, ValueError):
        raise TuiadvisorError(f"{path}, column {source}: not all cells are numbers: write seconds") from None
    bad = ~(np.isfinite(floats) & (floats >= least) & (np.abs(floats) < 1e21))
    if bad.any():
        raise TuiadvisorError(
            f"{path}, column {source}: {floats[bad][0]!s} is no time: drop that operation's step"
        )
    return np.asarray(floats * SECONDS.get(source.rpartition("_")[2], 1.0))
