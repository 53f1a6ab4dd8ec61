"""A recording without its end: every command that reads it says so on standard error, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from synthetic_run import Job
from unit.test_contents import recording

import tuiadvisor
from tuiadvisor.cli import main
from tuiadvisor.mcpserver.paths import Roots
from tuiadvisor.mcpserver.questions import Questions
from tuiadvisor.stream.recording import NOT_CLOSED, RecordingReader

if TYPE_CHECKING:
    from pathlib import Path

CUT = "recording ends inside a frame: it was cut"
COMMANDS = (
    ("open", "RUN"),
    ("RUN",),
    ("replay", "RUN"),
    ("replay", "--once", "RUN"),
    ("diagnose", "RUN"),
    ("diagnose", "--json", "RUN"),
    ("compare", "RUN", "RUN"),
    ("advise", "RUN"),
    ("report", "RUN", "-o", "OUT/a.html"),
    ("export", "RUN", "--format", "chrome-trace", "-o", "OUT/a.json"),
    ("trim", "RUN", "--steps", "2:9", "-o", "OUT/part.tuirec"),
    ("anonymize", "RUN", "-o", "OUT/nobody.tuirec"),
)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A recording that was closed."""
    path = tmp_path / "run.tuirec"
    recording(path, Job(num_steps=60))
    return path


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_cut_recording_is_said_to_be_cut(
    whole: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Once for each time that it is named; of a whole one nothing is said."""
    path = whole.with_name("cut.tuirec")
    path.write_bytes(whole.read_bytes()[:-300])
    for run, num_said in ((whole, 0), (path, words.count("RUN"))):
        out = whole.with_name(f"out of {run.stem}")
        out.mkdir()
        arguments = [word.replace("RUN", str(run)).replace("OUT", str(out)) for word in words]
        assert 0 == main(arguments)
        assert num_said == capsys.readouterr().err.count(CUT)


def test_what_is_kept_or_asked_from_python_says_so_too(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody reads standard error there."""
    path = whole.with_name("cut.tuirec")
    path.write_bytes(whole.read_bytes()[:-300])
    for run, is_cut in ((whole, False), (path, True)):
        report = whole.with_suffix(".html")
        main(["report", str(run), "-o", str(report)])
        capsys.readouterr()
        main(["diagnose", "--json", str(run)])
        said = json.loads(capsys.readouterr().out)["losses"]["notes"]
        opened = tuiadvisor.open(run)
        told = Questions(Roots([str(run.parent)])).diagnose(run.name)["losses"]["notes"]
        for text in (report.read_text(), said, told, opened.diagnose()["losses"]["notes"], opened.report()):
            assert is_cut == (CUT in str(text))


def test_a_recording_that_nobody_closed(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends between two frames, so no byte is missing, and yet its end is."""
    with RecordingReader(whole) as reader:
        last = list(reader.frames())[-1]
    path = whole.with_name("killed.tuirec")
    path.write_bytes(whole.read_bytes()[: last.offset])
    main(["diagnose", str(path)])
    assert 1 == capsys.readouterr().err.count(NOT_CLOSED)
    main(["diagnose", str(whole)])
    assert NOT_CLOSED not in capsys.readouterr().err


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_recording_cut_before_its_first_rank_holds_nothing_to_judge(
    whole: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """As where no step was seen: the document is printed, and the exit code says that there is nothing in it."""
    path = whole.with_name("head.tuirec")
    path.write_bytes(whole.read_bytes()[:120])
    assert 1 == main(["diagnose", *words, str(path)])
    told = capsys.readouterr()
    assert "no rank and no step in it" in told.err
    assert "unknown" in told.out or '"ranks":[]' in told.out.replace(" ", "")
