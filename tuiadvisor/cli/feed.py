"""The thread between a source and the screens: read, fold, publish the newest frozen state.

Screens never wait for it and it never waits for them.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.agent.hello import host_name
from tuiadvisor.cli.errand import Errand, capture_errand, stacks_errand
from tuiadvisor.cli.lookback import LOOKS_BACK, Lookback
from tuiadvisor.cli.recorded import finding_marks
from tuiadvisor.cli.survey import Survey
from tuiadvisor.events import NOTHING_GIVEN
from tuiadvisor.stream.wish import Wish
from tuiadvisor.tui.feed import FeedState, Mode, PastState, ReplayState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tuiadvisor.advisor.view import RunView
    from tuiadvisor.events import GivenWork
    from tuiadvisor.stream.replay import ReplaySource
    from tuiadvisor.stream.source import Source

READ_S: Final = 0.05  # a key that the feed answers waits no longer than this for it
REST_S: Final = 0.5  # of a replay that stands: a command wakes it
STRIDES: Final = 32  # of a recording, from its first step to its last
BURST_MS: Final = 3000
READ_AFTER_S: Final = 4.0  # an announcement stays so much longer than what it announces
VIEW_PERIOD_S: Final = 0.45
VIEW_SHARE: Final = 0.2  # of the thread's time at most: in worlds of thousands of ranks a view takes a second
SURVEY_TURN_S: Final = 0.05  # a key waits no longer than this for the look at the whole recording


class Feed:
    """What live and replay have in common. Subclasses say what the phase is and take their commands."""

    mode: Mode = "live"

    def __init__(self, source: Source, given: GivenWork = NOTHING_GIVEN) -> None:
        """given: work of a step, wins over what the frames say."""
        self._given = given
        self.source = source
        self.advisor = Advisor(given=given)
        self.view: RunView | None = None
        self.frozen = False  # the reader goes on, the screen keeps its picture
        self._version = 0
        self._num_restarts = 0
        self._changed = True
        self._view_due_s = 0.0
        self._behind_due_s = 0.0
        self._view_costs_s = (0.0, 0.0, 0.0)  # of the last views, processor time of this thread
        self._commands: queue.SimpleQueue[tuple[str, object]] = queue.SimpleQueue()
        self._asked = threading.Event()
        self._stopped = threading.Event()
        self._state = FeedState(None, self.mode, "starting", "", None, None, 0)
        self._thread = threading.Thread(target=self._run, name="tuiadvisor-feed", daemon=True)
        self.failure: Exception | None = None

    def start(self) -> None:
        """Begin reading."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading and close the source."""
        self._stopped.set()
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self.source.close()

    def latest(self) -> FeedState:
        """The newest state."""
        return self._state

    def command(self, name: str, value: object = None) -> None:
        """Queue a command for the thread."""
        self._commands.put((name, value))
        self._asked.set()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._cycle()
        except Exception as error:  # noqa: BLE001 - a thread's end must reach the screen, then the command line
            self.failure = error
            self._publish(f"failed: {type(error).__name__}: {error}")

    def _cycle(self) -> None:
        self._asked.clear()
        while not self._commands.empty():
            self._obey(*self._commands.get())
            self._changed = True
            self._view_due_s = 0.0
        frames = self.source.read(self._patience_s())
        if self.source.status.num_restarts != self._num_restarts:
            self._num_restarts = self.source.status.num_restarts
            self.advisor = Advisor(given=self._given)
        self.advisor.feed_many(frames)
        self._changed = self._changed or bool(frames)
        now, cpu_s = time.monotonic(), time.thread_time()
        is_behind = self._is_catching_up()
        if now >= (self._behind_due_s if is_behind else self._view_due_s):
            cost_s = 0.0
            if self._changed and not self._stands() and not is_behind:
                self.view = self._picture()
                self._changed = False
                self._view_costs_s = (*self._view_costs_s[1:], time.thread_time() - cpu_s)
                # One dear view (the first imports what it needs) is no reason to stand still: the cheapest of three.
                cost_s = min(self._view_costs_s)
            self._view_due_s = self._behind_due_s = now + max(VIEW_PERIOD_S, cost_s / VIEW_SHARE)
            self._publish(self.source.status.note)
        if not frames:
            self._rest()

    def _rest(self) -> None:
        """Wait where reading did not: nothing here."""

    def _stands(self) -> bool:
        """Whether the picture stays whatever comes."""
        return self.frozen

    def _patience_s(self) -> float:
        """How long to wait for the next frames."""
        return READ_S

    def _picture(self) -> RunView:
        return self.advisor.view()

    def _is_catching_up(self) -> bool:
        # A late viewer first folds the history; drawing in between would only slow it down.
        return self.view is not None and self.source.status.bytes_behind > 4 << 20

    def _publish(self, message: str) -> None:
        phase, progress = self._phase()
        former = self._state
        state = FeedState(
            self.view,
            self.mode,
            phase,
            message,
            progress,
            self._replay_state(),
            former.version,
            self._notice(),
            self._past_state(),
        )
        if state != former:
            self._version += 1
            self._state = replace(state, version=self._version)

    def _phase(self) -> tuple[str, tuple[int, int] | None]:
        raise NotImplementedError

    def _replay_state(self) -> ReplayState | None:
        return None

    def _past_state(self) -> PastState | None:
        return None

    def _notice(self) -> str:
        return ""

    def _obey(self, name: str, value: object) -> None:
        raise NotImplementedError


