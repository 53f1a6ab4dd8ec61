"""What devices and links did over a recording: work, clock, time held back, traffic.

In: HOST payloads, once a second.  Out: means a device and a host, for `devices` and `links` of the document. They judge
nothing; which device is a rank's own is DeviceClocks' to say.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.device_clocks import HELD_BACK, MAX_DEVICES, NOT_HELD_BACK, plain_uuid
from tuiadvisor.advisor.cluster.payload_fields import Payload, integer, number, objects, text
from tuiadvisor.efficiency.links import Ceiling, card_ceiling, nvlink_ceiling, pcie_ceiling
from tuiadvisor.views.devices import NO_DEVICE, Link, RankDevice

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_S: Final = 5.0  # between two samples: what was then is not known
MAX_RATE: Final = 1e13  # bytes a second; no link carries more
SHARES: Final = ("sm_active", "tensor_active", "dram_active", "utilization")
TRAFFIC: Final = {
    "pcie": ("pcie_sent_bytes_s", "pcie_received_bytes_s"),
    "nvlink": ("nvlink_sent_bytes_s", "nvlink_received_bytes_s"),
}
# Of a whole device: one part of it may idle while the others work.
_OF_WHOLE: Final = frozenset(
    {*SHARES, *(name for names in TRAFFIC.values() for name in names), "pcie_max_gen"}
)
CARD: Final = ("sent_bytes_s", "received_bytes_s")
CARD_KINDS: Final = ("infiniband", "ethernet")
OF_HOST: Final = {
    "network": ("net_bytes_s",),
    "storage": ("disk_read_bytes_s", "disk_write_bytes_s"),
    "network_storage": ("server_read_bytes_s", "server_write_bytes_s"),
}
ALWAYS: Final = ("network", "storage")  # a host without network file systems has no such link
NVLINK_ERRORS: Final = ("nvlink_replays", "nvlink_recoveries", "nvlink_crc_errors")
REMAPPED: Final = ("remapped_rows_corrected", "remapped_rows_uncorrected")
NOT_TOLD: Final = "the device, its driver or this container does not report it"
NO_CEILING: Final = {
    "pcie": "generation and lanes of the link are not reported",
    "nvlink": "no active NVLink is reported, or its speed is not",
    "infiniband": "the card reports no rate",
    "ethernet": "the card reports no speed",
    "network": "all cards of the host together: each has its own ceiling",
    "storage": "not known: tuiadvisor import fio FILE --save measures what it can do",
    "network_storage": "not known: tuiadvisor import fio FILE --save measures what it can do",
}
OF_PART: Final = (
    "a MIG part: clock, power and errors are the whole device's, what its own units do is not reported"
)
NO_UNITS: Final = "its units' counters (GPM) are not reported: an older device, or not permitted here"


class _Means:
    """Sums and numbers by name."""

    __slots__ = ("_sums", "most")

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}
        self.most: dict[str, float] = {}

    def add(self, name: str, value: float | None, most: float) -> None:
        if value is not None and 0 <= value <= most:
            total, num = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + value, num + 1
            self.most[name] = max(value, self.most.get(name, 0.0))

    def mean(self, name: str) -> float | None:
        total, num = self._sums.get(name, (0.0, 0))
        return total / num if num else None


class _Growth:
    """By how much counters have grown since they were first seen; one that went back was reset and begins anew."""

    __slots__ = ("_before", "_by")

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._by: dict[str, float] = {}

    def take(self, name: str, now: float | None) -> float | None:
        """What it has grown by since the last look; None at the first one."""
        if now is None:
            return None
        before = self._before.get(name)
        self._before[name] = now
        if before is None:
            return None
        step = max(now - before, 0.0)
        self._by[name] = self._by.get(name, 0.0) + step
        return step

    def total(self, *names: str) -> int | None:
        """Of those that were seen at least twice; None without one."""
        known = [self._by[name] for name in names if name in self._by]
        return round(sum(known)) if known else None


class _Card:
    __slots__ = ("errors", "kind", "means", "rate_bits_s")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.means = _Means()
        self.errors: int | None = None
        self.rate_bits_s: int | None = None


class _Device:
    __slots__ = (
        "before_ns",
        "ceilings",
        "growth",
        "held_s",
        "is_part",
        "is_remap_pending",
        "means",
        "remapped_rows",
        "tells_reasons",
        "watched_s",
    )

    def __init__(self) -> None:
        self.means = _Means()
        self.ceilings: dict[str, Ceiling | None] = {}
        self.before_ns = 0
        self.held_s = self.watched_s = 0.0
        self.tells_reasons = False
        self.is_part = False  # of a device with MIG
        self.growth = _Growth()
        self.remapped_rows: int | None = None
        self.is_remap_pending: bool | None = None


class DeviceCounters:
    """Mutable: feed it HOST payloads."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, str], _Device] = {}  # (host, device)
        self._hosts: dict[str, _Means] = {}
        self._cards: dict[tuple[str, str], _Card] = {}

    def take(self, host: str, payload: Payload) -> None:
        """One sample of a host."""
        now_ns = integer(payload, "mono_ns")
        if now_ns is None:
            return
        rates = {kind: _sum(payload, names) for kind, names in OF_HOST.items()}
        is_new = host not in self._hosts
        if any(rate is not None for rate in rates.values()) and (
            not is_new or len(self._hosts) < MAX_DEVICES
        ):
            means = self._hosts.setdefault(host, _Means())
            for kind, rate in rates.items():
                means.add(kind, rate, MAX_RATE)
        for entry in objects(payload, "gpus"):
            device = plain_uuid(text(entry, "uuid"))
            key = (host, device)
            if device and (key in self._devices or len(self._devices) < MAX_DEVICES):
                _take(self._devices.setdefault(key, _Device()), entry, now_ns)
            for part in objects(entry, "parts"):
                self._take_part((host, plain_uuid(text(part, "uuid"))), entry, now_ns)
        for entry in objects(payload, "nics"):
            self._take_card((host, text(entry, "name") or ""), entry)

    def _take_part(self, key: tuple[str, str], entry: Payload, now_ns: int) -> None:
        """A MIG part has the clock, the power and the errors of the whole device; what its units do is not told."""
        if not key[1] or (key not in self._devices and len(self._devices) >= MAX_DEVICES):
            return
        part = self._devices.setdefault(key, _Device())
        part.is_part = True
        _take(part, {name: value for name, value in entry.items() if name not in _OF_WHOLE}, now_ns)

    def _take_card(self, key: tuple[str, str], entry: Payload) -> None:
        kind = text(entry, "kind")
        if (
            kind not in CARD_KINDS
            or not key[1]
            or (key not in self._cards and len(self._cards) >= MAX_DEVICES)
        ):
            return
        card = self._cards.setdefault(key, _Card(kind))
        card.rate_bits_s = integer(entry, "rate_bits_s") or card.rate_bits_s
        for name in CARD:
            card.means.add(name, number(entry, name), MAX_RATE)
        card.means.add("both", _sum(entry, CARD), MAX_RATE)
        new = integer(entry, "new_errors")
        if new is not None and new >= 0:
            card.errors = (card.errors or 0) + new

    def of_ranks(self, ranks: Iterable[tuple[int, str, str]]) -> tuple[RankDevice, ...]:
        """Of each rank (number, host, its device or ""); none where no device was seen at all."""
        if not self._devices:
            return ()
        places = list(ranks)
        num_ranks = Counter((host, name) for _, host, name in places)
        return tuple(self._of_rank(*each, num_ranks[each[1:]]) for each in places)

    def links(self, ranks: Iterable[tuple[int, str, str]]) -> tuple[Link, ...]:
        """Of the ranks' devices that were seen, then of the hosts."""
        found = []
        for rank, host, name in ranks:
            device = self._devices.get((host, name)) if name else None
            if device is not None:
                found += [
                    _link(
                        Link(kind, host, rank, device.means.mean(kind)),
                        device.means,
                        names,
                        device.ceilings.get(kind),
                    )
                    for kind, names in TRAFFIC.items()
                ]
        for (host, name), card in sorted(self._cards.items()):
            ceiling = card_ceiling(card.kind, card.rate_bits_s)
            link = Link(card.kind, host, None, card.means.mean("both"), name=name, errors=card.errors)
            found.append(_link(link, card.means, CARD, ceiling))
        for host in sorted(self._hosts):
            means = self._hosts[host]
            kinds = [kind for kind in OF_HOST if kind in ALWAYS or means.mean(kind) is not None]
            found += [_link(Link(kind, host, None, means.mean(kind)), means, (), None) for kind in kinds]
        return tuple(found)

    def _of_rank(self, rank: int, host: str, name: str, num_ranks: int) -> RankDevice:
        device = self._devices.get((host, name)) if name else None
        if device is None:
            return RankDevice(rank, why=NO_DEVICE)
        shares = {share: device.means.mean(share) for share in SHARES}
        clock_mhz = device.means.mean("clock_mhz")
        throttle_s = device.held_s if device.tells_reasons and device.watched_s else None
        whys = [OF_PART if device.is_part else NO_UNITS] if shares["sm_active"] is None else []
        whys += [NOT_TOLD] if None in {clock_mhz, throttle_s} else []
        return RankDevice(
            rank,
            **shares,
            clock_mhz=clock_mhz,
            power_w=device.means.mean("power_w"),
            throttle_s=throttle_s,
            watched_s=device.watched_s or None,
            pcie_replays=device.growth.total("pcie_replays"),
            nvlink_errors=device.growth.total(*NVLINK_ERRORS),
            remapped_rows=device.remapped_rows,
            row_remap_pending=device.is_remap_pending,
            num_ranks=num_ranks,
            why="; ".join(whys),
        )


