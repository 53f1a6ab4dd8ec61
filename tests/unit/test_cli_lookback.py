"""Back in time in a live run: from what is held, said on the screen, and the stream goes on behind."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from snapshot import views
from unit.synthetic_run import Fault, Job, encoded, frames
from unit.test_tui_navigator import Keyboard

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.steps import step_store
from tuiadvisor.app.live_feed import LiveFeed
from tuiadvisor.stream.source import SourceStatus
from tuiadvisor.tui.contract.feed import (
    End,
    FeedCommand,
    NextFinding,
    PastState,
    Pause,
    PreviousFinding,
    Resume,
    SeekStep,
    Step,
    Stride,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.stream.frames import Frame

JOB = Job(num_steps=120, faults=(Fault("backward", (2,), 0.01, onset=60),))
PAST = replace(views.live(views.straggler(), phase="past"), past=PastState(200, 120, 341, 0.36))


class GivenSource:
    """Hands out what it was given; a run that goes on when more is given."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.status = SourceStatus("live", connected=True, bytes_behind=0, note="", ended=False)

    def give(self, more: Iterable[Frame]) -> None:
        self.waiting += [encoded(frame) for frame in more]

    def read(self, _timeout_s: float) -> list[bytes]:
        taken, self.waiting = self.waiting, []
        return taken

    def close(self) -> None:
        """Nothing to close."""


class Watch:
    """A live feed whose thread is this test's: each `turn` is one of its cycles."""

    def __init__(self, job: Job = JOB) -> None:
        self.frames = frames(job, rows_per_frame=8)
        self.source = GivenSource()
        self.feed = LiveFeed(self.source, lambda: None)

    def give(self, share: float) -> None:
        num = int(len(self.frames) * share)
        self.source.give(self.frames[:num])
        del self.frames[:num]

    def turn(self, command: FeedCommand | None = None) -> PastState | None:
        if command is not None:
            self.feed.command(command)
        self.feed._view_due_s = self.feed._behind_due_s = 0.0
        self.feed._cycle()
        return self.feed.latest().past


@pytest.fixture
def watch() -> Watch:
    started = Watch()
    started.give(0.8)
    started.turn()
    return started


def test_an_earlier_step_is_shown_as_it_was_then(watch: Watch) -> None:
    """The same figures that a fold of the same frames gives for that step."""
    assert None is watch.feed.latest().past
    past = watch.turn(SeekStep(40))
    state = watch.feed.latest()
    assert past is not None
    assert ("past", 40, 40) == (state.phase, past.step, state.view and state.view.last_step)
    reference = Advisor()
    for frame in frames(JOB, rows_per_frame=8)[: int(len(frames(JOB, rows_per_frame=8)) * 0.8)]:
        reference.feed(encoded(frame))
    then = reference.view_at(40)
    assert state.view is not None
    assert (then.step, then.findings, then.verdict) == (
        state.view.step,
        state.view.findings,
        state.view.verdict,
    )
    assert () == tuple(row.now for row in state.view.ranks if row.now)


