"""Which laws a few rows support, and how strongly.

In: one series.  Out: a Choice: every law that can be fitted, with its weight. With three or four rows several laws
fit equally well and differ far outside, so none is picked alone: predictions average them by weight, geometrically,
so that a table of times and one of rates give the same answer.
A law's weight is its prior times what the rows say.
Source: Burnham & Anderson, Model Selection and Multimodel Inference (AICc, Akaike weights).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Final

import numpy as np

from tuiadvisor.scaling.models import PRIOR, Array, Family, Fit, fit_law

# Published and measured step times scatter by about 2 % around any smooth law (rounding, placement, run to run):
# a law that misses by less is not worse than one that fits exactly. Worth four rows of evidence.
NOISE_FLOOR: Final = 0.02
# A time to a result scatters more: other batches, other numbers of evaluations, luck in convergence.
NOISE: Final[dict[Family, float]] = {
    "strong": NOISE_FLOOR,
    "weak": NOISE_FLOOR,
    "unknown": NOISE_FLOOR,
    "result": 0.03,
}
NOISE_ROWS: Final = 4
MAX_LOO_ROWS: Final = 200  # each row refits every law
NEGLIGIBLE: Final = 1e-3  # weight below which a law is not worth its draws


@dataclass(frozen=True, slots=True)
class Choice:
    """Fitted laws and their weights, which sum to one; the likeliest first."""

    fits: tuple[Fit, ...]
    weights: tuple[float, ...]
    devices: tuple[float, ...]
    family: Family
    loo_error: float | None  # root mean square of the error at each row, predicted from the others

    def device_time(self, devices: Array) -> Array:
        """The weighted geometric mean of the laws."""
        logs = [
            weight * np.log(fit.device_time(devices))
            for fit, weight in zip(self.fits, self.weights, strict=True)
        ]
        return np.asarray(np.exp(np.sum(logs, axis=0)), dtype=np.float64)

    @property
    def error(self) -> float:
        """Relative scatter of a measurement, from the best law's residuals and the noise floor."""
        best = self.fits[0]
        return scatter(best.squares, best.num_rows, best.law.num_coefficients, NOISE[self.family])


def choose(family: Family, devices: Array, device_time: Array, *, with_loo: bool = True) -> Choice:
    """Fit and weigh the family's laws. At least two different sizes."""
    num_rows, num_sizes = len(devices), len(set(devices.tolist()))
    # Three coefficients need a fourth size: through three points they would fit anything.
    known = [
        (law, prior)
        for law, prior in PRIOR[family]
        if law.num_coefficients == 2 or num_sizes > law.num_coefficients
    ]
    fits = [fit_law(law, devices, device_time) for law, _ in known]
    scores = [_score(fit, NOISE[family]) for fit in fits]
    raw = [prior * exp(-0.5 * (score - min(scores))) for score, (_, prior) in zip(scores, known, strict=True)]
    kept = [
        (weight / sum(raw), fit)
        for weight, fit in zip(raw, fits, strict=True)
        if weight / sum(raw) > NEGLIGIBLE
    ]
    total = sum(weight for weight, _ in kept)
    # Rounded: of laws that fit alike, the first of the list is named.
    kept.sort(key=lambda pair: (-round(pair[0], 6), round(sqrt(pair[1].squares / num_rows), 4)))
    return Choice(
        fits=tuple(fit for _, fit in kept),
        weights=tuple(weight / total for weight, _ in kept),
        devices=tuple(devices.tolist()),
        family=family,
        loo_error=_loo(family, devices, device_time)
        if with_loo and num_sizes >= 3 and num_rows <= MAX_LOO_ROWS
        else None,
    )


def scatter(squares: float, num_rows: int, num_coefficients: int, noise: float) -> float:
    """Standard deviation of a relative error, the noise floor counted as NOISE_ROWS earlier rows."""
    freedom = NOISE_ROWS + num_rows - num_coefficients
    return sqrt((squares + NOISE_ROWS * noise**2) / freedom)


def _score(fit: Fit, noise: float) -> float:
    """AICc; misfit below the noise floor does not count, and the floor's rows keep it finite at two rows."""
    k = fit.law.num_coefficients
    rows = fit.num_rows + NOISE_ROWS
    misfit = max(fit.squares / fit.num_rows, noise**2)
    return fit.num_rows * log(misfit) + 2 * k + 2 * k * (k + 1) / (rows - k - 1)


def _loo(family: Family, devices: Array, device_time: Array) -> float | None:
    errors = []
    for index in range(len(devices)):
        rest = np.arange(len(devices)) != index
        if len(set(devices[rest].tolist())) >= 2:
            predicted = choose(family, devices[rest], device_time[rest], with_loo=False)
            errors.append(
                log(float(predicted.device_time(devices[index : index + 1])[0]) / float(device_time[index]))
            )
    return sqrt(sum(error * error for error in errors) / len(errors)) if errors else None
