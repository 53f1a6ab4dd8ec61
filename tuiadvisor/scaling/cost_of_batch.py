"""What a larger global batch costs in progress, and what it buys in efficiency.

Statistical efficiency (φ + B0)/(φ + B): progress of a sample at batch B against one at B0, φ the gradient noise
scale in samples. Source: Pollux (OSDI'21), McCandlish et al. 2018.
"""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuiadvisor.scaling.choose import Choice

LEAST: Final = 1e-6  # overhead below this is a rounding error of the fit


def statistical_efficiency(noise_scale: float, reference_batch: float, batch: float) -> float:
    """(φ + B0)/(φ + B): 1 at the reference batch, below it for larger ones."""
    if not (noise_scale >= 0 and reference_batch > 0 and batch > 0):
        raise ValueError("noise scale must not be negative and batches must be positive")
    return (noise_scale + reference_batch) / (noise_scale + batch)


def samples_factor(noise_scale: float, reference_batch: float, batch: float) -> float:
    """How many times the samples are needed for the same progress."""
    return 1 / statistical_efficiency(noise_scale, reference_batch, batch)


def batch_factor_to_keep_efficiency(choice: Choice, devices_now: int, devices_then: int) -> float | None:
    """How many times the global batch keeps today's efficiency at another size, in strong scaling.

    Useful work grows with the batch, overhead is taken as independent of it (gradient exchange is; a part of
    what Amdahl calls serial may not be). None where a law leaves no useful work or no overhead to weigh.
    """
    logs = 0.0
    for fit, weight in zip(choice.fits, choice.weights, strict=True):
        now, then = fit.overhead(devices_now), fit.overhead(devices_then)
        if not (LEAST < now < 1 and LEAST < then < 1):
            return None
        logs += weight * log(then / (1 - then) * (1 - now) / now)
    return exp(logs)
