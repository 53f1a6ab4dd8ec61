"""All ranks write a checkpoint in (nearly) every step, so that it is no pause but a part of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause, Loss

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain


def measure_job(diagnosis: Diagnosis, _facts: Facts) -> Values:
    """The checkpoints of the quarter of ranks that spends least on them; one rank's own make it a straggler."""
    found = diagnosis.checkpoint
    return {
        "checkpoint_share": found.share if found else None,
        "checkpoint_share_low": found.share_low if found else None,
        "checkpoint_loss_s": found.gain.loss_s if found else None,
    }


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If no rank wrote any."""
    return diagnosis.checkpoint.gain if diagnosis.checkpoint is not None else None


def loss(diagnosis: Diagnosis) -> Loss | None:
    """Of every step, found or not."""
    return Loss("checkpoint", diagnosis.checkpoint.gain.loss_s) if diagnosis.checkpoint is not None else None


CHECKPOINT_IN_STEP: Final = Cause(
    rules=("checkpoint_in_step",),
    metrics="""
job checkpoint_share share of the step in which even the quarter of ranks that spends least writes a checkpoint
job checkpoint_share_low share lower end of the interval of checkpoint_share
job checkpoint_loss_s s a step, gone if no rank wrote one
""",
    measure_job=measure_job,
    gain=gain,
    loss=loss,
)
