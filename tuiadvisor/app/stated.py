"""What the project's file says the run is for, and a view's verdict against it: one place for whatever shows a verdict.

In: .tuiadvisor.toml here, RunView.  Out: RunView. A mistake in the file stops nobody who only looks: it is said among
what was not seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.app.whole_recording import with_note
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.session.intent import FILE_NAME, Intent, read_intent

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView

WITHOUT: Final = "decided without what {} states: {}"


class Stated:
    """The intent as it stands now, for who looks at a run for hours while it may be changed."""

    def __init__(self) -> None:
        self._seen = _version()
        self.intent, self._note = _stated()

    def is_changed(self) -> bool:
        """Read again if the file is another one by now; whether that states anything else."""
        if (seen := _version()) == self._seen:
            return False
        before, self._seen = (self.intent, self._note), seen
        self.intent, self._note = _stated()
        return (self.intent, self._note) != before

    def against(self, view: RunView, former: RunView | None = None) -> RunView:
        """The view with the verdict that follows from what is stated.

        former: what was shown of the same run, and for the same intent, a moment ago.
        """
        view = with_note(view, self._note)
        if self.intent == Intent():
            return view
        # Laws and sizes are read from disk only where something was stated: the first picture waits for no import.
        from tuiadvisor.session.against_intent import with_intent  # noqa: PLC0415

        return with_intent(view, self.intent, former=former)


def against_stated(view: RunView) -> RunView:
    """The view with the verdict that follows from what the file here states now."""
    return Stated().against(view)


def _stated() -> tuple[Intent, str]:
    """What the file states, nothing where there is none; and why it cannot be read."""
    try:
        return read_intent(FILE_NAME), ""
    except TuiadvisorError as error:
        return Intent(), WITHOUT.format(FILE_NAME, str(error).removeprefix(f"{FILE_NAME}: "))


def _version() -> tuple[int, int, int] | None:
    try:
        found = Path(FILE_NAME).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
