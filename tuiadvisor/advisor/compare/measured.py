"""One recording as a comparison sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.advisor.steps.step_series import StepSeries
    from tuiadvisor.views.comparison import MachineLoad, WorkUnit
    from tuiadvisor.views.run_view import RunView


@dataclass(frozen=True, slots=True)
class Measured:
    """One recording, read."""

    path: str
    view: RunView
    series: StepSeries
    unit: WorkUnit
    load: MachineLoad | None
    core_waits: Mapping[int, float]  # of a rank's time: ready to run without a core
