"""Where processors, memory, PCI devices and network cards lie on this machine, and what the cards carry.

In: sysfs.  Out: NUMA nodes with their distances, the network cards with rate and counters, how far two PCI devices are
from each other in the words of `nvidia-smi topo`. What the kernel or a container does not tell is None, never near.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SYSFS: Final = Path("/sys")
MAX_CARDS: Final = 64
CARDS_EVERY_S: Final = 60.0  # a card's speed is asked under a lock that network changes take, too
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE: Final = re.compile(r"([0-9.]+)\s*Gb/sec")
# Sent, received, and the bytes that one of it is: Documentation/ABI/stable/sysfs-class-infiniband.
_IB: Final = ("counters/port_xmit_data", "counters/port_rcv_data", 4)
# Amazon's cards count in bytes, and elsewhere: drivers/infiniband/hw/efa/efa_verbs.c.
_EFA: Final = ("hw_counters/tx_bytes", "hw_counters/rx_bytes", 1)
_RDMA_ERRORS: Final = (
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/link_downed",
    "counters/port_rcv_errors",
    "counters/local_link_integrity_errors",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/retrans_pkts",
)
# From near to far, as `nvidia-smi topo -m` writes them; the first is two functions of one device.
PATHS: Final = ("SAME", "PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Where a PCI device hangs. bridges: root, ports and switches above it, its own address last."""

    bridges: tuple[str, ...]
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class Card:
    """A network card of this machine: one port of an RDMA device, or an Ethernet interface."""

    name: str
    kind: str  # "infiniband", "ethernet"
    place: PciPlace | None
    rate_bits_s: int | None  # each way
    counters: tuple[Path, Path]  # sent, received
    unit_bytes: int
    errors: tuple[Path, ...] = ()  # packets lost, repeated or spoilt; those that this card has


def path_between(one: PciPlace, other: PciPlace) -> str | None:
    """One of PATHS; None where two roots say no NUMA node. As NCCL's pciDistance (graph/topo.cc of 2.4) counts it."""
    shared = 0
    while shared < min(len(one.bridges), len(other.bridges)) and one.bridges[shared] == other.bridges[shared]:
        shared += 1
    if shared == 0:
        if one.numa_node is None or other.numa_node is None:
            return None
        return "NODE" if one.numa_node == other.numa_node else "SYS"
    if shared == 1:
        return "PHB"
    own = tuple(place.bridges[-1].partition(".")[0] for place in (one, other))
    if own[0] == own[1]:
        return "SAME"
    # Below a shared switch: its downstream port and the device.
    return "PIX" if max(len(one.bridges), len(other.bridges)) - shared <= 2 else "PXB"


def cores_of(cpulist: str) -> list[int]:
    """The kernel's list "0-3,8" as numbers; ValueError if it is not one."""
    cores: list[int] = []
    for piece in filter(None, cpulist.strip().split(",")):
        first, _, last = piece.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


