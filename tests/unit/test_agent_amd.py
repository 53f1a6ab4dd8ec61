"""AMD devices from a stand-in with AMD SMI's names, types, "N/A" and errors (amdsmi 6.2 and 7.0, by its source)."""

from __future__ import annotations

import sys
from enum import IntEnum
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from tuiadvisor.advisor.cluster.device_clocks import DeviceClocks, device_line
from tuiadvisor.agent import amd, gpu
from tuiadvisor.agent.amd import AmdReader

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 10**9


class AmdSmiException(Exception):  # noqa: N818  # the library's own name
    """What every call raises that fails."""


class ClkType(IntEnum):
    """What a clock drives."""

    GFX = 1
    MEM = 4


class TemperatureType(IntEnum):
    """Where it is measured."""

    HOTSPOT = 1


class TemperatureMetric(IntEnum):
    """Which reading."""

    CURRENT = 0


class InitFlags(IntEnum):
    """What is looked for."""

    INIT_AMD_GPUS = 2


class FakeSmi(ModuleType):
    """An MI300X, and a device that supports next to nothing. of_2024: keys of amdsmi 6.2, else of 7.0."""

    AmdSmiException = AmdSmiException
    AmdSmiClkType = ClkType
    AmdSmiTemperatureType = TemperatureType
    AmdSmiTemperatureMetric = TemperatureMetric
    AmdSmiInitFlags = InitFlags

    def __init__(self, *, of_2024: bool = False) -> None:
        super().__init__("amdsmi")
        self.of_2024 = of_2024
        self.violated = {"acc_counter": 1000, "acc_ppt_pwr": 40, "acc_socket_thrm": 0, "acc_prochot_thrm": 0}
        self.active = {"active_ppt_pwr": True, "active_socket_thrm": False, "active_prochot_thrm": False}
        if not of_2024:
            self.amdsmi_get_gpu_enumeration_info = self._enumeration

    def _only_first(self, handle: str) -> None:
        if handle != "handle 0":
            raise AmdSmiException(2)

    def amdsmi_init(self, flag: InitFlags) -> None:
        assert flag is InitFlags.INIT_AMD_GPUS

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["handle 0", "handle 1"]

    def amdsmi_get_gpu_driver_info(self, handle: str) -> dict[str, str]:
        assert handle == "handle 0"
        return {"driver_name": "amdgpu", "driver_version": "6.10.5", "driver_date": "2015/01/01 00:00"}

    def amdsmi_get_gpu_asic_info(self, handle: str) -> dict[str, Any]:
        if handle != "handle 0":
            return {"market_name": "N/A", "asic_serial": "N/A"}
        return {
            "market_name": "AMD Instinct MI300X",
            "asic_serial": "0x4F1C2D3E4A5B6C7D",
            "num_compute_units": 304,
        }

    def _enumeration(self, handle: str) -> dict[str, Any]:
        self._only_first(handle)
        return {
            "drm_render": 128,
            "drm_card": 0,
            "hsa_id": 2,
            "hip_id": 0,
            "hip_uuid": "GPU-4f1c2d3e4a5b6c7d",
        }

    def amdsmi_get_gpu_device_uuid(self, handle: str) -> str:
        return "12ff74a1-0000-1000-8012-3456789abcde" if handle == "handle 0" else "00000001"

    def amdsmi_get_gpu_device_bdf(self, handle: str) -> str:
        return "0000:ff:00.0" if handle == "handle 0" else "0000:fe:00.0"

    def amdsmi_topo_get_numa_node_number(self, handle: str) -> int:
        self._only_first(handle)
        return 1

    def amdsmi_get_pcie_info(self, handle: str) -> dict[str, dict[str, Any]]:
        self._only_first(handle)
        return {
            "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32000, "pcie_interface_version": 5},
            "pcie_metric": {"pcie_width": 16, "pcie_speed": 16000, "pcie_replay_count": 7},
        }

    def amdsmi_get_gpu_activity(self, handle: str) -> dict[str, Any]:
        if handle != "handle 0":
            return {"gfx_activity": "N/A", "umc_activity": "N/A", "mm_activity": "N/A"}
        return {"gfx_activity": 98, "umc_activity": 31, "mm_activity": "N/A"}

    def amdsmi_get_gpu_vram_usage(self, handle: str) -> dict[str, int]:
        self._only_first(handle)
        return {"vram_total": 196_592, "vram_used": 98_296}

    def amdsmi_get_power_info(self, handle: str) -> dict[str, Any]:
        self._only_first(handle)
        if self.of_2024:
            return {"current_socket_power": "N/A", "average_socket_power": 610, "power_limit": 750_000_000}
        return {"socket_power": 702, "current_socket_power": 702, "average_socket_power": "N/A"}

    def amdsmi_get_power_cap_info(self, handle: str) -> dict[str, int]:
        self._only_first(handle)
        return {"power_cap": 750 if self.of_2024 else 750_000_000, "default_power_cap": 750_000_000}

    def amdsmi_get_clock_info(self, handle: str, kind: ClkType) -> dict[str, Any]:
        self._only_first(handle)
        assert isinstance(kind, ClkType), "the library refuses a plain number"
        now = {ClkType.GFX: 1420, ClkType.MEM: 1300}[kind]
        return {"cur_clk" if self.of_2024 else "clk": now, "min_clk": 132, "max_clk": 2100}

    def amdsmi_get_temp_metric(self, handle: str, sensor: TemperatureType, metric: TemperatureMetric) -> int:
        self._only_first(handle)
        assert (sensor, metric) == (TemperatureType.HOTSPOT, TemperatureMetric.CURRENT)
        return 83

    def amdsmi_get_gpu_total_ecc_count(self, handle: str) -> dict[str, int]:
        self._only_first(handle)
        return {"correctable_count": 3, "uncorrectable_count": 0, "deferred_count": 0}

    def amdsmi_get_gpu_process_list(self, handle: str) -> list[dict[str, Any]]:
        self._only_first(handle)
        return [{"name": "python", "pid": 4711, "mem": 1 << 30}]

    def amdsmi_get_violation_status(self, handle: str) -> dict[str, Any]:
        self._only_first(handle)
        if self.of_2024:
            raise AmdSmiException(2)
        unknown = {
            "acc_vr_thrm": "N/A",
            "acc_hbm_thrm": "N/A",
            "active_vr_thrm": "N/A",
            "active_hbm_thrm": "N/A",
        }
        return {**self.violated, **self.active, **unknown}


