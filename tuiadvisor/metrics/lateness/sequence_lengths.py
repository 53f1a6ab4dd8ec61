"""What longer batches of some ranks cost all: lateness that follows the tokens of a step.

In: work between barriers and tokens of the ranks that are compared, R x K, no NaN.  Out: seconds lost a step, gone if
every step's tokens were spread evenly over the ranks, and how well tokens explain who is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.what_if import Gain, gain

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats

MIN_SPREAD: Final = 0.01  # of the mean tokens: less is the last, shorter batch of an epoch
STALL_PERCENTILES: Final = (1.0, 99.0)  # a stall of the machine must not decide what a token costs


@dataclass(frozen=True, slots=True)
class LengthLoss:
    """fit: share of the variance of the ranks' lateness that their tokens explain, 0..1."""

    gain: Gain
    fit: float
    spread: float  # standard deviation of tokens between the ranks of a step, share of their mean


def length_loss(work_RK: Floats, tokens_RK: Floats, cycle_K: Floats) -> LengthLoss | None:
    """The loss to uneven lengths; None where tokens were not observed on all of at least two ranks, or are even.

    A token's cost is the slope of a rank's work on its tokens, both against the step's mean over ranks: what slows all
    together cancels out.
    """
    if work_RK.shape[0] < 2 or not cycle_K.size or not np.isfinite(tokens_RK).all():
        return None
    mean_tokens = float(tokens_RK.mean())
    uneven_RK = tokens_RK - tokens_RK.mean(axis=0)
    spread = float(uneven_RK.std()) / mean_tokens if mean_tokens > 0 else 0.0
    if spread < MIN_SPREAD:
        return None
    late_RK = work_RK - work_RK.mean(axis=0)
    late_RK = np.clip(late_RK, *np.percentile(late_RK, STALL_PERCENTILES))
    together = float((late_RK * uneven_RK).sum())
    variances = float((late_RK**2).sum()) * float((uneven_RK**2).sum())
    fit = together**2 / variances if variances > 0 and together > 0 else 0.0
    token_s = max(together, 0.0) / float((uneven_RK**2).sum())
    even_K = (work_RK - token_s * uneven_RK).max(axis=0)
    return LengthLoss(gain(cycle_K, work_RK.max(axis=0) - even_K), fit, spread)
