"""Predictions with intervals that stay honest with two, three or four rows.

In: a Choice.  Out: device-time at new sizes: the average of the laws, and the 5 % to 95 % range over four doubts:
which law holds, what its coefficients are (refitted to perturbed rows), the scatter of a single measurement, and
that none may hold beyond the rows (another link, a full switch, another kernel), which grows with the distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Final

import numpy as np

from tuiadvisor.scaling.choose import NOISE, NOISE_ROWS, Choice
from tuiadvisor.scaling.models import Array, Family, coefficients_of, design_of

NUM_DRAWS: Final = 300  # per law; a 5 % quantile over five laws then moves by less than 1 % with the seed
LOW, HIGH = 0.05, 0.95
# Log error of the first doubling beyond the measured sizes that no law explains, later ones independent of it.
# So chosen that intervals hold as many held-out last rows of published tables as they promise
# (tests/accuracy/scaling_laws.py).
DEPARTURE: Final[dict[Family, float]] = {"strong": 0.03, "weak": 0.02, "unknown": 0.03, "result": 0.06}
TAILS: Final = 4  # degrees of freedom of that error: a knee is far, and rare
TIE: Final = (
    1e-9  # 5 % of equal weights falls on a whole number of draws: rounding must not choose between two
)


@dataclass(frozen=True, slots=True)
class Range:
    """A value with its 90 % interval."""

    expected: float
    low: float
    high: float

    def times(self, factor: float) -> Range:
        """The same in another unit."""
        return Range(self.expected * factor, self.low * factor, self.high * factor)

    def into(self, whole: float) -> Range:
        """The whole divided by this: the largest divisor gives the least."""
        return Range(whole / self.expected, whole / self.high, whole / self.low)


def predict(choice: Choice, sizes: tuple[int, ...]) -> list[Range]:
    """Device-time per unit of work at each size. The same for a size, whichever others are asked for."""
    if not sizes:
        return []
    targets = np.array(sizes, dtype=np.float64)
    expected = choice.device_time(targets)
    drawn, weights = _draws(choice, targets)
    order = np.argsort(drawn, axis=0)
    ranges = []
    for index, center in enumerate(expected.tolist()):
        values = drawn[order[:, index], index]
        reached = np.cumsum(weights[order[:, index]])
        low = float(values[np.searchsorted(reached, LOW - TIE)])
        high = float(values[min(np.searchsorted(reached, HIGH - TIE), len(values) - 1)])
        ranges.append(Range(center, min(low, center), max(high, center)))
    return ranges


def _draws(choice: Choice, targets: Array) -> tuple[Array, Array]:
    """Possible device-times, draws x targets, and the weight of each draw."""
    drawn, weights = [], []
    beyond = DEPARTURE[choice.family] * np.sqrt(_doublings(choice, targets))
    for fit, weight, refits in zip(choice.fits, choice.weights, _refits(choice), strict=True):
        ahead = design_of(fit.law, targets)
        for coefficients, error, departure in refits:
            drawn.append(fit.evaluate(ahead, coefficients) * np.exp(error + departure * beyond))
            weights.append(weight / NUM_DRAWS)
    return np.array(drawn), np.array(weights)


def _doublings(choice: Choice, targets: Array) -> Array:
    """How many doublings each target lies outside the rows."""
    low, high = min(choice.devices), max(choice.devices)
    return np.asarray(np.log2(np.maximum(np.maximum(targets / high, low / targets), 1.0)), dtype=np.float64)


# A screen asks for the same rows at other sizes and prices, again and again; fitting is what takes long.
@lru_cache(maxsize=16)
def _refits(choice: Choice) -> tuple[tuple[tuple[Array, float, float], ...], ...]:
    """For each law its coefficients, the log error of a measurement and the departure, draw by draw."""
    # A fixed seed: the same table gives the same answer, and a change of unit changes nothing but the unit.
    random = np.random.default_rng(20)
    devices = np.array(choice.devices)
    found = []
    for fit in choice.fits:
        freedom = NOISE_ROWS + fit.num_rows - fit.law.num_coefficients
        squares = fit.squares + NOISE_ROWS * NOISE[choice.family] ** 2
        sigmas = np.sqrt(squares / random.chisquare(freedom, NUM_DRAWS))
        noise = random.standard_normal((NUM_DRAWS, fit.num_rows + 1))
        departures = random.standard_t(TAILS, NUM_DRAWS).tolist()
        fitted, design = fit.device_time(devices), design_of(fit.law, devices)
        refits = []
        for sigma, errors, departure in zip(sigmas.tolist(), noise, departures, strict=True):
            rows = fitted * np.exp(sigma * errors[:-1])
            refits.append((coefficients_of(fit.law, design, rows), float(sigma * errors[-1]), departure))
        found.append(tuple(refits))
    return tuple(found)


def interval_sd(choice: Choice, size: float) -> float:
    """Rough relative standard deviation of a prediction: scatter and disagreement of the laws, without draws."""
    logs = np.log([float(fit.device_time(np.array([size]))[0]) for fit in choice.fits])
    weights = np.array(choice.weights)
    mean = float(weights @ logs)
    disagreement = float(weights @ (logs - mean) ** 2)
    # A mean over n rows is known to sigma/sqrt(n); a new row scatters by sigma itself; an end sees about twice that.
    return sqrt(choice.error**2 * (1 + 2 / len(choice.devices)) + disagreement)
