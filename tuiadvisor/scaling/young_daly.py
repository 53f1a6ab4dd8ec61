"""How often to write a checkpoint.

In: the cost of one checkpoint and the mean time between failures, in one unit.  Out: the interval between two
checkpoints, and the share of time that is lost at an interval.
Sources: Young 1974; Daly 2006 (higher-order estimate).
"""

from __future__ import annotations

from math import exp, expm1, sqrt


def daly(checkpoint: float, failures: float) -> float:
    """The higher-order optimum; checkpoint δ and mean time between failures M in the same unit.

    √(2δM)·(1 + ⅓√(δ/2M) + δ/18M) - δ for δ < 2M, else M.
    """
    _check(checkpoint, failures)
    if checkpoint >= 2 * failures:
        return failures
    ratio = checkpoint / (2 * failures)
    return sqrt(2 * checkpoint * failures) * (1 + sqrt(ratio) / 3 + ratio / 9) - checkpoint


def lost_share(interval: float, checkpoint: float, failures: float, restart: float = 0.0) -> float:
    """Share of the wall time that is not useful work: checkpoints, restarts and work done twice.

    Daly's complete model for exponential failures: wall = M·e^(R/M)·(e^((τ+δ)/M) - 1) for τ of work.
    """
    _check(checkpoint, failures)
    if interval <= 0:
        raise ValueError("interval must be positive")
    exponent = (interval + checkpoint) / failures
    if exponent > 500:  # e^500: nothing ever finishes
        return 1.0
    return 1 - interval / (failures * exp(min(restart / failures, 500.0)) * expm1(exponent))


def _check(checkpoint: float, failures: float) -> None:
    if not (checkpoint > 0 and failures > 0):
        raise ValueError("checkpoint cost and time between failures must be positive")
