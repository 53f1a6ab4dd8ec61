"""Nsight Systems' SQLite exports: figures, screens and recordings as of PyTorch's profiler; hostile files get one line.

Tables as `nsys export --type sqlite` makes them (user guide of Nsight Systems, "SQLite Schema Reference").
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import zstandard
from fuzzing import chances, damaged
from test_import_kineto import ALL_REDUCE
from test_import_recording import imported

from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.nsysreport import nsys_document, nsys_summary
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.once import plain_summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
 contextId INTEGER, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
 demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
 contextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,
 copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
 globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
 category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
"""
US = 1000
INSERT = {
    name: f"INSERT INTO {name} VALUES ({','.join('?' * num)})"  # noqa: S608 - the names are below
    for name, num in (
        ("NVTX_EVENTS", 11),
        ("CUPTI_ACTIVITY_KIND_KERNEL", 12),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", 7),
    )
}
ENDLESS = (
    "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) "
    "SELECT x AS globalPid, x AS deviceId FROM n; CREATE TABLE StringIds (id INTEGER, value TEXT);"
)
GEMM = "ampere_sgemm_128x64_nn"
BASE = 7_000_000_000


def pid_of(rank: int) -> int:
    return (1 << 56) + ((4711 + rank) << 24)


def export(
    path: Path,
    *,
    num_ranks: int = 1,
    num_steps: int = 30,
    schema: str = SCHEMA,
    mark: str = "step {}",
    loader: str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
) -> Path:
    """Steps of 10 ms in each process: 1 ms loader, 6 ms of matrix products of 0.5 ms, all-reduce 5 to 9 ms.

    Rank 2 comes 3.95 ms later to it.
    """
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(schema)
        strings = {1: GEMM, 2: ALL_REDUCE, 3: "cudaLaunchKernel", 4: "aten::linear"}
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", strings.items())
        number = 0
        for rank in range(num_ranks):
            for step in range(num_steps):
                at, tid = BASE + 10_000 * US * step, pid_of(rank) + 99
                nvtx = [(at, at + 10_000 * US, mark.format(step), None)]
                nvtx += [(at, at + 1000 * US, loader, None)]
                nvtx += [(at + 1010 * US, at + 1500 * US, None, 4)]
                nvtx += [(at + 1600 * US, at + 4000 * US, "MmBackward0, seq = 7, op_id = 9", None)]
                for begin, end, text, key in nvtx:
                    row = (begin, end, 59, None, None, None, text, tid, None, key, 0)
                    database.execute(INSERT["NVTX_EVENTS"], row)
                late = 3950 * US if rank == 2 else 0
                kernels = [(1100 + 500 * each, 1600 + 500 * each, 7, 1) for each in range(12)]
                for begin, end, stream, name in [*kernels, (5000 + late // US, 9000, 20, 2)]:
                    number += 1
                    row = (
                        at + begin * US,
                        at + end * US,
                        rank,
                        1,
                        None,
                        stream,
                        number,
                        pid_of(rank),
                        name,
                        name,
                        name,
                        1,
                    )
                    database.execute(INSERT["CUPTI_ACTIVITY_KIND_KERNEL"], row)
                    launch = (at + 1050 * US, at + 1055 * US, 0, tid, number, 3, 0)
                    database.execute(INSERT["CUPTI_ACTIVITY_KIND_RUNTIME"], launch)
    return path


def test_one_process_is_one_ranks_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rank is in the file's name; steps are ranges, the loader is named, communication overlaps as laid out."""
    told, view = imported(export(tmp_path / "report_rank3.sqlite"), capsys, "nsys")
    assert ("nsys", 3) == (told["source"]["kind"], told["per_rank"][0]["rank"])
    row = told["per_rank"][0]
    assert 30 == len(row["steps"])
    assert pytest.approx(30 * 6e-3) == row["all"]["compute_s"]
    assert pytest.approx(30 * 4e-3) == row["comm_total_s"]
    assert pytest.approx((7.1 - 5) / 4) == row["overlap"]
    assert [GEMM, ALL_REDUCE] == [each["name"] for each in row["top_kernels"]]
    causes = row["time_by_cause"]
    assert pytest.approx(29 * 1e-3, rel=0.01) == causes["host_doing_s"]["data_wait"]
    assert view.imported is not None
    assert ("nsys", "nsys") == (view.imported.kind, told["source"]["kind"])
    assert 1e-3 == pytest.approx(view.step.seconds["data_wait"])


@pytest.mark.parametrize("kind", ["nsys", "rocprof"])
def test_another_kind_is_not_taken_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """PyTorch's traces were said to be an export of Nsight Systems, and what its NVTX ranges should be called."""
    content = {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5, "dur": 1}]}
    (tmp_path / "rank0.json").write_text(json.dumps(content))
    for more in ([], ["--json"], ["-o", str(tmp_path / "run.tuirec")]):
        assert 2 == main(["import", kind, str(tmp_path), *more])
        told = capsys.readouterr()
        assert ("", 1) == (told.out, told.err.count("\n"))
        assert f"is not in it; tuiadvisor open {tmp_path} says what it is" in told.err
    assert 0 == main(["import", "kineto", str(tmp_path)])


