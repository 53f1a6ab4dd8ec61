"""How much of a difference a busier machine may have caused: what is beyond that decides.

In: two recordings as measured.  Out: Load, which tells whether a change, or that there is none, stays without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuiadvisor.advisor.compare.comparable import busier
from tuiadvisor.metrics.window.regime import NEW_REGIME_SHARE
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.advisor.compare.measured import Measured
    from tuiadvisor.views.comparison import Change


@dataclass(frozen=True, slots=True)
class Load:
    """One side's machine was busier."""

    words: str
    is_after: bool
    explained_s: float  # of that side's step, at most
    step_s: float

    def without(self, change: Change) -> Change:
        """The same with an interval as wide as the load may have moved it."""
        if change.low is None or change.high is None:
            return change
        left = max(1 - self.explained_s / self.step_s, 0.0)
        if self.is_after:
            return replace(change, low=change.low * left)
        return replace(change, high=change.high / left if left else math.inf)

    def leaves(self, change: Change, floor: float) -> bool:
        """Whether it is significant all the same, or no change all the same."""
        least = self.without(change)
        if least.low is None or least.high is None:
            return False
        if change.significant:
            return least.low > 1 + floor if (change.ratio or 1) > 1 else least.high < 1 / (1 + floor)
        same = 1 + NEW_REGIME_SHARE
        return 1 / same <= least.low and least.high <= same

    def at_most(self) -> str:
        """What it explains, for behind the words."""
        side = "after" if self.is_after else "before"
        return f"; that explains at most {seconds(self.explained_s)} of the {seconds(self.step_s)} {side}"


def load_of(before: Measured, after: Measured, change: Change, *, is_same: bool) -> Load | None:
    """Which side's machine was busier, where that may be why the steps differ, or why they do not.

    is_same: nothing has changed, as far as the steps tell: then either side may be the busier one.
    """
    if change.ratio is None or not (change.significant or is_same):
        return None
    as_many = before.unit.world_size == after.unit.world_size
    for is_after in (change.ratio > 1,) if change.significant else (True, False):
        words = busier(before.load, after.load, is_after=is_after, as_many_ranks=as_many)
        if words is None:
            continue
        busy, calm = (after, before) if is_after else (before, after)
        step_s = float(busy.series.step_s_K.mean())
        explained_s = min(max(_under_load_s(busy) - _under_load_s(calm), 0.0), step_s)
        return Load(words, is_after, explained_s, step_s)
    return None


def _under_load_s(run: Measured) -> float:
    """Seconds of a step that other processes can lengthen.

    That is the time a main thread was ready to run and had no core, and, where communication runs on the same cores,
    all of its exposed part. Waiting for data or computing longer in one's own thread is not the load's. Each rank's
    step is as long as the job's, so each rank is a bound, and the least one holds: what others wait for a late rank is
    communication to them and its own work to itself.
    """
    step_s = float(run.series.step_s_K.mean())
    mean_wait = (run.load.wait_for_core if run.load else None) or 0.0
    if run.view.run.device not in {None, "cpu"}:
        return mean_wait * step_s
    bounds = [
        run.core_waits.get(rank, mean_wait) * step_s + comm_s for rank, comm_s in run.series.comm_s.items()
    ]
    return min(bounds, default=mean_wait * step_s)