class Clock:
    """Nanoseconds that pass when told."""

    now_ns = SECOND

    def __call__(self) -> int:
        return self.now_ns


def test_a_device_has_the_keys_of_every_other_vendor() -> None:
    """The clock, its reasons and memory in the units that the rules read."""
    found = AmdReader(FakeSmi()).sample()[0]
    assert found["name"] == "AMD Instinct MI300X"
    assert (found["utilization"], found["memory_utilization"]) == (0.98, 0.31)
    assert (found["memory_used_bytes"], found["memory_total_bytes"]) == (98_296 << 20, 196_592 << 20)
    assert (found["sm_clock_mhz"], found["max_sm_clock_mhz"], found["memory_clock_mhz"]) == (1420, 2100, 1300)
    assert (found["power_w"], found["power_limit_w"], found["temperature_c"]) == (702, 750, 83)
    assert (found["ecc_corrected"], found["ecc_uncorrected"], found["pids"]) == (3, 0, [4711])
    assert (found["pcie_gen"], found["pcie_max_gen"], found["pcie_width"], found["pcie_replays"]) == (
        4,
        5,
        16,
        7,
    )
    assert (found["throttle_reasons"], found["numa_node"], found["is_lost"]) == (["power cap"], 1, False)


def test_the_keys_of_an_older_library_are_read_as_well() -> None:
    """And what it cannot tell is unknown: nothing holds the clock back is another statement."""
    found = AmdReader(FakeSmi(of_2024=True)).sample()[0]
    assert (found["sm_clock_mhz"], found["power_w"], found["power_limit_w"]) == (1420, 610, 750)
    assert found["throttle_reasons"] is None
    assert "held_power_s" not in found