def test_a_step_older_than_what_a_view_looks_at_is_shown_with_the_steps_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More steps are held than one view is made of: whoever looks back that far sees as many as were there then."""
    monkeypatch.setattr(step_store, "MIN_TABLE_STEPS", 48)
    monkeypatch.setattr(step_store, "MAX_TABLE_CELLS", 48)
    advisor, then = Advisor(), []
    for frame in frames(JOB, rows_per_frame=8):
        advisor.feed(encoded(frame))
        if not then and advisor.is_past(55):
            then.append(advisor.view_at(55))
    held = advisor.held_steps()
    assert held is not None
    assert 55 + 48 < held[1]
    now = advisor.view_at(55)
    assert (then[0].window, then[0].step, then[0].verdict) == (now.window, now.step, now.verdict)
    assert (now.window.last_step or 0) - (now.window.first_step or 0) > 40


def test_the_stream_goes_on_behind(watch: Watch) -> None:
    """The picture stays, the newest step grows, and End shows it."""
    watch.turn(Step(-1))
    before = watch.feed.latest()
    watch.give(1.0)
    watch.turn()
    after = watch.feed.latest()
    assert before.view is after.view
    assert before.past is not None
    assert after.past is not None
    assert after.past.last_step > before.past.last_step
    assert after.past.step == before.past.step
    assert None is watch.turn(End())
    view = watch.feed.latest().view
    assert view is not None
    assert after.past.last_step == view.last_step


def test_steps_strides_and_findings(watch: Watch) -> None:
    """One step, a part of what is held, where something began; beyond the newest step is live."""
    newest = watch.feed.latest().view.last_step  # type: ignore[union-attr]
    assert newest - 1 == watch.turn(Step(-1)).step  # type: ignore[union-attr]
    stride = watch.turn(Stride(-1))
    assert stride is not None
    assert stride.step < newest - 2
    began = watch.turn(PreviousFinding())
    assert began is not None
    assert abs(began.step - 60) <= 3
    watch.turn(Step(1))
    assert None is watch.turn(SeekStep(10_000))
    watch.turn(Step(-1))
    assert None is watch.turn(Step(1))


@pytest.mark.slow
def test_what_is_no_longer_held_is_said() -> None:
    """Not silently another step: where the oldest is, and what would have kept it."""
    watch = Watch(replace(JOB, num_steps=2600, num_ranks=17, faults=()))
    watch.give(1.0)
    watch.turn()
    past = watch.turn(SeekStep(3))
    held = watch.feed.advisor.held_steps()
    assert past is not None
    assert held is not None
    assert held[0] == past.step > 3
    assert "no longer held: a recording (-o FILE) keeps them" in watch.feed.latest().notice
    assert 2048 == held[1] - held[0] + 1


def test_nothing_to_look_back_on() -> None:
    """Before the first step."""
    feed = LiveFeed(SimpleNamespace(status=None), lambda: None)  # type: ignore[arg-type]
    feed._obey(Step(-1))
    assert "no step has been seen yet" == feed._notice()
    assert None is feed._past_state()


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 45)])
@pytest.mark.parametrize("page", ["1", "2", "3", "4"])
def test_the_screen_says_that_one_looks_at_the_past(page: str, size: tuple[int, int]) -> None:
    """Badge, a sentence with both steps, a line of what is held, and the key back."""
    keyboard = Keyboard(PAST)
    keyboard.press(page)
    rows = [row.text for row in keyboard.place.rows(*size)]
    assert rows[0].startswith(" ◀ PAST ")
    assert "as of step 200. The run goes on, at step 341; End" in " ".join(" ".join(rows[1:3]).split())
    assert rows[-2].startswith(" ◀ step 200  120 ━")
    assert rows[-2].rstrip().endswith("341 live")
    assert "End Newest" in rows[-1]


@pytest.mark.parametrize(
    ("key", "asked"),
    [
        ("[", Step(-1)),
        ("]", Step(1)),
        ("{", PreviousFinding()),
        ("}", NextFinding()),
        ("left", Stride(-1)),
        ("right", Stride(1)),
        ("end", End()),
        ("space", Resume()),
    ],
)
def test_keys_in_the_past(key: str, asked: object) -> None:
    """Back, on, to what was found, and to the live edge."""
    keyboard = Keyboard(PAST)
    keyboard.press(key)
    assert [asked] == keyboard.shell.asked


def test_seeking_in_a_live_run() -> None:
    """By number; a number that is not held is refused where the screen knows it."""
    keyboard = Keyboard(views.live(views.straggler()))
    keyboard.press("S", *"120", "enter")
    assert [SeekStep(120)] == keyboard.shell.asked
    keyboard.place.take_state(PAST)
    assert "step 7 is no longer in memory: it holds 120 to 341" in keyboard.press("S", "7", "enter")


def test_onward_from_the_live_edge_says_why_not() -> None:
    """Nothing lies ahead of it."""
    keyboard = Keyboard(views.live(views.straggler()))
    for key in ("]", "}", "right"):
        assert "this is the newest step already" in keyboard.press(key)
    assert [] == keyboard.shell.asked
    empty = Keyboard(views.live(views.unknown_everything()))
    assert "no step has been seen yet" in empty.press("[")


def test_from_a_frozen_picture_one_goes_back_from_what_it_shows(watch: Watch) -> None:
    """Not from the live edge behind it: that would be a step forward."""
    watch.turn(Pause())
    shown = watch.feed.latest().view
    watch.give(1.0)
    watch.turn()
    assert shown is watch.feed.latest().view
    assert shown is not None
    assert shown.last_step is not None
    past = watch.turn(Step(-1))
    assert past is not None
    assert shown.last_step - 1 == past.step
    assert past.step < past.last_step - 2


def test_the_past_begins_at_no_negative_step() -> None:
    """One rank was met three steps before the other: of those no screen says "-3"."""
    watch = Watch(replace(JOB, attach=(3, *[0] * (JOB.num_ranks - 1))))
    watch.give(0.8)
    watch.turn()
    past = watch.turn(SeekStep(10))
    assert past is not None
    assert (0, 10) == (past.first_step, past.step)
    assert watch.feed._choosable() == (0, past.last_step)
