"""The threads behind the screens that go beyond one run: list recordings, open one, compare two.

Is the screens' feed and desk at once: what is shown may change from the live run to a recording and back, while the
live session goes on. Screens never wait for it. One thread obeys commands in order, another one reads the rows of the
list, so a long recording delays neither the keys nor a comparison.
"""

from __future__ import annotations

import queue
import re
import socket
import threading
import time
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from tuiadvisor.agent.procfs import is_running
from tuiadvisor.app import preferences_file
from tuiadvisor.app.before_after import BeforeAfter, CompareAnew, CompareWithBefore, Ways
from tuiadvisor.app.bookmarks import bookmarks, save_bookmark
from tuiadvisor.app.job_reader import JobReader
from tuiadvisor.app.recordings import MAX_RUNS, recordings
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.app.row_reader import RowReader
from tuiadvisor.app.stated import against_stated
from tuiadvisor.app.survey import Survey
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN
from tuiadvisor.log import Logger
from tuiadvisor.preferences import Preferences
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.text import format as text_of
from tuiadvisor.tui.contract.desk import (
    Advise,
    Answer,
    Attach,
    Bookmark,
    Compare,
    DeskCommand,
    DeskState,
    GoLive,
    ListJobs,
    ListRuns,
    LookAt,
    LookAtJob,
    MarkBefore,
    NudgeSize,
    OpenRun,
    Report,
    SavePreferences,
    Scale,
    StateSize,
    WantJobs,
    WantRuns,
)
from tuiadvisor.tui.contract.feed import CLOSED, End, FeedState, Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tuiadvisor.app.advising import GuidedAdvice
    from tuiadvisor.app.feed import Feed
    from tuiadvisor.app.sizing import Sizing
    from tuiadvisor.app.timeline import SlicesRead
    from tuiadvisor.events import GivenWork
    from tuiadvisor.preferences import Preferences
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.tui.contract.feed import FeedCommand
    from tuiadvisor.views.run_list import RunEntry
    from tuiadvisor.views.run_view import RunView

logger: Final = Logger(__name__)
PROGRESS_S: Final = 0.1
LOOK_S: Final = 2.0  # how often a live run is looked at: may it be compared with what was marked before?
NO_RUN: Final = FeedState(
    None, "replay", "no run is open", "8 lists the recordings here; enter opens one of them.", None, None, 0
)


@dataclass(frozen=True, slots=True)
class ReadSizes:
    """Of the desk itself: read the next recording for the screen of scaling."""


