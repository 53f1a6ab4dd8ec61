"""Where each rank may run and where its device is, as the agents tell it.

In: HELLO's NUMA distances, HOST's devices and the ranks' allowed CPUs and memory.  Out: RankPlacements. Far is said
only where both ends are known.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.device_clocks import MAX_DEVICES, plain_uuid
from tuiadvisor.advisor.cluster.payload_fields import MAX_RANKS, Payload, integer, number, objects, text
from tuiadvisor.efficiency.gathering import believed
from tuiadvisor.views.devices import NO_DEVICE
from tuiadvisor.views.placement import CPUS_UNKNOWN, NODE_UNKNOWN, PATHS, DeviceFacts, RankPlacement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_NODES: Final = 1024
MAX_HOSTS: Final = 1 << 14
UUID_LENGTH: Final = 32  # hexadecimal digits: so long a name no other machine's device has


class Placements:
    """Mutable: feed it HELLO and HOST payloads; the newest of each stays."""

    def __init__(self) -> None:
        self._distances: dict[str, dict[int, dict[int, int]]] = {}
        self._devices: dict[tuple[str, str], Payload] = {}  # (host, device)
        self._ranks: dict[int, Payload] = {}
        self._multiprocessors: dict[int, int] = {}
        self._names: dict[int, str] = {}  # of imported ranks' devices

    def greet(self, host: str, payload: Payload) -> None:
        """One HELLO."""
        nodes, rows = _integers(payload.get("numa_nodes")), payload.get("numa_distances")
        if not nodes or not isinstance(rows, list) or (len(self._distances) >= MAX_HOSTS):
            return
        table = [_integers(row) or () for row in rows[:MAX_NODES]]
        if len(table) == len(nodes) == len(set(nodes)) and all(len(row) == len(nodes) for row in table):
            self._distances[host] = {
                one: dict(zip(nodes, row, strict=True)) for one, row in zip(nodes, table, strict=True)
            }

    def tell(self, rank: int, facts: Mapping[str, int | str]) -> None:
        """What a rank's probe says of its device."""
        num = facts.get("multiprocessors")
        if type(num) is int and rank < MAX_RANKS:
            self._multiprocessors[rank] = num

    def tell_imported(self, rank: int, told: Payload) -> None:
        """What another tool's trace says of a rank's device."""
        facts = believed(told)
        self.tell(rank, facts)
        name = facts.get("device_name")
        if isinstance(name, str) and rank < MAX_RANKS:
            self._names[rank] = name

    def take(self, host: str, payload: Payload) -> None:
        """One HOST sample; of devices that fell off the bus or ranks that are gone the last word stays."""
        for entry in objects(payload, "gpus"):
            names = [plain_uuid(text(one, "uuid")) for one in (entry, *objects(entry, "parts"))]
            if entry.get("is_lost") is True or "pcie_width" not in entry:
                continue  # its name alone
            for name in filter(None, names):
                if (host, name) in self._devices or len(self._devices) < MAX_DEVICES:
                    self._devices[host, name] = entry
        for entry in objects(payload, "ranks"):
            rank = integer(entry, "rank")
            if rank is not None and rank < MAX_RANKS and "cpu_nodes" in entry:
                self._ranks[rank] = entry

    def cpus_of(self, rank: int) -> str | None:
        """The CPUs that it is allowed, as the kernel's list; None where it was not told."""
        told = self._ranks.get(rank)
        return text(told, "cpus_allowed") if told else None

    def of_ranks(self, ranks: Iterable[tuple[int, str, str]]) -> tuple[RankPlacement, ...]:
        """Of each rank (number, host, its device or "")."""
        places = list(ranks)
        nums = Counter(_key(host, name) for _, host, name in places if name)
        return tuple(
            self._of_rank(rank, host, name, nums[_key(host, name)] if name else None)
            for rank, host, name in places
        )

    def _of_rank(self, rank: int, host: str, name: str, num_on_device: int | None) -> RankPlacement:
        told, device = self._ranks.get(rank), self._devices.get((host, name)) if name else None
        known = DeviceFacts(self._names[rank]) if rank in self._names else None
        if told is None and device is None:
            why = f"{CPUS_UNKNOWN}; {NO_DEVICE if known is None else NODE_UNKNOWN}"
            return RankPlacement(
                rank,
                host,
                device=known,
                multiprocessors=self._multiprocessors.get(rank),
                num_on_device=num_on_device,
                why=why,
            )
        distances = self._distances.get(host, {})
        cpu_nodes = _integers(told.get("cpu_nodes")) if told else None
        memory_nodes = _integers(told.get("memory_nodes")) if told else None
        device_node = integer(device, "numa_node") if device else None
        whys = [] if cpu_nodes else [CPUS_UNKNOWN]
        whys += [NO_DEVICE] if device is None else [NODE_UNKNOWN] if device_node is None else []
        nic_path = text(device, "nic_path") if device else None
        return RankPlacement(
            rank,
            host,
            cpus=text(told, "cpus_allowed") if told else None,
            cpu_nodes=cpu_nodes,
            memory_policy=text(told, "memory_policy") if told else None,
            memory_nodes=memory_nodes,
            device_node=device_node,
            distance=_nearest(distances, cpu_nodes, device_node),
            nic=text(device, "nic") if device and nic_path in PATHS else None,
            nic_path=nic_path if nic_path in PATHS else None,
            peer_paths=_paths(device),
            cpus_far=_is_far(cpu_nodes, device_node),
            memory_far=_is_far(memory_nodes, device_node),
            device=_facts(device) if device else known,
            multiprocessors=self._multiprocessors.get(rank),
            num_on_device=num_on_device,
            why="; ".join(whys),
        )


def _key(host: str, name: str) -> tuple[str, str]:
    """A device by its name: containers that a device was given to in turn have names of their own for one host."""
    return ("" if len(name) >= UUID_LENGTH else host, name)


def _is_far(nodes: tuple[int, ...] | None, device_node: int | None) -> bool | None:
    return None if not nodes or device_node is None else device_node not in nodes


def _nearest(
    distances: dict[int, dict[int, int]], nodes: tuple[int, ...] | None, device_node: int | None
) -> int | None:
    if not nodes or device_node is None:
        return None
    known = [distances[node][device_node] for node in nodes if device_node in distances.get(node, {})]
    return min(known) if len(known) == len(nodes) else None


def _paths(device: Payload | None) -> tuple[str, ...]:
    told = device.get("peer_paths") if device else None
    kinds = {path for path in told if isinstance(path, str)} if isinstance(told, list) else set()
    return tuple(path for path in PATHS if path in kinds)


def _facts(device: Payload) -> DeviceFacts:
    return DeviceFacts(
        name=text(device, "name"),
        memory_bytes=integer(device, "memory_total_bytes"),
        max_clock_mhz=number(device, "max_sm_clock_mhz"),
        power_limit_w=number(device, "power_limit_w"),
        pcie_width=integer(device, "pcie_width"),
        pcie_max_gen=integer(device, "pcie_max_gen"),
        pcie_max_width=integer(device, "pcie_max_width"),
        nvlink_links=integer(device, "nvlink_links"),
        nvlink_mb_s=integer(device, "nvlink_mb_s"),
    )


def _integers(value: object) -> tuple[int, ...] | None:
    """Numbers that are not negative; None where it is no list of these alone, or an empty one."""
    if not isinstance(value, list) or not 0 < len(value) <= MAX_NODES:
        return None
    return tuple(value) if all(type(one) is int and one >= 0 for one in value) else None
