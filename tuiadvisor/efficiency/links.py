"""What a link may carry each way, from what the device says of it and the standard that it follows.

Every ceiling is the wire's: packets, headers and acknowledgements take a part of it, so no job reaches it. What a job
gets is measured with nccl-tests or fio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Bytes a second of one lane each way: GT/s times what the encoding leaves, PCI Express Base Specification 1.0 to 6.0.
PCIE_LANE: Final = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 242 / 256 / 8,
}
MAX_LANES: Final = 32
MAX_NVLINKS: Final = 64
MEGA: Final = 1e6


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Bytes a second each way, and what says so."""

    bytes_s: float
    source: str


def pcie_ceiling(gen: int | None, width: int | None) -> Ceiling | None:
    """Of a link with these lanes at the generation that both of its ends can; None where either is not known."""
    if gen not in PCIE_LANE or width is None or not 0 < width <= MAX_LANES:
        return None
    return Ceiling(
        PCIE_LANE[gen] * width, f"PCIe {gen}.0 with {width} lanes (NVML), PCI Express specification"
    )


def nvlink_ceiling(num_links: int | None, mb_s: int | None) -> Ceiling | None:
    """Of all active NVLinks of a device together."""
    if not num_links or not mb_s or num_links > MAX_NVLINKS:
        return None
    return Ceiling(num_links * mb_s * MEGA, f"{num_links} active links of {mb_s:,} MB/s each way (NVML)")


def card_ceiling(kind: str, rate_bits_s: int | None) -> Ceiling | None:
    """Of a network card by the rate that it negotiated."""
    if not rate_bits_s:
        return None
    where = "/sys/class/infiniband" if kind == "infiniband" else "/sys/class/net"
    return Ceiling(rate_bits_s / 8, f"{rate_bits_s / 1e9:g} Gb/s negotiated ({where})")
