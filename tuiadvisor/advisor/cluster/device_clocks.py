"""Which device each rank computes on, and whether that device holds its clock back.

In: HELLO's device of a rank, HOST payloads with NVML's counters.  Out: median clock of a rank's device over the latest
part of a run, and the reasons it gave for holding back; one line of words a device for the screens.

A rank's device is the one it says it uses (its UUID), else the one whose process list holds the rank. In a container
that list names other process ids: then the device is not known, and nothing is said.
"""

from __future__ import annotations

from collections import Counter, deque
from statistics import median
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.held_back import HeldBack
from tuiadvisor.advisor.cluster.payload_fields import Payload, integer, number, objects, text
from tuiadvisor.metrics.lateness.late_phase import DeviceClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.metrics.steps.held_steps import Throttled

MAX_SAMPLES: Final = 64  # at one a second
MIN_SAMPLES: Final = 3
MAX_DEVICES: Final = 1 << 13
MAX_REASONS: Final = 16
HELD_BACK: Final = {  # the device's own counters of seconds at a clock held back, and the reason in NVML's words
    "held_power_s": "power cap",
    "held_sync_boost_s": "sync boost",
    "held_heat_s": "thermal (software)",
    "held_heat_hardware_s": "thermal (hardware)",
    "held_power_brake_s": "power brake",
}
NOT_HELD_BACK: Final = frozenset({"idle"})  # a reason for a low clock, but nobody waits for an idle device

Sample = tuple[int, float, frozenset[str] | None]  # mono ns, SM clock in MHz, why it is held back


class DeviceClocks:
    """Mutable: feed it HOST payloads."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], deque[Sample]] = {}  # (host, device)
        self._held_back: dict[tuple[str, str], HeldBack] = {}
        self._by_pid: dict[tuple[str, int], str] = {}
        self._held: dict[
            tuple[str, str], dict[str, float]
        ] = {}  # the counters of HELD_BACK at the last sample

    def take(self, host: str, payload: Payload) -> None:
        """Fold one sample of a host's devices."""
        now_ns = integer(payload, "mono_ns")
        if now_ns is None:
            return
        by_pid: dict[tuple[str, int], str] = {}
        for entry in objects(payload, "gpus"):
            device = plain_uuid(text(entry, "uuid"))
            if not device:
                continue
            parts = objects(entry, "parts")
            for holder in (entry, *parts):
                for pid in _integers(holder.get("pids")):
                    # A process on several devices is on none in particular.
                    by_pid[host, pid] = "" if by_pid.get((host, pid), device) != device else device
            for name in (device, *(plain_uuid(text(part, "uuid")) for part in parts)):
                self._sample(host, name, now_ns, entry)
        if by_pid or objects(payload, "gpus"):
            self._by_pid = {key: name for key, name in self._by_pid.items() if key[0] != host} | by_pid

    def _sample(self, host: str, device: str, now_ns: int, entry: Payload) -> None:
        clock_mhz, reasons = number(entry, "sm_clock_mhz"), entry.get("throttle_reasons")
        if not clock_mhz or not device:
            return
        samples = self._samples.get((host, device))
        if samples is None:
            if len(self._samples) >= MAX_DEVICES:
                return
            samples = self._samples[host, device] = deque(maxlen=MAX_SAMPLES)
        if samples and now_ns <= samples[-1][0]:
            samples.clear()  # another boot, or another agent's clock
        why = None
        if isinstance(reasons, list):
            words = (word for word in reasons[:MAX_REASONS] if isinstance(word, str))
            why = frozenset(words) - NOT_HELD_BACK | self._counted(host, device, entry)
            if samples and why == samples[-1][2]:
                why = samples[-1][2]  # a set of its own for every sample would be most of the memory
        samples.append((now_ns, clock_mhz, why))
        self._held_back.setdefault((host, device), HeldBack()).add(now_ns, clock_mhz, why)

    def _counted(self, host: str, device: str, entry: Payload) -> frozenset[str]:
        """Reasons whose time has grown since the last sample: what was over before this one is seen, too."""
        now = {name: value for name in HELD_BACK if (value := number(entry, name)) is not None}
        before = self._held.get((host, device), {})
        self._held[host, device] = now
        return frozenset(
            HELD_BACK[name] for name, value in now.items() if 0 <= before.get(name, -1.0) < value
        )

    def clocks(
        self, ranks: Iterable[tuple[str, int | None, str | None]], last_s: float
    ) -> list[DeviceClock | None]:
        """Of each rank (host, pid, UUID of its device) over the last so many seconds; None where not known."""
        return [self._clock(host, pid, uuid, last_s) for host, pid, uuid in ranks]

    def throttled(
        self, place: tuple[str, int | None, str | None], begin_ns_K: Ints, end_ns_K: Ints
    ) -> Throttled | None:
        """Of a rank (host, pid, UUID of its device), as `HeldBack.over`."""
        host, pid, uuid = place
        device = self.device_of(host, pid, uuid)
        held_back = self._held_back.get((host, device)) if device else None
        return None if held_back is None else held_back.over(begin_ns_K, end_ns_K)

    def device_of(self, host: str, pid: int | None, uuid: str | None) -> str:
        """Name of the rank's device; empty where that is not known."""
        return plain_uuid(uuid) or (self._by_pid.get((host, pid), "") if pid is not None else "")

    def _clock(self, host: str, pid: int | None, uuid: str | None, last_s: float) -> DeviceClock | None:
        device = self.device_of(host, pid, uuid)
        samples = self._samples.get((host, device)) if device else None
        if not samples:
            return None
        end_ns = samples[-1][0]
        latest = [sample for sample in samples if end_ns - sample[0] <= last_s * 1e9]
        told = [why for _, _, why in latest if why is not None]
        if len(latest) < MIN_SAMPLES or len(told) < len(latest):
            return None
        words = Counter(word for why in told for word in why)
        return DeviceClock(
            mhz=median(clock for _, clock, _ in latest),
            held_back_share=sum(bool(why) for why in told) / len(told),
            reasons=tuple(sorted(words, key=lambda word: (-words[word], word))[:3]),
        )


