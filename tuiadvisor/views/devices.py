"""What each rank's device and each host's links did over a recording, as the agents' counters tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_DEVICE: Final = "the rank computes on no device that was seen"


@dataclass(frozen=True, slots=True)
class RankDevice:
    """Of one rank; None where it was not observed, with the reason in `why`. Shares 0..1 are means over the samples."""

    rank: int
    sm_active: float | None = None  # of the time, streaming multiprocessors with work
    tensor_active: float | None = None  # of the time, tensor cores
    dram_active: float | None = None  # of the device memory's peak rate
    utilization: float | None = None  # of the time, any kernel at all: no sign of work
    clock_mhz: float | None = None  # mean SM clock
    throttle_s: float | None = None  # in which the device held its clock back, for another reason than idling
    watched_s: float | None = None  # in which it was looked at
    why: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Mean bytes a second of one link, both ways together; None where it was not observed, with the reason in `why`."""

    kind: str  # "pcie", "nvlink" of a rank's device; "network", "storage" of a host
    host: str
    rank: int | None
    bytes_s: float | None
    why: str = ""
