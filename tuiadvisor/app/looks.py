"""Looks at a run while its recording is read from the beginning: what began and was over before the end is seen so.

In: the Advisor that folds, how far it is.  Out: what an EventLog collects. The number of looks is bounded: what was
there for less than the time between two of them is not seen. In all they take about as long as folding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.app.event_log import STEPS_WITHOUT, EventLog
from tuiadvisor.views.event import SETTLE_S

if TYPE_CHECKING:
    from tuiadvisor.advisor.fold import Advisor
    from tuiadvisor.views.run_view import RunView

MOST_LOOKS: Final = 64
# Of hundreds of ranks a picture takes as long as folding fifty steps, and the share says how many are folded between
# two; of few ranks all pictures together take a second.
FEW_RANKS: Final = 32
MIN_SHARE_OF_STEPS: Final = 1 / 4  # of those that are held, and each picture looks at
MAX_SHARE_OF_STEPS: Final = 0.75  # of those that a picture can look at: no step falls between two of them
LEAST_PIECE_BYTES: Final = 1 << 11
MOST_PIECE_BYTES: Final = 1 << 15


def piece_bytes(num_bytes: int) -> int:
    """How much of a recording of so many bytes to read at once, for a look wherever one is due."""
    return min(max(num_bytes // (2 * MOST_LOOKS), LEAST_PIECE_BYTES), MOST_PIECE_BYTES)


class Looks:
    """Mutable: call `look` after each piece of a recording."""

    def __init__(self) -> None:
        self.events = EventLog()
        self._share = self._run_s = 0.0
        self._step = 0

    def look(self, advisor: Advisor, share: float) -> None:
        """Take a picture if it is time; share: of the recording that was folded, 0..1."""
        held = advisor.held_steps()
        now_s = advisor.roster.event_time_s()
        if held is None or now_s is None:
            return
        first, last = held
        num_new = last - self._step
        share_due = MIN_SHARE_OF_STEPS if len(advisor.roster.ranks) > FEW_RANKS else 0.0
        is_overdue = num_new >= MAX_SHARE_OF_STEPS * advisor.most_steps()
        is_due = (
            num_new >= max(STEPS_WITHOUT, share_due * (last - first + 1))
            and now_s - self._run_s >= SETTLE_S
            and share - self._share >= 1 / MOST_LOOKS
        )
        if not (is_due or is_overdue):
            return
        self._step, self._run_s, self._share = last, now_s, share
        self.events.take(advisor.view())

    def last(self, view: RunView) -> RunView:
        """The picture at the end, with what was over by then."""
        self.events.end(view)
        return replace(view, past=self.events.past(view))
