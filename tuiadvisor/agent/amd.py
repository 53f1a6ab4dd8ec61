"""One sample of every AMD device on this machine, as AMD SMI counts it, in the words of `agent.nvml`.

In: the Python library amdsmi, which comes with ROCm.  Out: one dictionary a device under the keys of NVML's; a counter
that the device, the driver or this container does not have is None, never 0. The return values are those of amdsmi
6.2 to 7.0, whose keys differ. Written after its documentation and source: it was tried on no device.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tuiadvisor.agent.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tuiadvisor.agent.nvml import Gpu

DRIVER: Final = Path("/dev/kfd")  # no AMD device can compute without it
MIB: Final = 1 << 20
MICRO: Final = 1e6
MOST_W: Final = 100_000  # a limit beyond it is in microwatts, as ROCm 6 and later tell it
# Of amdsmi_get_violation_status: what holds the clock back, our counter of seconds (`nvml_health.HELD_BACK`) and the
# reason in NVML's words.
VIOLATIONS: Final = {
    "ppt_pwr": ("held_power_s", "power cap"),
    "socket_thrm": ("held_heat_s", "thermal (software)"),
    "prochot_thrm": ("held_heat_hardware_s", "thermal (hardware)"),
    "vr_thrm": ("held_heat_hardware_s", "thermal (hardware)"),
    "hbm_thrm": ("held_heat_hardware_s", "thermal (hardware)"),
}
PCIE_GENERATIONS: Final = {2_500: 1, 5_000: 2, 8_000: 3, 16_000: 4, 32_000: 5, 64_000: 6}  # by MT/s a lane
MAX_PIDS: Final = 1024


class AmdReader:
    """Reads all devices; remembers who they are and how long each was held back."""

    def __init__(
        self,
        amdsmi: ModuleType,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        topology: Topology | None = None,
    ) -> None:
        self._amdsmi: Any = amdsmi
        self._clock_ns = clock_ns
        self._topology = topology or Topology()
        self._handles: list[Any] = self._ask("amdsmi_get_processor_handles") or []
        self._known = [self._meet(handle) for handle in self._handles]
        # Of each device: time and counters of the last sample, and seconds held back so far.
        self._before: dict[int, tuple[int, dict[str, float]]] = {}
        self._held_s: dict[int, dict[str, float]] = {}

    def driver(self) -> str | None:
        """Version of the driver."""
        told = self._ask("amdsmi_get_gpu_driver_info", self._handles[0]) if self._handles else None
        return _text(_dict(told).get("driver_version"))

    def sample(self) -> list[Gpu]:
        """One dictionary a device."""
        return [
            {"index": index, **known, "is_lost": False, **self._counters(index, handle)}
            for index, (handle, known) in enumerate(zip(self._handles, self._known, strict=True))
        ]

    def _meet(self, handle: Any) -> Gpu:
        """What does not change."""
        asic = _dict(self._ask("amdsmi_get_gpu_asic_info", handle))
        link = _dict(_dict(self._ask("amdsmi_get_pcie_info", handle)).get("pcie_static"))
        place = self._topology.place(_text(self._ask("amdsmi_get_gpu_device_bdf", handle)))
        nic, nic_path = self._topology.nearest_card(place) or (None, None)
        node = place.numa_node if place else None
        return {
            "name": _text(asic.get("market_name")),
            "uuid": self._uuid(handle, asic),
            "numa_node": _count(self._ask("amdsmi_topo_get_numa_node_number", handle))
            if node is None
            else node,
            "nic": nic,
            "nic_path": nic_path,
            "pcie_max_gen": _count(link.get("pcie_interface_version")) or None,
            "pcie_max_width": _count(link.get("max_pcie_width")) or None,
        }

    def _uuid(self, handle: Any, asic: dict[str, Any]) -> str | None:
        """As torch tells it of a rank's device: HIP's sixteen bytes are the letters of the device's number."""
        told = _text(_dict(self._ask("amdsmi_get_gpu_enumeration_info", handle)).get("hip_uuid"))
        letters = (told or "").removeprefix("GPU-")
        if len(letters) != 16:
            letters = (_text(asic.get("asic_serial")) or "").lower().removeprefix("0x")
        if len(letters) == 16 and letters.isascii():
            return str(UUID(bytes=letters.encode()))
        return _text(self._ask("amdsmi_get_gpu_device_uuid", handle))

    def _counters(self, index: int, handle: Any) -> Gpu:
        smi = self._amdsmi
        use = _dict(self._ask("amdsmi_get_gpu_activity", handle))
        memory = _dict(self._ask("amdsmi_get_gpu_vram_usage", handle))
        power = _dict(self._ask("amdsmi_get_power_info", handle))
        limit = _number(_dict(self._ask("amdsmi_get_power_cap_info", handle)).get("power_cap"))
        errors = _dict(self._ask("amdsmi_get_gpu_total_ecc_count", handle))
        link = _dict(_dict(self._ask("amdsmi_get_pcie_info", handle)).get("pcie_metric"))
        core, store = (self._clock(handle, name) for name in ("GFX", "MEM"))
        return {
            "utilization": _share(use.get("gfx_activity")),
            "memory_utilization": _share(use.get("umc_activity")),
            "memory_used_bytes": _bytes(memory.get("vram_used")),
            "memory_total_bytes": _bytes(memory.get("vram_total")),
            "sm_clock_mhz": core[0],
            "max_sm_clock_mhz": core[1],
            "memory_clock_mhz": store[0],
            "power_w": next(
                (
                    told
                    for name in ("socket_power", "current_socket_power", "average_socket_power")
                    if (told := _number(power.get(name))) is not None
                ),
                None,
            ),
            "power_limit_w": limit / MICRO if limit is not None and limit > MOST_W else limit,
            "temperature_c": _number(
                self._ask(
                    "amdsmi_get_temp_metric",
                    handle,
                    getattr(getattr(smi, "AmdSmiTemperatureType", None), "HOTSPOT", None),
                    getattr(getattr(smi, "AmdSmiTemperatureMetric", None), "CURRENT", None),
                )
            ),
            "ecc_corrected": _count(errors.get("correctable_count")),
            "ecc_uncorrected": _count(errors.get("uncorrectable_count")),
            "pids": self._pids(handle),
            "pcie_gen": PCIE_GENERATIONS.get(_count(link.get("pcie_speed")) or 0),
            "pcie_width": _count(link.get("pcie_width")) or None,
            "pcie_replays": _count(link.get("pcie_replay_count")),
            **self._held_back(index, handle),
        }

    def _clock(self, handle: Any, name: str) -> tuple[float | None, float | None]:
        """(now, at most) in MHz."""
        kind = getattr(getattr(self._amdsmi, "AmdSmiClkType", None), name, None)
        told = _dict(self._ask("amdsmi_get_clock_info", handle, kind))
        return _number(told.get("clk", told.get("cur_clk"))) or None, _number(told.get("max_clk")) or None

    def _pids(self, handle: Any) -> list[int] | None:
        """Processes on the device; a version before 6.1 hands out numbers to ask further with."""
        told = self._ask("amdsmi_get_gpu_process_list", handle)
        if not isinstance(told, list):
            return None
        pids = [_count(_dict(one).get("pid")) for one in told[:MAX_PIDS]]
        return [pid for pid in pids if pid is not None]

    def _held_back(self, index: int, handle: Any) -> Gpu:
        """Reasons in force now, and seconds so far: the firmware counts its ticks, and those with a violation."""
        told = _dict(self._ask("amdsmi_get_violation_status", handle))
        active = {name: told.get(f"active_{name}") for name in VIOLATIONS}
        known = [value for value in active.values() if isinstance(value, bool)]
        reasons = [VIOLATIONS[name][1] for name, value in active.items() if value is True]
        now_ns = self._clock_ns()
        ticks = {name: _number(told.get(f"acc_{name}")) for name in ("counter", *VIOLATIONS)}
        counted = {name: value for name, value in ticks.items() if value is not None}
        before_ns, before = self._before.get(index, (now_ns, {}))
        self._before[index] = (now_ns, counted)
        held_s = self._held_s.setdefault(index, {})
        passed = counted.get("counter", 0.0) - before.get("counter", 0.0)
        for name, (key, _) in VIOLATIONS.items():
            if name not in counted or "counter" not in counted:
                continue
            grown = counted[name] - before.get(name, counted[name])
            share = min(grown / passed, 1.0) if passed > 0 and grown > 0 else 0.0
            held_s[key] = held_s.get(key, 0.0) + share * (now_ns - before_ns) / 1e9
        return {"throttle_reasons": list(dict.fromkeys(reasons)) if known else None, **held_s}

    def _ask(self, name: str, *arguments: Any) -> Any:
        """The answer, or None: not supported, not permitted, not in this version."""
        function = getattr(self._amdsmi, name, None)
        if function is None or None in arguments:
            return None
        try:
            return function(*arguments)
        except self._amdsmi.AmdSmiException:
            return None


def load_amdsmi() -> ModuleType | None:
    """AMD SMI, initialized; None where there is no driver, no library or no device."""
    if not DRIVER.exists():
        return None
    try:
        import amdsmi  # type: ignore[import-not-found]  # noqa: PLC0415  # it comes with ROCm alone
    except (ImportError, OSError, KeyError):  # it looks for its library by itself
        return None
    try:
        amdsmi.amdsmi_init(amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
        return amdsmi if amdsmi.amdsmi_get_processor_handles() else None
    except amdsmi.AmdSmiException:
        return None


def _dict(told: object) -> dict[str, Any]:
    return told if isinstance(told, dict) else {}


def _number(told: object) -> float | None:
    """What is not told is "N/A"."""
    return told if isinstance(told, int | float) and not isinstance(told, bool) and told >= 0 else None


def _count(told: object) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None


def _share(told: object) -> float | None:
    percent = _number(told)
    return percent / 100 if percent is not None and percent <= 100 else None


def _bytes(told: object) -> int | None:
    mib = _number(told)
    return round(mib * MIB) if mib is not None else None


def _text(told: object) -> str | None:
    return told if isinstance(told, str) and told not in {"", "N/A"} else None
