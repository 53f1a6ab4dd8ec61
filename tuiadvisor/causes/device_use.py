"""Devices that are reported busy while little of the time is useful: utilization alone is no sign of work."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause
from tuiadvisor_rules.message import share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis

METRICS: Final = """
job device_utilization share of the recording in which any kernel ran, mean over the ranks' devices
job device_sm_active share of the time that streaming multiprocessors had work, mean over the ranks' devices
job device_tensor_active share of the time that tensor cores worked, mean over the ranks' devices
job device_dram_active share of the device memory's peak rate, mean over the ranks' devices
job device_units_words text what the units' counters say; empty where they are not told
"""


def measure_job(_diagnosis: Diagnosis, facts: Facts) -> Values:
    """Unknown unless every rank's device tells it: a mean over some would be of these."""
    devices = facts.rank_devices
    values = {
        "device_utilization": _mean(one.utilization for one in devices),
        "device_sm_active": _mean(one.sm_active for one in devices),
        "device_tensor_active": _mean(one.tensor_active for one in devices),
        "device_dram_active": _mean(one.dram_active for one in devices),
    }
    return {**values, "device_units_words": _words(values)}


def _mean(values: Iterable[float | None]) -> float | None:
    told = list(values)
    known = [value for value in told if value is not None]
    return fmean(known) if known and len(known) == len(told) else None


def _words(values: dict[str, float | None]) -> str:
    names = {
        "device_sm_active": "multiprocessors work",
        "device_tensor_active": "tensor cores",
        "device_dram_active": "memory at",
    }
    said = [f"{words} {share(value)}" for name, words in names.items() if (value := values[name]) is not None]
    return f" By the units' counters: {', '.join(said)}." if said else ""


DEVICE_USE: Final = Cause(
    rules=("busy_not_useful",),
    metrics=METRICS,
    measure_job=measure_job,
    is_remark=True,
)
