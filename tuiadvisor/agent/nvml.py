"""One sample of every NVIDIA device on this machine, as NVML counts it.

In: nvidia-ml-py.  Out: one dictionary a device; a counter that the device, the driver or this container does not have
is None, never 0. A device that falls off the bus while we watch stays in the list, marked lost, with its name and
nothing else. With MIG the counters of the whole device stand beside one entry for each of its parts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.agent.gpm import GpmReader
from tuiadvisor.agent.nvml_health import ALL_LINKS, fields, health
from tuiadvisor.agent.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

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
    "DisplayClockSetting": "display clocks",
    "GpuIdle": "idle",
}
# NVML_TOPOLOGY_..., as `nvidia-smi topo -m` writes them.
_LEVELS: Final = {0: "SAME", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_NVLINK_TRAFFIC: Final = {  # in KiB
    "nvlink_sent_bytes_s": "NVLINK_THROUGHPUT_DATA_TX",
    "nvlink_received_bytes_s": "NVLINK_THROUGHPUT_DATA_RX",
}
_AFFINITY_WORDS: Final = 16  # of 64 nodes each: 1,024 is the most that Linux builds for
MAX_PEERS: Final = 32
MAX_XIDS: Final = 16  # kept of a device; the first ones name the cause, later ones follow from them
MAX_PARTS: Final = 16  # NVML knows at most 7 a device


class NvmlReader:
    """Reads all devices; remembers who they are, their byte counters for rates, and their XID errors."""

    def __init__(
        self,
        nvml: ModuleType,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        topology: Topology | None = None,
    ) -> None:
        self._nvml: Any = nvml
        self._topology = topology or Topology()
        self._clock_ns = clock_ns
        self._before: dict[tuple[int, str], tuple[int, int]] = {}
        self._known: dict[int, Gpu] = {}  # index -> what does not change: name, uuid, NUMA node
        self._xids: dict[int, list[int]] = {}  # of devices that tell them
        self._is_lost = False  # whether a question since it was cleared was answered by "lost"
        self._event_set = self._ask("nvmlEventSetCreate")
        self._gpm = GpmReader(nvml)

    def driver(self) -> str | None:
        """Version of the driver."""
        told = self._ask("nvmlSystemGetDriverVersion")
        return told if isinstance(told, str) else None

    def sample(self) -> list[Gpu]:
        """One dictionary a device."""
        count = self._ask("nvmlDeviceGetCount") or 0
        self._take_xids()
        found = (self._sample_one(index) for index in sorted({*range(count), *self._known}))
        return [gpu for gpu in found if gpu is not None]

    def _sample_one(self, index: int) -> Gpu | None:
        self._is_lost = False
        handle = self._ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None and index not in self._known:
            return None
        if handle is not None and index not in self._known:
            self._meet(index, handle)
        counters = self._counters(index, handle) if handle is not None else {}
        is_lost = self._is_lost or handle is None
        if is_lost:  # what it still answers is left over from before
            counters = {}
        return {
            "index": index,
            **self._known[index],
            "is_lost": is_lost,
            "xids": self._xids.get(index),
            **counters,
        }

    def _meet(self, index: int, handle: Any) -> None:
        self._known[index] = {
            "name": _text(self._ask("nvmlDeviceGetName", handle)),
            "uuid": _text(self._ask("nvmlDeviceGetUUID", handle)),
            **self._place(index, handle),
        }
        wanted = getattr(self._nvml, "nvmlEventTypeXidCriticalError", None)
        if self._event_set is not None and wanted is not None:
            try:
                self._nvml.nvmlDeviceRegisterEvents(handle, wanted, self._event_set)
                self._xids[index] = []
            except self._nvml.NVMLError:
                pass  # containers and some devices tell no events: unknown, which is not "none"

    def _place(self, index: int, handle: Any) -> Gpu:
        """Where it hangs, and what its links may carry: this does not change."""
        address = _text(getattr(self._ask("nvmlDeviceGetPciInfo", handle), "busId", None))
        place = self._topology.place(address)
        nic, nic_path = self._topology.nearest_card(place) or (None, None)
        node = place.numa_node if place else None
        num_links = sum(
            self._ask("nvmlDeviceGetNvLinkState", handle, link) == 1
            for link in range(getattr(self._nvml, "NVML_NVLINK_MAX_LINKS", 0))
        )
        return {
            "numa_node": self._node_by_affinity(handle) if node is None else node,
            "nic": nic,
            "nic_path": nic_path,
            "peer_paths": self._peer_paths(index, handle),
            "pcie_max_gen": self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "pcie_max_width": self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
            "nvlink_links": num_links or None,
            "nvlink_mb_s": self._field(handle, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON") if num_links else None,
        }

    def _node_by_affinity(self, handle: Any) -> int | None:
        """Where sysfs has no node, as in a virtual machine, NVML's if it names one alone."""
        scope = getattr(self._nvml, "NVML_AFFINITY_SCOPE_NODE", 0)
        words = self._ask("nvmlDeviceGetMemoryAffinity", handle, _AFFINITY_WORDS, scope) or ()
        nodes = [64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1]
        return nodes[0] if len(nodes) == 1 else None

    def _peer_paths(self, index: int, handle: Any) -> list[str | None] | None:
        """To each device of this machine in their order, itself left unknown."""
        count = min(self._ask("nvmlDeviceGetCount") or 0, MAX_PEERS)
        paths: list[str | None] = []
        for other in range(count):
            peer = None if other == index else self._ask("nvmlDeviceGetHandleByIndex", other)
            level = None if peer is None else self._ask("nvmlDeviceGetTopologyCommonAncestor", handle, peer)
            paths.append(_LEVELS.get(level) if level is not None else None)
        return paths if any(paths) else None

    def _field(self, handle: Any, name: str) -> int | None:
        """One field that is an unsigned integer."""
        field = getattr(self._nvml, name, None)
        values = (self._ask("nvmlDeviceGetFieldValues", handle, [field]) if field is not None else None) or ()
        told = [int(value.value.uiVal) for value in values if value.nvmlReturn == self._nvml.NVML_SUCCESS]
        return told[0] if told else None

    def _counters(self, index: int, handle: Any) -> Gpu:
        nvml = self._nvml
        use = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        return {
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
            "pcie_gen": self._ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            "pcie_width": self._ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            **self._traffic(index, handle),
            **self._gpm.read(index, handle),
            **health(nvml, self._ask, handle, self._num_links(index)),
            "parts": self._parts(handle),
        }

    def _ask(self, name: str, *arguments: Any) -> Any:
        """The answer, or None: not supported, not permitted, not in this version, lost device."""
        function = getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            self._is_lost |= getattr(error, "value", None) == getattr(
                self._nvml, "NVML_ERROR_GPU_IS_LOST", 15
            )
            return None

    def _take_xids(self) -> None:
        """Critical errors since the last sample, asked without waiting."""
        for _ in range(MAX_XIDS if self._xids else 0):
            data = self._ask("nvmlEventSetWait_v2", self._event_set, 0)
            if data is None:
                return
            index = self._ask("nvmlDeviceGetIndex", data.device)
            if index in self._xids and len(self._xids[index]) < MAX_XIDS:
                self._xids[index] = [*self._xids[index], int(data.eventData)]

    def _parts(self, handle: Any) -> list[Gpu] | None:
        """MIG devices; None where the device is whole or does not say."""
        mode = self._ask("nvmlDeviceGetMigMode", handle)
        if not mode or mode[0] != getattr(self._nvml, "NVML_DEVICE_MIG_ENABLE", 1):
            return None
        most = min(self._ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0, MAX_PARTS)
        parts = []
        for number in range(most):
            part = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            if part is None:
                continue  # this place is empty
            memory = self._ask("nvmlDeviceGetMemoryInfo", part)
            parts.append(
                {
                    "index": number,
                    "name": _text(self._ask("nvmlDeviceGetName", part)),
                    "uuid": _text(self._ask("nvmlDeviceGetUUID", part)),
                    "memory_used_bytes": memory.used if memory else None,
                    "memory_total_bytes": memory.total if memory else None,
                    "pids": self._pids(part),
                }
            )
        return parts

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
        sent, received = fields(self._nvml, self._ask, handle, ("PCIE_COUNT_TX_BYTES", "PCIE_COUNT_RX_BYTES"))
        counts = {"pcie_sent_bytes_s": sent, "pcie_received_bytes_s": received}
        for name, field in _NVLINK_TRAFFIC.items():
            counts[name] = self._of_all_links(index, handle, field)
        return {
            name: None if count is None else self._rate(index, name, int(count))
            for name, count in counts.items()
        }

    def _of_all_links(self, index: int, handle: Any, field: str) -> float | None:
        """Bytes; summed over the links where the driver has no sum of its own."""
        links = range(self._num_links(index))
        (total,) = fields(self._nvml, self._ask, handle, [field], [ALL_LINKS])
        if total is None and links:
            each = fields(self._nvml, self._ask, handle, [field], links)
            total = sum(value for value in each if value is not None) if None not in each else None
        return None if total is None else total * 1024

    def _num_links(self, index: int) -> int:
        told = self._known[index].get("nvlink_links")
        return told if isinstance(told, int) else 0

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
