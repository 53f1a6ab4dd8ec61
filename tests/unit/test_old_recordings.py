"""One recording of every format and schema there ever was: they stay readable, number by number.

When FILE_VERSION, a frame's version or the RUN frame's schema changes, add a recording of the new one and keep the old.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tuiadvisor.advisor.fold import diagnose
from tuiadvisor.events import STEP_COLUMNS
from tuiadvisor.stream.frames import FrameKind, decode, unpack_columns
from tuiadvisor.stream.recording import FILE_VERSION, RecordingReader
from tuiadvisor.stream.recordingindex import RecordingIndex

# A training of two gloo ranks on two cores, rank 1 reading its data 40 ms late; anonymized.
FIRST: Final = Path(__file__).parents[1] / "recordings" / "format1-schema1.tuirec"
# The same frames with an INDEX frame after each 8 KiB of them.
SECOND: Final = FIRST.with_name("format2-schema1.tuirec")
NAMES: Final = ("rank", *STEP_COLUMNS)

NUM_FRAMES: Final = {"RUN": 1, "HELLO": 5, "STEPS": 22, "EVENTS": 5, "HOST": 14, "STATUS": 30, "BYE": 2}
SUMS: Final = {
    "rank": 157,
    "step": 24492,
    "data_wait_ns": 8033653331,
    "forward_ns": 2742399333,
    "backward_ns": 3938176791,
    "optimizer_ns": 121681893,
    "group_seq": 27464,
    "flags": 578,
}


def test_there_is_a_recording_of_this_format() -> None:
    """Whoever raises the version is reminded."""
    schemas = {decode(frame).payload.get("schema") for frame in frames(SECOND)[:1]}
    with RecordingReader(SECOND) as reader:
        assert (FILE_VERSION, {1}) == (reader.version, schemas)


def test_the_first_format_is_opened_by_reading_and_the_second_by_its_index() -> None:
    """The frames are the same, and so is every place by time and step."""
    assert frames(FIRST) == frames(SECOND)
    with RecordingIndex(FIRST) as first, RecordingIndex(SECOND) as second:
        assert "by reading all of it: it has no index" == first.opened
        assert second.opened.startswith("by its index of")
        assert second.summary.num_indexes >= 3
        assert (len(first), first.duration_s, first.last_step()) == (
            len(second),
            second.duration_s,
            second.last_step(),
        )
        for step in range(0, 400, 7):
            places = [index.position_s(index.offset_of_step(step)) for index in (first, second)]
            assert places[0] == places[1]


def frames(path: Path) -> list[bytes]:
    with RecordingReader(path) as reader:
        found = [located.data for located in reader.frames()]
        assert () == reader.summary().notes
    return found


def test_the_first_format_reads_as_it_was_written() -> None:
    """Frames by kind, and the sums of columns that were there from the beginning."""
    decoded = [decode(frame) for frame in frames(FIRST)]
    kinds = [frame.kind for frame in decoded]
    assert NUM_FRAMES == {kind.name: kinds.count(kind) for kind in sorted(set(kinds))}
    sums = dict.fromkeys(SUMS, 0)
    for frame in decoded:
        if frame.kind is FrameKind.STEPS:
            columns = unpack_columns(frame.payload, NAMES)
            for name in sums:
                sums[name] += int(columns[name].sum())
    assert SUMS == sums


def test_the_first_format_is_judged() -> None:
    """The late rank is named for its data."""
    view = diagnose(frames(FIRST))
    assert (2, "gloo") == (view.run.world_size, view.run.backend)
    assert view.verdict.sentence.startswith("Tune: rank 1 late by ")
    assert "waiting for its next batch" in view.verdict.sentence
