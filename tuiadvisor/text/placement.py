"""Placement and links in words: where a rank may run, how far its device is, what links carry of what they can.

In: RankPlacement, Link.  Out: rows of text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.views.devices import Link
    from tuiadvisor.views.placement import RankPlacement

# As the legend of `nvidia-smi topo -m` explains them.
PATHS: Final = {
    "SAME": "on one board",
    "PIX": "by one PCIe switch",
    "PXB": "by several PCIe switches",
    "PHB": "by the host bridge of its CPU",
    "NODE": "by two host bridges of one NUMA node",
    "SYS": "across the link between sockets",
}
PLACEMENT_HEADS: Final = ("rank", "may run on", "memory", "device", "distance", "nearest card")
LINK_HEADS: Final = ("link", "of", "both ways", "ceiling each way", "busier way, mean", "busiest second")
MAX_ROWS: Final = 64


def nodes(found: tuple[int, ...] | None) -> str:
    """'node 1', 'nodes 0, 1', or unknown."""
    if not found:
        return text_of.UNKNOWN
    return f"node{'s' * (len(found) > 1)} {', '.join(str(one) for one in found)}"


def cpus(one: RankPlacement) -> str:
    """The processors it is allowed and their nodes."""
    if one.cpu_nodes is None and one.cpus is None:
        return text_of.UNKNOWN
    return f"CPUs {one.cpus or text_of.UNKNOWN} ({nodes(one.cpu_nodes)})"


def memory(one: RankPlacement) -> str:
    """Where its memory may come from, and by what policy."""
    policy = f" ({one.memory_policy})" if one.memory_policy else ""
    return f"{nodes(one.memory_nodes)}{policy}"


def device(one: RankPlacement) -> str:
    """Its device and that device's node."""
    name = one.device.name if one.device is not None and one.device.name else text_of.UNKNOWN
    return f"{name}, {nodes(None if one.device_node is None else (one.device_node,))}"


def distance(one: RankPlacement) -> str:
    """Near, far, or not known; with the kernel's figure."""
    if one.cpus_far is None:
        return text_of.UNKNOWN
    said = "far" if one.cpus_far else "near"
    return said if one.distance is None else f"{said} ({one.distance}, local is 10)"


def card(one: RankPlacement) -> str:
    """The network card that is nearest to its device."""
    if one.nic is None or one.nic_path is None:
        return text_of.UNKNOWN
    return f"{one.nic}: {one.nic_path}, {PATHS[one.nic_path]}"


def placement_rows(found: Sequence[RankPlacement]) -> list[tuple[str, ...]]:
    """One row a rank below PLACEMENT_HEADS; none where nothing was told of any."""
    known = [one for one in found if one.cpu_nodes is not None or one.device is not None]
    return [
        (str(one.rank), cpus(one), memory(one), device(one), distance(one), card(one))
        for one in known[:MAX_ROWS]
    ]


def link_rows(found: Sequence[Link]) -> list[tuple[str, ...]]:
    """One row a link that was observed, below LINK_HEADS."""
    rows: list[tuple[str, ...]] = [
        (
            f"{one.kind} {one.name}".strip(),
            f"rank {one.rank}" if one.rank is not None else one.host,
            f"{text_of.num_bytes(one.bytes_s)}/s",
            f"{text_of.num_bytes(one.ceiling_bytes_s)}/s" if one.ceiling_bytes_s else text_of.UNKNOWN,
            text_of.share(one.share),
            text_of.share(one.most_share),
        )
        for one in found
        if one.bytes_s is not None
    ]
    return rows[:MAX_ROWS]


def ceiling_sources(found: Sequence[Link]) -> list[str]:
    """What says each ceiling, each once."""
    said = dict.fromkeys(
        f"{one.kind}: {one.ceiling_source}" for one in found if one.bytes_s is not None and one.ceiling_source
    )
    return list(said)
