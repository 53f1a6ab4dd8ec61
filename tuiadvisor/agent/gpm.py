"""What a device's units did between two samples, by NVML's GPM counters: Hopper and newer, and not in every container.

In: nvidia-ml-py.  Out: shares of the time, None where the device, the driver or this container does not tell.
Utilization counts a device as busy while one kernel waits in it; these say how many of its parts worked.
"""

from __future__ import annotations

import math
from typing import Any, Final

# Ours: NVML's metric, in percent of the time between two samples.
METRICS: Final = {
    "sm_active": "NVML_GPM_METRIC_SM_UTIL",
    "tensor_active": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dram_active": "NVML_GPM_METRIC_DRAM_BW_UTIL",
}
UNKNOWN: Final[dict[str, float | None]] = dict.fromkeys(METRICS)


class GpmReader:
    """Keeps the last sample of each device; a device without these counters is asked once."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._pairs: dict[int, list[Any]] = {}  # index -> [older sample, buffer of the next]
        self._has_older: set[int] = set()
        self._without: set[int] = set()

    def read(self, index: int, handle: Any) -> dict[str, float | None]:
        """The shares since the last call; unknown at the first one."""
        if index in self._without:
            return dict(UNKNOWN)
        try:
            return self._read(index, handle)
        except (
            self._nvml.NVMLError,
            AttributeError,
        ):  # AttributeError: an nvidia-ml-py without these functions
            self._has_older.discard(index)
            if index not in self._pairs:
                self._without.add(index)
            return dict(UNKNOWN)

    def _read(self, index: int, handle: Any) -> dict[str, float | None]:
        nvml = self._nvml
        if index not in self._pairs:
            if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self._without.add(index)
                return dict(UNKNOWN)
            self._pairs[index] = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        older, newer = self._pairs[index]
        nvml.nvmlGpmSampleGet(handle, newer)
        self._pairs[index] = [newer, older]
        if index not in self._has_older:
            self._has_older.add(index)
            return dict(UNKNOWN)
        return self._between(older, newer)

    def _between(self, older: Any, newer: Any) -> dict[str, float | None]:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(METRICS)
        asked.sample1, asked.sample2 = older, newer
        for place, name in enumerate(METRICS.values()):
            asked.metrics[place].metricId = getattr(nvml, name)
        nvml.nvmlGpmMetricsGet(asked)
        return {name: _share(asked.metrics[place], nvml.NVML_SUCCESS) for place, name in enumerate(METRICS)}


def _share(metric: Any, success: int) -> float | None:
    value = float(metric.value)
    return (
        value / 100 if metric.nvmlReturn == success and math.isfinite(value) and 0 <= value <= 100 else None
    )
