"""GPU counters from a stand-in with NVML's names, types and errors."""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest

from tuiadvisor.agent.gpu import GpuSampler, load_nvml
from tuiadvisor.agent.nvml import MAX_XIDS, NvmlReader
from tuiadvisor.agent.nvml_health import KEYS

VALUE_TYPES = {"dVal": 0, "uiVal": 1, "ulVal": 2, "ullVal": 3, "sllVal": 4, "siVal": 5, "usVal": 6}
ALL_LINKS = 0xFFFFFFFF


class FakeNvml(ModuleType):
    """Two devices as nvidia-ml-py shows them; the second supports little."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        for name in dir(pynvml):
            if name.startswith(("NVML_", "NVMLError", "nvmlClocks", "nvmlEventType")):
                setattr(self, name, getattr(pynvml, name))
        self.pcie_bytes = 1_000_000
        self.reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle

        self.lost: set[int] = set()
        self.pending_xids: list[tuple[int, int]] = []
        self.watched: list[tuple[int, int]] = []
        self.parts: dict[int, str] = {}
        self.field_values: dict[tuple[int, int], tuple[str, int]] = {}  # (field, scope): type and value
        self.num_links = 0

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "550.54.15"

    def nvmlEventSetCreate(self) -> str:  # noqa: N802
        return "event set"

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, event_set: str) -> None:  # noqa: N802
        assert event_set == "event set"
        self._only_first(handle)
        self.watched.append((handle, kinds))

    def nvmlEventSetWait_v2(self, event_set: str, timeout_ms: int) -> Any:  # noqa: N802
        assert (event_set, timeout_ms) == ("event set", 0), "a wait would hold the sampler up"
        if not self.pending_xids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        device, xid = self.pending_xids.pop(0)
        return SimpleNamespace(device=device, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=xid)

    def nvmlDeviceGetIndex(self, handle: int) -> int:  # noqa: N802
        return handle

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        self._only_first(handle)
        return SimpleNamespace(busId="FFFFFFFF:FF:1F.7")

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        self._only_first(handle)
        if link >= self.num_links:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return 1

    def nvmlDeviceGetPcieReplayCounter(self, handle: int) -> int:  # noqa: N802
        self._only_first(handle)
        return 7

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:  # noqa: N802
        self._only_first(handle)
        return 2, 1, 1, 0

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:  # noqa: N802
        self._only_first(handle)
        return [int(bool(self.parts)), int(bool(self.parts))]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:  # noqa: N802
        self._only_first(handle)
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> int:  # noqa: N802
        self._only_first(handle)
        if index not in self.parts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 100 + index

    def nvmlInit(self) -> None:  # noqa: N802  # NVML's own names, here and below
        return None

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index in self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        if handle >= 100:
            return self.parts[handle - 100]
        return "NVIDIA H200" if handle == 0 else b"Tesla"  # bytes before version 12

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"MIG-{handle}" if handle >= 100 else f"GPU-{handle}"

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

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int | tuple[int, int]]) -> Any:  # noqa: N802
        """A bare field is of scope 0, as in nvidia-ml-py; each value says its type and whether it is there."""
        self._only_first(handle)
        values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for value, field in zip(values, fields, strict=True):
            value.fieldId, value.scopeId = field if isinstance(field, tuple) else (field, 0)
            told = self.field_values.get((value.fieldId, value.scopeId))
            if value.fieldId == pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES:
                told = ("ullVal", self.pcie_bytes)
            value.nvmlReturn = pynvml.NVML_SUCCESS if told else pynvml.NVML_ERROR_NOT_SUPPORTED
            if told:
                value.valueType = VALUE_TYPES[told[0]]
                setattr(value.value, told[0], told[1])
        return values

    def _only_first(self, handle: int) -> None:
        if handle in self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if 0 < handle < 100:
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
    assert gpu.pop("is_lost") is False
    assert {None} == set(gpu.values())


def test_xids_are_kept_and_none_is_not_unknown() -> None:
    """The first device tells its critical errors, none so far; the second cannot tell: unknown."""
    nvml = FakeNvml()
    reader = NvmlReader(nvml)
    first = reader.sample()
    nvml.pending_xids = [(0, 48), (0, 63), (1, 13)]
    second = reader.sample()
    nvml.pending_xids = [(0, 45)] * 40
    for _ in range(5):
        third = reader.sample()

    assert [[], None] == [gpu["xids"] for gpu in first]
    assert [[48, 63], None] == [gpu["xids"] for gpu in second]
    assert [48, 63, *[45] * (MAX_XIDS - 2)] == third[0]["xids"]
    assert nvml.watched == [(0, pynvml.nvmlEventTypeXidCriticalError)]


def test_device_lost_in_mid_run_stays_named_without_numbers() -> None:
    """Off the bus after the first sample: name and uuid stay, no counter is left over, the others go on."""
    nvml = FakeNvml()
    reader = NvmlReader(nvml)
    reader.sample()
    nvml.lost = {0}
    lost, other = reader.sample()

    assert {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-0",
        "numa_node": None,
        "nic": None,
        "nic_path": None,
        "peer_paths": None,
        "pcie_max_gen": None,
        "pcie_max_width": None,
        "nvlink_links": None,
        "nvlink_mb_s": None,
        "is_lost": True,
        "xids": [],
    } == lost
    assert other["is_lost"] is False


def test_device_that_answers_lost_in_the_middle_has_no_numbers() -> None:
    """The handle is still given, the counters are not: half a sample is none."""
    nvml = FakeNvml()
    reader = NvmlReader(nvml)
    reader.sample()

    def lost(_handle: int) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    nvml.nvmlDeviceGetPowerUsage = lost  # type: ignore[method-assign]
    gpu = reader.sample()[0]

    assert gpu["is_lost"] is True
    assert "utilization" not in gpu


def test_mig_parts_stand_beside_the_whole_device() -> None:
    """Two of seven places are taken: each has its memory and processes; clocks and power are the device's."""
    nvml = FakeNvml()
    nvml.parts = {0: "NVIDIA H200 MIG 3g.71gb", 4: "NVIDIA H200 MIG 1g.18gb"}
    gpu = NvmlReader(nvml).sample()[0]

    assert gpu["sm_clock_mhz"] == 1755
    parts = gpu["parts"]
    assert isinstance(parts, list)
    assert [(0, "MIG-100", [4711]), (4, "MIG-104", [4711])] == [
        (part["index"], part["uuid"], part["pids"]) for part in parts
    ]


