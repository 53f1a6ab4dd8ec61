"""What the screens show before there is anything behind them: the first frame waits for no file, rank or import.

In: a function that makes the desk, which may take a second.  Out: feed and desk that say so meanwhile, then that desk.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.log import Logger
from tuiadvisor.tui.contract.desk import NO_DESK
from tuiadvisor.tui.contract.feed import CLOSED, FeedState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.app.desk import Desk
    from tuiadvisor.tui.contract.desk import DeskCommand, DeskState
    from tuiadvisor.tui.contract.feed import FeedCommand, Mode
    from tuiadvisor.views.run_view import RunView

logger: Final = Logger(__name__)


class LeftError(Exception):
    """The user has left before there was anything to show."""


class OpeningDesk:
    """Feed and desk of the screens from their first frame on. `begin` once, `stop` at the end."""

    def __init__(self, make: Callable[[OpeningDesk], Desk], mode: Mode, phase: str, path: str = "") -> None:
        """make: the desk, not started; runs in a thread of its own and may `tell` this one how far it is."""
        self._make = make
        self._desk: Desk | None = None
        self._state = FeedState(None, mode, phase, path, None, None, 0)
        self._early: list[FeedCommand | DeskCommand] = []  # commands that came before there was a desk
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._open, name="tuiadvisor-open", daemon=True)
        self._has_left = threading.Event()
        self.failure: BaseException | None = None

    def tell(self, phase: str, message: str, progress: tuple[int, int] | None, view: RunView | None) -> None:
        """What is shown until the desk is there. LeftError where nobody looks any more: then make nothing."""
        if self._has_left.is_set():
            raise LeftError
        former = self._state
        self._state = replace(
            former, phase=phase, message=message, progress=progress, view=view, version=former.version + 1
        )

    def begin(self) -> None:
        """Make the desk: the first frame is out."""
        if not self._thread.is_alive() and self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Wait until the desk is made, then end it: a session half begun could not be ended whole."""
        self._has_left.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._desk is not None:
            self._desk.stop()

    def latest(self) -> FeedState:
        """The newest state."""
        desk = self._desk
        return self._state if desk is None else desk.latest()

    def desk(self) -> DeskState:
        """The newest state of what lies beside."""
        desk = self._desk
        return NO_DESK if desk is None else desk.desk()

    def command(self, command: FeedCommand | DeskCommand) -> None:
        """Pass a command on, or keep it until there is somebody to obey."""
        with self._lock:
            desk = self._desk
            if desk is None:
                self._early.append(command)
                return
        desk.command(command)

    def _open(self) -> None:
        try:
            desk = self._make(self)
            desk.start()
        except LeftError:
            return
        except BaseException as error:
            logger.exception("the screens could not be opened")
            self.failure = error
            self._state = replace(self._state, phase=CLOSED, version=1)
            return
        with self._lock:
            for command in self._early:
                desk.command(command)
            self._desk = desk
