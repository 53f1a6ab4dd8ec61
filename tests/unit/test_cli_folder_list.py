"""`tuiadvisor open FOLDER` on a folder of several things: a list of what opens each, as text and JSON."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from synthetic_run import Job
from test_cli_open import OPS, said
from test_import_communication_logs import table
from test_import_kineto import job
from test_import_nsys import GEMM, export
from unit.test_contents import recording

from tuiadvisor.cli import folder_list, main


def mixed(folder: Path) -> Path:
    """Two recordings, two jobs' traces in folders of their own, a table, a log; a file that is none."""
    folder.mkdir()
    for name in ("job a", "job-b"):
        (folder / name).mkdir()
        job(folder / name, 2, [0, 0, 0, 0])
    recording(folder / "night.tuirec", Job(num_steps=60))
    recording(folder / "job-b" / "day.tuirec", Job(num_steps=60))
    (folder / "ops.csv").write_text(OPS)
    (folder / "train.log").write_text(table())
    export(folder / "report.sqlite", num_steps=2)
    (folder / "notes.txt").write_text("slow since noon\n")
    (folder / ".cache").mkdir()
    recording(folder / ".cache" / "hidden.tuirec", Job(num_steps=60))
    return folder


def test_each_thing_is_a_row_with_what_opens_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of a job together; names with blanks quoted; each command opens what the row says."""
    folder = mixed(tmp_path / "runs")
    code, out, _ = said(capsys, "open", str(folder))
    assert 0 == code
    rows = out.splitlines()
    assert f"{folder} holds 7 things to open:" == rows[0]
    (traces,) = [row for row in rows if "job a" in row]
    assert "PyTorch Profiler traces" in traces
    assert "4 files" in traces
    assert f"tuiadvisor open '{folder}/job a'" in traces
    assert not any("notes" in row or "hidden" in row for row in rows)


def test_folders_of_folders_are_looked_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What holds nothing but folders is a name for these; a file beside them is what it holds."""
    (tmp_path / "all" / "second").mkdir(parents=True)
    mixed(tmp_path / "all" / "first")
    mixed(tmp_path / "all" / "second" / "deeper")
    code, out, _ = said(capsys, "open", str(tmp_path / "all"))
    assert 0 == code
    for where in ("first/", "second/deeper/"):
        assert [row for row in out.splitlines() if f"all/{where}" in row]
    assert " 0.0 MB" not in out


def test_the_list_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each path opens as the kind that it is listed with."""
    code, out, _ = said(capsys, str(mixed(tmp_path / "runs")), "--json")
    assert 0 == code
    told = json.loads(out)
    kinds = sorted((item["kind"], item["files"]) for item in told["items"])
    assert [
        *(
            ("deepspeed", 1),
            ("kineto", 4),
            ("kineto", 4),
            ("nsys", 1),
            ("ops", 1),
            ("recording", 1),
            ("recording", 1),
        )
    ] == kinds
    assert told["complete"]
    for item in told["items"]:
        if item["kind"] in {"recording", "ops"}:
            continue
        code, out, err = said(capsys, *item["command"], "--json")
        assert 0 == code
        assert item["kind"] in {"import": item["command"][1], "open": err}[item["command"][0]]
        assert 1 == json.loads(out)["schema"]


def test_recordings_alone_are_the_list_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As ever, with those of folders in it."""
    (tmp_path / "old").mkdir()
    recording(tmp_path / "a.tuirec", Job(num_steps=60))
    recording(tmp_path / "old" / "b.tuirec", Job(num_steps=60))
    code, out, err = said(capsys, str(tmp_path), "--once")
    assert 0 == code
    assert "tuiadvisor runs" in err
    assert "old/b" in out


def test_a_folder_of_more_files_than_are_looked_into_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is not taken for whole."""
    monkeypatch.setattr(folder_list, "MAX_FILES", 6)
    _, out, _ = said(capsys, str(mixed(tmp_path / "runs")))
    assert "only the first 6 files were looked into" in out


def test_step_logs_of_several_runs_are_a_row_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CSV of three runs; one alone is opened at once."""
    for number in range(3):
        (tmp_path / f"run{number}.csv").write_text(
            "step,step_time_s\n" + "".join(f"{n},0.5\n" for n in range(9))
        )
    assert 0 == main(["open", str(tmp_path)])
    out = capsys.readouterr().out
    assert all(f"open {tmp_path}/run{number}.csv" in out for number in range(3))
    for number in range(2):
        (tmp_path / f"run{number}.csv").unlink()
    assert 0 == main(["open", str(tmp_path), "--once"])
    assert "9 steps" in capsys.readouterr().out


@pytest.mark.parametrize("names", [("bert", "resnet"), ("report1", "report2"), ("a_rank0", "b_rank0")])
def test_exports_that_do_not_say_their_rank_are_runs_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, str]
) -> None:
    """A row each; files of ranks 0 and 1 stay one job's."""
    for name in names:
        export(tmp_path / f"{name}.sqlite", num_steps=2)
    code, out, _ = said(capsys, "open", str(tmp_path))
    assert 0 == code
    assert all(f"tuiadvisor open {tmp_path}/{name}.sqlite" in out for name in names)
    ranks = tmp_path / "job"
    ranks.mkdir()
    for rank in range(2):
        export(ranks / f"rank{rank}.sqlite", num_steps=2)
    code, out, _ = said(capsys, "open", str(ranks), "--json")
    assert [0, 1] == [row["rank"] for row in json.loads(out)["per_rank"]]


@pytest.mark.parametrize("tells", ["", "first", "last"])
def test_traces_of_one_rank_each_are_runs_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tells: str
) -> None:
    """Where none says its rank; those that do in their content are a job, whatever their names.

    Behind thousands of events that was not seen, while the import of the same folder named their ranks.
    """
    for number in range(2):
        info = {"distributedInfo": {"rank": number, "world_size": 2}}
        named = [
            {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "p"}} for pid in range(2000)
        ]
        event = {"ph": "X", "cat": "kernel", "name": GEMM, "ts": 1, "dur": 5, "pid": 0, "tid": 7}
        trace = {"traceEvents": [*named, event]}
        parts = {"": trace, "first": {**info, **trace}, "last": {**trace, **info}}
        (tmp_path / f"host{number}.json").write_text(json.dumps(parts[tells]))
    code, out, _ = said(capsys, "open", str(tmp_path), "--json")
    assert 0 == code
    told = json.loads(out)
    assert ([0, 1] if tells else None) == (
        [row["rank"] for row in told["per_rank"]] if "per_rank" in told else None
    )
    assert tells or ["host0.json", "host1.json"] == [Path(item["path"]).name for item in told["items"]]


def test_devices_of_several_exports_are_nobodys_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two jobs on one machine, one on devices 0 and 1, one on 2 and 3, were four ranks of one job."""
    export(tmp_path / "bert.sqlite", num_ranks=2, num_steps=5)
    export(tmp_path / "resnet.sqlite", num_ranks=4, num_steps=5)
    with closing(sqlite3.connect(tmp_path / "resnet.sqlite")) as database, database:
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId < 2")
    code, out, _ = said(capsys, "import", "nsys", str(tmp_path), "--json")
    assert 0 == code
    told = json.loads(out)
    assert ([None] * 4, []) == ([row["rank"] for row in told["per_rank"]], told["stragglers"]["ranks"])
    assert "need not be of one job" in told["unknown"][0]["why"]
    _, out, _ = said(capsys, "import", "nsys", str(tmp_path))
    assert all(any(f" {name}.sqlite" in row for row in out.splitlines()[2:6]) for name in ("bert", "resnet"))
