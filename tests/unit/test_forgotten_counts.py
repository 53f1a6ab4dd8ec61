"""Who was late long ago, when the kernel's counts of that time are no longer held: a stretch of a live run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, Job, folded, frames
from test_advisor_oddities import host_frames

from tuiadvisor.advisor.cluster.rank_samples import MAX_SAMPLES, ROOM
from tuiadvisor.advisor.cluster.run_delay import CoreWait
from tuiadvisor.advisor.fold import Advisor

QUIET = dict.fromkeys(range(4), 0.02)
LATE = Job(num_steps=800, faults=(Fault("other", (1,), 100 * MS),))  # 97 s


def read(num_seconds: int) -> Advisor:
    """The run with its host's samples until so long after its begin."""
    hosts = host_frames(replace(LATE, num_steps=50 * num_seconds), QUIET)[:num_seconds]
    assert len(hosts) == num_seconds
    return folded([*frames(LATE), *hosts])


@pytest.mark.parametrize("now_s", [97, 97 + ROOM, 97 + 3 * ROOM])
def test_who_was_late_for_long_enough_is_named_however_long_ago(now_s: int) -> None:
    """15 s of such steps and more are no chance. "Known once such steps have gone on" was said of the past."""
    for steps in ((8, 200), (216, 536), (376, 744)):
        view = read(now_s).view_of_stretch(steps)
        assert "tune" == view.verdict.decision
        assert "rank 1 late by 100 ms" in view.verdict.sentence


def test_of_too_short_a_stretch_it_is_said_how_long_one_tells() -> None:
    view = read(97 + 3 * ROOM).view_of_stretch((20, 80))
    assert view.verdict.decision is None
    assert (
        "15 seconds of such steps without another change tell whether it lacks a core"
        in view.verdict.sentence
    )


def test_what_is_held_of_the_past_is_read() -> None:
    """Of up to twice MAX_SAMPLES only the newest MAX_SAMPLES were: a look at the others said less than nothing."""
    seen = CoreWait()
    for second in range(ROOM - 1):
        seen.take({"mono_ns": second * 10**9, "ranks": [{"rank": 0, "run_delay_s": 0.5 * second}]})
    then_ns = [(MAX_SAMPLES // 2) * 10**9]
    assert ([pytest.approx(0.5)], [pytest.approx(0.5)]) == seen.bounds([0], 10.0, then_ns)
    assert [False] == seen.is_gone([0], 10.0, then_ns)


def test_what_is_no_longer_held_is_told_from_what_was_never_counted() -> None:
    seen = CoreWait()
    for second in range(10, 10 + 2 * ROOM):
        seen.take({"mono_ns": second * 10**9, "ranks": [{"rank": 0, "run_delay_s": 0.5 * second}]})
    assert [True, False] == seen.is_gone([0, 1], 5.0, [30 * 10**9, 30 * 10**9])
    assert ([None], [None]) == seen.bounds([0], 5.0, [30 * 10**9])
    assert [False] == seen.is_gone([0], 5.0, [(5 + 2 * ROOM) * 10**9])
    assert [False] == seen.is_gone([0], 5.0, None)


@pytest.mark.parametrize("end_s", [130, 400])  # of the later one nothing of the time of the change is held
def test_what_was_waited_before_a_change_is_known_however_long_ago_that_was(end_s: int) -> None:
    """It is what the count grew by until then, which no sample that is still held has to tell."""
    seen = CoreWait()
    assert seen.share_before(0, 10**9) is None
    for second in range(1, end_s + 1):
        waited_s = 0.8 * min(second, 100) + 0.2 * max(second - 100, 0)
        seen.take({"mono_ns": second * 10**9, "ranks": [{"rank": 0, "run_delay_s": waited_s}]})
    share = seen.share_before(0, 100 * 10**9)
    assert share is not None
    assert 0.8 == pytest.approx(share, rel=0.02)
    assert seen.share_before(0, 3 * 10**9) is None
    assert seen.share_before(1, 100 * 10**9) is None
