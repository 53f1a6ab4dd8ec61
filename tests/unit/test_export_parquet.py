"""Parquet tables of a recording: every row, unknown as null, the documented schema, nothing overwritten."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import Job, encoded, frames, simulate

from tuiadvisor.cli import main
from tuiadvisor.events import EVENT_COLUMNS
from tuiadvisor.exporters.parquet import export_parquet
from tuiadvisor.exporters.rewrite import write_recording
from tuiadvisor.exporters.tables import TABLES, schema_document
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import FrameKind, encode, pack_columns

parquet = pytest.importorskip("pyarrow.parquet")
JOB = Job(num_ranks=4, num_steps=150, ranks_per_host=2, attach=(0, 4, 0, 0))
RUN = encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1})
EVENT_NAMES = ("rank", "kind", *EVENT_COLUMNS)


def parts(job: Job = JOB) -> list[bytes]:
    events = [
        (1, 2, 5, 1_200_000_000, -1, 0, 3, 1024, -1),
        (1, 99, 6, 1_300_000_000, 1_300_001_000, 0, 4, -1, 0),
    ]
    sample = {"host": "node0", "mono_ns": 2 * 10**9, "wall_ns": 3 * 10**9, "cpu": 0.5, "num_cpus": 2}
    return [
        RUN,
        *map(encoded, frames(job)),
        encode(FrameKind.EVENTS, "node0/1/1", 500, 10**10, pack_columns(events, EVENT_NAMES)),
        encode(FrameKind.HOST, "node0/1/1", 501, 10**10, sample),
    ]


def exported(path: Path, data: list[bytes] | None = None) -> dict[str, list[dict[str, object]]]:
    found = data or parts()
    export_parquet(lambda _what: iter(found), path)
    return {name: parquet.read_table(path / f"{name}.parquet").to_pylist() for name in TABLES}


def test_every_rank_step_is_a_row_on_the_jobs_axis(tmp_path: Path) -> None:
    """596 rows; rank 1, attached at step 4, counts itself from 0 and the job from 4; phases sum to the step."""
    rows = exported(tmp_path / "run")["steps"]
    assert 4 * 150 - 4 == len(rows)
    by_rank = {rank: [row for row in rows if row["rank"] == rank] for rank in range(4)}
    assert list(range(4, 150)) == [row["step"] for row in by_rank[1]]
    assert list(range(146)) == [row["rank_step"] for row in by_rank[1]]
    truth = simulate(JOB).rows[2]
    for row, record in zip(by_rank[2], truth, strict=True):
        assert (record[2], record[3]) == (row["begin_ns"], row["end_ns"])
        assert row["duration_ns"] == sum(row[f"{phase}_ns"] or 0 for phase in PHASES)
    assert {"node0", "node1"} == {row["host"] for row in rows}
    assert [True] + [False] * 149 == [row["is_first"] for row in by_rank[0]]


def test_what_was_not_observed_is_null(tmp_path: Path) -> None:
    """No device: h2d is null and not 0; a rank without clocks of the wall has no begin_time; unknown ends are null."""
    tables = exported(tmp_path / "run")
    step, event = tables["steps"][0], tables["events"]
    assert (None, None, 0) == (step["h2d_ns"], step["tokens"], step["checkpoint_ns"])
    assert (None, 1024, "broadcast") == (event[0]["end_ns"], event[0]["num_bytes"], event[0]["kind"])
    assert (None, "kind 99") == (event[1]["num_bytes"], event[1]["kind"])
    assert {"host": "node0", "mono_ns": 2 * 10**9, "cpu_share": 0.5, "iowait_share": None} == {
        name: tables["hosts"][0][name] for name in ("host", "mono_ns", "cpu_share", "iowait_share")
    }
    assert [(0, "2.13.0", "gloo"), (1, "2.13.0", "gloo")] == [
        (row["rank"], row["torch"], row["backend"]) for row in tables["ranks"][:2]
    ]


def test_begin_time_is_the_wall_clock(tmp_path: Path) -> None:
    """The agent said wall and monotonic clock together, so each begin has a time of day."""
    path = tmp_path / "run"
    exported(path)
    table = parquet.read_table(path / "steps.parquet")
    times, begins = table["begin_time"].cast("int64").to_pylist(), table["begin_ns"].to_pylist()
    shift_ns = 1_700_000_000_000_000_000 - 1_000_000_000
    assert [(begin + shift_ns) // 1000 for begin in begins] == times


def test_the_files_have_the_documented_schema(tmp_path: Path) -> None:
    """Names and order as documented; each column carries its meaning; the document lies beside them."""
    path = tmp_path / "run"
    exported(path)
    for name, columns in TABLES.items():
        schema = parquet.read_schema(path / f"{name}.parquet")
        assert [column.name for column in columns] == schema.names
        assert all(
            schema.field(column.name).metadata[b"meaning"].decode() == column.meaning for column in columns
        )
    assert schema_document() == (path / "SCHEMA.md").read_text()
    assert "| data_wait_ns | int64 | waiting for the next batch |" in schema_document()


def test_many_frames_make_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written in groups while reading, all of them once."""
    monkeypatch.setattr("tuiadvisor.exporters.parquet.ROWS_A_GROUP", 100)
    rows = exported(tmp_path / "run")["steps"]
    assert 596 == len(rows)
    assert parquet.ParquetFile(tmp_path / "run" / "steps.parquet").metadata.num_row_groups > 3


def test_unreadable_frames_are_left_out(tmp_path: Path) -> None:
    """Damaged and hostile frames cost themselves only."""
    bad = encode(FrameKind.STEPS, "node0/1/1", 900, 1, {"rows": 5, "columns": {"rank": "x"}})
    assert 596 == len(exported(tmp_path / "run", [RUN, bad, b"nonsense", *parts()[1:]])["steps"])


def test_an_existing_folder_is_refused_and_a_failure_leaves_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line and exit code 2; no half of an export stays behind."""
    source, target = tmp_path / "run.tuirec", tmp_path / "run"
    write_recording(str(source), iter(parts(replace(JOB, num_steps=60))))
    assert 0 == main(["export", str(source), "--format", "parquet", "-o", str(target)])
    assert 0o700 == target.stat().st_mode & 0o777
    assert {0o600} == {file.stat().st_mode & 0o777 for file in target.iterdir()}
    assert "SCHEMA.md" in capfd.readouterr().out
    assert 2 == main(["export", str(source), "--format", "parquet", "-o", str(target)])
    assert "exists already" in capfd.readouterr().err
    calls = iter([iter(parts()), None])

    def reading(_what: str) -> object:
        return next(calls)

    with pytest.raises(TypeError):
        export_parquet(reading, tmp_path / "broken")  # type: ignore[arg-type]
    assert not (tmp_path / "broken").exists()


def test_without_pyarrow_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The extra is named; nothing is created."""

    def missing(_name: str) -> object:
        raise ImportError

    source = tmp_path / "run.tuirec"
    write_recording(str(source), iter(parts(replace(JOB, num_steps=30))))
    with monkeypatch.context() as patched:
        patched.setattr("tuiadvisor.exporters.arrow.importlib.import_module", missing)
        with pytest.raises(Exception, match=r"pip install 'tuiadvisor\[parquet\]'"):
            export_parquet(lambda _what: iter(parts()), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert importlib.import_module("pyarrow") is not None
    assert "" == capfd.readouterr().out
