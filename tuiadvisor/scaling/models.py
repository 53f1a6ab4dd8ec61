"""The laws a job can scale by, and their least-squares fit with non-negative terms.

In: sizes and device-time per unit of work W.  Out: coefficients and residuals. W(N) = b + c·g(N): b is the useful
work, g grows with the devices and says which overhead it is. All terms are >= 0: nothing gets cheaper by itself.

| law | T(N), fixed work | g in W = N·T | what it stands for |
|---|---|---|---|
| amdahl | b/N + c | N | serial part; also the bandwidth term of a ring all-reduce, 2(N-1)/N·bytes/bandwidth |
| imbalance | (b + c·log2 N)/N | log2 N | waiting for the slowest of N jittering devices |
| surface | b/N + c/√N | √N | exchange over the surface of a 2-D split, bisection of a mesh |
| tree | b/N + c·log2 N | N·log2 N | tree or hierarchical collectives |
| ring | b/N + c·(N-1) | N(N-1) | latency of a ring all-reduce, 2(N-1)·latency |
| usl | all of amdahl and ring | N, N(N-1) | Gunther's law: contention and coherency |
| amdahl+tree | both | N, N·log2 N | |
| power | b·N^(p-1) | (W = b·N^p) | no mechanism: what published training times follow (Frey et al. 2022) |

Weak scaling (work grows with N): gustafson (speed = s + (1-s)·N), imbalance, surface, power, and ring, whose latency
per step makes W grow like N. Time to a result (MLPerf) also holds start-up, evaluation and what the batch did to
convergence: its laws are those of strong scaling, believed otherwise.
Sources: Amdahl 1967, Gustafson 1988, Gunther 1993, Thakur et al. 2005 (collectives).

How much a law is believed before any row is seen (`PRIOR`): rounded from how near each came to the held-out last rows
of published tables (tests/accuracy/scaling_laws.py). N² of a ring's latency was nearly always too much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, sqrt
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from tuiadvisor.errors import TuiadvisorError

FLOOR: Final = 0.01
STEEPEST: Final = 2.0  # as fast as any law here lets the work grow
Array = NDArray[np.float64]
# Columns beside the constant one, for an array of sizes.
Terms = Callable[[Array], tuple[Array, ...]]


# What the rows are: weak, strong, one of the two, or times to a result.
Family = Literal["strong", "weak", "unknown", "result"]


@dataclass(frozen=True, slots=True)
class Law:
    """One way to scale. The terms add up to W, to 1/W (inverse: speed per device), or to log W (power)."""

    name: str
    terms: Terms
    num_coefficients: int
    adds_to: Literal["work", "inverse", "power"] = "work"


@dataclass(frozen=True, slots=True)
class Fit:
    """A law with its coefficients. `squares`: sum of squared relative residuals over `num_rows`.

    floor: the least W it will answer, FLOOR of the smallest measured one.
    """

    law: Law
    coefficients: tuple[float, ...]
    squares: float
    num_rows: int
    floor: float

    def device_time(self, devices: Array) -> Array:
        """W at each size."""
        return self.evaluate(design_of(self.law, devices), np.array(self.coefficients))

    def evaluate(self, design: Array, coefficients: Array) -> Array:
        """W from rows of terms. Never below the floor: where no useful work was found, small sizes would be free."""
        if self.law.adds_to == "power":
            power: Array = coefficients[0] * np.exp(design[:, 1] * coefficients[1])
            return np.maximum(power, self.floor)
        total = design @ coefficients
        return np.maximum(1.0 / total if self.law.adds_to == "inverse" else total, self.floor)

    def overhead(self, devices: float) -> float:
        """Share of the device-time at this size that is not the useful work b."""
        size = np.array([float(devices)])
        if self.law.adds_to == "inverse":
            one = float(self.device_time(np.array([1.0]))[0])
            return 1.0 - one / float(self.device_time(size)[0])
        return 1.0 - self.coefficients[0] / float(self.device_time(size)[0])

    def parameters(self) -> dict[str, float]:
        """The law's own parameters, where it has classic ones."""
        b, *rest = self.coefficients
        if self.law.name == "amdahl":
            return {"serial_fraction": rest[0] / (b + rest[0])}
        if self.law.name == "gustafson":
            return {"serial_fraction": rest[0] / (b + rest[0])}
        if self.law.name == "power":
            return {"exponent": rest[0]}
        if self.law.name == "usl":
            one = b + rest[0]
            alpha, beta = (rest[0] / one, rest[1] / one) if one else (1.0, 0.0)
            peak = {"peak_devices": sqrt((1 - alpha) / beta)} if beta > 0 else {}
            return {"alpha": alpha, "beta": beta, **peak}
        return {}


