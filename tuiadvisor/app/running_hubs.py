"""What is said of the trainings that are watched on this machine: the recordings that hubs of ours write, followed.

In: /proc, the recordings that it names.  Out: hubs, and a view of each by what was appended so far. Nothing is asked
of a hub, an agent or a training: who looks at the home screen costs them nothing.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.agent import procfs
from tuiadvisor.app.stated import Stated
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.log import Logger
from tuiadvisor.stream.recording import RecordingReader

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView

logger: Final = Logger(__name__)
MODULE: Final = "tuiadvisor.stream.hub"
PRIVATE: Final = "/tuiadvisor-session-"  # a recording that goes with its session
MAX_FOLLOWED: Final = 8  # recordings held folded at a time: each is tens of megabytes
PIECE_BYTES: Final = 1 << 18
LOOK_S: Final = 0.3  # of reading before the next recording has its turn


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub of this user on this machine."""

    pid: int
    start_ticks: int
    recording: str  # absolute path
    viewer: str  # where viewers are let in
    label: str

    @property
    def keeps(self) -> bool:
        """Whether its recording stays when it ends."""
        return PRIVATE not in self.recording


def running_hubs() -> list[Hub]:
    """The hubs of this user, the newest first."""
    found = [_hub(stat) for stat in procfs.snapshot().values() if stat.is_alive]
    return sorted((hub for hub in found if hub is not None), key=lambda hub: -hub.start_ticks)


def _hub(stat: procfs.Stat) -> Hub | None:
    words = procfs.arguments(stat.pid)
    # Before the first option of its own: a training may be told of our modules, too.
    first = next((place for place, word in enumerate(words) if word.startswith("--record=")), 0)
    if not any(MODULE in word for word in words[:first]) or procfs.owner(stat.pid) != os.geteuid():
        return None
    given = dict(word.removeprefix("--").split("=", 1) for word in words[first:] if "=" in word)
    try:
        folder = os.readlink(f"/proc/{stat.pid}/cwd")  # noqa: PTH115 - as it stands, nothing resolved
    except OSError:
        return None
    recording, viewer = given.get("record", ""), given.get("viewer", "")
    if not recording or not viewer.startswith("ipc:///"):
        return None
    return Hub(stat.pid, stat.start_ticks, str(PurePath(folder, recording)), viewer, given.get("label", ""))


class Followed:
    """One recording that grows; use it from one thread."""

    def __init__(self, hub: Hub) -> None:
        """TuiadvisorError where the file is no recording."""
        self.hub = hub
        self.view: RunView | None = None  # None until its present end was reached once
        self._reader = RecordingReader(hub.recording)
        self._advisor = Advisor()
        self._stated = Stated()

    @property
    def share(self) -> float:
        """How much of the recording was read, 0..1."""
        return min(1.0, self._reader.position / max(self._reader.num_bytes, 1))

    def read(self, seconds: float) -> None:
        """Read on for about so long; at the present end there is a new view."""
        deadline_s = time.monotonic() + seconds
        is_newer = self.view is None
        while time.monotonic() < deadline_s:
            taken = self._reader.take(PIECE_BYTES)
            if not taken:
                if is_newer:
                    former = None if self._stated.is_changed() else self.view
                    self.view = self._stated.against(self._advisor.view(), former)
                return
            self._advisor.feed_many(located.data for located in taken)
            is_newer = True

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


class Watchings:
    """All hubs of this user, each followed while it runs. Use it from one thread; `close` at the end."""

    def __init__(self) -> None:
        self._followed: dict[tuple[int, int], Followed] = {}
        self._refused: set[tuple[int, int]] = set()  # said already
        self.num_not_followed = 0  # hubs beyond those: which trainings they watch is not known

    def look(self, seconds: float = LOOK_S) -> list[Followed]:
        """What every hub has recorded by now, the newest hub first; each is read for about so long."""
        found = running_hubs()
        hubs, self.num_not_followed = found[:MAX_FOLLOWED], max(len(found) - MAX_FOLLOWED, 0)
        present = {(hub.pid, hub.start_ticks) for hub in hubs}
        for key in [key for key in self._followed if key not in present]:
            self._end(key)
        self._refused &= present
        return [one for one in (self._read(hub, seconds) for hub in hubs) if one is not None]

    def close(self) -> None:
        """Follow nothing any more."""
        for key in list(self._followed):
            self._end(key)

    def _read(self, hub: Hub, seconds: float) -> Followed | None:
        key = hub.pid, hub.start_ticks
        try:
            if key not in self._followed:
                self._followed[key] = Followed(hub)
            self._followed[key].read(seconds)
        except TuiadvisorError as error:
            # Tried again at each look: a hub that has just begun has no file yet, or one without a head.
            if key not in self._refused:
                logger.info("the recording of hub %d is not followed: %s", hub.pid, error)
            self._refused.add(key)
            self._end(key)
            return None
        return self._followed[key]

    def _end(self, key: tuple[int, int]) -> None:
        one = self._followed.pop(key, None)
        if one is not None:
            one.close()
