"""What a view and its rules are made of, and what follows from it alone.

In: what was measured of a table of steps.  Out: Seen, and the marks and places that a view takes from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuiadvisor.advisor.assemble.rank_rows import MAX_LATENESS_STEPS
from tuiadvisor.advisor.judge.pause_facts import pause_marks
from tuiadvisor.views.event import RESTART
from tuiadvisor.views.run_view import NEW_PACE
from tuiadvisor.views.stall import HANG

if TYPE_CHECKING:
    from tuiadvisor.advisor.detail.untold_devices import Untold
    from tuiadvisor.advisor.judge.communication import Exchange
    from tuiadvisor.advisor.judge.findings import Judged
    from tuiadvisor.causes.facts import Pipelines
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.views.devices import Link, RankDevice
    from tuiadvisor.views.efficiency import Efficiency, Stack
    from tuiadvisor.views.pipeline import PipelineView
    from tuiadvisor.views.placement import RankPlacement
    from tuiadvisor.views.restart import Restart
    from tuiadvisor.views.run_view import Clock, DeviceView, StepSummary


@dataclass(frozen=True, slots=True)
class Seen:
    """Measured, not yet judged."""

    missing: tuple[int, ...]  # ranks that were never heard of
    table: StepTable | None
    diagnosis: Diagnosis | None
    devices: dict[int, DeviceView]  # by rank
    pipelines: Pipelines | None
    pipeline: PipelineView | None
    exchange: Exchange
    step: StepSummary
    stack: Stack | None
    efficiency: Efficiency
    placements: tuple[RankPlacement, ...]
    rank_devices: tuple[RankDevice, ...]
    links: tuple[Link, ...]
    clock: Clock = "host"  # that the diagnosis rests on
    why_blind: str = ""  # why it rests on the host's although the ranks compute on devices
    untold: tuple[Untold, ...] = ()  # ranks whose devices say nothing: the others are judged without them
    earliest: int | None = None  # job step before which nothing counts, where steps were chosen


def heat_first(diagnosis: Diagnosis | None) -> int | None:
    """The job step of the first column of the ranks' lateness levels."""
    if diagnosis is None:
        return None
    table = diagnosis.table
    return (
        table.step_of(max(0, table.num_steps - MAX_LATENESS_STEPS)) if table.num_steps else table.first_step
    )


def marks(
    judged: list[Judged], diagnosis: Diagnosis | None, begun: tuple[Restart, ...]
) -> tuple[tuple[int, str], ...]:
    """(job step, what begins there) for the time line.

    A hang is none of them: it is an event, at the last step that was seen, and begins in one that has no time.
    """
    found = {
        (entry.finding.onset_step, entry.finding.title)
        for entry in judged
        if entry.finding.onset_step is not None
        and entry.finding.severity != "info"
        and entry.finding.id != HANG
    }
    found.update((one.after_step, RESTART) for one in begun if one.after_step is not None)
    if diagnosis is not None:
        found.update(pause_marks(diagnosis))
        # Where one rank's lateness or all ranks' steps grow little by little, nothing happened where the window begins.
        grows = diagnosis.is_sliding or (
            diagnosis.level_shift is not None and diagnosis.level_shift.is_gradual
        )
        if diagnosis.regime_step is not None and not grows:
            found.add((diagnosis.regime_step, NEW_PACE))
    return tuple(sorted(found))
