"""What a batch costs at one number of devices: step = fixed + per sample x batch, and from where more brings nothing.

In: the measured rows of one label.  Out: a BatchLaw for each number of devices and layout with several batches.
The fixed part is what every step pays (launches, gradient exchange, optimizer), so a larger batch divides it among more
samples until next to nothing of it is left: the plateau of throughput. A law that misses its rows is said to be none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.scaling.models import solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.columns import Quantity
    from tuiadvisor.scaling.table import Row

NEAR: Final = (
    0.95  # of the throughput no batch can exceed: from there a larger batch brings at most a twentieth
)
MISFIT: Final = 0.10  # a row further off than this: another kernel, a full memory; the line says nothing then
SAMPLES: Final = ("samples", "images")  # a rate of these times a step is the batch; of tokens it is not


@dataclass(frozen=True, slots=True)
class BatchLaw:
    """Seconds a step at one size. fixed_s, per_sample_s None: no line through these rows; why says it."""

    devices: int
    layout: str | None
    batches: tuple[float, ...]
    fixed_s: float | None
    per_sample_s: float | None
    plateau: (
        float | None
    )  # the least batch within NEAR of the best throughput; None: unknown, or each batch is
    why: str = ""

    def fixed_share(self, batch: float) -> float | None:
        """Share of a step at this batch that no sample pays for."""
        if self.fixed_s is None or self.per_sample_s is None:
            return None
        return self.fixed_s / (self.fixed_s + self.per_sample_s * batch)


def batch_laws(rows: Sequence[Row], quantity: Quantity) -> tuple[BatchLaw, ...]:
    """By devices; empty where no size was measured at two batches, or the column tells no time of a step."""
    settings: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for row in rows:
        seconds = _step(row, quantity)
        if seconds is not None and row.global_batch is not None:
            settings.setdefault((row.devices, row.layout or ""), []).append((row.global_batch, seconds))
    return tuple(
        law_of_batches(devices, layout or None, sorted(measured))
        for (devices, layout), measured in sorted(settings.items())
        if len({batch for batch, _ in measured}) > 1
    )


def _step(row: Row, quantity: Quantity) -> float | None:
    if row.value is None or row.global_batch is None:
        return None
    if quantity.kind == "step":
        return row.value * quantity.seconds
    if quantity.kind == "throughput" and quantity.counts in SAMPLES:
        return row.global_batch / row.value
    return None


def law_of_batches(devices: int, layout: str | None, measured: list[tuple[float, float]]) -> BatchLaw:
    """Of (batch, seconds a step) at one size, at two batches at least."""
    batches = np.array([batch for batch, _ in measured])
    steps = np.array([step for _, step in measured])
    design = np.stack([np.ones_like(batches), batches], axis=1) / steps[:, None]
    fixed, per_sample = (float(value) for value in solve(design))
    worst = float(np.abs(design @ np.array([fixed, per_sample]) - 1.0).max())
    sizes = tuple(dict.fromkeys(batches.tolist()))
    if worst > MISFIT:
        why = f"the step time is not linear in the batch (one row is {worst:.0%} off): a limit between these sizes"
        return BatchLaw(devices, layout, sizes, None, None, None, why)
    if per_sample <= 0.0:
        why = "the step does not grow with the batch: larger ones are free up to the largest measured"
        return BatchLaw(devices, layout, sizes, fixed, 0.0, None, why)
    plateau = fixed / per_sample * NEAR / (1 - NEAR)
    return BatchLaw(devices, layout, sizes, fixed, per_sample, plateau or None)


def batch_words(law: BatchLaw) -> str:
    """One line: the law, and whether to grow."""
    at = f"batch at {law.devices} device{'' if law.devices == 1 else 's'}"
    if law.fixed_s is None or not law.per_sample_s:
        return f"{at}: {law.why}"
    largest = law.batches[-1]
    # A line goes through any two points: only a third batch can contradict it.
    doubt = " (from two batches: a third would test it)" if len(law.batches) == 2 else ""
    line = f"{at}: step = {law.fixed_s:.4g} s + {law.per_sample_s:.4g} s x batch{doubt}"
    if law.plateau is None or law.plateau <= largest:
        least = "" if law.plateau is None else f"; at least {law.plateau:.4g} is enough"
        left = law.fixed_share(largest) or 0.0
        return f"{line}; beyond {largest:g} throughput gains at most {left:.0%}: stop growing{least}"
    gain = 1 / (1 - (law.fixed_share(largest) or 0.0)) * NEAR - 1
    return f"{line}; throughput grows by {gain:.0%} up to a batch of about {law.plateau:.3g}, then hardly"
