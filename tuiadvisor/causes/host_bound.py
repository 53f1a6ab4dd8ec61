"""The device waits for the training thread's launches: Python sets the pace, not the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis


def measure_job(_diagnosis: Diagnosis, facts: Facts) -> Values:
    """How far the typical device is behind its thread, by the device's own clock."""
    device = facts.device
    return {
        "device_behind_share": device.behind_share if device else None,
        "device_step_s": device.step_s if device else None,
    }


HOST_BOUND: Final = Cause(
    rules=("host_bound",),
    metrics="""
job device_behind_share share of its step by which a device is behind its training thread; near 0 it waits for launches
job device_step_s s from the first to the last phase of a step on the device's clock
""",
    measure_job=measure_job,
)
