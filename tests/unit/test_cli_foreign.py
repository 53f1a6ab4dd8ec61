"""Other tools' files where a recording is asked for: read as one, and every command begins with the same sentence."""

from __future__ import annotations

import gzip
import json
import lzma
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from shared_data import SHARED, needs_data
from test_import_ops import pipeline, written
from test_import_recording import marked
from test_import_steplog import titan
from thinned import thinned

from tuiadvisor.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = "devices,step_s,global_batch\n8,1.0,64\n16,0.55,64\n32,0.31,64\n64,0.2,64\n"
FIO = json.dumps(
    {"fio version": "fio-3.28", "jobs": [{"jobname": "a", "read": {"bw_bytes": 5e9, "iops": 9}}]}
)
LETTER = re.compile(r"[^\w%]+")


def source(folder: Path, kind: str) -> Path:
    """A small one of each kind that has steps; of kineto with too few of them for a verdict."""
    if kind == "ops":
        return written(folder / "table.csv", pipeline(range(30)))
    if kind == "few steps":
        return marked(folder / "traces", 2, num_steps=10)
    if kind == "kineto":
        return marked(folder / "traces", 2)
    titan(folder / "logs")
    return folder / "logs"


def words(text: str) -> str:
    """Without what wrapping, badges and capitals make of it."""
    return " ".join(LETTER.sub(" ", text).split()).casefold()


