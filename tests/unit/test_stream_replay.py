"""Replay keeps time by a fake clock, seeks both ways, and never loses or doubles a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tuiadvisor.stream.frames import FrameKind, encode, pack_columns
from tuiadvisor.stream.index import FILE_HEADER_BYTES, MAX_SILENCE_NS, Timeline
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.stream.replay import ReplayClock, ReplaySource
from tuiadvisor.stream.source import FileSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND_NS = 1_000_000_000


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """The time now."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def steps_frame(second: int) -> bytes:
    """Ten steps of one rank, sent at this second of the agent's clock."""
    rows = [(0, second * 10 + step) for step in range(10)]
    time_ns = 777 * SECOND_NS + second * SECOND_NS
    return encode(FrameKind.STEPS, "h/1/2", second, time_ns, pack_columns(rows, ("rank", "step")))


FRAMES = [encode(FrameKind.RUN, "hub", 0, 5, {"schema": 1}), *(steps_frame(second) for second in range(11))]
END = FILE_HEADER_BYTES + sum(map(len, FRAMES))  # behind it an INDEX frame


@pytest.fixture
def path(tmp_path: Path) -> Path:
    writer = RecordingWriter(tmp_path / "a.tuirec", FRAMES[0])
    for data in FRAMES[1:]:
        writer.append(data)
    writer.close()
    return tmp_path / "a.tuirec"


@pytest.fixture
def replay(path: Path, clock: FakeClock) -> Iterator[ReplaySource]:
    source = ReplaySource(path, now=clock, sleep=clock.sleep)
    yield source
    source.close()


def read_all(source: ReplaySource | FileSource) -> list[bytes]:
    frames: list[bytes] = []
    while taken := source.read(1000.0):
        frames += taken
    return frames


def test_replay_gives_every_frame_once_in_order(replay: ReplaySource) -> None:
    """The same frames as reading the file, and then the end."""
    assert FRAMES == read_all(replay)
    assert replay.status.ended


def test_frames_come_when_they_are_due(replay: ReplaySource, clock: FakeClock) -> None:
    """RUN and the first frame at once, then one a second; ten seconds in all."""
    assert 10.0 == replay.duration_s
    assert FRAMES[:2] == replay.read(0.0)
    assert [] == replay.read(0.5)
    assert FRAMES[2:3] == replay.read(0.6)
    clock.now_s += 3.0
    assert FRAMES[3:6] == replay.read(0.0)


def test_speed_shortens_the_wait(path: Path, clock: FakeClock) -> None:
    """At 4x, ten recorded seconds take two and a half."""
    source = ReplaySource(path, speed=4, now=clock, sleep=clock.sleep)
    assert FRAMES == read_all(source)
    assert 2.5 == pytest.approx(clock.now_s - 100.0, abs=0.06)
    source.close()


def test_pause_holds_and_single_frames_pass(replay: ReplaySource, clock: FakeClock) -> None:
    """Paused, only what is sought comes; resumed, time goes on from there."""
    replay.read(0.0)
    replay.clock.pause()
    clock.now_s += 50
    assert [] == replay.read(1.0)
    replay.seek(1.0)
    assert FRAMES[2:3] == replay.read(0.0)
    assert 1.0 == replay.position_s
    replay.clock.resume()
    assert [] == replay.read(0.9)
    assert FRAMES[3:4] == replay.read(0.2)


def test_seeking_forward_hands_over_what_is_between(replay: ReplaySource) -> None:
    """A jump ahead needs no new fold: the frames on the way come at once, paused or not."""
    replay.read(0.0)
    replay.clock.pause()
    assert replay.seek(5.0) is False
    assert replay.status.bytes_behind == sum(map(len, FRAMES[2:7]))
    assert FRAMES[2:7] == replay.read(0.0)
    assert 5.0 == replay.position_s