AMDAHL: Final = Law("amdahl", lambda n: (n,), 2)
IMBALANCE: Final = Law("imbalance", lambda n: (np.log2(n),), 2)
SURFACE: Final = Law("surface", lambda n: (np.sqrt(n),), 2)
TREE: Final = Law("tree", lambda n: (n * np.log2(n),), 2)
RING: Final = Law("ring", lambda n: (n * (n - 1),), 2)
USL: Final = Law("usl", lambda n: (n, n * (n - 1)), 3)
AMDAHL_TREE: Final = Law("amdahl+tree", lambda n: (n, n * np.log2(n)), 3)
GUSTAFSON: Final = Law("gustafson", lambda n: (1 / n,), 2, "inverse")
POWER: Final = Law("power", lambda n: (np.log(n),), 2, "power")
WEAK_RING: Final = Law("ring", lambda n: (n - 1,), 2)
WEAK_RING_FULL: Final = Law("ring+bandwidth", lambda n: ((n - 1) / n, n - 1), 3)

# Each law with its prior weight; first of equals is named first. Batch unknown: the laws of both regimes.
PRIOR: Final[dict[Family, tuple[tuple[Law, float], ...]]] = {
    "strong": (
        (AMDAHL, 2.0), (SURFACE, 1.0), (TREE, 1.0), (IMBALANCE, 0.5), (POWER, 0.5), (USL, 0.5), (AMDAHL_TREE, 0.5),
        (RING, 0.5),
    ),
    "weak": (
        (WEAK_RING, 2.0), (SURFACE, 2.0), (POWER, 2.0), (IMBALANCE, 1.0), (GUSTAFSON, 0.5), (WEAK_RING_FULL, 0.5),
    ),
    "unknown": (
        (AMDAHL, 2.0), (SURFACE, 2.0), (POWER, 2.0), (IMBALANCE, 1.0), (GUSTAFSON, 0.5), (TREE, 0.25), (USL, 0.25),
        (RING, 0.1),
    ),
    "result": (
        (AMDAHL, 2.0), (SURFACE, 2.0), (POWER, 0.5), (TREE, 0.25), (IMBALANCE, 0.1), (USL, 0.1), (RING, 0.1),
    ),
}  # fmt: skip


def fit_law(law: Law, devices: Array, device_time: Array) -> Fit:
    """Least squares of the relative error, every coefficient >= 0."""
    design = design_of(law, devices)
    coefficients = coefficients_of(law, design, device_time)
    fit = Fit(
        law,
        tuple(float(value) for value in coefficients),
        squares=0.0,
        num_rows=len(devices),
        floor=FLOOR * float(device_time.min()),
    )
    ratio = fit.evaluate(design, coefficients) / device_time
    residuals = 1.0 - 1.0 / ratio if law.adds_to == "inverse" else ratio - 1.0
    return replace(fit, squares=float(residuals @ residuals))


def coefficients_of(law: Law, design: Array, device_time: Array) -> Array:
    """The coefficients of a law that come nearest to these rows."""
    if law.adds_to == "power":
        return _power(design[:, 1], np.log(device_time))
    return solve(design * device_time[:, None] if law.adds_to == "inverse" else design / device_time[:, None])


def _power(logs: Array, log_work: Array) -> Array:
    """Coefficients b and p of W = b·N^p, 0 <= p <= STEEPEST."""
    around = logs - logs.mean()
    slope = min(max(float(around @ log_work) / float(around @ around), 0.0), STEEPEST)
    return np.array([exp(float(log_work.mean()) - slope * float(logs.mean())), slope])


def solve(weighted: Array) -> Array:
    """Coefficients >= 0 whose weighted sum is nearest to one in every row. Lawson-Hanson, from scipy."""
    # Columns differ by powers of N: bring them to one length, or the solver's tolerance drops the small ones.
    lengths = np.linalg.norm(weighted, axis=0)
    lengths[lengths == 0.0] = 1.0
    solution, _ = nnls()(weighted / lengths, np.ones(len(weighted)))
    unscaled: Array = np.asarray(solution, dtype=np.float64) / lengths
    return unscaled


def design_of(law: Law, devices: Array) -> Array:
    """The matrix of a law's terms: sizes x coefficients."""
    columns: list[Array] = [np.ones_like(devices), *law.terms(devices)]
    return np.stack(columns, axis=1)


def nnls() -> Any:
    """The solver of scipy; loaded late because a login node may not have it."""
    try:
        from scipy.optimize import nnls as solver  # noqa: PLC0415 - an extra, and 0.2 s to import
    except ImportError as error:
        raise TuiadvisorError(
            "scaling laws are fitted with scipy, which is not installed here: pip install 'tuiadvisor[scale]'"
        ) from error
    return solver
