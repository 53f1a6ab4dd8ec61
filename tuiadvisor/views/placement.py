"""Where each rank may run, where its device is, and which devices the ranks compute on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# From near to far, as in nvidia-smi topo -m; the first is one board.
PATHS: Final = ("SAME", "PIX", "PXB", "PHB", "NODE", "SYS")
NODE_UNKNOWN: Final = "the NUMA node of its device is not told: by sysfs, NVML or this container"
CPUS_UNKNOWN: Final = "the agent did not say which CPUs it may use"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What does not change of a rank's device; None where it was not told."""

    name: str | None = None
    memory_bytes: int | None = None
    max_clock_mhz: float | None = None
    power_limit_w: float | None = None
    pcie_width: int | None = (
        None  # lanes now; the generation is lowered while a device idles, the width is not
    )
    pcie_max_gen: int | None = None
    pcie_max_width: int | None = None
    nvlink_links: int | None = None
    nvlink_mb_s: int | None = None  # of one link, each way


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """Of one rank; None where it was not observed, with the reason in `why`."""

    rank: int
    host: str
    cpus: str | None = None  # it is allowed, as the kernel's list: "0-31,64-95"
    cpu_nodes: tuple[int, ...] | None = None  # NUMA nodes of these
    memory_policy: str | None = None  # of its training thread: default, bind, interleave, ...
    memory_nodes: tuple[int, ...] | None = None  # its memory may come from
    device_node: int | None = None
    distance: int | None = None  # from the nearest node it may run on to its device's; 10 is the same node
    nic: str | None = None  # nearest to its device
    nic_path: str | None = None  # one of PATHS
    peer_paths: tuple[str, ...] = ()  # kinds of paths from its device to others of the host, nearest first
    cpus_far: bool | None = None  # none of its CPUs is on its device's node
    memory_far: bool | None = None  # none of its memory may be
    device: DeviceFacts | None = None
    multiprocessors: int | None = None  # of its device that it may use: fewer under CUDA MPS
    num_on_device: int | None = None  # ranks of this job that compute on its device, this one included
    why: str = ""


def num_cpus(told: str) -> int:
    """How many a list of the kernel's has, as "0-31,64-95"; 0 where it is none."""
    total = 0
    for part in told.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            return 0
        total += max(int(last or first) - int(first) + 1, 0)
    return total
