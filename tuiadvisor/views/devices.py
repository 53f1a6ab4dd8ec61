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
    power_w: float | None = None  # mean
    throttle_s: float | None = None  # in which the device held its clock back, for another reason than idling
    watched_s: float | None = None  # in which it was looked at
    why: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """One link over a recording; None where it was not observed, with the reason in `why`. Bytes a second are means.

    share, most_share: of the ceiling, the busier way's; the second of the busiest second.
    """

    kind: str  # "pcie", "nvlink" of a rank's device; "infiniband", "ethernet", "network", "storage" of a host
    host: str
    rank: int | None
    bytes_s: float | None  # both ways together
    name: str = ""  # of a card
    sent_bytes_s: float | None = None
    received_bytes_s: float | None = None
    ceiling_bytes_s: float | None = None  # each way: the wire's, which no job reaches
    ceiling_source: str = ""
    share: float | None = None
    most_share: float | None = None
    why: str = ""
