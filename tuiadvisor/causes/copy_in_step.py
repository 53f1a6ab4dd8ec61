"""All ranks' devices wait between their batch and forward: it is copied, or the thread that has it still prepares it.

The device's clock does not tell the two apart, and a host's clock tells nothing of either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause, Loss

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.views.run_view import Finding, RunView


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """The copies of the quarter of ranks that spends least on them; one rank's own make it a straggler."""
    found = diagnosis.copies if facts.device is not None else None
    return {
        "copy_share": found.share if found else None,
        "copy_share_low": found.share_low if found else None,
        "copy_loss_s": found.gain.loss_s if found else None,
    }


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If the copies ran beside the step before: what that cannot hide is not known, so it is the most."""
    return diagnosis.copies.gain if diagnosis.copies is not None else None


def loss(diagnosis: Diagnosis) -> Loss | None:
    """Of every step, found or not."""
    return Loss("h2d", diagnosis.copies.gain.loss_s) if diagnosis.copies is not None else None


def amount(_finding: Finding, view: RunView) -> float | None:
    """The copies of a run, whether or not they were worth a finding."""
    return view.step.seconds.get("h2d")


COPY_IN_STEP: Final = Cause(
    rules=("copy_in_step",),
    metrics="""
job copy_share share of the step in which even the quarter of ranks that spends least copies its batch to the device
job copy_share_low share lower end of the interval of copy_share
job copy_loss_s s a step, gone if no device waited for its batch to be copied
""",
    measure_job=measure_job,
    gain=gain,
    loss=loss,
    counts_once_found=True,
    at_best=True,  # what the step before cannot hide is not known
    amount=amount,
)