def device_line(entry: Payload) -> str:
    """What a device says of itself, as one short line."""
    name, index = text(entry, "name") or "device", integer(entry, "index")
    words = [f"{index} {name}" if index is not None else name]
    if entry.get("is_lost") is True:
        words.append("LOST: fell off the bus")
    use = number(entry, "utilization")
    if use is not None:
        words.append(f"{use:.0%} busy")
    words += _of(entry, "sm_clock_mhz", "max_sm_clock_mhz", "MHz")
    words += _of(entry, "power_w", "power_limit_w", "W")
    words += _of(entry, "temperature_c", "", "C")
    words += _of(entry, "memory_used_bytes", "memory_total_bytes", "GiB", 2**30)
    reasons = entry.get("throttle_reasons")
    if isinstance(reasons, list):
        words += [
            str(word)[:40] for word in reasons[:MAX_REASONS] if isinstance(word, str) and word.isprintable()
        ]
    if number(entry, "ecc_uncorrected"):
        words.append(f"{number(entry, 'ecc_uncorrected'):.0f} uncorrected ECC errors")
    if number(entry, "row_remap_pending"):
        words.append("memory rows wait for a reset to be remapped")
    words += [f"XID {xid}" for xid in _integers(entry.get("xids"))[:4]]
    return " · ".join(words)[:200]


def _of(entry: Payload, name: str, limit_name: str, unit: str, scale: float = 1.0) -> list[str]:
    value, limit = number(entry, name), number(entry, limit_name)
    if value is None:
        return []
    most = "" if limit is None else f" of {limit / scale:.0f}"
    return [f"{value / scale:.0f}{most} {unit}"]


def plain_uuid(uuid: str | None) -> str:
    """CUDA's name of a device and NVML's: they differ by a prefix."""
    return (uuid or "").lower().removeprefix("gpu-").removeprefix("mig-")


def _integers(value: object) -> list[int]:
    return [one for one in value if type(one) is int] if isinstance(value, list) else []
