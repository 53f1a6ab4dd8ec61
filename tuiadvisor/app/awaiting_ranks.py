"""Waiting for the ranks of a launcher that has none yet: its rendezvous, or its workers' start, may take minutes.

In: process ids that a user named.  Out: returns once ranks are there; what is waited for is said on stderr: one
sentence, then on a terminal a line that counts, in a log a line after 10, 20, 40 seconds and so on.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs
from tuiadvisor.agent.discovery import LauncherWithoutRanksError, find_ranks
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.text.printed import redraw, say_on_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOOK_S: Final = 0.1
LOOK_PAUSE: Final = 20  # times what a look at all processes takes: below a twentieth of a core
LOG_AFTER_S: Final = 10.0


def look_pause_s(cost_s: float) -> float:
    """Until the next look; cost_s: processor time of the last. What is waited for shares its cores with us."""
    return max(LOOK_S, LOOK_PAUSE * cost_s)


def await_ranks(
    pids: Sequence[int],
    command: str,
    limit_s: float | None = None,
    *,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return when the named processes have ranks. Everything but a launcher without ranks is raised at once.

    FailureError when that launcher has ended, or after limit_s; ^C ends the wait as it ends a command.
    """
    line = _WaitingLine(command, clock)
    launcher, start_ticks = 0, 0
    try:
        while True:
            if launcher and not _lives(launcher, start_ticks):
                raise _ended(launcher)
            begin_s = time.thread_time()
            try:
                find_ranks(pids)
            except LauncherWithoutRanksError as error:
                launcher, start_ticks = error.pid, error.start_ticks
            except TuiadvisorError:
                if launcher and not _lives(launcher, start_ticks):  # since we looked
                    raise _ended(launcher) from None
                raise
            else:
                return
            if limit_s is not None and line.elapsed_s() >= limit_s:
                raise FailureError(
                    f"--pid {launcher}: the launcher has started no rank in {limit_s:.0f} s; --for 5m waits longer"
                )
            line.show(launcher)
            sleep(look_pause_s(time.thread_time() - begin_s))
    finally:
        line.end()


def _ended(launcher: int) -> FailureError:
    return FailureError(f"--pid {launcher}: the launcher ended before a rank appeared")


def _lives(pid: int, start_ticks: int) -> bool:
    found = procfs.stat(pid)
    return found is not None and found.is_alive and found.has_memory and found.start_ticks == start_ticks


class _WaitingLine:
    """What is waited for, and for how long already."""

    def __init__(self, command: str, clock: Callable[[], float]) -> None:
        self._command = command
        self._clock = clock
        self._begin_s = clock()
        self._is_terminal = sys.stderr.isatty()
        self._shown = ""
        self._next_s = LOG_AFTER_S

    def elapsed_s(self) -> float:
        """Since the first look."""
        return self._clock() - self._begin_s

    def show(self, launcher: int) -> None:
        """The sentence at first, then how long it has been."""
        what = f"tuiadvisor {self._command}: waiting: the launcher (process {launcher}) has no ranks yet"
        if not self._shown:
            self._shown = f"{what}; ^C ends the wait, not the launcher"
            (redraw if self._is_terminal else say_on_stderr)(self._shown)
            return
        now_s = self.elapsed_s()
        if self._is_terminal:
            line = f"{what}, {now_s:.0f} s; ^C ends the wait, not the launcher"
            if line != self._shown:
                self._shown = line
                redraw(line)
        elif now_s >= self._next_s:
            self._next_s *= 2
            say_on_stderr(f"{what}, {now_s:.0f} s")

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._shown and self._is_terminal:
            redraw("")
