"""A look at a whole recording in short turns, beside the replay of it: how it ends, and states to jump to.

In: a recording.  Out: the view at its end (None until it is reached) and checkpoints of what was passed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.looks import Looks, piece_bytes
from tuiadvisor.app.progress import ProgressLine
from tuiadvisor.events import NOTHING_GIVEN
from tuiadvisor.stream.checkpoints import Checkpoints
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.stream.scan import Scan, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tuiadvisor.app.event_log import EventLog
    from tuiadvisor.events import GivenWork
    from tuiadvisor.stream.recording import RecordingSummary
    from tuiadvisor.views.run_view import RunView


class Survey:
    """Call `advance` until `view` is there. Use it from one thread."""

    def __init__(
        self,
        path: Path | str,
        end: int | None = None,
        given: GivenWork = NOTHING_GIVEN,
    ) -> None:
        """end: the offset to look no further than; None: the present end of the file. given: work of a step."""
        self._looks = Looks()
        self.view: RunView | None = None
        self.checkpoints: Checkpoints[Advisor] = Checkpoints()
        self.num_frames = 0
        self.scan = Scan()  # where the frames lie, as they were read
        self.summary: RecordingSummary | None = None  # at the end
        self._end = end
        self._reader = RecordingReader(path)
        self._advisor = Advisor(given=given)
        self._is_begun = False
        self._size = max(self._reader.num_bytes, 1)
        self._is_closed = False

    @property
    def events(self) -> EventLog:
        """What has happened as far as was looked."""
        return self._looks.events

    @property
    def share(self) -> float:
        """How much of the recording was looked at, 0..1."""
        return 1.0 if self.view is not None else min(1.0, self._reader.position / self._size)

    @property
    def is_done(self) -> bool:
        """Nothing more to look at: the end was reached, or the survey was closed."""
        return self._is_closed

    def advance(self, seconds: float) -> bool:
        """Look on for about so long; True once there is nothing more to look at."""
        deadline_s = time.monotonic() + seconds
        while not self._is_closed and time.monotonic() < deadline_s:
            self._piece()
        return self._is_closed

    def whole(self, show: Callable[[float], None] = lambda _share: None) -> Self:
        """Look to the end; show: told the share that is done."""
        while not self._is_closed:
            self._piece()
            show(self.share)
        return self

    def close(self) -> None:
        """Look no further."""
        if not self._is_closed:
            self._is_closed = True
            self._reader.close()

    def _piece(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self.checkpoints.keep(self._advisor, self.scan.end)
        taken = self._reader.take(piece_bytes(self._size), with_index=True)
        if self._end is not None:
            taken = [located for located in taken if located.offset < self._end]
        if taken:
            frames = self.scan.take(taken)
            self._advisor.feed_many(located.data for located in frames)
            self.num_frames += len(frames)
            self._looks.look(self._advisor, self.share)
            self.checkpoints.offer(self._advisor, self.scan.end, sum(len(located.data) for located in frames))
        else:
            self.scan.finish()
            self.summary = told(self.scan, self._reader)
            self.view = self._looks.last(self._advisor.view())
            self.checkpoints.keep(self._advisor, self.scan.end)
            self.checkpoints.seal()
            self._advisor = Advisor()
            self.close()


def surveyed(path: Path | str, given: GivenWork = NOTHING_GIVEN) -> Survey:
    """A whole look at a recording, with a progress line on stderr when it takes long."""
    line = ProgressLine(f"reading {path}")
    try:
        return Survey(path, given=given).whole(line.show)
    finally:
        line.end()
