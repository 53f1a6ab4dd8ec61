"""What others than the probes saw of the same ranks: the kernel, the devices, looks at processes, loaders.

In: nothing.  Out: Witnesses, asked for what they saw over a stretch of time or since a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.metrics.lateness.late_phase import DeviceClock, Pace
    from tuiadvisor.metrics.lateness.off_core import OffCoreOf
    from tuiadvisor.metrics.steps.arrays import Floats, Ints
    from tuiadvisor.metrics.steps.held_steps import HeldBackOf

    # Seconds -> what each row's device says of its clock over its last so many seconds.
    DeviceClocksOf = Callable[[float], list[DeviceClock | None]]
    # (rank, begin, end in ns of its host's clock) -> whether its process was seen stopped between them.
    WasStopped = Callable[[int, int, int], bool]


@dataclass(frozen=True, slots=True)
class Witnesses:
    """What others than the probes saw of the same ranks; None: nobody looked."""

    off_core: OffCoreOf | None = None  # what the kernel counted, and looks at the processes
    device_clocks: DeviceClocksOf | None = None
    held_back: HeldBackOf | None = None
    was_stopped: WasStopped | None = None
    stopped_at: Callable[[int], Ints] | None = (
        None  # of a rank: when looks found it so, ns of its host's clock
    )
    early_s: Floats | None = None  # the run's first steps, NaN where not known, once they have left the table
    # Where the table is of device times, of each row: how far its device is behind its thread in these job steps, and
    # the seconds a step that this waits for data since a job step, hidden or not.
    paces: Callable[[Ints], Sequence[Pace | None]] | None = None
    thread_data_s: Callable[[int], Floats] | None = None
    # Of such rows since a job step, rows x all steps: the seconds that each thread took for them.
    thread_step_s: Callable[[Ints, int], Floats] | None = None
    # The same of all rows: the seconds that it launched compute.
    thread_launch_s: Callable[[int], Floats] | None = None
    # Since a job step, of each row: `share_at_limit` of its loader.
    loaders_at_limit: Callable[[int], Floats] | None = None


NO_WITNESS: Final = Witnesses()
