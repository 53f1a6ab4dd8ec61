"""Published scaling tables, typed in with their source, and a way to write and analyse a table in a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuiadvisor.scaling.analysis import Report, analyse
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.series import Target
from tuiadvisor.scaling.table import read_table


@dataclass(frozen=True, slots=True)
class Published:
    """One series of a paper; the last row is what a fit on the others must foretell."""

    name: str
    column: str
    devices: tuple[int, ...]
    values: tuple[float, ...]
    batch: int


# MegaScale, NSDI'24, table 2 (175B, seconds per iteration); PTD-P, SC'21, table 2 (days for 300B tokens).
MEGASCALE = Published("MegaScale 768", "step_s", (256, 512, 768, 1024), (32.0, 16.5, 11.5, 8.9), 768)
MEGATRON = Published("Megatron-LM 768", "step_s", (256, 512, 768, 1024), (40.0, 21.2, 15.2, 11.9), 768)
PTD_P = Published("PTD-P 175B", "total_days", (384, 768, 1536), (84, 43, 23), 1536)
ZERO_3 = Published("ZeRO-3 175B", "total_days", (384, 768, 1536), (90, 74, 74), 1536)
CHECKED = (MEGASCALE, MEGATRON, PTD_P, ZERO_3)
# Other rows of the same two tables (MegaScale at batch 6144, PTD-P at 530B).
FURTHER = (
    Published("MegaScale 6144", "step_s", (3072, 6144, 8192, 12288), (23.66, 12.21, 9.56, 6.34), 6144),
    Published("Megatron-LM 6144", "step_s", (3072, 6144, 8192, 12288), (29.02, 14.78, 12.24, 8.57), 6144),
    Published("PTD-P 530B", "total_days", (560, 1120, 2240), (156, 80, 42), 2240),
)


def write(folder: Path, text: str) -> str:
    """A table file; its path."""
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def csv_of(published: Published, rows: int | None = None) -> str:
    """The first rows of a published series as CSV."""
    lines = [
        f"{devices},{value},{published.batch}"
        for devices, value in zip(published.devices[:rows], published.values[:rows], strict=True)
    ]
    return "\n".join([f"devices,{published.column},global_batch", *lines]) + "\n"


def report_of(folder: Path, text: str, *sizes: int, aim: Aim | None = None) -> Report:
    """The main report on a table."""
    return analyse(read_table(write(folder, text)), [Target(size) for size in sizes], aim or Aim())[0]
