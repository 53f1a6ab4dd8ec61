"""Every importer on damaged inputs: an answer or one line, never a traceback."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
import test_import_flight_recorder as dumps
import test_import_kineto as traces
import test_import_ops as tables
from fuzzed_parquet import good_parquets, hurt_parquet, odd_parquet
from fuzzing import chances, damaged, num_inputs

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers import traceevents
from tuiadvisor.importers.hangreport import hang_document, hang_summary
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary
from tuiadvisor.importers.ops import read_ops
from tuiadvisor.importers.opsreport import ops_document, ops_summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_INPUTS = num_inputs(120)


def survives(read: Callable[[], object], write: Callable[[bytes], object], good: bytes) -> int:
    """How many of the damaged inputs gave an answer; the others were refused in one line."""
    num_answers = 0
    for chance in chances(120):
        write(damaged(good, chance))
        refusal = ""
        try:
            json.dumps(read())
            num_answers += 1
        except TuiadvisorError as error:
            refusal = str(error)
        assert "\n" not in refusal
    return num_answers


def test_damaged_tables(tmp_path: Path) -> None:
    """Cells, rows and header."""
    path = tables.written(tmp_path / "ops.csv", tables.pipeline())
    good = path.read_bytes()
    assert survives(lambda: ops_summary(ops_document(path)), path.write_bytes, good) < NUM_INPUTS


def test_damaged_and_odd_parquet_tables(tmp_path: Path) -> None:
    """Bytes of pages and footer, and whole files with columns of other kinds."""
    pytest.importorskip("pyarrow")
    path, good = tmp_path / "ops.parquet", good_parquets()
    num_answers, refusals = 0, []
    for number, chance in enumerate(chances(1500)):
        path.write_bytes(
            odd_parquet(chance) if number % 3 == 0 else hurt_parquet(chance.choice(good), chance)
        )
        try:
            read_ops(path)
            num_answers += 1
        except TuiadvisorError as error:
            refusals.append(str(error))
    assert all(each.startswith(str(path)) and "\n" not in each for each in refusals)
    assert 0 < num_answers < num_inputs(1500) / 2


def test_damaged_traces_never_change_the_culprit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1's trace is damaged, read in small pieces; rank 2 stays the only name."""
    monkeypatch.setattr(traceevents, "CHUNK_BYTES", 3000)
    folder = traces.job(tmp_path, 2, [0, 40, -40, 0])
    path = folder / "rank1.json.gz"
    good = gzip.decompress(path.read_bytes())

    def read() -> object:
        document = kineto_document(folder)
        assert {2} >= {row["rank"] for row in document["stragglers"]["ranks"]}
        return kineto_summary(document)

    assert NUM_INPUTS == survives(read, path.write_bytes, good)


def test_damaged_dumps(tmp_path: Path) -> None:
    """The late rank's dump is damaged; no healthy rank is named for it."""
    path = dumps.stuck(tmp_path) / "rank03.json"
    good = path.read_bytes()

    def read() -> object:
        document = hang_document(tmp_path)
        assert {3} >= set(document["hang"]["missing_ranks"])
        return hang_summary(document)

    assert NUM_INPUTS == survives(read, path.write_bytes, good)