def test_a_list_without_events_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was '1 trace', of an unknown rank."""
    (tmp_path / "rank0.json").write_text("[1, 2, 3]")
    assert 2 == main(["import", "kineto", str(tmp_path)])
    assert "rank0.json: no event of a profiler is in it" in capsys.readouterr().err


def test_tables_of_a_later_layout_are_the_same(tmp_path: Path) -> None:
    """With a suffix; a view of the plain name beside them is not read."""
    plain, later = export(tmp_path / "plain.sqlite"), export(tmp_path / "later.sqlite")
    with closing(sqlite3.connect(later)) as database, database:
        for table, suffix in (("NVTX_EVENTS", "_V3"), ("CUPTI_ACTIVITY_KIND_KERNEL", "_V2")):
            database.execute(f"ALTER TABLE {table} RENAME TO {table}{suffix}")
        database.execute("CREATE VIEW NVTX_EVENTS AS SELECT 1 AS start")
        # Made and not used: a newer layout is no reason to see nothing.
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V12 (start INTEGER, end INTEGER)")
    found, same = nsys_document(later), nsys_document(plain)
    assert len(found["per_rank"][0]["steps"]) == 30
    for document in (found, same):
        document["source"] = document["per_rank"][0]["file"] = ""
    assert json.dumps(found).replace("later", "plain") == json.dumps(same)


def test_a_graph_that_was_traced_as_a_whole_is_work_and_not_idle(tmp_path: Path) -> None:
    """Half a millisecond of each step's idle time; what ran in it is said to be unseen."""
    path = export(tmp_path / "run.sqlite")
    before = nsys_document(path)["per_rank"][0]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, "
            "deviceId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, "
            "globalPid INTEGER, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL)"
        )
        for step in range(30):
            at = BASE + 10_000 * US * step + 9200 * US
            row = (at, at + 500 * US, 0, 1, 7, 100_000 + step, pid_of(0), 3, 4)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?,?,?,?,?,?,?,?,?)", row)
    document = nsys_document(path)
    (after,) = document["per_rank"]
    assert after["compute"] == pytest.approx(before["compute"] + 0.05, abs=0.003)
    assert after["idle"] == pytest.approx(before["idle"] - 0.05, abs=0.003)
    assert any("cuda-graph-trace=node" in each for each in document["losses"])
    assert "CUDA graph 3, as a whole" in nsys_summary(document)


