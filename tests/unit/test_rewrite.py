"""Frames into a new recording: all of them in order, or no file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic_run import Job, encoded, frames

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.exporters import rewrite
from tuiadvisor.exporters.rewrite import write_recording
from tuiadvisor.stream.frames import FrameKind, decode, encode
from tuiadvisor.stream.recording import RecordingReader

FRAMES = [
    encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1}),
    *map(encoded, frames(Job(num_ranks=2, num_steps=60), rows_per_frame=8)),
]


def held(path: Path) -> list[bytes]:
    with RecordingReader(path) as reader:
        return [located.data for located in reader.frames()]


@pytest.mark.parametrize("piece_bytes", [1, 500, len(b"".join(FRAMES[1:])), 1 << 30])
def test_all_frames_are_there_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """Also where the last one fills a piece; for its owner alone, and as long as it is said to be, with its index."""
    monkeypatch.setattr(rewrite, "BATCH_BYTES", piece_bytes)
    path = tmp_path / "new.tuirec"
    num_bytes = write_recording(str(path), iter(FRAMES))
    assert FRAMES == held(path)
    assert (num_bytes, 0o600) == (path.stat().st_size, path.stat().st_mode & 0o777)


def test_a_recording_of_nothing_is_one(tmp_path: Path) -> None:
    """Nothing was left of it."""
    path = tmp_path / "new.tuirec"
    write_recording(str(path), iter(()))
    assert [FrameKind.RUN] == [decode(data).kind for data in held(path)]


def test_what_fails_on_the_way_leaves_no_file(tmp_path: Path) -> None:
    """And nothing that is there is written over."""

    def broken() -> Iterator[bytes]:
        yield from FRAMES[:5]
        raise TuiadvisorError("the disk with the old one is gone")

    path = tmp_path / "new.tuirec"
    with pytest.raises(TuiadvisorError, match="is gone"):
        write_recording(str(path), broken())
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(TuiadvisorError, match="exists already"):
        write_recording(str(path), iter(FRAMES))
    assert "mine" == path.read_text()