@pytest.mark.parametrize("of_2024", [True, False])
def test_the_name_of_a_device_is_that_which_torch_tells_of_a_rank(of_2024: bool) -> None:
    """On ROCm its sixteen bytes are letters."""
    found = AmdReader(FakeSmi(of_2024=of_2024)).sample()[0]
    assert found["uuid"] == str(UUID(bytes=b"4f1c2d3e4a5b6c7d"))


def test_what_a_device_does_not_tell_is_unknown() -> None:
    """Never 0."""
    found = AmdReader(FakeSmi()).sample()[1]
    assert (found["index"], found["name"], found["uuid"]) == (1, None, "00000001")
    counters = {key: value for key, value in found.items() if key not in {"index", "uuid", "is_lost"}}
    assert set(counters.values()) == {None}


def test_the_time_held_back_is_the_share_of_the_firmware_s_ticks() -> None:
    """50 of 100 ticks in two seconds are one second; a counter that starts anew counts nothing."""
    smi, clock = FakeSmi(), Clock()
    reader = AmdReader(smi, clock)
    assert reader.sample()[0]["held_power_s"] == 0.0
    clock.now_ns += 2 * SECOND
    smi.violated |= {"acc_counter": 1100, "acc_ppt_pwr": 90, "acc_socket_thrm": 25}
    found = reader.sample()[0]
    assert (found["held_power_s"], found["held_heat_s"]) == (1.0, 0.5)
    clock.now_ns += 2 * SECOND
    smi.violated |= {"acc_counter": 5, "acc_ppt_pwr": 5, "acc_socket_thrm": 0}
    assert reader.sample()[0]["held_power_s"] == 1.0


def test_the_advisor_finds_the_clock_of_a_rank_and_why_it_is_held_back() -> None:
    """As of any other vendor's, by the device's name."""
    clocks, clock, smi = DeviceClocks(), Clock(), FakeSmi()
    reader = AmdReader(smi, clock)
    for _ in range(6):
        clock.now_ns += SECOND
        clocks.take("node0", {"mono_ns": clock.now_ns, "gpus": reader.sample()})
    (found,) = clocks.clocks([("node0", 1, str(UUID(bytes=b"4f1c2d3e4a5b6c7d")))], 10.0)
    assert found is not None
    assert (found.mhz, found.reasons) == (1420, ("power cap",))
    assert device_line(reader.sample()[0]).startswith(
        "0 AMD Instinct MI300X · 98% busy · 1420 of 2100 MHz · 702 of"
    )


def test_a_machine_without_the_driver_does_not_even_look_for_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its import takes longer than a machine of NVIDIA's need wait."""
    monkeypatch.setattr(gpu, "load_nvml", lambda: None)
    monkeypatch.setattr(amd, "DRIVER", tmp_path / "kfd")
    monkeypatch.setitem(sys.modules, "amdsmi", FakeSmi())
    assert gpu.load_reader() is None


def test_with_the_driver_the_library_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And a library that finds none is as good as none."""
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(gpu, "load_nvml", lambda: None)
    monkeypatch.setattr(amd, "DRIVER", tmp_path / "kfd")
    smi = FakeSmi()
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    reader = gpu.load_reader()
    assert reader is not None
    assert (reader.driver(), len(reader.sample())) == ("6.10.5", 2)

    def refuse(flag: object) -> None:
        raise AmdSmiException(34)

    monkeypatch.setattr(smi, "amdsmi_init", refuse)
    assert gpu.load_reader() is None
