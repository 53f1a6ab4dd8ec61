"""What is missing is noticed once, and named."""

from __future__ import annotations

import pytest

from tuiadvisor.stream.attendance import AGENT_RETURNED, AGENT_SILENT, FRAMES_MISSING, Attendance
from tuiadvisor.stream.frames import FrameError, FrameHead, FrameKind


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
