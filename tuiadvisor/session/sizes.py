"""Recorded configurations side by side under three metrics: time, efficiency, cost.

In: Material.  Out: Size rows and which one each metric prefers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.scaling.decide import sized
from tuiadvisor.session.sums import sum_words
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.material import Material

WITHOUT_DIGITS: Final = 1e4
SAME_BATCH: Final = 0.01


@dataclass(frozen=True, slots=True)
class Size:
    """One configuration. Where samples a step are unknown nothing is compared with other runs."""

    name: str
    num_devices: int | None
    step_s: float | None
    samples_s: float | None
    device_s_per_sample: float | None
    hours: float | None  # of the remaining work, without a restart
    cost: float | None
    speedup: float | None  # samples a second against the smallest size
    efficiency: float | None  # device time a sample of the smallest size against this one's
    regime: str  # "strong", "weak", "mixed" or ""

    def words(self) -> str:
        """One line for people."""
        parts = [
            sized(self.num_devices) if self.num_devices else "unknown devices",
            "step unknown" if self.step_s is None else f"step {seconds(self.step_s)}",
            "samples/s unknown" if self.samples_s is None else f"{_plain(self.samples_s)} samples/s",
        ]
        if self.device_s_per_sample is not None:
            parts.append(f"{seconds(self.device_s_per_sample)} of device time a sample")
        parts.append("hours left unknown" if self.hours is None else f"{self.hours:.4g} h left")
        parts.append("cost unknown" if self.cost is None else f"cost {sum_words(self.cost)}")
        return ", ".join(parts)

    def scaling_words(self) -> str | None:
        """Speed-up and efficiency against the smallest size; None for that size itself."""
        if self.speedup is None or self.efficiency is None:
            return None
        return (
            f"{sized(self.num_devices or 0)}: {self.speedup:.2f}x the samples a second, "
            f"efficiency {self.efficiency:.2f} ({self.regime} scaling, "
            f"{1 / self.efficiency:.2f}x the device time for a sample)"
        )


def _plain(rate: float) -> str:
    """Without an exponent, which nobody reads a million in."""
    return f"{rate:,.0f}" if rate >= WITHOUT_DIGITS else f"{rate:.4g}"


def sizes(material: Material) -> list[Size]:
    """The run and the others, fewest devices first."""
    runs = sorted((material.run, *material.others), key=lambda run: (run.num_devices or 0, run.name))
    rated = [run for run in runs if run.num_devices and run.samples_per_step and run.step_s]
    smallest = rated[0] if rated and rated[-1].num_devices != rated[0].num_devices else None
    return [_size(run, smallest, material) for run in runs]


def _size(run: Facts, smallest: Facts | None, material: Material) -> Size:
    samples, rate = run.samples_per_step, None
    hours = speedup = efficiency = per_sample = None
    regime = ""
    if samples and run.step_s:
        rate = samples / run.step_s
        per_sample = run.num_devices / rate if run.num_devices else None
    steps, own = material.remaining_steps, material.run.samples_per_step
    if steps is not None and run is material.run and run.step_s is not None:
        hours = material.hours(run, steps)
    elif steps is not None and own and rate and samples:
        hours = material.hours(run, steps * own / samples)
    base = _rate(smallest)
    if smallest is not None and base and rate and smallest.num_devices != run.num_devices:
        speedup = rate / base
        efficiency = speedup * (smallest.num_devices or 0) / (run.num_devices or 1)
        regime = _regime(run, smallest)
    cost = None
    if hours is not None and run.num_devices and material.price is not None:
        cost = hours * run.num_devices * material.price
    return Size(
        run.name, run.num_devices, run.step_s, rate, per_sample, hours, cost, speedup, efficiency, regime
    )


def _regime(run: Facts, smallest: Facts) -> str:
    """Strong: the same total batch; weak: the same batch on each device."""
    total = (run.samples_per_step or 0.0) / (smallest.samples_per_step or 1.0)
    if abs(total - 1) < SAME_BATCH:
        return "strong"
    growth = (run.num_devices or 0) / (smallest.num_devices or 1)
    return "weak" if abs(total / growth - 1) < SAME_BATCH else "mixed"


def _rate(run: Facts | None) -> float | None:
    return run.samples_per_step / run.step_s if run and run.samples_per_step and run.step_s else None


def ranking(rows: list[Size]) -> dict[str, str]:
    """Which configuration each objective prefers; empty where fewer than two sizes can be compared."""
    rated = [row for row in rows if row.samples_s and row.device_s_per_sample]
    if (
        len({row.num_devices for row in rated}) < 2
    ):  # runs of one size differ by noise or by a change: compare tells
        return {}
    fastest = max(rated, key=lambda row: (row.samples_s or 0.0, row.name)).name
    leanest = min(rated, key=lambda row: (row.device_s_per_sample or 0.0, row.name)).name
    # With one price for every device money follows device time.
    return {"time": fastest, "efficiency": leanest, "cost": leanest}
