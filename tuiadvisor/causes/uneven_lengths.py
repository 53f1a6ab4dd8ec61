"""Batches of different lengths: the rank with most tokens arrives last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain

EXPLAINED_BY_TOKENS: Final = (
    0.5  # of the variance, as in rules/catalog/uneven_lengths.toml: then that is the finding
)


def explains(diagnosis: Diagnosis) -> bool:
    """Whether tokens explain who is late."""
    return diagnosis.lengths is not None and diagnosis.lengths.fit >= EXPLAINED_BY_TOKENS


def measure_job(diagnosis: Diagnosis, _facts: Facts) -> Values:
    """How well tokens explain the lateness, and what that costs."""
    found = diagnosis.lengths
    if found is None:
        names = ("length_fit", "length_spread", "length_loss_s", "length_loss_share", "length_loss_share_low")
        return dict.fromkeys(names)
    return {
        "length_fit": found.fit,
        "length_spread": found.spread,
        "length_loss_s": found.gain.loss_s,
        "length_loss_share": found.gain.loss_s / found.gain.step_s,
        "length_loss_share_low": found.gain.loss_low_s / found.gain.step_s,
    }


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If every step's tokens were spread evenly."""
    return diagnosis.lengths.gain if diagnosis.lengths is not None else None


UNEVEN_LENGTHS: Final = Cause(
    rules=("uneven_lengths",),
    metrics="""
job length_fit share of the variance of the ranks' lateness that the tokens of their batches explain
job length_spread share by which tokens differ between the ranks of a step: standard deviation, of the mean
job length_loss_s s a step, gone if every step's tokens were spread evenly over the ranks
job length_loss_share share of the step
job length_loss_share_low share lower end of its interval
""",
    measure_job=measure_job,
    gain=gain,
)
