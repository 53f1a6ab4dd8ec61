"""A recording cut at each of its bytes, or with single bytes changed: what is whole is shown, what is not is said.

The recording holds every kind of frame. Reader, index, replay and diagnosis are all asked, none may end in a traceback.
"""

from __future__ import annotations

from contextlib import closing
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import pytest
from fuzzing import chances
from synthetic_run import Fault, Job, encoded, frames

from tuiadvisor.advisor.compare.recording_contents import contents
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.survey import Survey
from tuiadvisor.app.whole_recording import frames_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EVENT_COLUMNS
from tuiadvisor.stream.frames import FrameKind, encode, is_index, pack_columns, split
from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.recording import RecordingReader, RecordingWriter
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.stream.scan import read_summary, scanned

if TYPE_CHECKING:
    from pathlib import Path

AGENT: Final = "node0/1/1"
JOB: Final = Job(num_steps=48, num_ranks=2, faults=(Fault("backward", (1,), 0.015, onset=10),))


def _said(kind: FrameKind, source: str, seq: int, payload: dict[str, object]) -> bytes:
    return encode(kind, source, seq, 2_000_000_000, payload)


def _whole() -> list[bytes]:
    run = _said(FrameKind.RUN, "hub", 0, {"schema": 1, "label": "train.py"})
    steps = [encoded(frame) for frame in frames(JOB, rows_per_frame=12)]
    events = pack_columns([(0, 1, *range(len(EVENT_COLUMNS)))] * 3, ("rank", "kind", *EVENT_COLUMNS))
    ranks = [{"rank": rank, "state": "live", "phase": "forward", "step": 20} for rank in range(2)]
    clocks: dict[str, object] = {
        "host": "node0",
        "mono_ns": 2_000_000_000,
        "wall_ns": 1_700_000_000_000_000_000,
    }
    lost = {"what": "frames missing", "source": AGENT, "num_frames": 2, "why": "lost on the way"}
    return [
        run,
        *steps[:3],
        _said(FrameKind.STATUS, AGENT, 50, clocks | {"ranks": ranks}),
        _said(FrameKind.HOST, AGENT, 51, clocks | {"cpu": 0.5, "num_cpus": 2}),
        _said(FrameKind.EVENTS, AGENT, 52, events),
        _said(FrameKind.GAP, "hub", 1, lost),
        *steps[3:],
        _said(FrameKind.BYE, AGENT, 60, {"reason": "all ranks ended"}),
    ]


FRAMES: Final = _whole()
STRETCH_BYTES: Final = 1000


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """The recording's bytes."""
    writer = RecordingWriter(tmp_path / "whole.tuirec", FRAMES[0], STRETCH_BYTES)
    for data in FRAMES[1:]:
        writer.append(data)
    writer.close()
    return (tmp_path / "whole.tuirec").read_bytes()


@pytest.fixture
def written(whole: bytes) -> list[bytes]:
    """All its frames, INDEX frames too."""
    return list(split(whole[FILE_HEADER_BYTES:]))


@pytest.fixture
def ends(written: list[bytes]) -> list[int]:
    """Where the header ends, and each of them."""
    return [*accumulate([FILE_HEADER_BYTES, *map(len, written)])]


def shown(frames: list[bytes]) -> list[bytes]:
    """Those that readers see."""
    return [data for data in frames if not is_index(data)]


def test_every_kind_of_frame_is_in_it(whole: bytes, written: list[bytes], ends: list[int]) -> None:
    """Otherwise a kind would be left out of all that follows."""
    assert (len(whole), FRAMES) == (ends[-1], shown(written))
    assert set(FrameKind) == {FrameKind(data[9]) for data in written}
    assert len(written) - len(FRAMES) >= 3


@pytest.mark.slow
def test_a_recording_cut_at_each_of_its_bytes_shows_its_whole_frames(
    tmp_path: Path, whole: bytes, written: list[bytes], ends: list[int]
) -> None:
    """All frames before the cut, none beyond, and the tail is said; the diagnosis is that of these frames."""
    path = tmp_path / "cut.tuirec"
    advisor, views, num_fed = Advisor(), [], 0
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        if length < FILE_HEADER_BYTES:
            with pytest.raises(TuiadvisorError, match="cut inside its header"):
                ReplaySource(path)
            continue
        sound = sum(end <= length for end in ends) - 1
        num_whole = len(shown(written[:sound]))
        source = ReplaySource(path)
        has_index = sound > num_whole
        assert source.index.opened.startswith("by its index" if has_index else "by reading all of it: it has")
        source.seek_offset(source.index.end, source.duration_s)
        assert FRAMES[:num_whole] == source.read(0.0)
        assert num_whole == len(source.index)
        tail = length - ends[sound]
        assert (tail, 0) == (source.index.summary.num_tail_bytes, source.index.summary.num_bad_bytes)
        assert bool(tail) == bool(source.status.note)
        source.close()
        if num_whole > num_fed or not views:  # what is beyond the last whole frame does not change these
            advisor.feed_many(FRAMES[num_fed:num_whole])
            views, num_fed = [*views, advisor.view()], num_whole
            assert views[-1] == Survey(path).whole().view
        elif tail == 1:
            again = Advisor()
            again.feed_many(frames_of(str(path)))
            assert views[-1] == again.view()
    assert len(FRAMES) + 1 == len(views)


@pytest.mark.slow
def test_single_bytes_changed_anywhere_cost_one_frame_and_are_said(
    tmp_path: Path, whole: bytes, written: list[bytes], ends: list[int]
) -> None:
    """Each byte of each frame's header, and bytes of payloads by lot: the other frames are read, the damage is said."""
    path = tmp_path / "flipped.tuirec"
    lots = next(iter(chances(1)))
    headers = [begin + offset for begin in ends[:-1] for offset in range(32)]
    for position in [*headers, *(lots.randrange(FILE_HEADER_BYTES, len(whole)) for _ in range(300))]:
        data = bytearray(whole)
        data[position] ^= 1 << lots.randrange(8)
        path.write_bytes(data)
        hit = sum(end <= position for end in ends) - 1
        left = shown(written[:hit] + written[hit + 1 :])
        with RecordingReader(path) as reader:
            assert left == [located.data for located in reader.frames()]
            assert reader.summary().notes
        with RecordingReader(path) as reader, closing(ReplaySource(path)) as source:
            source.clock.pause()
            source.seek_offset(source.index.end, source.duration_s)
            assert left == source.read(0.0)
            source.index.adopt(*scanned(reader))  # what the look at the whole recording does at its end
            assert (len(left), True) == (len(source.index), bool(source.status.note))


@pytest.mark.slow
def test_cuts_and_changes_together_never_end_in_a_traceback(tmp_path: Path, whole: bytes) -> None:
    """Several at once: contents, survey and view come out of what is left, or one line says why not."""
    path, refusals = tmp_path / "damaged.tuirec", list[str]()
    for lots in chances(40):
        data = bytearray(whole[: lots.randrange(len(whole)) + 1])
        for _ in range(lots.randrange(4)):
            data[lots.randrange(len(data))] = lots.randrange(256)
        path.write_bytes(data)
        try:
            view = Survey(path).whole().view
            found = contents(str(path), frames_of(str(path)), read_summary(path))
        except TuiadvisorError as error:
            refusals.append(str(error))
            continue
        assert view is not None
        assert view.losses == found.losses
    assert all("\n" not in refusal and refusal.startswith(f"{path}: ") for refusal in refusals)
