"""What the screens compare: two recordings, and the run that was marked before a change with the live one after it.

In: the desk's ways to say and to read, the live run.  Out: changes of `comparison` and its company in DeskState.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.app.before_mark import STEPS_AFTER, mark_before, marked_before, marks_before
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.tui.contract.desk import MarkedBefore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tuiadvisor.app.before_mark import Before
    from tuiadvisor.app.feed import Feed
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.tui.contract.feed import FeedState

# A comparison with the live run is made anew when that has so many more steps: reading it again costs in all a small
# multiple of reading it once at its end.
MORE_STEPS: Final = 0.25


@dataclass(frozen=True, slots=True)
class CompareWithBefore:
    """Of the desk itself: the live run has enough steps to be held against the one before the change."""

    path: str


@dataclass(frozen=True, slots=True)
class CompareAnew:
    """Of the desk itself: the live run that is compared has gone on."""


@dataclass(frozen=True, slots=True)
class Ways:
    """What the desk lends: its state and the shown run's, to change the former, to answer, to read a recording."""

    state: Callable[[], DeskState]
    shown: Callable[[], FeedState]
    change: Callable[..., None]
    say: Callable[[str], None]
    frames: Callable[[str, Callable[[str], None]], Iterator[bytes]]


class BeforeAfter:
    """Obeyed by the desk's thread alone."""

    def __init__(
        self, ways: Ways, folder: Path, live: Feed | None, live_path: str, intent: Intent | None
    ) -> None:
        """live: the run behind; live_path: where it is recorded, if it is kept; intent: None reads the project's."""
        self._state, self._shown, self._change = ways.state, ways.shown, ways.change
        self._say, self._frames = ways.say, ways.frames
        self._folder = folder
        self._live = live
        self._live_path = live_path
        self._intent = intent
        self._then: int | None = None  # the live run's newest step as it was compared last
        self._awaits_after = live is not None and bool(live_path)  # nothing was compared yet

    def compare(self, before: str, after: str, *, is_silent: bool = False) -> None:
        """Read both and show what differs. is_silent: nobody asked for it, so its progress is no news."""
        # What only some keys need is loaded with the first of them, not before the first frame.
        from tuiadvisor.advisor.compare.comparing import compare, measure  # noqa: PLC0415
        from tuiadvisor.session.saved import saved_words  # noqa: PLC0415

        shown = self._state().comparison
        if shown is None or (before, after) != (shown.before.path, shown.after.path):
            self._change(comparison=None, comparison_note=f"reading {Path(before).name} …")
        step, sides, then = None, [], self._live_step()
        for path in (before, after):
            note = _say_nothing if is_silent else self._note
            frames = self._frames(path, note)
            try:
                sides.append(measure(path, frames))
                if self._is_live(path):
                    step, self._then = sides[-1].view.last_step, then  # it went on while it was read
            except TuiadvisorError as error:
                self._change(comparison=None, comparison_note=str(error))
                return
        comparison = compare(sides[0], sides[1])
        worth = saved_words(comparison, self._stated_intent())
        self._change(comparison=comparison, comparison_note="", comparison_worth=worth, compared_step=step)

    def due_again(self) -> CompareAnew | None:
        """The live run went on since it was compared: by enough to be read again, or to its end."""
        then, view = self._then, self._live.latest().view if self._live is not None else None
        if then is None or view is None or view.last_step is None or self._state().compared_step is None:
            return None
        more = view.last_step - then
        is_due = more >= max(STEPS_AFTER, MORE_STEPS * then) or (more > 0 and bool(view.ended))
        return CompareAnew() if is_due else None

    def compare_anew(self) -> None:
        """The same two, as they are now."""
        comparison = self._state().comparison
        if comparison is not None:
            self.compare(comparison.before.path, comparison.after.path, is_silent=True)

    def mark(self) -> None:
        """Keep the run that is shown as the one before a change."""
        recording, view = self._state().open_path or self._live_path, self._shown().view
        if not recording or view is None:
            self._say(
                "B: only a recorded run can be compared with later: watch it again with -o FILE, then B"
            )
            return
        self._awaits_after = (
            bool(self._state().open_path) and self._live is not None and bool(self._live_path)
        )
        # The key that watches the job's next run keeps it beside this one, in a live view of a run that is kept.
        leads_on = self._state().goes_on and not self._state().open_path
        label, step = view.run.label or "", view.last_step or 0
        self._say(mark_before(self._folder, recording, label, step, watches_next=leads_on))
        self.show_mark()

    def show_mark(self) -> None:
        """Say on the screens what is marked."""
        try:
            held = marks_before(self._folder)
        except TuiadvisorError as error:
            self._say(str(error))
            return
        self._change(before=tuple(map(self._shown_mark, held)))

    def _shown_mark(self, held: Before) -> MarkedBefore:
        name = os.path.relpath(held.recording, self._folder)
        return MarkedBefore(name, held.label, held.step, STEPS_AFTER, self._is_live(held.recording))

    def due_comparison(self) -> CompareWithBefore | None:
        """The live run after a change, once it has as many judged steps as a comparison wants."""
        view = self._live.latest().view if self._live is not None and self._awaits_after else None
        if view is None or view.window.num_missing_steps or view.window.num_steps < STEPS_AFTER:
            return None
        self._awaits_after = False
        try:
            before = marked_before(self._folder, view.run.label or "")
        except TuiadvisorError as error:
            self._say(str(error))
            return None
        if before is None:
            return None
        same = Path(before.recording).resolve() == Path(self._live_path).resolve()
        return None if same else CompareWithBefore(before.recording)

    def compare_with_before(self, before: str) -> None:
        """The comparison of itself, and what it says in a line."""
        self.compare(before, self._live_path)
        comparison = self._state().comparison
        if comparison is not None:
            outcome = comparison.sentence.partition(":")[0]
            self._say(f"after the change, against {Path(before).name}: {outcome.lower()}; 7 shows both runs")

    def _live_step(self) -> int | None:
        view = self._live.latest().view if self._live is not None else None
        return None if view is None else view.last_step

    def _is_live(self, path: str) -> bool:
        """It is the recording of the run behind."""
        return bool(self._live_path) and Path(path).resolve() == Path(self._live_path).resolve()

    def _stated_intent(self) -> Intent:
        from tuiadvisor.session.intent import FILE_NAME, Intent, read_intent  # noqa: PLC0415

        if self._intent is not None:
            return self._intent
        try:
            return read_intent(FILE_NAME)
        except TuiadvisorError as error:  # a mistake in it stops nobody who compares
            self._say(str(error))
            return Intent()

    def _note(self, text: str) -> None:
        self._change(comparison_note=text)


def _say_nothing(_text: str) -> None:
    """For what nobody asked for: its progress is no news."""
