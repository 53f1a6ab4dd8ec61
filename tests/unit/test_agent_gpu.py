"""GPU counters from a stand-in with NVML's names, types and errors."""

from __future__ import annotations

import ctypes
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest

from tuiadvisor.agent.gpu import GpuSampler, NvmlReader, load_nvml


class FakeNvml(ModuleType):
    """Two devices as nvidia-ml-py shows them; the second supports little."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        for name in dir(pynvml):
            if name.startswith(("NVML_", "NVMLError", "nvmlClocks")):
                setattr(self, name, getattr(pynvml, name))
        self.pcie_bytes = 1_000_000
        self.reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle

    def nvmlInit(self) -> None:  # noqa: N802  # NVML's own names, here and below
        return None

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        return "NVIDIA H200" if handle == 0 else b"Tesla"  # bytes before version 12

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        self._only_first(handle)
        found = pynvml.c_nvmlUtilization_t()
        found.gpu, found.memory = 87, 40
        return found

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        self._only_first(handle)
        found = pynvml.c_nvmlMemory_t()
        found.total, found.used = 150 << 30, 60 << 30
        return found

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        self._only_first(handle)
        return {pynvml.NVML_CLOCK_SM: 1755, pynvml.NVML_CLOCK_MEM: 3201}[kind]

    def nvmlDeviceGetMaxClockInfo(self, handle: int, _kind: int) -> int:  # noqa: N802
        self._only_first(handle)
        return 1980

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        self._only_first(handle)
        return 412_300  # milliwatts

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:  # noqa: N802
        self._only_first(handle)
        return 700_000

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        self._only_first(handle)
        return 61

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> Any:  # noqa: N802
        self._only_first(handle)
        return self.reasons

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:  # noqa: N802
        assert counter == pynvml.NVML_VOLATILE_ECC
        self._only_first(handle)
        return {pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED: 3, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED: 0}[
            kind
        ]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        self._only_first(handle)
        return [SimpleNamespace(pid=4711, usedGpuMemory=1 << 30)]

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> Any:  # noqa: N802
        values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for value, field in zip(values, fields, strict=True):
            value.fieldId = field
            is_known = handle == 0 and field == pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
            value.nvmlReturn = pynvml.NVML_SUCCESS if is_known else pynvml.NVML_ERROR_NOT_SUPPORTED
            value.value.ullVal = ctypes.c_ulonglong(self.pcie_bytes).value
        return values

    def _only_first(self, handle: int) -> None:
        if handle:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_supported_counters_are_read_in_their_units() -> None:
    """Percent becomes a share, milliwatts watts, reason bits words."""
    gpu = NvmlReader(FakeNvml()).sample()[0]

    assert (gpu["name"], gpu["uuid"], gpu["index"]) == ("NVIDIA H200", "GPU-0", 0)
    assert (
        gpu["utilization"],
        gpu["memory_utilization"],
        gpu["memory_used_bytes"],
        gpu["memory_total_bytes"],
    ) == (0.87, 0.4, 60 << 30, 150 << 30)
    assert (gpu["sm_clock_mhz"], gpu["max_sm_clock_mhz"], gpu["memory_clock_mhz"]) == (1755, 1980, 3201)
    assert (gpu["power_w"], gpu["power_limit_w"], gpu["temperature_c"]) == (412.3, 700.0, 61)
    assert gpu["throttle_reasons"] == ["power cap", "idle"]
    assert (gpu["ecc_corrected"], gpu["ecc_uncorrected"], gpu["pids"]) == (3, 0, [4711])


def test_unsupported_counters_are_unknown_and_not_zero() -> None:
    """A device that answers NOT_SUPPORTED keeps its name and has no numbers."""
    gpu = NvmlReader(FakeNvml()).sample()[1]

    assert (gpu.pop("name"), gpu.pop("uuid"), gpu.pop("index")) == ("Tesla", "GPU-1", 1)
    assert {None} == set(gpu.values())


def test_traffic_is_a_rate_from_the_second_sample_on() -> None:
    """4 MB in 2 s are 2 MB/s; a counter that restarts is no rate; what is not supported stays unknown."""
    nvml, clock = FakeNvml(), iter([10**9, 3 * 10**9, 5 * 10**9])
    reader = NvmlReader(nvml, lambda: next(clock))

    first = reader.sample()[0]
    nvml.pcie_bytes += 4_000_000
    second = reader.sample()[0]
    nvml.pcie_bytes = 0
    third = reader.sample()[0]

    assert [gpu["pcie_sent_bytes_s"] for gpu in (first, second, third)] == [None, 2_000_000.0, None]
    assert second["pcie_received_bytes_s"] is None


def test_older_driver_names_are_understood() -> None:
    """Before driver 535 the reasons were called throttle reasons."""
    nvml = FakeNvml()
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda _: nvml.reasons  # type: ignore[attr-defined]
    for name in [name for name in vars(nvml) if name.startswith("nvmlClocksEvent")]:
        delattr(nvml, name)
    nvml.nvmlDeviceGetCurrentClocksEventReasons = None  # type: ignore[assignment,method-assign]

    assert NvmlReader(nvml).sample()[0]["throttle_reasons"] == ["power cap", "idle"]


def test_machine_without_a_driver_has_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVMLError at the start is silence."""

    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    nvml = FakeNvml()
    monkeypatch.setattr(nvml, "nvmlInit", refuse)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    assert load_nvml() is None


def test_machine_without_the_library_has_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ImportError is silence too."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert load_nvml() is None


def test_silent_driver_leaves_names_only() -> None:
    """Counters older than five seconds are not shown as current."""
    sampler = GpuSampler(FakeNvml)
    sampler.start()
    while not sampler.names():
        time.sleep(0.001)
    sampler.stop()

    assert sampler.latest()[0]["utilization"] == 0.87
    assert sampler.latest(time.monotonic() + 10)[0] == {"index": 0, "name": "NVIDIA H200", "uuid": "GPU-0"}
