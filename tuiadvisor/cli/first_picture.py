"""What the screens show of a trace while it is being read: how far reading is, and the steps that were read so far.

In: what the importer tells now and then.  Out: states of the screens. The steps stand there as those of a part, nothing
is judged on them, and the whole replaces them. Pictures take a tenth of the time at most.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.cli.import_recording import imported_frames
from tuiadvisor.errors import one_line

if TYPE_CHECKING:
    from tuiadvisor.app.opening import OpeningDesk
    from tuiadvisor.importers.imported import Reading
    from tuiadvisor.views.run_view import RunView

TELL_EVERY_S: Final = 0.2
PICTURE_SHARE: Final = 0.1  # of the time
PICTURE_EVERY_S: Final = 2.0
OF_PART: Final = "· only the steps read so far"


class FirstPicture:
    """Called by the importer, in its own thread."""

    def __init__(self, opening: OpeningDesk) -> None:
        self._opening = opening
        self._view: RunView | None = None
        self._told_s = self._pictured_s = -float("inf")
        self._wait_s = 0.0

    def __call__(self, reading: Reading) -> None:
        """LeftError where nobody looks any more."""
        now_s = time.monotonic()
        if now_s - self._told_s < TELL_EVERY_S and self._view is not None:
            return
        self._told_s = now_s
        if now_s - self._pictured_s >= self._wait_s:
            self._picture(reading)
        progress = None if reading.share is None else (min(int(100 * reading.share), 100), 100)
        message = _words(reading) if self._view is None else OF_PART
        self._opening.tell("reading", message, progress, self._view)

    def _picture(self, reading: Reading) -> None:
        run = reading.part()
        if run is None:
            return
        begin_s = time.monotonic()
        advisor = Advisor()
        advisor.feed_many(imported_frames(run))
        self._view = advisor.view()
        self._pictured_s = time.monotonic()
        self._wait_s = max(PICTURE_EVERY_S, (self._pictured_s - begin_s) / PICTURE_SHARE)


def _words(reading: Reading) -> str:
    """Of a source that has shown no step yet."""
    events = f"; {reading.num_events:,} events" if reading.num_events else ""
    files = f", file {reading.number:,} of {reading.total:,}" if reading.total > 1 else ""
    return f"{one_line(reading.name)}{files}{events}. No step yet: what can be told comes when it is read to its end."
