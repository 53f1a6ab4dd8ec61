"""What the devices of an imported trace did: why they did not compute, kernels by kind, the longest kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DevicePart:
    """A part of a device's window."""

    words: str  # what the device did or waited for
    seconds: float
    share: float  # of the window


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """One rank's device from its first event to its last; parts and compute sum to the window."""

    rank: int
    window_s: float
    compute: float  # share
    communication: float  # share that nothing hides
    host: float  # share: idle, the training thread had not launched what comes next
    parts: tuple[DevicePart, ...]  # beside compute, the longest first
    collective_wait_s: float | None  # in collectives, for ranks that came later; None: not compared
    pageable_s: float | None = None  # in copies to the device from memory that is not pinned; None: not told


@dataclass(frozen=True, slots=True)
class KernelSum:
    """Kernels of one name or kind, all ranks together; what runs at once on several streams counts on each."""

    name: str
    kind: str
    seconds: float
    share: float  # of all kernels' time
    kernels: int


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """As the import found it."""

    ranks: tuple[DeviceTime, ...]
    kinds: tuple[KernelSum, ...]
    kernels: tuple[KernelSum, ...]
    says: tuple[str, ...] = ()  # what traces of single ranks tell alone
    unit: str = (
        "kernels"  # what the sums are of; operators, each with its own time, where training is on a CPU
    )
