"""What each rank's device and each host's links did over a recording, as the agents' counters tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_DEVICE: Final = "the rank computes on no device that was seen"
# Key: the reason that an agent names (`agent.no_devices`). What is so, and what to do.
WHY_NONE: Final = {
    "version mismatch": (
        "the driver's library and its loaded kernel module are of two versions",
        "reboot or reload the module; start containers again",
    ),
    "old driver": ("the driver is too old: it lacks a function that NVML starts with", "update the driver"),
    "no permission": ("NVML refuses this user the devices", "give the user access to /dev/nvidia*"),
    "refused": (
        "the driver answers with an unknown error, as in a container that has lost its devices",
        "start the container again",
    ),
    "lost": ("a device has fallen off the bus", "reset it, or reboot"),
    "no library": (
        "the driver is loaded, but its library libnvidia-ml.so.1 is not here",
        "install it; of a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    "no device files": (
        "the driver is loaded, but there is no /dev/nvidiactl here",
        "start the container with its devices: --gpus all, or nvidia.com/gpu in its limits",
    ),
    "not loaded": (
        "a card and NVML are here, but no driver is loaded",
        "modprobe nvidia, or install the driver",
    ),
    "none given": ("the driver shows no device here", "give the container one: --gpus, nvidia.com/gpu"),
    "failed": ("NVML does not start", "nvidia-smi may say more"),
}


def why_no_device(reason: str) -> str:
    """In one line; empty for what is no reason of ours."""
    return f"no device: {'; '.join(WHY_NONE[reason])}" if reason in WHY_NONE else ""


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
    pcie_replays: int | None = None  # packets that were sent again while it was watched
    nvlink_errors: int | None = None  # replays, recoveries and CRC errors of all its links meanwhile
    remapped_rows: int | None = None  # of its memory, for errors, in its life
    row_remap_pending: bool | None = None  # rows wait for a reset to be remapped
    num_ranks: int | None = (
        None  # of this job that compute on it, this one included: the figures are theirs together
    )
    why: str = ""


def num_devices(found: Sequence[RankDevice]) -> int | None:
    """How many devices the ranks compute on; None unless the device of each is known."""
    shares = [1 / one.num_ranks for one in found if one.num_ranks]
    return round(sum(shares)) if shares and len(shares) == len(found) else None


@dataclass(frozen=True, slots=True)
class Link:
    """One link over a recording; None where it was not observed, with the reason in `why`. Bytes a second are means.

    share, most_share: of the ceiling, the busier way's; the second of the busiest second.
    """

    # "pcie", "nvlink" of a rank's device; "infiniband", "ethernet", "network", "storage", "network_storage" of a host
    kind: str
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
    errors: int | None = None  # of a card: packets lost, repeated or spoilt while it was watched
    why: str = ""
