"""A recording of nothing goes; one that holds anything of a rank that was watched stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import Job, encoded, frames, hello

from tuiadvisor.app.nothing_recorded import remove_if_nothing
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.stream.recording import RecordingWriter

JOB = Job(num_ranks=2, num_steps=3)
RUN = Frame(FrameKind.RUN, "hub", 0, 1, {"schema": 1, "label": "train.py"})
STACKS = Frame(FrameKind.STATUS, "node0/1/1", 1, 2, {"ranks": [], "stacks": [{"rank": 0}]})


def told(state: str) -> Frame:
    """An agent's first frame, all of whose ranks are in this state."""
    found = hello(JOB, "node0")
    return Frame(
        found.kind, found.source, 0, 1,
        {**found.payload, "ranks": [{**rank, "state": state} for rank in found.payload["ranks"]]},  # type: ignore[union-attr]
    )  # fmt: skip


def written(folder: Path, sequence: list[Frame]) -> Path:
    path = folder / "run.tuirec"
    writer = RecordingWriter(path, encoded(RUN))
    for frame in sequence:
        writer.append(encoded(frame))
    writer.close()
    return path


@pytest.mark.parametrize("states", [(), ("refused",), ("found", "exited"), ("waiting_to_attach", "killed")])
def test_where_no_rank_was_watched_nothing_is_left(states: tuple[str, ...], tmp_path: Path) -> None:
    """Refused, or over before it was seen."""
    path = written(tmp_path, [told(state) for state in states])
    assert remove_if_nothing(path)
    assert not path.exists()


@pytest.mark.parametrize(
    "sequence",
    [frames(JOB)[1:], [told("live")], [told("found"), told("live"), told("killed")], [STACKS]],
    ids=["steps", "a rank in a hang", "watched and killed", "a look at a stack"],
)
def test_whatever_is_of_a_watched_rank_stays(sequence: list[Frame], tmp_path: Path) -> None:
    """A hang has no step."""
    path = written(tmp_path, sequence)
    assert not remove_if_nothing(path)
    assert path.exists()


def test_what_is_no_sound_recording_stays(tmp_path: Path) -> None:
    """Another's file, a damaged one, one that is not there."""
    path = tmp_path / "a.tuirec"
    assert not remove_if_nothing(path)
    path.write_bytes(b"notes")
    assert not remove_if_nothing(path)
    sound = written(tmp_path, [])
    sound.write_bytes(sound.read_bytes() + b"damage")
    assert not remove_if_nothing(sound)
    assert path.exists()
    assert sound.exists()