def test_driver_that_goes_away_leaves_known_devices_lost() -> None:
    """No count any more: what was known is said to be lost, nothing raises."""
    nvml = FakeNvml()
    reader = NvmlReader(nvml)
    reader.sample()

    def gone(*_: object) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)

    nvml.nvmlDeviceGetCount = nvml.nvmlDeviceGetHandleByIndex = gone  # type: ignore[method-assign,assignment]

    assert [True, True] == [gpu["is_lost"] for gpu in reader.sample()]


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
    sampler = GpuSampler(lambda: NvmlReader(FakeNvml()))
    begin_s = time.monotonic()
    sampler.start()
    while not sampler.names():
        time.sleep(0.001)
    sampler.stop()

    assert sampler.driver == "550.54.15"
    assert sampler.latest(begin_s)[0]["utilization"] == 0.87  # however long it took to come here
    assert sampler.latest(time.monotonic() + 10)[0] == {"index": 0, "name": "NVIDIA H200", "uuid": "GPU-0"}


def with_links(num_links: int = 18) -> FakeNvml:
    """An H200 in the shape in which its driver answers: sums of all links, times in nanoseconds."""
    nvml = FakeNvml()
    nvml.num_links = num_links
    nvml.field_values = {
        (pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, 0): ("ullVal", 12_500_000_000),
        (pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0): ("ullVal", 0),
        (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS): ("ullVal", 1_000),
        (pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, 0): ("ullVal", 4),
        **{
            (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, link): ("ullVal", link == 3) for link in range(num_links)
        },
        (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, 0): ("ullVal", 1),  # of one link alone
    }
    return nvml


def test_what_a_device_has_suffered_is_told_and_what_it_does_not_tell_is_unknown() -> None:
    """Held back for 12.5 s by its power cap, never by heat; errors of links as a sum or summed; one link is no sum."""
    first, second = NvmlReader(with_links()).sample()

    assert (12.5, 0.0, None) == (
        first["held_power_s"],
        first["held_heat_hardware_s"],
        first["held_power_brake_s"],
    )
    assert (4, 1, None) == (
        first["nvlink_replays"],
        first["nvlink_crc_errors"],
        first["nvlink_recoveries"],
    )
    assert (7, 2, 1, 1, 0) == (
        first["pcie_replays"],
        first["remapped_rows_corrected"],
        first["remapped_rows_uncorrected"],
        first["row_remap_pending"],
        first["row_remap_failed"],
    )
    assert {None} == {second[key] for key in KEYS}


def test_a_device_without_nvlink_has_no_errors_of_links() -> None:
    """A counter of zero would say that there are links."""
    first = NvmlReader(with_links(0)).sample()[0]

    assert [None] * 3 == [first[key] for key in ("nvlink_replays", "nvlink_crc_errors", "nvlink_recoveries")]


@pytest.mark.parametrize("has_sum", [True, False])
def test_traffic_of_nvlink_is_that_of_all_links(has_sum: bool) -> None:
    """A field without a scope is that of link 0: of eighteen links an eighteenth was shown."""
    nvml, clock = with_links(), iter(at * 10**9 for at in range(1, 100))
    reader = NvmlReader(nvml, lambda: next(clock))

    def tell(kib: int) -> None:
        field = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
        nvml.field_values.update({(field, link): ("ullVal", kib) for link in range(18)})
        if has_sum:
            nvml.field_values[field, ALL_LINKS] = ("ullVal", 18 * kib)
        else:
            nvml.field_values.pop((field, ALL_LINKS), None)

    tell(1_000)
    reader.sample()
    tell(2_000)
    second = reader.sample()[0]
    passed = second["nvlink_sent_bytes_s"]

    assert isinstance(passed, float)
    assert passed * 2 == pytest.approx(18 * 1_000 * 1024)  # the clock is asked twice a sample


def test_an_older_driver_tells_the_time_at_a_clock_held_back_by_an_older_name() -> None:
    """Fields 74 to 76 were called after the performance policy; the others did not exist."""
    nvml = with_links()
    for name in [name for name in vars(nvml) if name.startswith("NVML_FI_DEV_CLOCKS_EVENT")]:
        delattr(nvml, name)
    first = NvmlReader(nvml).sample()[0]

    assert (12.5, None) == (first["held_power_s"], first["held_heat_hardware_s"])
