"""All ranks wait for their next batch; whether that wait grows from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause, Loss, share_of
from tuiadvisor.metrics.steps.arrays import mean_or_none

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.views.run_view import Finding, RunView


def measure_job(diagnosis: Diagnosis, _facts: Facts) -> Values:
    """The data wait of the quarter of ranks that waits least."""
    data = diagnosis.input
    return {
        "data_wait_share": data.share if data else None,
        "data_wait_share_low": data.share_low if data else None,
        "data_wait_loss_s": data.gain.loss_s if data else None,
        "data_wait_since": diagnosis.input_since,
    }


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If no rank waited for data."""
    return diagnosis.input.gain if diagnosis.input is not None else None


def loss(diagnosis: Diagnosis) -> Loss | None:
    """Of every step, found or not."""
    return Loss("data_wait", diagnosis.input.gain.loss_s) if diagnosis.input is not None else None


def amount(finding: Finding, view: RunView) -> float | None:
    """The data wait of a run, whether or not it was worth a finding."""
    return None if finding.phase is None else view.step.seconds.get(finding.phase)


INPUT_BOUND: Final = Cause(
    rules=("input_bound",),
    metrics="""
job data_wait_share share of the step that even the quarter of ranks that waits least waits for its next batch
job data_wait_share_low share lower end of the interval of data_wait_share
job data_wait_loss_s s a step, gone if no rank waited for data
job data_wait_since steps job step since which the data wait has its level
""",
    measure_job=measure_job,
    gain=gain,
    loss=loss,
    amount=amount,
)


def measure_drift(diagnosis: Diagnosis, _facts: Facts) -> Values:
    """A wait that grows little by little."""
    drift = diagnosis.input_drift
    step_s = mean_or_none(diagnosis.steady_barrier.cycle_K)
    return {
        "data_wait_first_s": drift.first_s if drift else None,
        "data_wait_last_s": drift.last_s if drift else None,
        "data_wait_growth_share": share_of(drift.growth_s, step_s) if drift else None,
    }


LOADER_DECAYS: Final = Cause(
    rules=("loader_decays",),
    metrics="""
job data_wait_first_s s a step of data wait in the first eighth of the steady steps, where it grows steadily
job data_wait_last_s s the same in the last eighth
job data_wait_growth_share share of the step by which the data wait has grown between them
""",
    measure_job=measure_drift,
)
