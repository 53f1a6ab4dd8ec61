"""GPU counters by NVML, in a thread of their own: a driver in trouble may not stop the draining of rings.

In: nvidia-ml-py, imported only here and only when used.  Out: one dictionary a device; a counter that the device or
the driver does not have is None. No driver, no library, no device: no dictionaries, and no error.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

SAMPLE_EVERY_S: Final = 1.0
STALE_AFTER_S: Final = 5.0
Gpu = dict[str, object]

# Names as NVML's reason bits, spelled for people. nvmlClocksEventReason... was nvmlClocksThrottleReason... before 12.2.
_THROTTLE_REASONS: Final = {
    "SwPowerCap": "power cap",
    "HwSlowdown": "hardware slowdown",
    "SwThermalSlowdown": "thermal (software)",
    "HwThermalSlowdown": "thermal (hardware)",
    "HwPowerBrakeSlowdown": "power brake",
    "SyncBoost": "sync boost",
    "ApplicationsClocksSetting": "application clocks",
    "GpuIdle": "idle",
}


class GpuSampler:
    """The latest sample of every device, taken once a second in the background."""

    def __init__(self, load: Callable[[], ModuleType | None] | None = None) -> None:
        self._load = load or load_nvml
        self._latest: tuple[Gpu, ...] = ()
        self._sampled_at_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)

    def start(self) -> None:
        """Begin; where there is no NVML the thread ends at once."""
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for a driver that does not answer."""
        self._stop.set()
        self._thread.join(timeout=0.2)

    def latest(self, now_s: float | None = None) -> list[Gpu]:
        """The devices' counters; only their names when the driver has not answered for a while."""
        now_s = time.monotonic() if now_s is None else now_s
        if now_s - self._sampled_at_s <= STALE_AFTER_S:
            return list(self._latest)
        return [{"index": gpu["index"], "name": gpu["name"], "uuid": gpu["uuid"]} for gpu in self._latest]

    def names(self) -> list[str]:
        """One name a device, "?" where it has none to tell."""
        return [str(gpu["name"] or "?") for gpu in self._latest]

    def _run(self) -> None:
        nvml = self._load()
        if nvml is None:
            return
        reader = NvmlReader(nvml)
        while not self._stop.is_set():
            self._latest, self._sampled_at_s = tuple(reader.sample()), time.monotonic()
            self._stop.wait(SAMPLE_EVERY_S)


def load_nvml() -> ModuleType | None:
    """NVML, initialized; None where there is no library, no driver or no device."""
    try:
        import pynvml  # noqa: PLC0415  # 20 ms that a machine without a GPU need not spend
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml if pynvml.nvmlDeviceGetCount() > 0 else None
    except pynvml.NVMLError:
        return None


class NvmlReader:
    """Reads all devices; remembers the byte counters for their rates."""

    def __init__(self, nvml: ModuleType, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._nvml: Any = nvml
        self._clock_ns = clock_ns
        self._before: dict[tuple[int, str], tuple[int, int]] = {}

    def sample(self) -> list[Gpu]:
        """One dictionary a device."""
        count = self._ask("nvmlDeviceGetCount") or 0
        handles = ((index, self._ask("nvmlDeviceGetHandleByIndex", index)) for index in range(count))
        return [self._device(index, handle) for index, handle in handles if handle is not None]

    def _device(self, index: int, handle: Any) -> Gpu:
        nvml = self._nvml
        use = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        return {
            "index": index,
            "name": _text(self._ask("nvmlDeviceGetName", handle)),
            "uuid": _text(self._ask("nvmlDeviceGetUUID", handle)),
            "utilization": use.gpu / 100 if use else None,
            "memory_utilization": use.memory / 100 if use else None,
            "memory_used_bytes": memory.used if memory else None,
            "memory_total_bytes": memory.total if memory else None,
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            "max_sm_clock_mhz": self._ask("nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
            "power_w": _thousandth(self._ask("nvmlDeviceGetPowerUsage", handle)),
            "power_limit_w": _thousandth(self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            "throttle_reasons": self._throttle_reasons(handle),
            "ecc_corrected": self._ecc(handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "ecc_uncorrected": self._ecc(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            "pids": self._pids(handle),
            **self._traffic(index, handle),
        }

    def _ask(self, name: str, *arguments: Any) -> Any:
        """The answer, or None: not supported, not permitted, not in this version, lost device."""
        function = getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None

    def _throttle_reasons(self, handle: Any) -> list[str] | None:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if bits is None:
            return None
        return [word for name, word in _THROTTLE_REASONS.items() if bits & self._reason_bit(name)]

    def _reason_bit(self, name: str) -> int:
        for prefix in ("nvmlClocksEventReason", "nvmlClocksThrottleReason"):
            bit = getattr(self._nvml, prefix + name, None)
            if bit is not None:
                return int(bit)
        return 0

    def _ecc(self, handle: Any, kind: int) -> int | None:
        count: int | None = self._ask(
            "nvmlDeviceGetTotalEccErrors", handle, kind, self._nvml.NVML_VOLATILE_ECC
        )
        return count

    def _pids(self, handle: Any) -> list[int] | None:
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        return None if processes is None else [process.pid for process in processes]

    def _traffic(self, index: int, handle: Any) -> Gpu:
        """Bytes a second over PCIe and NVLink, from counters that are read in microseconds.

        nvmlDeviceGetPcieThroughput would measure for 20 ms a call; it is not used.
        """
        nvml = self._nvml
        fields = {
            "pcie_sent_bytes_s": (getattr(nvml, "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", None), 1),
            "pcie_received_bytes_s": (getattr(nvml, "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", None), 1),
            "nvlink_sent_bytes_s": (getattr(nvml, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", None), 1024),
            "nvlink_received_bytes_s": (getattr(nvml, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", None), 1024),
        }
        asked = [(name, field, unit) for name, (field, unit) in fields.items() if field is not None]
        values = self._ask("nvmlDeviceGetFieldValues", handle, [field for _, field, _ in asked]) or []
        found: Gpu = dict.fromkeys(fields)
        for (name, _, unit), value in zip(asked, values, strict=False):
            if value.nvmlReturn == nvml.NVML_SUCCESS:
                found[name] = self._rate(index, name, int(value.value.ullVal) * unit)
        return found

    def _rate(self, index: int, name: str, num_bytes: int) -> float | None:
        now = (self._clock_ns(), num_bytes)
        before = self._before.get((index, name))
        self._before[index, name] = now
        if before is None or num_bytes < before[1] or now[0] <= before[0]:
            return None
        return (num_bytes - before[1]) / ((now[0] - before[0]) / 1e9)


def _text(value: object) -> str | None:
    if isinstance(value, bytes):  # nvidia-ml-py before 12
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000
