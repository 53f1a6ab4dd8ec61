"""What `info` says of a recording: counted, damaged, empty, hostile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_run import Job, elastic, encoded, frames

from tuiadvisor.advisor.compare.recording_contents import contents
from tuiadvisor.cli import main
from tuiadvisor.report.contents import contents_document
from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.recording import RecordingReader, RecordingWriter
from tuiadvisor.stream.scan import read_summary
from tuiadvisor.tui.pages.contents import plain_contents

RUN = encode(
    FrameKind.RUN, "hub", 0, 0, {"schema": 1, "tuiadvisor": "0.1.0", "created_wall_ns": 1_700_000_000 * 10**9}
)


def recording(path: Path, job: Job) -> Path:
    writer = RecordingWriter(path, RUN)
    for frame in frames(job):
        writer.append(encoded(frame))
    writer.close()
    return path


def held(path: Path) -> object:
    with RecordingReader(path) as reader:
        return contents(str(path), (located.data for located in reader.frames()), read_summary(path))


def test_everything_is_counted(tmp_path: Path) -> None:
    """Two hosts, four ranks, 100 steps: 400 rank-steps, with their bytes."""
    path = recording(tmp_path / "a.tuirec", Job(num_ranks=4, num_steps=100, ranks_per_host=2))
    document = contents_document(held(path))
    assert {"first_step": 0, "last_step": 99, "rank_steps": 400, "early_steps": 0, "events": 0} == document[
        "steps"
    ]
    assert [[0, 1], [2, 3]] == [host["ranks"] for host in document["hosts"]]
    assert {"recorded": 4, "states": {"live": 4}} == document["ranks"]
    assert path.stat().st_size == document["bytes"]
    assert document["bytes"] / 400 == pytest.approx(document["bytes_per_rank_step"]["file"])
    assert document["bytes_per_rank_step"]["steps"] < document["bytes_per_rank_step"]["file"]
    assert 1_700_000_000 == document["created_wall_s"]
    assert ("2.13.0", "gloo", 4) == tuple(
        document["run"][name] for name in ("torch", "backend", "world_size")
    )
    frame_bytes = sum(kind["bytes"] for kind in document["frames"].values())
    assert document["bytes"] - 16 == frame_bytes


def test_steps_before_an_elastic_restart_are_held(tmp_path: Path) -> None:
    """100 steps, all ranks anew, 100 more: the file holds 200, and says so."""
    writer = RecordingWriter(tmp_path / "a.tuirec", RUN)
    for frame in elastic(Job(num_steps=100), "ten steps of one rank a frame"):
        writer.append(encoded(frame))
    writer.close()
    steps = contents_document(held(tmp_path / "a.tuirec"))["steps"]
    assert (0, 199, 800) == (steps["first_step"], steps["last_step"], steps["rank_steps"])


def test_missing_ranks_and_damage_are_said(tmp_path: Path) -> None:
    """A rank nobody recorded, a cut end: both stand under damage and losses."""
    path = recording(tmp_path / "a.tuirec", Job(num_ranks=3, num_steps=60, missing=(1,)))
    path.write_bytes(path.read_bytes()[:-7])
    text = plain_contents(held(path), plain_ascii=True)
    assert "recording ends inside a frame" in text
    assert "not recorded: rank 1" in text
    assert "2 of 3 recorded" in text


def test_a_recording_of_nothing(tmp_path: Path) -> None:
    """Only the first frame: unknown is unknown, not zero bytes a rank-step."""
    path = tmp_path / "a.tuirec"
    RecordingWriter(path, RUN).close()
    document = contents_document(held(path))
    assert {"file": None, "steps": None} == document["bytes_per_rank_step"]
    assert (None, None) == (document["steps"]["first_step"], document["duration_s"])
    assert "unknown" in plain_contents(held(path), plain_ascii=True)


def test_control_characters_of_a_stranger_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """A host and a command with escape sequences are printed without them."""
    path = tmp_path / "a.tuirec"
    writer = RecordingWriter(path, RUN)
    evil = "\x1b]0;owned\x07\nnode"
    payload = {"host": evil, "platform": evil, "gpus": [evil], "ranks": [{"rank": 0, "command": evil}]}
    writer.append(encode(FrameKind.HELLO, "a/1/1", 0, 1, payload))
    writer.close()
    text = plain_contents(held(path), plain_ascii=True)
    assert all(char.isprintable() or char == "\n" for char in text)


def test_the_command_prints_one_document(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`info --json` writes JSON and nothing else; what is no recording is one line and exit code 2."""
    path = recording(tmp_path / "a.tuirec", Job(num_ranks=2, num_steps=30))
    assert 0 == main(["info", str(path), "--json"])
    assert 60 == json.loads(capfd.readouterr().out)["steps"]["rank_steps"]
    assert 2 == main(["info", str(tmp_path)])
    printed = capfd.readouterr()
    assert ("", 1) == (printed.out, printed.err.count("\n"))


def test_diagnose_says_what_is_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside a verdict that looks like any other; a whole recording is told nothing of."""
    path = recording(tmp_path / "a.tuirec", Job(num_steps=60))
    assert 0 == main(["diagnose", str(path)])
    assert "" == capsys.readouterr().err
    path.write_bytes(path.read_bytes()[:-7])
    assert 0 == main(["diagnose", str(path)])
    assert f"{path}: recording ends inside a frame" in capsys.readouterr().err


def test_a_range_without_an_end_is_said_as_it_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / "a.tuirec", Job(num_steps=60))
    assert 2 == main(["diagnose", str(path), "--steps", "999:"])
    assert "--steps 999:: nothing there" in capsys.readouterr().err
