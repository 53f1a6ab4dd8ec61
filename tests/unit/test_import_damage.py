"""Every importer on damaged inputs: an answer or one line, never a traceback."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING

import pytest
import test_import_flight_recorder as dumps
import test_import_kineto as traces
import test_import_ops as tables
from damaged_traces import damaged_trace
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_one_time_that_is_wrong_makes_nobody_late(tmp_path: Path) -> None:
    """A call of rank 1 that seems to end a minute after the others' is left out, and the numbers are of the rest."""
    folder = traces.job(tmp_path, 2, [0, 40, -40, 0])
    path = folder / "rank1.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    late = content["traceEvents"][-1]
    late["ts"] += 73e6
    path.write_text(json.dumps(content))
    document = kineto_document(folder)
    assert [2] == [row["rank"] for row in document["stragglers"]["ranks"]]
    assert 79 == document["stragglers"]["collectives"]
    assert pytest.approx(79 * 3e-3, rel=0.05) == document["per_rank"][1]["wait_s"]
    (loss,) = document["losses"]
    assert loss.startswith("1 of 80 collectives does not end together")


def test_a_victim_is_not_named_for_a_peer_without_a_usable_trace(tmp_path: Path) -> None:
    """Rank 3 comes late because it waits for rank 2, whose calls are lost: what it waits for can't be compared."""
    folder = traces.grouped_job(tmp_path, 2)
    traces.trace(folder / "rank2.json.gz", [], 2, 4)
    stragglers = kineto_document(folder)["stragglers"]
    assert [] == stragglers["ranks"]
    assert "with ranks that are not" in stragglers["because"]


@pytest.mark.parametrize(
    ("name", "rank", "world", "why"),
    [
        ("a.json", 7, 4, "says that it is of rank 7, of 4 ranks"),
        ("a.json", None, None, "does not say which rank it is of: put the rank into its name, as rank3.json"),
    ],
)
def test_a_trace_that_contradicts_itself_is_of_no_rank(
    tmp_path: Path, name: str, rank: int | None, world: int | None, why: str
) -> None:
    """Rather than of the wrong one; said with both."""
    traces.trace(tmp_path / name, [traces.event("gemm", 1.0, 2.0)], rank, world)
    document = kineto_document(tmp_path)
    assert [None] == [row["rank"] for row in document["per_rank"]]
    assert f"{name} {why}" in [item["why"] for item in document["unknown"]]


def test_a_file_that_disagrees_with_its_name_is_of_no_rank_where_the_others_agree(tmp_path: Path) -> None:
    """Content or name is wrong; where names count something else, as ranks on their node, the content says it all."""
    for name, rank in (("rank0", 0), ("rank1", 1), ("rank3", 2)):
        traces.trace(tmp_path / f"{name}.json", [traces.event("gemm", 1.0, 2.0)], rank, 4)
    document = kineto_document(tmp_path)
    assert [0, 1, None] == [row["rank"] for row in document["per_rank"]]
    assert "rank3.json says that it is of rank 2, its name says rank 3" in [
        i["why"] for i in document["unknown"]
    ]
    (tmp_path / "rank1.json").rename(tmp_path / "rank7.json")
    assert [0, 1, 2] == [row["rank"] for row in kineto_document(tmp_path)["per_rank"]]


def test_nodes_and_groups_ranks_in_a_name_contradict_nothing(tmp_path: Path) -> None:
    """They count something else."""
    for rank, name in enumerate(["node_rank3_a.json", "tp_rank1-b.json", "local-rank1.json"]):
        traces.trace(tmp_path / name, [traces.event("gemm", 1.0, 2.0)], rank, 3)
    assert [0, 1, 2] == [row["rank"] for row in kineto_document(tmp_path)["per_rank"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "absent", "is_grouped"),
    [(2, (), False), (0, (), False), (None, (), False), (2, (2,), False), (2, (1,), False), (2, (), True)],
    ids=["late", "reference late", "nobody late", "late not recorded", "innocent not recorded", "groups"],
)
def test_whatever_happens_to_a_ranks_events_nobody_else_is_named(
    tmp_path: Path, late: int | None, absent: tuple[int, ...], *, is_grouped: bool
) -> None:
    """Any one rank's trace, the late one's too: lost, doubled, shifted, renamed events; another rank, world, group."""
    folder, num_named = tmp_path / "job", 0
    folder.mkdir()
    if is_grouped:
        traces.grouped_job(folder, late or 0)
    else:
        traces.job(folder, late, [0, 40, -40, 0], absent)
    files = sorted(folder.iterdir())
    good = {path: json.loads(gzip.decompress(path.read_bytes())) for path in files}
    for chance in chances(12):
        path = chance.choice(files)
        shutil.copy(path, tmp_path / "kept")
        path.write_text(json.dumps(damaged_trace(good[path], chance)))
        document = kineto_document(folder)
        named = {row["rank"] for row in document["stragglers"]["ranks"]}
        assert named <= {late} - set(absent)
        json.dumps(document)
        assert kineto_summary(document)
        num_named += len(named)
        shutil.move(tmp_path / "kept", path)
    assert bool(num_named) == (late is not None and late not in absent)


def test_damaged_dumps(tmp_path: Path) -> None:
    """The late rank's dump is damaged; no healthy rank is named for it."""
    path = dumps.stuck(tmp_path) / "rank03.json"
    good = path.read_bytes()

    def read() -> object:
        document = hang_document(tmp_path)
        assert {3} >= set(document["hang"]["missing_ranks"])
        return hang_summary(document)

    assert NUM_INPUTS == survives(read, path.write_bytes, good)
