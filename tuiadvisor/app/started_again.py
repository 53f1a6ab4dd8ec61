"""Whether the job of a run that has ended trains on this machine again.

In: the machine's processes, looked at every few seconds in a thread of its own.  Out: one sentence for the screens.
"""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent.discovery import trainings
from tuiadvisor.agent.procfs import stat, working_folder
from tuiadvisor.agent.session import mapped_rings
from tuiadvisor.log import Logger
from tuiadvisor.shellword import shell_word
from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.agent.discovery import FoundTraining
    from tuiadvisor.views.run_view import RunView

LOOK_EVERY_S: Final = 5.0
PICKED_UP_S: Final = 60.0  # chosen: ranks that import torch for as long are rare
NOTICED_S: Final = 10.0  # chosen: by then at the latest a run that has ended is known to have
MOST_NAMES: Final = 100  # chosen: nobody looks for the hundredth
KEY: Final = "o"  # of the screens: watch the next run

_AFTER: Final = re.compile(r"(?<=.)-after\d*$")

logger: Final = Logger(__name__)


class StartedAgain:
    """Ask it at every picture; it looks only once the run has ended."""

    def __init__(
        self,
        look: Callable[[], tuple[list[FoundTraining], int]] = trainings,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        kept: str = "",
        *,
        goes_on: bool = False,
    ) -> None:
        """kept: file of the run that has ended; the next one is kept too, for only then are the two compared.

        goes_on: whoever shows the screens watches the next run at a key, so that its command need not be typed.
        """
        self._kept = kept
        self._goes_on = goes_on
        self.options: tuple[str, ...] = ()  # of `watch`, for what trains again; none while nothing does
        self._folder = ""  # in which its ranks work; "" while it was not seen
        self._launchers: frozenset[int] = frozenset()  # of those ranks
        self._over_since_s = 0.0
        self._lived_wall_s: float | None = None  # when it was last seen to go on
        self._wall_s = wall_s
        self._look = look
        self._clock_s = clock_s
        self._due_s = 0.0
        self._thread: threading.Thread | None = None
        self._found = ""

    def sentence(self, view: RunView | None, host: str) -> str:
        """What runs again and how to watch it; "" while nothing does. host: this one's name."""
        if view is None or host not in view.run.hosts or not view.run.label:
            return ""
        now_s = self._clock_s()
        if not view.ended:
            self._note_place(view, host)
            self._over_since_s, self._lived_wall_s = now_s, self._wall_s()
            self._found, self.options = "", ()  # it goes on after all
            return ""
        is_looking = self._thread is not None and self._thread.is_alive()
        if now_s >= self._due_s and not is_looking:
            self._due_s = now_s + LOOK_EVERY_S
            former = frozenset(row.pid for row in view.ranks if row.pid is not None)
            self._thread = threading.Thread(
                target=self._search,
                args=(view.run.label, self._since_wall_s(view), former),
                name="tuiadvisor-again",
                daemon=True,
            )
            self._thread.start()
        return self._found

    def _since_wall_s(self, view: RunView) -> float | None:
        """A run beside this one is not its next one: that begins when this one ends, or after it."""
        if self._lived_wall_s is None:
            return view.run.started_wall_s
        return self._lived_wall_s - NOTICED_S

    def wait(self) -> None:
        """Until the look that is under way, if any, is over."""
        if self._thread is not None:
            self._thread.join()

    def _note_place(self, view: RunView, host: str) -> None:
        """A train.py of another folder is another job, and only a process that runs tells its folder."""
        if not self._folder:
            pids = [row.pid for row in view.ranks if row.host == host and row.pid is not None]
            self._folder = next(filter(None, map(working_folder, pids)), "")
            self._launchers = frozenset(found.ppid for pid in pids if (found := stat(pid)) is not None)

    def _is_picked_up(self, training: FoundTraining) -> bool:
        """Whether its own launcher starts it anew, which is watched on by itself: not so late that it is not."""
        is_own = training.ranks[0].ppid in self._launchers
        return is_own and self._clock_s() - self._over_since_s < PICKED_UP_S

    def _search(self, label: str, started_s: float | None, former: frozenset[int]) -> None:
        try:
            found = next(
                (
                    one
                    for one in self._look()[0]
                    if _is_next(one, label, former)
                    and _is_later(one, started_s)
                    and not self._is_picked_up(one)
                    and (not self._folder or self._folder == working_folder(one.ranks[0].pid))
                ),
                None,
            )
        except Exception:  # looking is a courtesy
            logger.exception("looking for the next run failed")
            found = None
        if found is None:
            self._found, self.options = "", ()
            return
        beside = _beside(self._kept)
        options = ("--pid", *map(str, found.pids), *beside)
        again = f"{label} trains here again ({text_of.count(len(found.ranks), 'rank')})"
        if self._goes_on:
            self.options = options
            kept = f", kept as {Path(beside[-1]).name}" if beside else ""
            self._found = f"{again}: {KEY} watches it{kept}"
        else:
            kept = f" -o {shell_word(beside[-1])}" if beside else ""
            self._found = f"{again}: tuiadvisor watch --pid {' '.join(map(str, found.pids))}{kept}"


def _beside(kept: str) -> tuple[str, ...]:
    """The options that keep the next run beside this one, under a name that is free."""
    if not kept:
        return ()
    stem = _AFTER.sub("", Path(kept).stem)  # the run before the first change: the third is no -after-after
    names = (Path(kept).with_stem(f"{stem}-after{number}") for number in ("", *range(2, MOST_NAMES)))
    free = next((name for name in names if not (name == Path(kept) or name.exists())), None)
    if free is None:
        return ()
    return "-o", f"./{free}" if str(free).startswith("-") else str(free)  # no option


def _is_next(training: FoundTraining, label: str, former: frozenset[int]) -> bool:
    """The same job of the same user, by other processes, that nobody watches yet."""
    first = training.ranks[0]
    return (
        first.label == label
        and os.getuid() in (0, first.uid)
        and former.isdisjoint(rank.pid for rank in training.ranks)
        and not any(mapped_rings(rank.pid) for rank in training.ranks)
    )


def _is_later(training: FoundTraining, started_s: float | None) -> bool:
    """Whether it began after that moment, where both are known: one that ran beside it is not its next run."""
    start_ns = training.ranks[0].start_wall_ns
    return started_s is None or start_ns is None or start_ns / 1e9 > started_s