class Topology:
    """What sysfs says below `root`; NUMA nodes are read once, for processors do not move."""

    def __init__(self, root: Path = SYSFS, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock_s = clock_s
        self.node_of_core: dict[int, int] = {}
        self.distances: dict[int, list[int]] = {}  # node -> to each node in ascending order; 10 is local
        for folder in sorted(self._folders("devices/system/node", "node[0-9]*")):
            self._read_node(folder)
        self._cards: tuple[Card, ...] = ()
        self._cards_read_s: float | None = None
        self._before: dict[str, tuple[float, tuple[int | None, int | None]]] = {}
        self._errors_before: dict[str, int] = {}

    def _read_node(self, folder: Path) -> None:
        node = int(folder.name.removeprefix("node"))
        with suppress(ValueError):
            for core in cores_of(_text(folder / "cpulist") or ""):
                self.node_of_core[core] = node
        with suppress(ValueError):
            self.distances[node] = [int(word) for word in (_text(folder / "distance") or "").split()]

    def nodes_of(self, cpulist: str) -> list[int] | None:
        """Nodes of these processors, ascending; None where one of them has no node."""
        try:
            nodes = {self.node_of_core.get(core) for core in cores_of(cpulist)}
        except ValueError:
            return None
        return sorted(node for node in nodes if node is not None) if nodes and None not in nodes else None

    def place(self, address: str | None) -> PciPlace | None:
        """Of a PCI address as the kernel or NVML writes it; None where there is no such device."""
        found = _ADDRESS.fullmatch((address or "").strip("\0").lower())
        if found is None:
            return None
        # NVML writes the PCI domain with eight digits, the kernel with four.
        domain, _, rest = found[0].partition(":")
        return self._place(self._root / "bus/pci/devices" / f"{domain[-4:]}:{rest}")

    def nearest_card(self, place: PciPlace | None) -> tuple[str, str] | None:
        """(name, path) of the RDMA card that is nearest, else of the Ethernet card; None where no path is known."""
        for kind in ("infiniband", "ethernet"):
            known = [
                (PATHS.index(path), card.name)
                for card in self.cards()
                if card.kind == kind and card.place and place and (path := path_between(place, card.place))
            ]
            if known:
                rank, name = min(known)
                return name, PATHS[rank]
        return None

    def cards(self) -> tuple[Card, ...]:
        """All cards with a device of their own, read anew once a minute."""
        now_s = self._clock_s()
        if self._cards_read_s is None or now_s - self._cards_read_s >= CARDS_EVERY_S:
            self._cards_read_s = now_s
            self._cards = (*self._rdma(), *self._ethernet())[:MAX_CARDS]
        return self._cards

    def traffic(self) -> list[dict[str, object]]:
        """One dictionary a card: who it is, what it may carry, and bytes a second since the last call."""
        return [
            {
                "name": card.name,
                "kind": card.kind,
                "numa_node": card.place.numa_node if card.place else None,
                "rate_bits_s": card.rate_bits_s,
                **self._rates(card),
                "new_errors": self._new_errors(card),
            }
            for card in self.cards()
        ]

    def _rates(self, card: Card) -> dict[str, object]:
        now_s, now = self._clock_s(), (_number(card.counters[0]), _number(card.counters[1]))
        before = self._before.get(card.name)
        self._before[card.name] = (now_s, now)
        names = ("sent_bytes_s", "received_bytes_s")
        if before is None or now_s <= before[0]:
            return dict.fromkeys(names)
        passed_s = now_s - before[0]
        # A counter that went back was reset: the difference is no rate.
        return {
            name: (new - old) * card.unit_bytes / passed_s
            if old is not None and new is not None and new >= old
            else None
            for name, old, new in zip(names, before[1], now, strict=True)
        }

    def _new_errors(self, card: Card) -> int | None:
        """Since the last call; None at the first one, and where the card counts none."""
        told = [count for path in card.errors if (count := _number(path)) is not None]
        if not told:
            return None
        before = self._errors_before.get(card.name)
        now = self._errors_before[card.name] = sum(told)
        return now - before if before is not None and now >= before else None

    def _rdma(self) -> list[Card]:
        found = []
        for port in sorted(self._folders("class/infiniband", "*/ports/[0-9]*")):
            device = port.parents[1]
            if (_text(port / "state") or "").partition(":")[2].strip() != "ACTIVE":
                continue
            rate = _RATE.match(_text(port / "rate") or "")
            is_efa = (port / "hw_counters/tx_bytes").exists()
            sent, received, unit_bytes = _EFA if is_efa else _IB
            found.append(
                Card(
                    f"{device.name}:{port.name}",
                    "infiniband",
                    self._place(device / "device"),
                    round(float(rate[1]) * 1e9) if rate else None,
                    (port / sent, port / received),
                    unit_bytes,
                    tuple(path for name in _RDMA_ERRORS if (path := port / name).exists()),
                )
            )
        return found

    def _ethernet(self) -> list[Card]:
        found = []
        for card in sorted(self._folders("class/net", "*")):
            if not (card / "device").exists() or _text(card / "type") != "1":  # 1: ARPHRD_ETHER
                continue
            megabits = _number(card / "speed")  # -1 or an error where the card is down or does not know
            found.append(
                Card(
                    card.name,
                    "ethernet",
                    self._place(card / "device"),
                    megabits * 10**6 if megabits is not None and megabits > 0 else None,
                    (card / "statistics/tx_bytes", card / "statistics/rx_bytes"),
                    1,
                )
            )
        return found

    def _place(self, link: Path) -> PciPlace | None:
        try:
            real = link.resolve(strict=True)
        except OSError:
            return None
        words = real.parts
        root = next((at for at, word in enumerate(words) if word.startswith("pci")), None)
        if root is None:
            return None
        # What is no PCI address, as virtio's "virtio3", hangs on the one above it.
        bridges = tuple(word for word in words[root + 1 :] if _ADDRESS.fullmatch(word))
        if not bridges:
            return None
        device = Path(*words[: words.index(bridges[-1]) + 1])
        node = _number(device / "numa_node")
        return PciPlace((words[root], *bridges), node if node is not None and node >= 0 else None)

    def _folders(self, below: str, pattern: str) -> list[Path]:
        try:
            return list((self._root / below).glob(pattern))
        except OSError:
            return []


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def _number(path: Path) -> int | None:
    try:
        return int(_text(path) or "")
    except ValueError:
        return None