def _take(device: _Device, entry: Payload, now_ns: int) -> None:
    for name in SHARES:
        device.means.add(name, number(entry, name), 1.0)
    clock_mhz = number(entry, "sm_clock_mhz")
    device.means.add("clock_mhz", clock_mhz or None, 1e5)
    device.means.add("power_w", number(entry, "power_w"), 1e5)
    for kind, names in TRAFFIC.items():
        device.means.add(kind, _sum(entry, names), MAX_RATE)
        for name in names:
            device.means.add(name, number(entry, name), MAX_RATE)
    if "pcie_max_gen" in entry:
        device.ceilings = {
            "pcie": pcie_ceiling(integer(entry, "pcie_max_gen"), integer(entry, "pcie_width")),
            "nvlink": nvlink_ceiling(integer(entry, "nvlink_links"), integer(entry, "nvlink_mb_s")),
        }
    passed_s = (now_ns - device.before_ns) / 1e9 if device.before_ns else 0.0
    device.before_ns = now_ns
    for name in ("pcie_replays", *NVLINK_ERRORS):
        device.growth.take(name, number(entry, name))
    rows = _sum(entry, REMAPPED)
    device.remapped_rows = device.remapped_rows if rows is None else round(rows)
    pending = integer(entry, "row_remap_pending")
    device.is_remap_pending = device.is_remap_pending if pending is None else bool(pending)
    # By the device's own count of nanoseconds where it has one; reasons overlap, so the longest is the least it can be.
    grown = [device.growth.take(name, number(entry, name)) for name in HELD_BACK]
    counted_s = max((step for step in grown if step is not None), default=None)
    reasons = entry.get("throttle_reasons")
    told = reasons if isinstance(reasons, list) else None
    if told is None and all(number(entry, name) is None for name in HELD_BACK):
        return
    device.tells_reasons = True
    if not 0 < passed_s <= LONGEST_S:  # backwards: another boot
        return
    device.watched_s += passed_s
    if counted_s is not None:
        device.held_s += min(counted_s, passed_s)
    elif told is not None:
        device.held_s += passed_s * any(isinstance(one, str) and one not in NOT_HELD_BACK for one in told)


