"""The feed behind the live screens: its pace, and what it says of what was asked for."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from patience import wait_until
from snapshot import views
from synthetic_run import Job
from unit.test_cli_lookback import Watch
from unit.test_contents import recording

from tuiadvisor.app import feed as feed_module
from tuiadvisor.app.feed import UNWATCHED_READ_PERIOD_S, UNWATCHED_VIEW_PERIOD_S, VIEW_PERIOD_S
from tuiadvisor.app.live_feed import BURST_MS, READ_AFTER_S
from tuiadvisor.app.replay_feed import REST_S, ReplayFeed
from tuiadvisor.stream.frames import FrameKind
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.contract.feed import Detail, End, PastState, Pause, SeekStep
from tuiadvisor.tui.control import frame
from tuiadvisor.tui.pages.journal import Journal
from tuiadvisor.views.run_view import RunView

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """The feed's clocks; each picture takes what `costs` says, of the wall and of the processor."""

    def __init__(self, costs: list[tuple[float, float]]) -> None:
        self.now_s = self.cpu_s = 0.0
        self.costs = costs

    def monotonic(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return self.cpu_s

    def spend(self) -> None:
        wall_s, cpu_s = self.costs.pop(0)
        self.now_s, self.cpu_s = self.now_s + wall_s, self.cpu_s + cpu_s


def pauses_between_views(costs: list[tuple[float, float]], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds from the beginning of each picture until the next is due."""
    watch, clock = Watch(), Clock(list(costs))
    watch.give(0.5)
    picture = watch.feed._picture

    def dear_picture() -> RunView:
        clock.spend()
        return picture()

    monkeypatch.setattr(feed_module.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(feed_module.time, "thread_time", clock.thread_time)
    monkeypatch.setattr(watch.feed, "_picture", dear_picture)
    pauses = []
    for _ in costs:
        watch.feed._changed = True
        begin_s = clock.now_s
        watch.turn()
        pauses.append(watch.feed._view_due_s - begin_s)
    return pauses


def test_a_first_dear_view_is_no_reason_to_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first view imports what it needs, on cores that the ranks use too: the next is due as soon as any."""
    assert [VIEW_PERIOD_S] * 3 == pytest.approx(
        pauses_between_views([(0.9, 0.8), (0.4, 0.04), (0.4, 0.04)], monkeypatch)
    )


def test_views_that_are_always_dear_take_a_fifth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of ranks: a second a view, one every five."""
    assert pytest.approx(5.0) == pauses_between_views([(1.0, 1.0)] * 4, monkeypatch)[-1]


def test_the_first_step_is_shown_when_it_comes() -> None:
    """Not when the next picture is due: with the first steps there is something to see."""
    watch = Watch()
    before = next(number for number, one in enumerate(watch.frames) if one.kind is FrameKind.STEPS)
    watch.source.give(watch.frames[:before])
    watch.turn()
    assert watch.feed.view is not None
    assert watch.feed.view.last_step is None
    for num in (before, before + 1):
        watch.feed._view_due_s = watch.feed._behind_due_s = time.monotonic() + 3600.0
        watch.source.give(watch.frames[num:][:1])
        watch.feed._cycle()
    first = watch.feed.view.last_step
    assert first is not None
    watch.feed._view_due_s = time.monotonic() + 3600.0
    watch.source.give(watch.frames[before + 2 :])
    watch.feed._cycle()
    assert watch.feed.view.last_step == first  # later ones wait


def test_a_feed_that_nobody_watches_rests_unless_it_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures every 3 s, two reads a second; what a fast job sends meanwhile is read without a rest."""
    watch = Watch()
    rests: list[float] = []
    monkeypatch.setattr(watch.feed._asked, "wait", rests.append)
    watch.give(0.2)
    watch.turn()
    assert [] == rests
    watch.feed.nobody_watches()
    begin_s = time.monotonic()
    watch.give(0.2)
    watch.turn()
    assert [UNWATCHED_READ_PERIOD_S] == rests
    assert watch.feed._view_due_s >= begin_s + UNWATCHED_VIEW_PERIOD_S
    watch.source.status = replace(watch.source.status, bytes_behind=1)
    watch.turn()
    assert [UNWATCHED_READ_PERIOD_S] == rests


def test_an_announcement_goes_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 s of detail are announced, and no longer when they have long passed."""
    watch = Watch()
    asked = []
    watch.feed._request = asked.append
    watch.give(0.5)
    watch.turn(Detail(()))
    assert "every call of the next 3 s" in watch.feed.latest().notice
    assert [BURST_MS] == [request.burst_ms for request in asked]
    later_s = time.monotonic() + BURST_MS / 1000 + READ_AFTER_S + 0.1
    monkeypatch.setattr(feed_module.time, "monotonic", lambda: later_s)
    watch.turn()
    assert not watch.feed.latest().notice


def test_looking_back_is_no_news_for_the_log() -> None:
    """An earlier picture lacks findings that the run has: nothing was lost, and nothing is found again."""
    journal, now = Journal(), views.live(views.straggler())
    journal.observe("10:00:00", now)
    before = [entry.text for entry in journal.entries]
    assert any(text.startswith("finding:") for text in before)
    past = replace(now, view=views.healthy(), phase="past", past=PastState(7, 1, 90, 0.1))
    journal.observe("10:00:01", past)
    journal.observe("10:00:02", now)
    assert before == [entry.text for entry in journal.entries]


def test_the_answer_to_a_command_is_in_the_log_and_leaves_the_screen_its_rows() -> None:
    """The sentence about a capture is three rows long at 80 columns; on a small screen two, the log has all of it."""
    told = (
        "rank 1: 31 % of communication hidden; trace in /a/long/folder/of/somebody/trace-rank1.json.gz " * 3
    )
    state = replace(views.live(views.straggler()), notice=told)
    journal = Journal()
    journal.observe("10:00:00", state)
    journal.observe("10:00:01", state)
    assert [told] == [entry.text for entry in journal.entries if entry.text == told]
    small, large = (frame.notice(state, 80, height) for height in (24, 40))
    assert (2, 3) == (len(small), len(large))
    assert small[-1].text.rstrip().endswith(" … (L: log)")
    assert small[-1].text.count("…") == 1
    assert small[-1].text.partition(" …")[0].split()[-1] in told.split()


@pytest.mark.slow
@pytest.mark.parametrize("state", ["at its end", "paused"])
def test_a_replay_that_stands_takes_no_processor_and_answers_at_once(tmp_path: Path, state: str) -> None:
    """Its thread waits for a command; it once asked the file ten thousand times a second at the end."""
    path = recording(tmp_path / "run.tuirec", Job(num_steps=60))
    feed = ReplayFeed(ReplaySource(path))
    cycles = 0
    rests: list[float | None] = []
    whole, wait = feed._cycle, feed._asked.wait

    def counted() -> None:
        nonlocal cycles
        cycles += 1
        whole()

    def rested(timeout: float | None = None) -> bool:
        rests.append(timeout)
        return wait(timeout)

    feed._cycle = counted  # type: ignore[method-assign]
    feed._asked.wait = rested  # type: ignore[method-assign]
    feed.start()
    try:
        feed.command(End() if state == "at its end" else Pause())
        wait_until(lambda: feed.latest().phase == ("ended" if state == "at its end" else "paused"))
        wait_until(lambda: feed._survey.is_done)
        wait_until(lambda: rests[-1:] == [REST_S])
        num_rests, before = len(rests), cycles
        wait_until(lambda: len(rests) >= num_rests + 3)
        assert cycles - before <= len(rests) - num_rests + 1
        assert {REST_S} == set(rests[num_rests:])
        before = cycles
        feed.command(SeekStep(20))
        wait_until(lambda: cycles > before)
    finally:
        feed.stop()
