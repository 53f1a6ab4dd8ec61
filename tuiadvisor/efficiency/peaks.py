"""What devices can do at most, by name and precision: dense, with accumulation in fp32, sparsity not counted.

Figures are the vendors' data sheets as training code repeats them; `source` says whose table was read. Unknown stays
unknown: a peak of a sibling would make an MFU that is wrong by a third.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

TERA: Final = 1e12
GIGA: Final = 1e9


@dataclass(frozen=True, slots=True)
class Device:
    """TFLOP/s by precision, memory in GB/s, and the clock that the peak stands for."""

    words: tuple[str, ...]  # all of them are in the name
    tflops: Mapping[str, float]
    memory_gb_s: float | None
    clock_mhz: float | None
    source: str

    def matches(self, name: str) -> bool:
        """Whether a device of this name is one; words match whole ones: "L4" is not in "NVIDIA L40S"."""
        return all(re.search(rf"(?<![0-9a-z]){re.escape(word)}(?![0-9a-z])", name) for word in self.words)


def _row(  # noqa: PLR0917 - a row of a table
    name: str,
    fp32: float | None,
    tf32: float | None,
    half: float | None,
    fp8: float | None,
    memory: float | None,
    clock: float | None,
    source: str,
    *,
    has_bf16: bool = True,
) -> Device:
    rates = {
        "float32": fp32,
        "tf32": tf32,
        "float16": half,
        "bfloat16": half if has_bf16 else None,
        "fp8": fp8,
    }
    known = {dtype: rate for dtype, rate in rates.items() if rate is not None}
    return Device(tuple(name.lower().split()), known, memory, clock, source)


_DATA: Final = "data sheet, by "
_TITAN: Final = _DATA + "torchtitan tools/utils.py"
_MORE: Final = _DATA + "nanochat common.py and Lightning throughput.py"
_ENG: Final = _DATA + "ml-engineering accelerators"
# The more words, the earlier: "H100 PCIe" before "H100". The clock is derived: the peak in half precision over
# SMs x FLOPs a clock (dense, fp32 accumulation: 1,024 on V100, T4, A100 x 2, Ada and Ampere workstations; 512 on
# GeForce; 4,096 on Hopper), rounded to the boost clock of the data sheet.
DEVICES: Final = tuple(
    sorted(
        (
            _row("GB200", 80, 1250, 2500, 5000, 8000, None, _TITAN),
            _row("B200", None, 1125, 2250, 4500, 8000, None, _TITAN),
            _row("B300", None, 1125, 2250, 4500, 8000, None, _TITAN),
            _row("GH200", 67, 494.5, 989, 1979, 4000, 1830, _ENG),
            _row("H200 NVL", 60, 417.5, 835, 1670, 4800, None, _TITAN),
            _row("H200", 67, 494.5, 989, 1979, 4800, 1830, _TITAN),
            _row("H100 PCIe", 51, 378, 756, 1513, 2000, 1620, _TITAN),
            _row("H100 NVL", 60, 417.5, 835, 1670, 3900, None, _TITAN),
            _row("H100", 67, 494.5, 989, 1979, 3350, 1830, _TITAN),
            _row("H800 PCIe", None, None, 756, None, 2000, None, _MORE),
            _row("H800", 67, 494, 989, 1979, 3350, 1830, _MORE),
            _row("H20", 44, 74, 148, 296, 4000, None, _TITAN),
            _row("A100-SXM4-40GB", 19.5, 156, 312, None, 1555, 1410, _TITAN),
            _row("A100-PCIE-40GB", 19.5, 156, 312, None, 1555, 1410, _TITAN),
            _row("A100-SXM4-80GB", 19.5, 156, 312, None, 2039, 1410, _TITAN),
            _row("A100 80GB PCIe", 19.5, 156, 312, None, 1940, 1410, _TITAN),
            _row("A100", 19.5, 156, 312, None, None, 1410, _TITAN),
            _row("A800", None, None, 312, None, None, 1410, _MORE),
            _row("L40S", 91.6, 183, 362, 733, 864, 2490, _TITAN),
            _row("L4", 30.3, 60, 121, 242, 300, 2040, _MORE),
            _row("A10G", None, None, 70, None, 600, None, "data sheet, second hand"),
            _row("A10", 31.2, 62.5, 125, None, 600, 1695, "data sheet"),
            _row("A30", None, None, 165, None, 933, None, _MORE),
            _row("V100", 15.7, None, 125, None, 900, 1530, _DATA + "Lightning throughput.py", has_bf16=False),
            _row("T4", 8.1, None, 65, None, 320, 1590, _DATA + "Lightning throughput.py", has_bf16=False),
            _row("RTX 3090", 35.6, 35.6, 71, None, 936, 1695, _MORE),
            _row("RTX 4090", 82.6, 82.6, 165.2, None, 1008, 2520, _MORE),
            _row("RTX 5090", 104.8, 104.8, 209.5, 419, 1790, None, _DATA + "nanochat common.py"),
            _row("MI250X", 24, None, 191.5, None, 1638, None, _TITAN + "; one of a card's two dies"),
            _row("MI300X", 163.4, 653.7, 1307, 2615, 5300, None, _TITAN),
            _row("MI325X", 163.4, 653.7, 1307, 2615, 6000, None, _TITAN),
            _row("MI355X", 157, None, 2500, 5000, 8000, None, _TITAN),
        ),
        key=lambda row: (-len(row.words), -len(" ".join(row.words))),
    )
)
_ALONE: Final = re.compile(r"\bmig\b|\bvgpu\b|\bgrid\b")  # a part of a device has no peak of its own here


@dataclass(frozen=True, slots=True)
class Peak:
    """Of one device in one precision; None: not known, and `why`."""

    flops: float | None
    memory_bytes_s: float | None
    clock_mhz: float | None
    source: str
    why: str = ""


def device_of(name: str) -> Device | None:
    """The row of a device's name as CUDA, ROCm or NVML tell it."""
    lower = name.lower()
    if _ALONE.search(lower):
        return None
    return next((row for row in DEVICES if row.matches(lower)), None)


def peak_of(name: str, dtype: str) -> Peak:
    """What a device of this name can do in this precision."""
    row = device_of(name)
    if row is None:
        return Peak(None, None, None, "", f"no peak is known of the device {name!r}: state --peak-flops")
    memory = None if row.memory_gb_s is None else row.memory_gb_s * GIGA
    rate = row.tflops.get(dtype)
    if rate is None:
        why = f"no peak in {dtype} is known of the device {name!r}: state --peak-flops"
        return Peak(None, memory, row.clock_mhz, row.source, why)
    return Peak(rate * TERA, memory, row.clock_mhz, row.source)


def has_tensor_cores(name: str) -> bool:
    """Whether its table row is faster in half precision than in single by far."""
    row = device_of(name)
    return row is not None and row.tflops.get("float16", 0.0) > 1.5 * row.tflops.get("float32", 1e9)
