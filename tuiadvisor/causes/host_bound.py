"""The device waits for the training thread's launches: Python sets the pace, not the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.views.run_view import Finding
    from tuiadvisor_rules.loader import Rule


def measure_job(_diagnosis: Diagnosis, facts: Facts) -> Values:
    """How far the typical device is behind its thread, by the device's own clock."""
    device = facts.device
    return {
        "device_behind_share": device.behind_share if device else None,
        "device_step_s": device.step_s if device else None,
        "launched_share": facts.launched_share,
    }


def what_it_computes(_finding: Finding, _rule: Rule) -> str:
    """A device that has all it was launched done may have computed all along, or next to nothing."""
    return "whether they compute or wait in these their clocks do not tell (a capture of kernels does)"


HOST_BOUND: Final = Cause(
    rules=("host_bound",),
    metrics="""
job device_behind_share share of its step by which a device is behind its training thread; near 0 it waits for launches
job launched_share share of its step in compute phases that end when its thread has launched them, of who comes last
job device_step_s s from the first to the last phase of a step on the device's clock
""",
    measure_job=measure_job,
    leaves_open=what_it_computes,
)
