"""`tuiadvisor open FOLDER` on a folder of several things: a list of what opens each, as text and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from synthetic_run import Job
from test_cli_open import OPS, said
from test_import_communication_logs import table
from test_import_kineto import job
from test_import_nsys import export
from unit.test_contents import recording

from tuiadvisor.cli import folder_list, main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