def test_seeking_back_says_that_frames_begin_again(replay: ReplaySource) -> None:
    """A jump back is a restart, counted in the status, and gives the frames from the first one."""
    replay.seek(8.0)
    replay.read(0.0)
    assert replay.seek(2.0) is True
    assert 1 == replay.status.num_restarts
    assert FRAMES[:4] == replay.read(0.0)
    assert 2.0 == replay.position_s


def test_seeking_to_a_training_step(replay: ReplaySource) -> None:
    """The frames up to the one that holds the step; a step that never came means all of them."""
    replay.clock.pause()
    replay.seek_step(35)
    assert FRAMES[:5] == replay.read(0.0)
    assert replay.seek_step(9) is True
    assert FRAMES[:2] == replay.read(0.0)
    replay.seek_step(10_000)
    assert FRAMES[2:] == replay.read(0.0)


def test_starting_at_a_step(path: Path, clock: FakeClock) -> None:
    """Opened at step 42, what led there comes first and at once, without counting as a restart."""
    source = ReplaySource(path, start_step=42, now=clock, sleep=clock.sleep)
    assert (FRAMES[:6], 0) == (source.read(0.0), source.status.num_restarts)
    source.close()


def test_every_position_within_bounds(replay: ReplaySource) -> None:
    """Seeking outside the recording ends at its edges."""
    replay.seek(-5.0)
    assert 0.0 == replay.position_s
    replay.seek(1e9)
    assert 10.0 == replay.position_s
    assert FRAMES == read_all(replay)


def test_hosts_with_different_clocks_share_a_timeline() -> None:
    """A source is placed by its own clock from when it was first heard; time never runs backwards."""
    timeline, due_ns = Timeline(), []
    for source, time_ns in [
        ("a", 10**15),
        ("a", 10**15 + 5),
        ("b", 77),
        ("b", 80),
        ("a", 10**15 + 6),
        ("b", 70),
    ]:
        due_ns.append(timeline.add(source, time_ns))
    assert [0, 5, 5, 8, 8, 8] == due_ns


def test_a_leaping_clock_costs_a_minute_at_most() -> None:
    """A frame dated far ahead is due after the longest silence, and those behind it keep their distance."""
    timeline = Timeline()
    due_ns = [timeline.add("a", time_ns) for time_ns in (0, 1 << 62, (1 << 62) + 7)]
    assert [0, MAX_SILENCE_NS, MAX_SILENCE_NS + 7] == due_ns


def test_clock_changes_speed_without_a_jump(clock: FakeClock) -> None:
    """Position is continuous over changes of speed; a speed of 0 is refused."""
    replay_clock = ReplayClock(2.0, clock)
    clock.now_s += 3
    replay_clock.set_speed(10.0)
    assert 6.0 == replay_clock.position_s
    clock.now_s += 1
    assert 16.0 == replay_clock.position_s
    with pytest.raises(ValueError, match="above 0"):
        replay_clock.set_speed(0)


def test_damage_is_in_the_status(path: Path, clock: FakeClock) -> None:
    """A damaged recording plays on, and both sources say so."""
    data = bytearray(path.read_bytes()[:END])
    data[-len(FRAMES[-1]) - 3] ^= 1
    path.write_bytes(data[:-3])
    expected = f"recording damaged in 1 place(s), {len(FRAMES[-2])} bytes passed over"
    for source in (ReplaySource(path, now=clock, sleep=clock.sleep), FileSource(path)):
        assert FRAMES[:-2] == read_all(source)
        assert expected in source.status.note
        assert "ends inside a frame" in source.status.note
        source.close()


def test_following_a_growing_file(path: Path, clock: FakeClock) -> None:
    """A followed file is never at its end: what is appended later comes, half a frame is waited for."""
    data = path.read_bytes()
    path.write_bytes(data[: END - len(FRAMES[-1]) - 5])
    source = FileSource(path, follow=True, clock=clock, sleep=clock.sleep)
    assert FRAMES[:-2] == source.read(0.0)
    assert [] == source.read(0.2)
    assert ("", False) == (source.status.note, source.status.ended)
    path.write_bytes(data)
    assert FRAMES[-2:] == source.read(0.2)
    source.close()
