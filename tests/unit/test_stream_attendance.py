"""What is missing is noticed once, and named."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tuiadvisor.stream.attendance import AGENT_RETURNED, AGENT_SILENT, FRAMES_MISSING, Attendance
from tuiadvisor.stream.frames import FrameError, FrameHead, FrameKind
from tuiadvisor.stream.voice import VOICE_BYTES


def head(seq: int, source: str = "h/1/2", kind: FrameKind = FrameKind.STATUS) -> FrameHead:
    return FrameHead(kind, source, seq, 0, 100)


def test_frames_in_order_miss_nothing() -> None:
    """Consecutive frames of two sources leave no gap."""
    attendance = Attendance()
    found = [attendance.arrive(head(seq, source), 0.0) for seq in range(3) for source in ("a/1/1", "b/1/1")]
    assert [[]] * 6 == found
    assert 2 == len(attendance)


def test_a_hole_in_the_numbers_is_counted() -> None:
    """Three frames missing on the way, two before the hub heard of the source."""
    attendance = Attendance()
    assert 2 == attendance.arrive(head(2), 0.0)[0]["num_frames"]
    (missing,) = attendance.arrive(head(6), 0.0)
    assert (FRAMES_MISSING, "h/1/2", 3) == (missing["what"], missing["source"], missing["num_frames"])


def test_repeated_frames_are_refused() -> None:
    """A frame that was recorded already is not recorded again."""
    attendance = Attendance()
    attendance.arrive(head(0), 0.0)
    with pytest.raises(FrameError, match="twice or out of order"):
        attendance.arrive(head(0), 0.0)


def test_silence_is_said_once_and_the_return_too() -> None:
    """One GAP when an agent falls silent, however long, and one when it is back."""
    attendance = Attendance(silence_s=3.0)
    attendance.arrive(head(0), 10.0)
    assert [] == attendance.overdue(13.0)
    assert [AGENT_SILENT] == [gap["what"] for gap in attendance.overdue(13.5)]
    assert [] == attendance.overdue(60.0)
    assert [AGENT_RETURNED] == [gap["what"] for gap in attendance.arrive(head(1), 61.0)]
    assert [AGENT_SILENT] == [gap["what"] for gap in attendance.overdue(65.0)]


def test_an_agent_that_said_goodbye_may_be_silent() -> None:
    """No GAP after BYE; a restarted agent is another source and counts from 0."""
    attendance = Attendance()
    attendance.arrive(head(0, kind=FrameKind.BYE), 0.0)
    assert [] == attendance.overdue(100.0)
    assert [] == attendance.arrive(head(0, "h/9/9"), 100.0)
    assert 1 == len(attendance)


@pytest.mark.parametrize(
    "forged", [head(0, "hub"), head(0, kind=FrameKind.RUN), head(0, kind=FrameKind.GAP)], ids=str
)
def test_nobody_speaks_for_the_hub(forged: FrameHead) -> None:
    """Frames in the hub's name, or of kinds that only it writes, are refused."""
    with pytest.raises(FrameError, match="only the hub"):
        Attendance().arrive(forged, 0.0)


def test_the_number_of_sources_is_bounded() -> None:
    """A flood of made-up sources is refused; one that left makes room."""
    attendance = Attendance(max_sources=2)
    attendance.arrive(head(0, "a/1/1"), 0.0)
    attendance.arrive(head(0, "b/1/1"), 0.0)
    with pytest.raises(FrameError, match="more than 2"):
        attendance.arrive(head(0, "c/1/1"), 0.0)
    attendance.arrive(head(1, "a/1/1", FrameKind.BYE), 0.0)
    assert [] == attendance.arrive(head(0, "c/1/1"), 0.0)


ONE, OTHER = b"1" * VOICE_BYTES, b"2" * VOICE_BYTES


def arrive(attendance: Attendance, source: str, voice: bytes = ONE, peer: str = "key 10.0.0.1") -> None:
    """A source's first frame over a network."""
    attendance.arrive(head(0, source), 0.0, voice, lambda: peer)


def test_a_source_belongs_to_who_spoke_first() -> None:
    """Another voice is refused whatever its number; the owner goes on, over a connection from elsewhere too."""
    attendance = Attendance()
    arrive(attendance, "h/1/2")
    for seq in (1, 1 << 62):
        for voice in (OTHER, b""):
            with pytest.raises(FrameError, match="from somebody else"):
                attendance.arrive(head(seq), 0.0, voice, lambda: "key 10.0.0.1")
    assert [] == attendance.arrive(head(1), 0.0, ONE, lambda: "key 10.0.0.2")


def test_no_peer_leaves_nothing_to_others() -> None:
    """Each may have as many sources as it leaves free: one takes half of the room, the next half of the rest."""
    attendance = Attendance(max_sources=64)
    num_admitted = []
    for peer in ("key 10.0.0.1", "key 10.0.0.2", "key2 10.0.0.1"):
        before = len(attendance)
        for number in range(100):
            with suppress(FrameError):
                arrive(attendance, f"i/{peer}/{number}", peer=peer)
        num_admitted.append(len(attendance) - before)
    assert [32, 16, 8] == num_admitted
    arrive(attendance, "h/1/2", peer="key 10.0.0.9")


def test_who_leaves_makes_room_for_its_own_only() -> None:
    """A peer at its limit gets in for one of its own that said BYE, not for another's."""
    attendance = Attendance(max_sources=4)
    arrive(attendance, "a/1/1", peer="a")
    attendance.arrive(head(1, "a/1/1", FrameKind.BYE), 0.0, ONE)
    arrive(attendance, "b/1/1", peer="b")
    with pytest.raises(FrameError, match="from one peer"):
        any(arrive(attendance, f"b/{number}/1", peer="b") for number in range(2, 9))
    arrive(attendance, "a/2/1", peer="a")


def test_losses_are_believed_as_far_as_an_agent_can_have_them() -> None:
    """No more in all than an agent sends in its time; beyond that nobody knows how many, and the frame is kept."""
    attendance = Attendance()
    assert [None] == [one["num_frames"] for one in attendance.arrive(head(1 << 62, "h/9/9"), 0.0)]
    attendance.arrive(head(0), 0.0)
    seq, told = 0, []
    for _ in range(10):
        seq += 501
        told += [one["num_frames"] for one in attendance.arrive(head(seq), 1.0)]
    assert [500] * 4 + [None] * 6 == told
    (later,) = attendance.arrive(head(seq + 1001), 101.0)
    assert 1000 == later["num_frames"]