def test_kernels_without_a_time_are_counted(tmp_path: Path) -> None:
    """They are work that nobody saw, and not idle time."""
    path = export(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE correlationId % 2 = 0")
    assert any(
        "195 device events without a usable time, dropped" in each for each in nsys_document(path)["losses"]
    )


def test_processes_of_a_node_are_ranks_by_their_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said so; the late one is named as of traces."""
    told, view = imported(export(tmp_path / "report.sqlite", num_ranks=4), capsys, "nsys")
    assert [0, 1, 2, 3] == [row["rank"] for row in told["per_rank"]]
    assert [2] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert [2] == [one.rank for one in view.stragglers]
    assert any("numbers of their devices" in note for note in view.losses.notes)


def test_processes_that_share_a_device_are_of_no_rank(tmp_path: Path) -> None:
    """Nobody is named."""
    path = export(tmp_path / "report.sqlite", num_ranks=2)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 0")
    told = nsys_document(path)
    assert [None, None] == [row["rank"] for row in told["per_rank"]]
    assert any("shares its device" in item["why"] for item in told["unknown"])


@pytest.mark.parametrize("mark", ["step {}", "iteration {}", "ProfilerStep#{}", "train_step", "Iter-{}"])
def test_ranges_that_are_steps(tmp_path: Path, mark: str) -> None:
    """As people name them, with a number or in their order."""
    (row,) = nsys_document(export(tmp_path / "a.sqlite", num_steps=3, mark=mark))["per_rank"]
    assert ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"] == [step["name"] for step in row["steps"]]


def test_without_steps_there_is_a_summary_and_no_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what to write around a step."""
    path = export(tmp_path / "a.sqlite", mark="epoch {}")
    assert 2 == main(["import", "nsys", str(path), "-o", str(tmp_path / "out.tuirec")])
    assert "torch.cuda.nvtx.range_push" in capsys.readouterr().err
    assert 0 == main(["open", str(path)])
    out = capsys.readouterr()
    assert "Nsight Systems' export; as: tuiadvisor import nsys" in out.err
    assert "matrix product" in out.out


@pytest.mark.parametrize(
    ("make", "says"),
    [
        ("CREATE TABLE notes (text TEXT);", "another file than an export of Nsight Systems"),
        ("CREATE TABLE StringIds (id INTEGER, value TEXT);", "no kernel of any process"),
        (
            ENDLESS,
            "no kernel of any process",
        ),
    ],
)
def test_another_database_gets_one_line(tmp_path: Path, make: str, says: str) -> None:
    """A view is not a table: nothing that a file defines is run."""
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(make)
    with pytest.raises(TuiadvisorError, match=says):
        nsys_document(path)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_database_is_the_one_in_it(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Alone and in a folder; a part of one is one line."""
    plain, packed = tmp_path / "b.sqlite", tmp_path / "packed"
    packed.mkdir()
    data = pack(export(plain).read_bytes())
    (packed / "b.sqlite.gz").write_bytes(data)
    expected = nsys_document(plain)["per_rank"][0]["all"]
    for path in (packed, packed / "b.sqlite.gz"):
        assert expected == nsys_document(path)["per_rank"][0]["all"]
    (packed / "b.sqlite.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(TuiadvisorError, match="truncated"):
        nsys_document(packed / "b.sqlite.gz")


def test_cells_of_another_kind_are_left_out(tmp_path: Path) -> None:
    """SQLite keeps whatever is put into a column."""
    path = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        for value in ("x", b"\xff\xfe", 1.5, -5, 1 << 62):
            row = (value, value, value, value, value, value, value, pid_of(0), value, value, value, value)
            database.execute(INSERT["CUPTI_ACTIVITY_KIND_KERNEL"], row)
        database.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = 'odd' WHERE correlationId = 3"
        )
    (row,) = nsys_document(path)["per_rank"]
    assert pytest.approx(30 * 6e-3) == row["all"]["compute_s"]


@pytest.mark.slow
def test_damaged_databases_get_an_answer_or_one_line(tmp_path: Path) -> None:
    """Pages changed, cut, doubled."""
    good = export(tmp_path / "a.sqlite", num_steps=5).read_bytes()
    path, refusals = tmp_path / "hurt.sqlite", []
    for chance in chances(120):
        path.write_bytes(damaged(good, chance))
        try:
            nsys_summary(nsys_document(path))
        except TuiadvisorError as error:
            refusals.append(str(error))
    assert refusals
    assert not any("\n" in said for said in refusals)


@pytest.mark.parametrize("num_steps", [2, 9])
def test_of_too_few_steps_the_figures_say_whose_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], num_steps: int
) -> None:
    """Ranks of fewer than three steps are not compared: it was rank 0's step as the mean over ranks."""
    export(tmp_path / "report.sqlite", num_ranks=4, num_steps=num_steps)
    _, view = imported(tmp_path / "report.sqlite", capsys, "nsys")
    alone = num_steps < 3
    assert (0 if alone else None) == view.step.of_rank
    assert ("of rank 0 alone" if alone else "mean over ranks") in sections.phases_notes(view)[0]
    assert alone == ("of rank 0 alone" in plain_summary(view))
    why = {one.metric: one.why for one in view.unknown}.get("stragglers", "")
    assert alone == ("3 are needed" in why)


def test_one_rank_that_communicates_is_not_told_to_be_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of no known world size and 19 % exposed: it was kept, and all of its time was useful."""
    _, view = imported(export(tmp_path / "rank0.sqlite", loader="prepare"), capsys, "nsys")
    assert view.run.world_size is None
    assert pytest.approx(1.9e-3, rel=0.02) == view.step.seconds["comm_exposed"]
    assert view.verdict.decision is None
    assert "what it waits for the others lies in it" in view.verdict.because
    assert view.goodput is None
    assert view.wall is not None
    assert view.wall.end_to_end is None
    assert ("stragglers", "only one rank was recorded") in [(one.metric, one.why) for one in view.unknown]


def test_a_wait_in_every_step_is_not_said_to_be_in_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Thirty steps of two ranks, each with the same 1.9 of 10 ms."""
    _, view = imported(export(tmp_path / "report.sqlite", num_ranks=2, loader="prepare"), capsys, "nsys")
    assert view.verdict.decision is None
    assert "all devices wait 1.9 ms a step" in view.verdict.because
    assert "alike" not in view.verdict.because