class Desk:
    """Feed and desk of the screens. `start` before use, `stop` at the end."""

    def __init__(
        self,
        feed: Feed | None,
        folder: str | Path,
        open_path: str = "",
        *,
        live_path: str = "",
        others: tuple[str, ...] = (),
        intent: Intent | None = None,
        session_file: str = "",
        sizing: Sizing | None = None,
        can_attach: bool = False,
        leads_home: bool = False,
        goes_on: bool = False,
        said: str = "",
        choosing: str = "",
        given: GivenWork = NOTHING_GIVEN,
    ) -> None:
        """feed: what is shown first, started by the caller; open_path: its recording, "" for a live run.

        live_path: where a live run is recorded, if it is kept; others: recordings of other configurations for the
        guided session; intent: None reads the project's file; session_file: "" keeps it beside the recording;
        sizing: what the screen of scaling works on; None: this run and the recordings of the folder; can_attach: the
        caller watches what is `chosen` when the screens have ended; leads_home: the caller shows home after these;
        goes_on: the caller of a live run's screens watches what is `chosen` next; said: an answer to begin with;
        choosing: what is to be chosen at home; given: the work of a step of the recording shown first.
        """
        self.live_path = live_path
        self.others = others
        self._intent = intent
        self._given = {open_path: given}
        self._session_file = session_file
        self._conductor: GuidedAdvice | None = None
        self._sizing = sizing
        self._slices: tuple[str, SlicesRead] | None = None  # of the recording whose timeline was looked at
        self.home = feed if not open_path else None
        self.folder = Path(folder)
        self._feed = feed
        self._opened: ReplayFeed | None = None  # by the user, here; it ends with the next one
        self._opening: FeedState | None = None
        self._commands: queue.SimpleQueue[
            DeskCommand | ReadSizes | CompareWithBefore | CompareAnew | None
        ] = queue.SimpleQueue()
        self._lock = threading.Lock()  # state and rows: two threads change them
        self._state = DeskState(
            folder=str(folder),
            machine=socket.gethostname(),
            has_live=self.home is not None,
            open_path=open_path,
            runs_note="looking …",
            can_attach=can_attach,
            leads_home=leads_home,
            goes_on=goes_on,
            choosing=choosing,
            answer=said,
            num_answers=int(bool(said)),
        )
        ways = Ways(self.desk, self.latest, self._change, self._say, self._frames)
        self.before_after = BeforeAfter(ways, self.folder, self.home, live_path, intent)
        self._rows = RowReader(lambda: self._state.runs, self._change_row)
        self._jobs = JobReader(self._change)
        self.chosen: tuple[str, ...] = ()  # options of `watch`
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._obey_all, name="tuiadvisor-desk", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()
        self._rows.start()
        self._jobs.start()

    def stop(self) -> None:
        """End the threads, and every feed that was opened here; the caller's own feed stays the caller's."""
        self._stopped.set()
        self._commands.put(None)
        self._rows.stop()
        self._jobs.stop()
        self._thread.join(5.0)
        if self._opened is not None:
            self._opened.stop()

    def latest(self) -> FeedState:
        """The newest state of what is shown."""
        if self.chosen:
            return replace(NO_RUN, phase=CLOSED, version=1)
        opening = self._opening
        if opening is not None:
            return opening
        return self._feed.latest() if self._feed is not None else NO_RUN

    def desk(self) -> DeskState:
        """The newest state of what lies beside."""
        return self._state

    def command(self, command: FeedCommand | DeskCommand) -> None:
        """Take a command of the screens; those that are not the desk's go to the feed."""
        if isinstance(command, WantRuns):
            self._rows.want(command.paths)
        elif isinstance(command, WantJobs):
            self._jobs.want(is_shown=command.is_shown)
        elif isinstance(command, DeskCommand):
            self._commands.put(command)
        elif self._feed is not None:
            self._feed.command(command)

    # --- commands

    def _obey_all(self) -> None:
        self.before_after.show_mark()
        while not self._stopped.is_set():
            try:
                command = self._commands.get(timeout=LOOK_S)
            except queue.Empty:
                command = self.before_after.due_comparison() or self.before_after.due_again()
            if command is None:
                continue
            try:
                if isinstance(command, CompareWithBefore):
                    self.before_after.compare_with_before(command.path)
                elif isinstance(command, CompareAnew):
                    self.before_after.compare_anew()
                else:
                    self._obey(command)
            except TuiadvisorError as error:
                self._opening = None
                self._say(str(error))
            except Exception as error:
                self._opening = None
                logger.exception("the command %s failed", _words(command))
                self._say(f"{_words(command)} failed: {type(error).__name__}: {error}")

    def _obey(self, command: DeskCommand | ReadSizes) -> None:  # noqa: C901, PLR0912 - one row a command
        match command:
            case ListRuns():
                self._list()
            case ListJobs():
                self._jobs.look()
            case WantJobs(is_shown):
                self._jobs.want(is_shown=is_shown)
            case Attach(target):
                self._choose(target)
            case WantRuns(paths):
                self._rows.want(paths)
            case OpenRun(path):
                self._open(path)
            case GoLive():
                self._go_live()
            case Compare(before, after):
                self.before_after.compare(before, after)
            case LookAtJob():
                self._look_at_job()
            case MarkBefore():
                self.before_after.mark()
            case Report():
                self._report()
            case Bookmark(step, note):
                self._bookmark(step, note)
            case Advise():
                self._advise()
            case Answer(question, text):
                self._answer(question, text)
            case SavePreferences(preferences):
                self._save_preferences(preferences)
            case Scale():
                self._scale()
            case ReadSizes():
                self._read_sizes()
            case StateSize(entry, text):
                self._state_size(entry, text)
            case NudgeSize(entry, by):
                self._nudge_size(entry, by)
            case LookAt(begin_s, end_s, num_cells):
                self._look_at(begin_s, end_s, num_cells)
            case _:
                assert_never(command)

    def _list(self) -> None:
        known = {(entry.path, entry.when, entry.num_bytes): entry for entry in self._state.runs}
        found = [
            known.get((entry.path, entry.when, entry.num_bytes), entry) for entry in recordings(self.folder)
        ]
        note = f"only the newest {MAX_RUNS:,} are listed" if len(found) >= MAX_RUNS else ""
        self._change(runs=tuple(found), runs_note=note)
        self._rows.look()

    def _choose(self, target: tuple[str, ...]) -> None:
        """What `watch` is to begin with once the screens have ended; they stay where it has ended meanwhile."""
        pids = [int(pid) for pid in takewhile(str.isdigit, target[1:])] if target[:1] == ("--pid",) else []
        if pids and not any(map(is_running, pids)):
            raise TuiadvisorError("that training has ended meanwhile")
        self.chosen = target

    def _open(self, path: str) -> None:
        self._show_progress(f"opening {Path(path).name}", path)
        survey = Survey(path)
        while not survey.is_done:
            if self._stopped.is_set():
                survey.close()
                return
            survey.advance(PROGRESS_S)
            self._show_progress(f"opening {Path(path).name}", path, (round(100 * survey.share), 100))
        feed = ReplayFeed(ReplaySource(path), survey, bookmarks(path))
        feed.command(End())  # what one wants to see first is what the row of the list spoke of
        feed.start()
        former, self._opened = self._opened, feed
        if former is None and self.home is None and self._feed is not None:
            self._feed.command(Pause())  # nobody looks at it any more
        self._feed = feed
        while feed.latest().view is None and feed.failure is None and not self._stopped.is_set():
            time.sleep(0.01)
        self._opening = None
        if former is not None:
            former.stop()
        self._change(open_path=path, timeline=None, timeline_note="")
        self._say(f"opened {Path(path).name} at its end: S seeks, [ steps back, 8 shows the list")

    def _go_live(self) -> None:
        if self.home is None:
            self._say("there is no live run behind: tuiadvisor watch starts one")
            return
        former, self._opened = self._opened, None
        self._feed = self.home
        if former is not None:
            former.stop()
        self._change(open_path="", timeline=None, timeline_note="")

    def _look_at_job(self) -> None:
        """The run that is shown, as a whole, and what of the folder may be of its job."""
        from tuiadvisor.app.job_of_run import job_of, worth_reading  # noqa: PLC0415

        path, view = self._state.open_path, self.latest().view
        if view is None:
            self._change(job=None, job_note="No run is open: 8 lists the recordings, enter opens one.")
            return
        self._change(job=None, job_note="reading …")
        self._list()
        try:
            own = (path, self._whole(path)) if path else (view.run.label or "the live run", view)
            wanted = worth_reading(self._state.runs, view.run.label, {path, self.live_path})
            others = [(each, other) for each in wanted if (other := self._readable(each)) is not None]
            self._change(job=job_of(own, others), job_note="")
        except TuiadvisorError as error:
            self._change(job_note=str(error))

    def _readable(self, path: str) -> RunView | None:
        """None of a file that is no recording: its row among the runs says why."""
        try:
            return self._whole(path)
        except TuiadvisorError:
            return None

    def _whole(self, path: str) -> RunView:
        from tuiadvisor.advisor.fold import diagnose  # noqa: PLC0415

        return against_stated(diagnose(self._frames(path, self._note_job)))

    def _note_job(self, text: str) -> None:
        self._change(job_note=text)

    def _report(self) -> None:
        from tuiadvisor.app.reporting import report_of_shown  # noqa: PLC0415

        view, state = self.latest().view, self._state
        if view is None:
            self._say("R: no run is open, so there is nothing to report")
            return
        self._say("writing the report …")  # of many ranks it takes seconds
        conductor = self._conductor
        if state.session is not None and conductor is not None and conductor.path == state.open_path:
            self._advise()  # a live run has gone on since: figures beside each other are of one moment
            state = self._state
        recording = state.open_path or self.live_path
        path = report_of_shown(recording, view, state.session, state.comparison, self._sizing)
        self._say(f"report written to {path}")

    def _bookmark(self, step: int, note: str) -> None:
        feed = self._feed
        if not isinstance(feed, ReplayFeed):
            return
        label = f"note: {note}" if note else "bookmark"
        feed.add_mark(step, label)
        self._say(save_bookmark(self._state.open_path, step, note))

    def _advise(self) -> None:
        path = self._state.open_path
        if self._conductor is None or self._conductor.path != path:
            self._conductor = None
            self._change(session=None, session_note="reading the run …")
            self._conductor = self._new_conductor(path)
        shown = self.latest()
        if not path and shown.view is None:
            self._change(
                session=None, session_note="No run is open: 8 lists the recordings, enter opens one."
            )
            return
        self._conductor.take(shown)
        self._change(session=self._conductor.conduct(), session_note="")

    def _new_conductor(self, path: str) -> GuidedAdvice:
        from tuiadvisor.app.advising import GuidedAdvice, session_file  # noqa: PLC0415

        file = Path(self._session_file) if self._session_file else session_file(path or self.live_path)
        try:
            conductor = GuidedAdvice(path, file, self.others, self._intent, live_path=self.live_path)
            if path:
                given = self._given.get(path, NOTHING_GIVEN)
                conductor.read(lambda each: self._frames(each, self._note_session), given)
        except TuiadvisorError as error:
            self._change(session_note=str(error))
            raise
        return conductor

    def _answer(self, question: str, text: str) -> None:
        if self._conductor is not None:
            self._conductor.answer(question, text)
            self._change(session=self._conductor.conduct())

    def _save_preferences(self, preferences: Preferences) -> None:
        self._say(f"saved in {preferences_file.save(preferences)}")
        if self._sizing is not None and self._sizing.prefer(preferences.efficiency_floor):
            self._show_scaling(self._sizing)

    # --- sizes

    def _scale(self) -> None:
        """Look anew what there is, then read it."""
        self._change(scaling_note="reading …")
        try:
            if self._sizing is None:
                from tuiadvisor.app.sizing import Sizing  # noqa: PLC0415 - only when asked for

                self._sizing = Sizing()
            # The run itself was read while it was shown, but for what only its recording tells, as its gradients.
            path = self._state.open_path or self.live_path
            self._sizing.look(self.folder, path, self.latest().view)
        except TuiadvisorError as error:
            self._change(scaling_note=str(error))
            raise
        self._read_sizes()

    def _read_sizes(self) -> None:
        """Read one recording, show the picture, and come back for the next after whatever was asked meanwhile."""
        sizing = self._sizing
        if sizing is None:
            return
        path = sizing.next_waiting()
        if path is not None:
            more = f", {text_of.count(sizing.num_waiting() - 1, 'more recording')} to read"
            sizing.read(
                path, self._frames(path, self._note_scaling, more if sizing.num_waiting() > 1 else "")
            )
            self._commands.put(ReadSizes())
        self._show_scaling(sizing)

    def _state_size(self, entry: str, text: str) -> None:
        if self._sizing is not None:
            self._sizing.state(entry, text)
            self._show_scaling(self._sizing)

    def _nudge_size(self, entry: str, by: int) -> None:
        if self._sizing is not None:
            self._sizing.nudge(entry, by)
            if self._commands.empty():  # a key held down: the last one is worth a picture
                self._show_scaling(self._sizing)

    def _show_scaling(self, sizing: Sizing) -> None:
        left = sizing.num_waiting()
        note = f"{text_of.count(left, 'recording')} still to be read" if left else ""
        self._change(scaling=sizing.picture(), scaling_note=note)

    # --- timeline

    def _look_at(self, begin_s: float, end_s: float | None, num_cells: int) -> None:
        """The slices of a recording are read once; a key held down: only the last picture is worth making."""
        from tuiadvisor.app.timeline import NO_RECORDING, SlicesRead  # noqa: PLC0415 - only when asked for

        path = self._state.open_path
        if not path:
            self._slices = None
            self._change(timeline=None, timeline_note=NO_RECORDING)
            return
        if self._slices is None or self._slices[0] != path:
            self._slices = None
            self._change(timeline=None, timeline_note="reading …")
            try:
                frames = self._frames(path, self._note_timeline)
                self._slices = (path, SlicesRead(frames))
            except TuiadvisorError as error:
                self._change(timeline_note=str(error))
                return
        if self._commands.empty():
            self._change(timeline=self._slices[1].picture(begin_s, end_s, num_cells), timeline_note="")

    def _note_timeline(self, text: str) -> None:
        self._change(timeline_note=text)

    def _note_scaling(self, text: str) -> None:
        self._change(scaling_note=text)

    def _note_session(self, text: str) -> None:
        self._change(session_note=text)

    def _frames(self, path: str, note: Callable[[str], None], more: str = "") -> Iterator[bytes]:
        """Frames of a recording; the screen says what share of it has been worked through, and what comes then.

        more: what else is to be read.
        """
        name = Path(path).name
        told = ""
        with RecordingReader(path) as reader:
            while taken := reader.take():
                num_bytes = max(reader.num_bytes, 1)
                for located in taken:
                    if self._stopped.is_set():
                        return
                    # Where it is, not what was read ahead: the work is done as each frame is taken.
                    doing = f"reading {name}{more}: {100 * located.offset // num_bytes} %"
                    if doing != told:
                        told = doing
                        note(doing)
                    yield located.data
        note(f"{name} is read{more}: working out what it shows …")

    # --- state

    def _change_row(self, path: str, changed: Callable[[RunEntry], RunEntry]) -> None:
        with self._lock:
            runs = tuple(changed(entry) if entry.path == path else entry for entry in self._state.runs)
            self._state = replace(self._state, runs=runs, version=self._state.version + 1)

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._state = replace(self._state, version=self._state.version + 1, **changes)

    def _say(self, text: str) -> None:
        self._change(answer=text, num_answers=self._state.num_answers + 1)

    def _show_progress(self, doing: str, path: str, progress: tuple[int, int] | None = None) -> None:
        former = self._opening
        version = former.version + 1 if former is not None else 1
        self._opening = FeedState(None, "replay", doing, path, progress, None, version)


def _words(command: object) -> str:
    """A command as it is said: OpenRun is "open run"."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(command).__name__).lower()
