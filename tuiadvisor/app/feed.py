"""The thread between a source and the screens: read, fold, publish the newest frozen state.

Screens never wait for it and it never waits for them.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor import priority
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.event_log import EventLog
from tuiadvisor.app.stated import Stated
from tuiadvisor.app.stretch import Steps, chosen, moved, zoomed
from tuiadvisor.events import NOTHING_GIVEN
from tuiadvisor.log import Logger
from tuiadvisor.tui.contract.feed import FeedState, Mode, PastState, ReplayState, StretchState

if TYPE_CHECKING:
    from tuiadvisor.events import GivenWork
    from tuiadvisor.stream.source import Source
    from tuiadvisor.tui.contract.feed import FeedCommand
    from tuiadvisor.views.run_view import PastFinding, RunView, Trend

READ_S: Final = 0.05  # a key that the feed answers waits no longer than this for it
VIEW_PERIOD_S: Final = 0.45
# Where nobody looks: a picture for who asks how it stands, frames in larger pieces, and less of the cores that train.
UNWATCHED_VIEW_PERIOD_S: Final = 3.0
UNWATCHED_READ_PERIOD_S: Final = 0.5
VIEW_SHARE: Final = 0.2  # of the thread's time at most: in worlds of thousands of ranks a view takes a second

logger: Final = Logger(__name__)


@dataclass(frozen=True, slots=True)
class AddMark:
    """Of the desk, not of the screens: a mark on the time line of a replay."""

    step: int
    label: str


class Feed:
    """What live and replay have in common. Subclasses say what the phase is and take their commands."""

    mode: Mode = "live"

    def __init__(self, source: Source, given: GivenWork = NOTHING_GIVEN) -> None:
        """given: work of a step, wins over what the frames say."""
        self._given = given
        self._stated = Stated()
        self._is_restated = (
            False  # since the last picture: what was decided for the intent before holds nothing
        )
        self.source = source
        self.advisor = Advisor(given=given)
        self.view: RunView | None = None
        self.events = EventLog()
        self.stretch: Steps | None = None  # that was chosen for the figures
        self.history_share: float | None = None  # read of what was recorded before; None: nobody has answered
        self.is_in_history = False  # it is being read, or not yet in the view
        self.frozen = False  # the reader goes on, the screen keeps its picture
        self._version = 0
        self._num_restarts = 0
        self._changed = True
        self._view_period_s = VIEW_PERIOD_S
        self._read_period_s = 0.0
        self._view_due_s = 0.0
        self._behind_due_s = 0.0
        self._view_costs_s = (0.0, 0.0, 0.0)  # of the last views, processor time of this thread
        self._commands: queue.SimpleQueue[FeedCommand | AddMark] = queue.SimpleQueue()
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

    def nobody_watches(self) -> None:
        """No screens and no outlets: a picture now and then is enough, and the ranks may need the core."""
        self._view_period_s, self._read_period_s = UNWATCHED_VIEW_PERIOD_S, UNWATCHED_READ_PERIOD_S

    def latest(self) -> FeedState:
        """The newest state."""
        return self._state

    def command(self, command: FeedCommand | AddMark) -> None:
        """Queue a command for the thread."""
        self._commands.put(command)
        self._asked.set()

    def _run(self) -> None:
        if self.mode == "live":
            priority.give_way()  # beside the ranks it may be
        try:
            while not self._stopped.is_set():
                self._cycle()
        except Exception as error:
            logger.exception("the feed ends by a failure")
            self.failure = error
            self._publish(f"failed: {type(error).__name__}: {error}")

    def _cycle(self) -> None:
        if self._read_period_s and not self.source.status.bytes_behind:
            self._asked.wait(self._read_period_s)
        self._asked.clear()
        while not self._commands.empty():
            self._obey(self._commands.get())
            self._changed = True
            self._view_due_s = 0.0
        frames = self.source.read(self._patience_s())
        if self.source.status.num_restarts != self._num_restarts:
            self._num_restarts = self.source.status.num_restarts
            self.advisor = Advisor(given=self._given)
            self.events = EventLog()
        self._changed = self._changed or bool(frames)
        self._note_history()  # before the fold, which may take longer than whoever waits has patience
        had_steps = self.advisor.store.span() is not None
        self.advisor.feed_many(frames)
        if not had_steps and frames and self.advisor.store.span() is not None:
            self._view_due_s = 0.0  # the first step is what everybody waits for
        now, cpu_s = time.monotonic(), time.thread_time()
        is_behind = self._is_catching_up()
        if now >= (self._behind_due_s if is_behind else self._view_due_s):
            cost_s = 0.0
            if self._stated.is_changed():
                self._changed = self._is_restated = True
            if self._changed and not self._stands() and not is_behind:
                self.view = self._against_intent(self._picture())
                self._changed = False
                if self._is_as_it_comes():
                    self.events.take(self.view)
                    self.view = replace(self.events.dated(self.view), past=self._past(self.view))
                self._view_costs_s = (*self._view_costs_s[1:], time.thread_time() - cpu_s)
                # One dear view (the first imports what it needs) is no reason to stand still: the cheapest of three.
                cost_s = min(self._view_costs_s)
            self._view_due_s = self._behind_due_s = now + max(self._view_period_s, cost_s / VIEW_SHARE)
            self._publish(self.source.status.note)
        self._note_history()
        if not frames:
            self._rest()

    def _note_history(self) -> None:
        """For who waits with a view of the whole run: a hub that has stopped answering is not waited for."""
        status = self.source.status
        if self.history_share is None or self.is_in_history:
            is_left = status.history_share is not None and (status.history_share < 1.0 or self._changed)
            self.is_in_history = is_left and (status.connected or status.ended)
        self.history_share = status.history_share

    def _rest(self) -> None:
        """Wait where reading did not: nothing here."""

    def _stands(self) -> bool:
        """Whether the picture stays whatever comes."""
        return self.frozen

    def _patience_s(self) -> float:
        """How long to wait for the next frames."""
        return READ_S

    def _is_as_it_comes(self) -> bool:
        """Whether the picture is the newest that was read, not one of the past."""
        return True

    def _past(self, view: RunView) -> tuple[PastFinding, ...]:
        """What was over by then."""
        return self.events.past(view)

    def _picture(self) -> RunView:
        return self.advisor.view()

    def _against_intent(self, view: RunView) -> RunView:
        former = None if self._is_restated or not self._is_as_it_comes() else self.view
        self._is_restated = False
        return self._stated.against(view, former)

    def _is_catching_up(self) -> bool:
        # A late viewer first folds the history; drawing in between would only slow it down.
        return self.view is not None and self.source.status.bytes_behind > 4 << 20

    def _publish(self, message: str) -> None:
        phase, progress = self._phase()
        former = self._state
        state = FeedState(
            self._shown(),
            self.mode,
            phase,
            message,
            progress,
            self._replay_state(),
            former.version,
            self._notice(),
            self._notice_card(),
            self._past_state(),
            self._stretch_state(),
            self.events.events,
            self._next_run(),
        )
        if state != former:
            self._version += 1
            self._state = replace(state, version=self._version)

    def _shown(self) -> RunView | None:
        """The picture as it is true at this moment."""
        return self.view

    def _phase(self) -> tuple[str, tuple[int, int] | None]:
        raise NotImplementedError

    def _replay_state(self) -> ReplayState | None:
        return None

    def _past_state(self) -> PastState | None:
        return None

    def _stretch_state(self) -> StretchState | None:
        whole = self._choosable() if self.stretch is not None else None
        if self.stretch is None or whole is None:
            return None
        return StretchState(*self.stretch, *whole, self._trend_of_run())

    def _trend_of_run(self) -> Trend:
        return self.advisor.trend_of_run()

    def _choosable(self) -> Steps | None:
        """The steps of which a stretch may be chosen."""
        return self.advisor.held_steps()

    def _zoomed(self, by: int) -> Steps | None:
        """What the stretch would be after zooming."""
        whole = self._choosable()
        return None if whole is None else zoomed(self.stretch, by, whole, self.advisor.most_steps())

    def _chosen(self, first: int, last: int) -> Steps | None:
        """What the stretch would be that was drawn."""
        whole = self._choosable()
        return None if whole is None else chosen(first, last, whole, self.advisor.most_steps())

    def _moved(self, by: int) -> Steps | None:
        """What the stretch would be after moving it."""
        whole = self._choosable()
        return None if whole is None or self.stretch is None else moved(self.stretch, by, whole)

    def _notice(self) -> str:
        return ""

    def _notice_card(self) -> tuple[int, str] | None:
        return None

    def _next_run(self) -> tuple[str, ...]:
        return ()

    def _obey(self, command: FeedCommand | AddMark) -> None:
        raise NotImplementedError
