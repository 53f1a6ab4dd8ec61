"""A writer killed with -9: its recording opens by the index it had got to, and every whole frame is there."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest
from patience import PATIENCE_S

from tuiadvisor.stream.frames import peek
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.stream.recordingindex import RecordingIndex
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.stream.scan import read_summary
from tuiadvisor.stream.source import FileSource

if TYPE_CHECKING:
    from pathlib import Path

WRITER: Final = """
import sys
from tuiadvisor.stream.frames import FrameKind, encode, pack_columns
from tuiadvisor.stream.recording import RecordingWriter
writer, seq = RecordingWriter(sys.argv[1], encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1}), 4096), 0
while True:
    rows = pack_columns([(rank, seq) for rank in range(4)], ("rank", "step"))
    writer.append(encode(FrameKind.STEPS, "h/1/2", seq, seq * 1_000_000, rows))
    seq += 1
"""


@pytest.mark.parametrize("num_bytes", [40_000, 61_001, 82_503])
def test_a_killed_writer_costs_at_most_the_last_frame(tmp_path: Path, num_bytes: int) -> None:
    """Followed while it grows, killed, opened again: no frame is missing, doubled or out of order."""
    path = tmp_path / "run.tuirec"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path])
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not path.is_file() or path.stat().st_size < 16:
            assert time.monotonic() < deadline_s
        followed, source = [], FileSource(path, follow=True)
        while sum(map(len, followed)) < num_bytes:
            assert time.monotonic() < deadline_s
            followed += source.read(0.01)
    finally:
        writer.kill()
        writer.wait()
    while more := source.read(0.0):
        followed += more
    source.close()
    with RecordingReader(path) as reader:
        frames = [located.data for located in reader.frames()]
    assert followed == frames
    assert [*range(len(frames) - 1)] == [peek(frame).seq for frame in frames[1:]]
    summary = read_summary(path)
    assert (0, 0) == (summary.num_bad_bytes, summary.num_wrong_indexes)
    with RecordingIndex(path) as index:
        assert index.opened.startswith(f"by its index of {summary.num_indexes:,} parts")
        assert len(frames) == len(index)
        assert len(frames) - 2 == index.last_step()
    replay = ReplaySource(path)
    replay.clock.pause()
    for step in (len(frames) // 2, len(frames) - 2):
        replay.seek_step(step)
        taken = 0
        while more := replay.read(0.0):
            taken += len(more)
            assert frames[step + 2 - len(more) : step + 2] == more
        assert taken
    replay.close()
