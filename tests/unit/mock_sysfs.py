"""A sysfs tree of a machine with two sockets, in the kernel's own shape: real folders below devices/, links to them."""

from __future__ import annotations

from pathlib import Path

# Two switches a socket; a GPU and a card below each of the first ones, another card straight at a root port.
SLOTS = {
    "0000:1b:00.0": ("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:1b:00.0", 0),  # GPU 0
    "0000:18:00.0": ("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:18:00.0", 0),  # mlx5_0
    "0000:43:00.0": ("pci0000:3d/0000:3d:01.0/0000:43:00.0", 0),  # GPU 1, no switch
    "0000:9d:00.0": ("pci0000:9a/0000:9a:01.0/0000:9b:00.0/0000:9c:00.0/0000:9d:00.0", 1),  # GPU 2
    "0000:a0:00.0": ("pci0000:9a/0000:9a:02.0/0000:a0:00.0", 1),  # mlx5_1: another root port of GPU 2's root
    "0000:02:00.0": ("pci0000:00/0000:00:1c.0/0000:02:00.0", -1),  # eno1: its root says no node
}


def write(path: Path, text: str) -> None:
    """A file of sysfs, with its line end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="ascii")


def two_sockets(root: Path) -> Path:
    """The tree below root; processors 0-3 and 8-11 on node 0, 4-7 and 12-15 on node 1."""
    for node, (cpus, distance) in enumerate((("0-3,8-11", "10 21"), ("4-7,12-15", "21 10"))):
        write(root / f"devices/system/node/node{node}/cpulist", cpus)
        write(root / f"devices/system/node/node{node}/distance", distance)
    for address, (place, node) in SLOTS.items():
        folder = root / "devices" / place
        write(folder / "numa_node", str(node))
        link(root / "bus/pci/devices" / address, folder)
    for name, address, rate in (("mlx5_0", "0000:18:00.0", "400"), ("mlx5_1", "0000:a0:00.0", "200")):
        port = root / "devices" / SLOTS[address][0] / "infiniband" / name / "ports/1"
        write(port / "state", "4: ACTIVE")
        write(port / "link_layer", "InfiniBand")
        write(port / "rate", f"{rate} Gb/sec (4X NDR)")
        write(port / "counters/port_xmit_data", "1000")
        write(port / "counters/port_rcv_data", "5000")
        link(port.parents[1] / "device", root / "devices" / SLOTS[address][0])
        link(root / "class/infiniband" / name, port.parents[1])
    card = root / "devices" / SLOTS["0000:02:00.0"][0] / "net/eno1"
    for name, text in (
        ("type", "1"),
        ("speed", "25000"),
        ("statistics/tx_bytes", "7"),
        ("statistics/rx_bytes", "9"),
    ):
        write(card / name, text)
    link(card / "device", root / "devices" / SLOTS["0000:02:00.0"][0])
    link(root / "class/net/eno1", card)
    write(root / "devices/virtual/net/lo/type", "772")
    link(root / "class/net/lo", root / "devices/virtual/net/lo")
    return root


def link(path: Path, target: Path) -> None:
    """A link of sysfs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
