"""What each rank's device spent on a step, beside what its training thread spent.

In: DEVICE_PHASE rows of EVENTS frames: steps measured by CUDA events, one in so many.  Out: DeviceView of a rank and of
the job: medians over the latest measured steps, and whether the device keeps pace with the thread that feeds it.

A device that is never behind at any border of a step has no queue: it waits for the thread's next launch all along
(host-bound). One that is behind is what the step waits for. How far behind is known between two bounds; where they
do not decide, nothing is said.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import EventKind
from tuiadvisor.phases import PHASES
from tuiadvisor.views.run_view import DeviceView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.views.shares import Shares

KEEPS_PACE_SHARE: Final = (
    0.05  # of the device's step: behind by less than this it has no queue worth the name
)
MIN_STEPS: Final = 5  # fewer are an anecdote
MAX_STEPS: Final = 64
MAX_RANKS: Final = 1 << 13
MAX_PHASE_NS: Final = 86_400 * 10**9
EVENT_NAMES: Final = ("rank", "kind", "step", "begin_ns", "end_ns", "group", "seq", "detail")


@dataclass(slots=True)
class _Step:
    step: int
    begin_ns: int
    end_ns: int
    behind_ns: int = 0
    bracket_ns: int = 0
    phase_ns: dict[int, int] = field(default_factory=dict)


class DeviceTimes:
    """Mutable: feed it the columns of EVENTS frames."""

    def __init__(self) -> None:
        self._steps: dict[int, deque[_Step]] = {}

    def take(self, columns: Mapping[str, Ints]) -> None:
        """Fold the device phases of one frame; rows that contradict themselves are left out."""
        begin, end = columns["begin_ns"], columns["end_ns"]
        good = (columns["kind"] == EventKind.DEVICE_PHASE) & (columns["rank"] >= 0) & (columns["step"] >= 0)
        good &= (begin > 0) & (end >= begin) & (end - np.maximum(begin, 0) <= MAX_PHASE_NS)
        good &= (columns["group"] >= 0) & (columns["group"] < len(PHASES))
        for name in ("seq", "detail"):
            good &= (columns[name] >= 0) & (columns[name] <= MAX_PHASE_NS)
        rows = np.flatnonzero(good)
        for row in zip(*(columns[name][rows].tolist() for name in EVENT_NAMES), strict=True):
            self._take_row(row)

    def _take_row(self, row: tuple[int, ...]) -> None:
        rank, _kind, step, begin, end, phase, bracket, behind = row
        steps = self._steps.get(rank)
        if steps is None:
            if len(self._steps) >= MAX_RANKS:
                return
            steps = self._steps[rank] = deque(maxlen=MAX_STEPS)
        if not steps or steps[-1].step != step:
            steps.append(_Step(step, begin, end))
        latest = steps[-1]
        latest.end_ns = max(latest.end_ns, end)
        latest.behind_ns = max(latest.behind_ns, behind)
        latest.bracket_ns = max(latest.bracket_ns, bracket)
        latest.phase_ns[phase] = latest.phase_ns.get(phase, 0) + end - begin

    def of_rank(self, rank: int) -> DeviceView | None:
        """Medians of its measured steps; None while there are too few."""
        # The latest one may still be on its way.
        steps = [one for one in list(self._steps.get(rank, ()))[:-1] if one.end_ns > one.begin_ns]
        if len(steps) < MIN_STEPS:
            return None
        step_s = median(one.end_ns - one.begin_ns for one in steps) / 1e9
        low = median(one.behind_ns / (one.end_ns - one.begin_ns) for one in steps)
        high = median((one.behind_ns + one.bracket_ns) / (one.end_ns - one.begin_ns) for one in steps)
        known = {phase for one in steps for phase in one.phase_ns}
        return DeviceView(
            step_s=step_s,
            seconds={
                name: median(one.phase_ns.get(index, 0) for one in steps) / 1e9 if index in known else None
                for index, name in enumerate(PHASES)
            },
            behind_share=high if high < KEEPS_PACE_SHARE else low if low >= KEEPS_PACE_SHARE else None,
            keeps_pace=True if high < KEEPS_PACE_SHARE else False if low >= KEEPS_PACE_SHARE else None,
            num_steps=len(steps),
        )

    def views(self) -> dict[int, DeviceView]:
        """The ranks whose device was seen often enough."""
        return {rank: view for rank in sorted(self._steps) if (view := self.of_rank(rank)) is not None}


def of_job(devices: Mapping[int, DeviceView]) -> DeviceView | None:
    """Mean over the ranks whose device was seen; it keeps pace where all of theirs do."""
    if not devices:
        return None
    seen = list(devices.values())
    seconds: Shares = {}
    for name in PHASES:
        known = [value for view in seen if (value := view.seconds[name]) is not None]
        seconds[name] = fmean(known) if known else None
    behind = [view.behind_share for view in seen if view.behind_share is not None]
    paces = {view.keeps_pace for view in seen}
    return DeviceView(
        step_s=fmean(view.step_s for view in seen),
        seconds=seconds,
        behind_share=median(behind) if len(behind) == len(seen) else None,
        keeps_pace=paces.pop() if len(paces) == 1 else None,
        num_steps=min(view.num_steps for view in seen),
    )
