"""A stretch of the run for all figures: zoomed, moved, read from the recording where memory no longer holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from patience import wait_until
from snapshot import views
from synthetic_run import Fault, Job, encoded, folded, frames
from test_cli_first_steps import RUN
from test_cli_lookback import Watch
from test_tui_navigator import Keyboard

from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.app.stretch import LEAST_STEPS, chosen, moved, zoomed
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.contract.feed import End, FeedState, Pause, SeekStep, Step, StretchState, Zoom
from tuiadvisor.tui.control import ribbon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tuiadvisor.tui.contract.feed import FeedCommand

PATIENCE_S = 30.0


def test_zooming_halves_around_the_middle_and_stays_at_the_end() -> None:
    """Never shorter than a verdict wants, and out of the longest one nothing is chosen any more."""
    whole = (0, 999)
    first = zoomed(None, 1, whole, 2048)
    assert first == (500, 999)
    assert zoomed(first, 1, whole, 2048) == (750, 999)
    assert zoomed((400, 599), 1, whole, 2048) == (450, 549)
    assert zoomed((400, 599), -1, whole, 2048) == (300, 699)
    assert zoomed((100, 900), -1, whole, 2048) is None
    assert zoomed((10, 29), 1, whole, 2048) == (10, 29)
    assert zoomed(None, -1, whole, 2048) is None
    assert zoomed(None, 1, (0, LEAST_STEPS), 2048) is None


def test_a_stretch_is_never_longer_than_a_view_is_made_of() -> None:
    """Of a day's steps the newest two thousand first."""
    assert zoomed(None, 1, (0, 99_999), 2048) == (97_952, 99_999)
    assert zoomed((97_952, 99_999), -1, (0, 99_999), 2048) is None


def test_moving_goes_by_half_of_it_and_stays_within_the_run() -> None:
    """On and back."""
    assert moved((500, 599), -1, (0, 999)) == (450, 549)
    assert moved((10, 109), -1, (0, 999)) == (0, 99)
    assert moved((900, 999), 1, (0, 999)) == (900, 999)


def test_what_is_drawn_is_chosen_as_far_as_it_can_be() -> None:
    """In either direction; widened to what a verdict wants, the newest part of what is longer than a view."""
    assert chosen(200, 299, (0, 999), 2048) == (200, 299)
    assert chosen(299, 200, (0, 999), 2048) == (200, 299)
    assert chosen(995, 999, (0, 999), 2048) == (1000 - LEAST_STEPS, 999)
    assert chosen(0, 9_999, (0, 9_999), 2048) == (7_952, 9_999)


@pytest.fixture
def watch() -> Watch:
    started = Watch()
    started.give(1.0)
    started.turn()
    return started


def test_all_figures_of_a_live_run_are_of_the_stretch_and_stay_as_it_goes_on(watch: Watch) -> None:
    """Those that a fold of these steps alone gives; End leaves it."""
    watch.turn(Zoom(1))
    watch.turn(Step(-1))
    state = watch.feed.latest()
    assert state.stretch is not None
    assert state.view is not None
    chosen = (state.stretch.first_step, state.stretch.last_step)
    then = watch.feed.advisor.view_of(chosen)
    assert chosen[0] == state.view.trend.first_step
    steps = len(state.view.trend.step_s) * state.view.trend.steps_per_bucket
    assert steps in range(chosen[1] - chosen[0], chosen[1] - chosen[0] + 3)
    assert {row.now for row in state.view.ranks} == {""}
    assert (state.view.window, state.view.step, state.view.findings) == (
        then.window,
        then.step,
        then.findings,
    )
    assert chosen[0] <= (state.view.window.first_step or 0) <= (state.view.window.last_step or 0) <= chosen[1]
    watch.turn(End())
    assert watch.feed.latest().stretch is None


def test_seeking_leaves_the_stretch(watch: Watch) -> None:
    """One thing at a time."""
    watch.turn(Zoom(1))
    watch.turn(SeekStep(30))
    state = watch.feed.latest()
    assert state.stretch is None
    assert state.past is not None


@pytest.mark.slow
def test_what_memory_no_longer_holds_is_in_the_recording(watch: Watch) -> None:
    """At the oldest step that is held moving back says where to go on."""
    watch.turn(Zoom(1))
    for _ in range(12):
        watch.turn(Step(-1))
    assert "8 opens the recording" in watch.feed.latest().notice


