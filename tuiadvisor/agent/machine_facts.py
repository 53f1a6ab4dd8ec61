"""What a machine is made of beside its processors and devices: network cards, storage, and what container a rank is in.

In: sysfs, a rank's /proc.  Out: short texts for the record of the hardware; None where nothing tells.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs
from tuiadvisor.agent.topology import SYSFS

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.agent.topology import Topology

SIZES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"))
SECTOR_BYTES: Final = 512  # of the kernel's sizes, whatever the device's own
MAX_DEVICES: Final = 32
VIRTUAL: Final = ("vd", "xvd")  # they are called rotating whatever lies behind
MAX_TEXT: Final = 200
# Variables in which launchers of containers tell the image; the process's own environment is what counts.
IMAGES: Final = {
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "singularity",
    "SLURM_CONTAINER_IMAGE": "slurm",
    "CONTAINER_IMAGE": "image",
    "NVIDIA_PYTORCH_VERSION": "nvcr.io/nvidia/pytorch",
}
# An id of 64 digits in the path of a control group: docker-ID.scope, cri-containerd-ID.scope, libpod-ID.scope.
_ID: Final = re.compile(rb"([0-9a-f]{64})")
_ENGINES: Final = {b"libpod": "podman", b"crio": "cri-o", b"containerd": "containerd", b"docker": "docker"}
SHORT_ID: Final = 12


def network_cards(topology: Topology) -> list[str]:
    """Each card with what it may carry, as "mlx5_0:1 infiniband 400 Gbit/s"."""
    return [
        f"{card.name} {card.kind}" + (f" {card.rate_bits_s / 1e9:g} Gbit/s" if card.rate_bits_s else "")
        for card in topology.cards()[:MAX_DEVICES]
    ]


def storage(root: Path = SYSFS) -> list[str]:
    """Each disk of this machine, as "nvme0n1 Acme X1 1.92 TB flash"."""
    found = []
    for folder in _disks(root):
        sectors = _text(folder / "size")
        size = _size(int(sectors) * SECTOR_BYTES) if sectors and sectors.isdecimal() else ""
        kind = {"0": "flash", "1": "rotating"}.get(_text(folder / "queue/rotational"), "")
        kind = "" if folder.name.startswith(VIRTUAL) else kind
        words = (folder.name, _text(folder / "device/model"), size, kind)
        found.append(" ".join(word for word in words if word)[:MAX_TEXT])
    return found[:MAX_DEVICES]


def _size(num_bytes: int) -> str:
    """As vendors write it; a disk of a virtual machine may hold some MB."""
    unit, name = next((pair for pair in SIZES if num_bytes >= pair[0]), SIZES[-1])
    return f"{num_bytes / unit:.3g} {name}"


def container(pid: int) -> str | None:
    """What container a process runs in, by its environment, else by its control group; None: no sign of one."""
    told = procfs.environment(pid, frozenset(IMAGES)) or {}
    for name, engine in IMAGES.items():
        value = told.get(name, "").strip()
        if value and value.isprintable():
            return f"{engine} {value}"[:MAX_TEXT]
    group = procfs.read(pid, "cgroup") or b""
    number = _ID.search(group)
    if number is None:
        return None
    engine = next((name for sign, name in _ENGINES.items() if sign in group), "container")
    return f"{engine} {number[1][:SHORT_ID].decode()}"


def _disks(root: Path) -> list[Path]:
    """Those with a device behind: a partition, a mapper or a loop device is no disk."""
    try:
        return sorted(folder for folder in (root / "block").iterdir() if (folder / "device").exists())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return " ".join(text.split()) if text.isprintable() else ""
