"""The feed of a recording: a position that can be moved, marks, and beside it a look at the whole of it.

In: a recording, commands of the screens.  Out: FeedStates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from tuiadvisor.app.feed import READ_S, AddMark, Feed
from tuiadvisor.app.survey import Survey
from tuiadvisor.events import NOTHING_GIVEN
from tuiadvisor.tui.contract.feed import (
    Capture,
    ChooseSteps,
    Detail,
    End,
    NextFinding,
    Pause,
    PreviousFinding,
    Quit,
    ReplayState,
    Resume,
    SeekStep,
    Speed,
    Stacks,
    Step,
    Stride,
    Zoom,
)
from tuiadvisor.views.event import ONSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.app.stretch import Steps
    from tuiadvisor.events import GivenWork
    from tuiadvisor.stream.replay import ReplaySource
    from tuiadvisor.tui.contract.feed import FeedCommand, Mode
    from tuiadvisor.views.run_view import PastFinding, RunView, Trend

Moves = SeekStep | Step | Stride | End | NextFinding | PreviousFinding
REST_S: Final = 0.5  # of a replay that stands: a command wakes it
STRIDES: Final = 32  # of a recording, from its first step to its last
SURVEY_TURN_S: Final = 0.05  # a key waits no longer than this for the look at the whole recording


class ReplayFeed(Feed):
    """A recording, with a position that can be moved; beside the replay the whole of it is looked at once."""

    mode: Mode = "replay"

    def __init__(
        self,
        source: ReplaySource,
        survey: Survey | None = None,
        bookmarks: Iterable[tuple[int, str]] = (),
        given: GivenWork = NOTHING_GIVEN,
    ) -> None:
        """survey: a look that was taken already, or is under way; bookmarks: (step, what to call it)."""
        super().__init__(source, given)
        self.replay = source
        self.last_step = source.index.last_step()  # as good as known; exactly when the survey is done
        self.at_step: int | None = None  # the one step shown while paused; frames hold a dozen each
        self.steps = sorted(bookmarks)
        for step, label in self.steps:
            self.events.bookmark(step, label)
        self.positions = self._positions()
        self._survey = survey or Survey(source.path, source.index.end, given)
        self._is_seeking = False
        self._take_survey()

    def stop(self) -> None:
        """Stop reading, looking and the thread."""
        super().stop()
        self._survey.close()

    def _take_survey(self) -> None:
        """What begins where, once the whole recording was looked at."""
        whole = self._survey.view
        if whole is None:
            return
        if self._survey.summary is not None:
            self.replay.index.adopt(self._survey.scan, self._survey.summary)
        self.last_step = whole.last_step
        self.events.join(self._survey.events)
        # As the ribbon's: in the last view a finding goes back to the first steps held, perhaps hours behind its onset.
        onsets = [each for each in self._survey.events.events if each.kind == ONSET]
        self.steps = sorted(
            [*self.steps, *((each.step, each.words) for each in onsets if each.step is not None)]
        )
        self.positions = self._positions()

    def _cycle(self) -> None:
        is_due = not self._survey.is_done and not self._is_seeking
        if is_due and self._survey.advance(SURVEY_TURN_S):
            self._take_survey()
            self._changed = True
        super()._cycle()

    def _patience_s(self) -> float:
        return 0.0

    def _rest(self) -> None:
        """Until the next frame is due, a command comes, or the screen wants its next picture."""
        status = self.source.status
        if self._survey.is_done and not status.bytes_behind:
            stands = self.replay.clock.paused or status.ended
            self._asked.wait(REST_S if stands and not self._changed else READ_S)

    def _is_catching_up(self) -> bool:
        """A seek shows the place that was asked for, nothing on the way there."""
        self._is_seeking = self._is_seeking and self.source.status.bytes_behind > 0
        return self._is_seeking or super()._is_catching_up()

    def _is_as_it_comes(self) -> bool:
        return self.at_step is None and self.stretch is None

    def _choosable(self) -> Steps | None:
        """All of the recording, once it was looked at: a stretch of it is read from the file."""
        whole = self._survey.view
        if whole is None or whole.last_step is None:
            return super()._choosable()
        # Of ranks that were attached one after another, steps before the first common one have no number of the job.
        return max(whole.trend.first_step, 0), whole.last_step

    def _choose(self, steps: Steps | None) -> None:
        """Go to the end of a stretch, so that its steps are held."""
        self.stretch = steps
        if steps is not None:
            self.replay.clock.pause()
            self._show_step(steps[1])

    def _trend_of_run(self) -> Trend:
        whole = self._survey.view
        return super()._trend_of_run() if whole is None else whole.trend

    def _past(self, view: RunView) -> tuple[PastFinding, ...]:
        """Of the whole recording once it was looked at, as far as it is shown: one may have gone back before some."""
        log = self.events if self._survey.view is None else self._survey.events
        here = view.last_step
        return tuple(
            past
            for past in log.past(view)
            if here is None or past.last_step is None or past.last_step <= here
        )

    def _picture(self) -> RunView:
        if self.stretch is not None:
            return self.advisor.view_of_stretch(self.stretch)
        return self.advisor.view() if self.at_step is None else self.advisor.view_at(self.at_step)

    def _phase(self) -> tuple[str, tuple[int, int] | None]:
        if self._is_seeking:
            return "seeking", (100 * self.replay.offset // self.replay.index.end, 100)
        if self.replay.clock.paused:
            return "paused", None
        return ("ended" if self.replay.status.ended else "replay"), None

    def _replay_state(self) -> ReplayState:
        duration_s = self.replay.duration_s or 1.0
        view = self.view
        return ReplayState(
            position=min(1.0, self.replay.position_s / duration_s),
            step=view.last_step if view is not None else None,
            first_step=0,
            last_step=self.last_step,
            speed=self.replay.clock.speed,
            paused=self.replay.clock.paused,
            marks=tuple((min(1.0, position_s / duration_s), label) for position_s, label in self.positions),
            share_read=self._survey.share,
        )

    def _obey(self, command: FeedCommand | AddMark) -> None:
        clock = self.replay.clock
        here = self.at_step if self.at_step is not None else self.view.last_step if self.view else None
        self.at_step = None
        match command:
            case Zoom(by):
                self.events.jump()
                self._choose(self._zoomed(by))
            case ChooseSteps(first, last):
                self.events.jump()
                self._choose(self._chosen(first, last))
            case Step(by) if self.stretch is not None:
                self._choose(self._moved(by))
            case Pause():
                clock.pause()
            case Resume():
                self.stretch = None
                clock.resume()
            case Speed(factor):
                clock.set_speed(factor)
            case AddMark(step, label):
                self.at_step = here if clock.paused else None
                self.events.bookmark(step, label)
                self.steps = sorted([*self.steps, (step, label)])
                self.positions = self._positions()
            case Capture() | Detail() | Stacks() | Quit():
                pass  # of a live run; and a replay ends when the screens have
            case _:
                self._move(command, here)

    def _move(self, command: Moves, here: int | None) -> None:
        """To another place of the recording."""
        self.stretch = None
        self.events.jump()
        match command:
            case SeekStep(step):
                self._stay_at(step)
            case Step(by):
                self._stay_at(0 if here is None else here + by)
            case Stride(by):
                self._show_step((here or 0) + by * max((self.last_step or 0) // STRIDES, 1))
            case End():
                self._go(self.replay.index.end, self.replay.duration_s)
            case NextFinding() | PreviousFinding():
                self._to_finding(forward=isinstance(command, NextFinding))
            case _:
                assert_never(command)

    def add_mark(self, step: int, label: str) -> None:
        """A mark on the time line from now on; the feed's own thread takes it in."""
        self.command(AddMark(step, label))

    def _positions(self) -> tuple[tuple[float, str], ...]:
        index = self.replay.index
        if not len(index):
            self.steps = []
        return tuple((index.position_s(index.offset_of_step(step)), label) for step, label in self.steps)

    def _stay_at(self, step: int) -> None:
        """Who goes to a step or a finding wants to look at it: time stands there."""
        self.replay.clock.pause()
        self._show_step(step)

    def _show_step(self, step: int) -> None:
        step = max(min(step, self.last_step if self.last_step is not None else step), 0)
        if self.replay.clock.paused:
            self.at_step = step
        offset = self.replay.index.offset_of_step(step)
        self._go(offset, self.replay.index.position_s(offset))

    def _go(self, offset: int, position_s: float) -> None:
        """Go to where the frames before this offset have been folded, from the nearest state kept or at hand."""
        checkpoints = self._survey.checkpoints
        found = checkpoints.offset_before(offset)
        here = self.replay.offset
        if found is not None and (offset < here or found > here):
            self.advisor = checkpoints.restore(found, spare=self.advisor)
            self.replay.resume_at(found)
            self._changed = True
        self.replay.seek_offset(offset, position_s)
        self._is_seeking = True

    def _to_finding(self, *, forward: bool) -> None:
        here_s = self.replay.position_s
        marks = [
            (position_s, step) for (position_s, _), (step, _) in zip(self.positions, self.steps, strict=True)
        ]
        ahead = [mark for mark in marks if mark[0] > here_s + 0.05]
        behind = [mark for mark in marks if mark[0] < here_s - 0.05]
        if not (ahead if forward else behind):
            return
        self._stay_at((min(ahead) if forward else max(behind))[1])