class Replayed:
    """A replay whose thread runs; asks and waits for the picture."""

    def __init__(self, path: Path) -> None:
        self.feed = ReplayFeed(ReplaySource(str(path)))
        self.feed.command(Pause())
        self.feed.start()
        self.until(lambda _: self.feed._survey.is_done)

    def until(self, is_so: object) -> FeedState:
        wait_until(lambda: is_so(self.feed.latest()), every_s=0.005, seen=self.feed.latest)  # type: ignore[operator]
        return self.feed.latest()

    def ask(self, command: FeedCommand) -> FeedState:
        former = self.feed.latest().stretch
        self.feed.command(command)
        self.until(lambda state: state.stretch != former)
        return self.until(lambda state: state.view is not None and state.phase != "seeking")


JOB = Job(num_ranks=2, num_steps=4600, faults=(Fault("data", (1,), 0.02, onset=500, until=2000),))


@pytest.fixture
def replayed(tmp_path: Path) -> Iterator[Replayed]:
    path = tmp_path / "day.tuirec"
    writer = RecordingWriter(path, RUN)
    for frame in frames(JOB):
        writer.append(encoded(frame))
    writer.close()
    replay = Replayed(path)
    yield replay
    replay.feed.stop()


@pytest.mark.slow
def test_a_replay_reads_a_stretch_of_hours_ago_from_the_file(replayed: Replayed) -> None:
    """A rank that was late long before the steps that a fold holds at the end is named, with its steps alone."""
    state = replayed.ask(Zoom(1))
    for _ in range(20):
        assert state.stretch is not None
        if state.stretch.first_step <= 1100:
            break
        state = replayed.ask(Step(-1))
    for _ in range(2):
        state = replayed.ask(Zoom(1))
    assert state.stretch is not None
    chosen = (state.stretch.first_step, state.stretch.last_step)
    state = replayed.until(
        lambda now: now.view is not None and chosen[0] <= (now.view.window.first_step or -1) <= chosen[1]
    )
    view = state.view
    assert view is not None
    assert (state.stretch and state.stretch.run_last_step) == JOB.num_steps - 1
    assert [1] == [late.rank for late in view.stragglers]
    whole = folded(frames(JOB)).view()
    assert [] == [late.rank for late in whole.stragglers]
    stretch = state.stretch
    assert stretch is not None
    assert stretch.run.step_s == whole.trend.step_s  # the whole run above, the stretch below
    assert (view.trend.first_step, len(view.trend.step_s) * view.trend.steps_per_bucket >= 500) == (
        chosen[0],
        True,
    )


CHOSEN = StretchState(250, 299, 0, 549, views.straggler().trend)


def test_the_screen_says_of_which_steps_its_figures_are_and_what_cannot_follow() -> None:
    """On each screen of the run, with the brackets on the ribbon."""
    keyboard = Keyboard(views.live(views.straggler(), stretch=CHOSEN, phase="stretch"))
    for key in ("1", "2", "3", "4"):
        text = keyboard.press(key)
        assert "[ ] STRETCH" in text
        assert "figure is of steps 250\u2013299 of 0\u2013549" in text
        assert "ranks' states, hosts, losses" in text
        assert " run " in text
    marks = ribbon.rows(keyboard.place.state.view, 160, CHOSEN)[1].text  # type: ignore[arg-type]
    usual = ribbon.rows(keyboard.place.state.view, 160)[1].text  # type: ignore[arg-type]
    assert marks.index("[") != usual.index("[")


def test_the_keys_ask_for_it() -> None:
    """And say why they cannot."""
    keyboard = Keyboard(views.live(views.straggler()))
    keyboard.press("+")
    assert keyboard.shell.asked == [Zoom(1)]
    assert "+ chooses a stretch" in keyboard.press("-")
    keyboard.place.take_state(views.live(views.straggler(), stretch=CHOSEN, phase="stretch"))
    keyboard.press("-", "]", "[", "end")
    assert keyboard.shell.asked[1:] == [Zoom(-1), Step(1), Step(-1), End()]
    at_end = replace(CHOSEN, last_step=549)
    keyboard.place.take_state(views.live(views.straggler(), stretch=at_end, phase="stretch"))
    assert "newest step already" in keyboard.press("]")


def test_a_stretch_rings_for_nothing() -> None:
    """What is found in it is no news."""
    keyboard = Keyboard(views.live(views.healthy()))
    keyboard.place.take_state(views.live(views.stalled(), stretch=CHOSEN, phase="stretch"))
    assert not keyboard.shell.alerted
