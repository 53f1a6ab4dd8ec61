"""The thread that reads the rows of the list of recordings: those on the screen, each as a whole, one after the other.

In: the entries of the list, the paths that are looked at.  Out: an entry that changed.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.stated import against_stated
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.log import Logger
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.views.run_list import summarized

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.views.run_list import RunEntry
    from tuiadvisor.views.run_view import RunView

logger: Final = Logger(__name__)


class RowReader:
    """Reads what is wanted and not read yet. `start` before use, `stop` at the end."""

    def __init__(
        self,
        entries: Callable[[], tuple[RunEntry, ...]],
        change: Callable[[str, Callable[[RunEntry], RunEntry]], None],
    ) -> None:
        """entries: the list as it is now; change: put what a function makes of the entry with this path in place."""
        self._entries = entries
        self._change = change
        self._wanted: tuple[str, ...] = ()
        self._due = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read_all, name="tuiadvisor-rows", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, in the middle of a recording if need be."""
        self._stopped.set()
        self._due.set()
        self._thread.join(5.0)

    def want(self, paths: tuple[str, ...]) -> None:
        """These are on the screen."""
        self._wanted = paths
        self._due.set()

    def look(self) -> None:
        """The list has changed."""
        self._due.set()

    def _read_all(self) -> None:
        while not self._stopped.is_set():
            path = self._next()
            if path is None:
                self._due.wait()
                self._due.clear()
                continue
            self._change(path, lambda entry: replace(entry, state="reading"))
            self._change(path, self._read(path))

    def _next(self) -> str | None:
        """What is on the screen, in its order; nothing of it is read before the list was looked at."""
        unread = {entry.path for entry in self._entries() if entry.state == "unread"}
        return next((path for path in self._wanted if path in unread), None)

    def _read(self, path: str) -> Callable[[RunEntry], RunEntry]:
        """What becomes of the entry by what its recording says."""
        try:
            view = self._view(path)
        except TuiadvisorError as error:
            problem = str(error).removeprefix(f"{path}: ")
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            logger.exception("%s broke the reader of rows", path)
        else:
            return lambda entry: entry if view is None else summarized(entry, against_stated(view))
        return lambda entry: replace(entry, state="broken", problem=problem)

    def _view(self, path: str) -> RunView | None:
        """The view at its end; None when it was left in the middle."""
        advisor = Advisor()
        with RecordingReader(path) as reader:
            while taken := reader.take():
                if self._stopped.is_set():
                    return None
                advisor.feed_many(located.data for located in taken)
        return advisor.view()