class LiveFeed(Feed):
    """A session's frames as they come."""

    def __init__(
        self,
        source: Source,
        agent_error: Callable[[], str | None],
        wish: Callable[[Wish], None] | None = None,
    ) -> None:
        """wish: tells the agents what is wanted; None: they are another's."""
        super().__init__(source)
        self._agent_error = agent_error
        self._wish = wish
        self._errand: Errand | None = None
        self._answer = ""
        self._stale_answer = ("", 0.0)  # an announcement, and when it is no longer true
        self._lookback = Lookback()
        self.answers: list[str] = []  # of errands, for the terminal when the screens are gone

    def stop(self) -> None:
        """Stop reading, and what runs beside the screens."""
        super().stop()
        if self._errand is not None:
            self._errand.stop()

    def _phase(self) -> tuple[str, tuple[int, int] | None]:
        status = self.source.status
        if status.ended or (self.view is not None and not status.connected):
            return "hub lost", None
        error = self._agent_error()
        if error is not None:
            return f"agent lost: {error}", None
        if self._lookback.step is not None:
            return "past", None
        if self.frozen:
            return "paused", None
        return attach_phase(self.view)

    def _stands(self) -> bool:
        return self._lookback.is_drawn if self._lookback.step is not None else self.frozen

    def _picture(self) -> RunView:
        return self._lookback.picture(self.advisor)

    def _past_state(self) -> PastState | None:
        return self._lookback.state(self.advisor)

    def _notice(self) -> str:
        errand = self._errand
        if errand is None:
            answer, end_s = self._stale_answer
            if self._answer == answer and time.monotonic() > end_s:
                self._answer = ""  # what it announced is over
            return self._answer
        if errand.look():
            self.answers.append(errand.sentence)
        return errand.sentence

    def _obey(self, name: str, value: object) -> None:
        if name == "pause":
            self.frozen = True
        elif name == "capture" and isinstance(value, int):
            self._capture(value)
        elif name == "detail" and isinstance(value, tuple):
            self._detail(value)
        elif name in ("resume", "end"):
            self.frozen = False
            self._lookback.leave()
        elif name in LOOKS_BACK:
            self._answer = self._lookback.go(name, value, self.advisor, self.view, is_frozen=self.frozen)
            if self._errand is not None and not self._errand.is_running:
                self._errand = None

    def _detail(self, ranks: tuple[int, ...]) -> None:
        if self._errand is not None and not self._errand.is_running:
            self._errand = None  # its answer gives way to this one
        if self._wish is None:
            self._answer = "these ranks are watched by another session: whoever began it can ask for detail"
            return
        self._wish(Wish(burst_ms=BURST_MS, ranks=frozenset(ranks) or None))
        whom = f"rank {ranks[0]}" if ranks else "all ranks"
        self._answer = f"{whom}: every call of the next {BURST_MS // 1000} s is seen one by one"
        self._stale_answer = (self._answer, time.monotonic() + BURST_MS / 1000 + READ_AFTER_S)

    def _capture(self, rank: int) -> None:
        if self._errand is not None and self._errand.is_running:
            return
        self._errand, self._answer = None, ""
        rows = self.view.ranks if self.view else ()
        hangs = self.view is not None and any(finding.id == "hang" for finding in self.view.findings)
        row = next((row for row in rows if row.rank == rank), None)
        if row is None or row.pid is None:
            self._answer = f"rank {rank}: its process is not known"
        elif row.host != host_name():
            command = "stacks" if hangs else "capture"
            self._answer = (
                f"rank {rank} runs on {row.host or 'an unknown host'}: there, run tuiadvisor {command} {rank}"
            )
        elif hangs:
            # Without steps there is nothing to profile. All ranks are asked: who is missing shows beside the others.
            beside = [one.pid for one in rows if one.host == row.host and one.pid is not None]
            self._errand = stacks_errand(rank, beside)
        else:
            self._errand = capture_errand(rank, row.pid)


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
        self.steps = sorted([*self.steps, *finding_marks(whole)])
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

    def _picture(self) -> RunView:
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
        )

    def _obey(self, name: str, value: object) -> None:
        source = self.replay
        here = self.at_step if self.at_step is not None else self.view.last_step if self.view else None
        self.at_step = None
        if name == "pause":
            source.clock.pause()
        elif name == "resume":
            source.clock.resume()
        elif name == "speed" and isinstance(value, (int, float)):
            source.clock.set_speed(float(value))
        elif name == "seek_step" and isinstance(value, int):
            self._show_step(value)
        elif name == "step":
            source.clock.pause()
            forward = value in (None, 1)
            self._show_step(0 if here is None else here + (1 if forward else -1))
        elif name == "stride" and isinstance(value, int):
            self._show_step((here or 0) + value * max((self.last_step or 0) // STRIDES, 1))
        elif name == "end":
            self._go(source.index.end, source.duration_s)
        elif name == "mark" and isinstance(value, tuple):
            self.at_step = here if source.clock.paused else None
            self.steps = sorted([*self.steps, value])
            self.positions = self._positions()
        elif name in ("next_finding", "prev_finding"):
            self._to_finding(forward=name == "next_finding")

    def add_mark(self, step: int, label: str) -> None:
        """A mark on the time line from now on; the feed's own thread takes it in."""
        self.command("mark", (step, label))

    def _positions(self) -> tuple[tuple[float, str], ...]:
        index = self.replay.index
        if not len(index):
            self.steps = []
        return tuple((index.position_s(index.offset_of_step(step)), label) for step, label in self.steps)

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
        position_s, step = min(ahead) if forward else max(behind)
        if self.replay.clock.paused:
            self._show_step(step)
        else:
            self._go(self.replay.index.offset_at(position_s), position_s)


def attach_phase(view: RunView | None) -> tuple[str, tuple[int, int] | None]:
    """Where a live session stands: finding ranks, attaching n/m, live, ended."""
    if view is None or not view.ranks:
        return "finding ranks", None
    if view.ended:
        return "ended", None
    states = [row.state for row in view.ranks]
    num_pending = sum(state in ("found", "waiting_to_attach") for state in states)
    if num_pending:
        done = len(states) - num_pending
        return f"attaching {done}/{len(states)}", (done, len(states))
    return "live", None