def first(path: Path, capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """What a command prints of it."""
    assert 0 == main([*command, str(path)])
    return capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ops", "few steps", "kineto", "steplog"])
def test_every_command_says_the_same_sentence_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """The verdict of the recording is the second line of the import, right under what was read."""
    path = source(tmp_path, kind)
    name = "kineto" if kind == "few steps" else kind
    told = first(path, capsys, "import", name).splitlines()[1]
    sentence = words(told.removeprefix("Tune:"))
    assert len(sentence.split()) > 8
    assert sentence == words(first(path, capsys, "open", "--once").splitlines()[1].removeprefix("Tune:"))
    for command in (("diagnose",), ("replay", "--once")):
        assert sentence in words(first(path, capsys, *command))
    report = tmp_path / "report.md"
    first(path, capsys, "report", "-o", str(report))
    assert sentence in words(report.read_text())
    badge = re.search(r"\*\*([A-Z ]+)\*\*: ", report.read_text())
    assert badge is not None
    assert f" {badge[1]} " in first(path, capsys, "diagnose")


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("name", thinned(["trace-AR.csv.gz", "trace-ST.csv.gz"], ["trace-ST.csv.gz"]))
def test_public_tables_have_one_first_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The import's own analysis follows behind it."""
    path = SHARED / "stragglers_per_op" / name
    told = first(path, capsys, "import", "ops").splitlines()
    assert told[1].startswith("Tune: ")
    assert words(told[1].removeprefix("Tune:")) in words(first(path, capsys, "diagnose"))
    assert any(line.startswith("cause: ") for line in told)


@pytest.mark.slow
def test_what_takes_a_recording_takes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its output names the trace and not a file that is gone."""
    path = source(tmp_path, "ops")
    for command in (
        ["advise"],
        ["info"],
        ["compare", "--same-work", str(path)],
        ["export", "--format", "chrome-trace", "-o", str(tmp_path / "trace.json")],
        ["export", "--format", "parquet", "-o", str(tmp_path / "tables")],
        ["trim", "--steps", "2:20", "-o", str(tmp_path / "part.tuirec")],
        ["anonymize", "-o", str(tmp_path / "nobody.tuirec")],
        ["diagnose", "--json"],
    ):
        assert 0 == main([*command, str(path)])
        said = capsys.readouterr()
        assert f"{path}: a per-operation table; read as a recording" in said.err
        assert "tuiadvisor-" not in said.out
    assert (tmp_path / "part.tuirec").exists()


@pytest.mark.parametrize("command", ["report", "compare", "export", "advise", "replay", "trim", "info"])
def test_what_has_no_steps_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """It says what the file is and what shows it."""
    path = tmp_path / "fio.json"
    path.write_text(FIO)
    more = {
        "report": ["-o", str(tmp_path / "r.html")],
        "compare": [str(path)],
        "export": ["--format", "parquet", "-o", str(tmp_path / "t")],
        "replay": ["--once"],
        "trim": ["--steps", "1:2", "-o", str(tmp_path / "t.tuirec")],
    }
    assert 2 == main([command, str(path), *more.get(command, [])])
    err = capsys.readouterr().err
    assert 1 == err.count("\n")
    assert "fio measures storage and has no steps" in err
    assert f"tuiadvisor open {path} shows what it says" in err


def test_diagnose_says_of_what_has_no_steps_what_its_import_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON there is no diagnosis of it, and the line says what there is."""
    path = tmp_path / "fio.json"
    path.write_text(FIO)
    told = first(path, capsys, "import", "fio")
    assert told == first(path, capsys, "diagnose")
    assert 2 == main(["diagnose", "--json", str(path)])
    assert "shows what it says" in capsys.readouterr().err


def test_a_table_of_sizes_is_taken_for_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Opened it is the result of scale, which takes it without --table too; a folder lists it."""
    path = tmp_path / "sizes.csv"
    path.write_text(f"# measured in May\n{SIZES}")
    assert 0 == main(["scale", "--table", str(path)])
    told = capsys.readouterr().out
    for command in (["open"], ["scale"], ["diagnose"]):
        assert 0 == main([*command, str(path)])
        assert told == capsys.readouterr().out
    assert 0 == main(["open", "--json", str(path)])
    assert 1 == json.loads(capsys.readouterr().out)["schema"]
    written(tmp_path / "table.csv", pipeline(range(3)))
    assert 0 == main(["open", str(tmp_path)])
    assert f"tuiadvisor open {path}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "packed", [gzip.compress, lzma.compress, lambda data: data.decode().encode("utf-16")]
)
def test_a_table_of_sizes_may_be_packed_or_wide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: Callable[[bytes], bytes]
) -> None:
    """What recognises it unpacks it, so what reads it does."""
    path = tmp_path / "sizes.csv"
    path.write_text(SIZES)
    told = first(path, capsys, "scale", "--table")
    path.write_bytes(packed(SIZES.encode()))
    assert told == first(path, capsys, "open")


@pytest.mark.parametrize("packed", [gzip.compress, lzma.compress])
def test_a_packed_table_of_sizes_that_is_cut_is_refused(
    tmp_path: Path, packed: Callable[[bytes], bytes]
) -> None:
    """Also where the rows before the cut would make a table."""
    path = tmp_path / "sizes.csv"
    path.write_bytes(packed(SIZES.encode())[:-9])
    assert 2 == main(["scale", "--table", str(path)])


@pytest.mark.parametrize(
    "content", [b"[]", b"name,age\nbob,3\n" * 9, bytes(range(1, 99))], ids=["JSON", "CSV", "bytes"]
)
@pytest.mark.parametrize("command", ["diagnose", "replay", "advise", "info", "scale"])
def test_what_nobody_knows_is_told_with_what_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, content: bytes
) -> None:
    """In the one line that open has for it."""
    path = tmp_path / "notes.dat"
    path.write_bytes(content)
    assert 2 == main([command, str(path)])
    err = capsys.readouterr().err
    assert 1 == err.count("\n")
    assert f"{path}: not a recording of tuiadvisor, nor recognised; what can be opened: a recording" in err


def test_folders_of_recordings_or_several_things_say_how_to_name_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where one recording is asked for."""
    written(tmp_path / "a.csv", pipeline(range(3)))
    (tmp_path / "fio.json").write_text(FIO)
    assert 2 == main(["diagnose", str(tmp_path)])
    assert (
        f"holds 2 things to open: name one; tuiadvisor open {tmp_path} lists them" in capsys.readouterr().err
    )