def _sum(payload: Payload, names: tuple[str, ...]) -> float | None:
    """None unless each of them is known."""
    values = [number(payload, name) for name in names]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _link(link: Link, means: _Means, ways: tuple[str, ...], ceiling: Ceiling | None) -> Link:
    """The link with its two ways, sent first, against its ceiling."""
    whys = [] if link.bytes_s is not None else [NOT_TOLD]
    whys += [] if ceiling is not None else [NO_CEILING[link.kind]]
    mean = [means.mean(name) for name in ways]
    busiest = [means.most.get(name) for name in ways]
    return replace(
        link,
        sent_bytes_s=mean[0] if mean else None,
        received_bytes_s=mean[1] if mean else None,
        ceiling_bytes_s=ceiling.bytes_s if ceiling else None,
        ceiling_source=ceiling.source if ceiling else "",
        share=_of_ceiling(mean, ceiling),
        most_share=_of_ceiling(busiest, ceiling),
        why="; ".join(whys),
    )


def _of_ceiling(rates: list[float | None], ceiling: Ceiling | None) -> float | None:
    """None unless both ways are known; more than the wire carries is a mistake of one of the two."""
    known = [rate for rate in rates if rate is not None]
    if ceiling is None or not known or len(known) < len(rates):
        return None
    share = max(known) / ceiling.bytes_s
    return share if share <= 1 else None
