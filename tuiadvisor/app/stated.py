"""What the project's file says the run is for, and a view's verdict against it: one place for whatever shows a verdict.

In: .tuiadvisor.toml here, RunView.  Out: RunView. A mistake in the file stops nobody who only looks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.log import Logger
from tuiadvisor.session.intent import FILE_NAME, Intent, read_intent

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView

logger: Final = Logger(__name__)


def stated() -> Intent:
    """What the file here states; nothing where there is none, or it cannot be read."""
    try:
        return read_intent(FILE_NAME)
    except TuiadvisorError as error:
        logger.warning("what the run is for is not counted: %s", error)
        return Intent()


def against_stated(view: RunView, intent: Intent | None = None, former: RunView | None = None) -> RunView:
    """The view with the verdict that follows from what was stated. intent: None reads the file; former: what was shown
    of the same run, and for the same intent, a moment ago.
    """
    intent = stated() if intent is None else intent
    if intent == Intent():
        return view
    # Laws and sizes are read from disk only where something was stated: the first picture waits for no import.
    from tuiadvisor.session.against_intent import with_intent  # noqa: PLC0415

    return with_intent(view, intent, former=former)


class Stated:
    """The intent as it stands now, for who looks at a run for hours while it may be changed."""

    def __init__(self) -> None:
        self._seen = _version()
        self.intent = stated()

    def is_changed(self) -> bool:
        """Read again if the file is another one by now; whether that states anything else."""
        if (seen := _version()) == self._seen:
            return False
        before, self._seen, self.intent = self.intent, seen, stated()
        return self.intent != before


def _version() -> tuple[int, int, int] | None:
    try:
        found = Path(FILE_NAME).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
