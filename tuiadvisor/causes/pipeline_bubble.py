"""Too few micro-batches for so many stages: filling and draining the pipeline keeps its ranks idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause
from tuiadvisor.metrics.pipeline.pipeline_limits import SMALL_BUBBLE

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain


def measure_job(_diagnosis: Diagnosis, facts: Facts) -> Values:
    """All unknown, but zero ranks, for a job without stages."""
    pipelines = facts.pipelines
    limits = pipelines.shown if pipelines is not None else None
    values: Values = dict.fromkeys(
        (
            "pipeline_stages",
            "pipeline_micro_batches",
            "pipeline_bubble",
            "pipeline_ideal_bubble",
            "pipeline_fill_share",
            "pipeline_imbalance_share",
            "pipeline_delay_share",
            "pipeline_fill_loss_s",
            "pipeline_fill_loss_share",
            "pipeline_micro_batches_wanted",
        )
    )
    values["pipeline_ranks"] = 0 if pipelines is None else None
    if pipelines is None or limits is None:
        return values
    times, filled = limits.times, limits.fill_gain
    values.update(
        pipeline_ranks=len(times.ranks),
        pipeline_stages=len(times.stages),
        pipeline_micro_batches=times.num_micro_batches,
        pipeline_ideal_bubble=limits.ideal_bubble,
    )
    if pipelines.clocks_known:
        values.update(
            pipeline_bubble=limits.bubble,
            pipeline_fill_share=limits.fill_share,
            pipeline_imbalance_share=limits.imbalance_share,
            pipeline_delay_share=limits.delay_share,
            pipeline_fill_loss_s=filled.loss_s if filled else 0.0,
            pipeline_fill_loss_share=filled.loss_s / filled.step_s if filled else 0.0,
            pipeline_micro_batches_wanted=limits.micro_batches_for.get(SMALL_BUBBLE),
        )
    return values


def gain(_diagnosis: Diagnosis, facts: Facts) -> Gain | None:
    """With as many micro-batches as are wanted."""
    shown = facts.pipelines.shown if facts.pipelines is not None else None
    return shown.fill_gain if shown is not None else None


PIPELINE_BUBBLE: Final = Cause(
    rules=("pipeline_bubble",),
    metrics="""
job pipeline_ranks count ranks of a pipeline, 0 without one
job pipeline_stages count stages of a pipeline
job pipeline_micro_batches count micro-batches of a step
job pipeline_bubble share of a pipeline's rank-time that is idle: fill, imbalance and delay together
job pipeline_ideal_bubble share the same with equal stages and free sends
job pipeline_fill_share share of a pipeline's rank-time: filling and draining, stages taken as equal
job pipeline_imbalance_share share of a pipeline's rank-time: waiting for stages that take longer
job pipeline_delay_share share of a pipeline's rank-time: sends and whatever else lies between chunks
job pipeline_fill_loss_s s a step, gone with pipeline_micro_batches_wanted
job pipeline_fill_loss_share share of the step
job pipeline_micro_batches_wanted count micro-batches that bring filling and draining below a tenth
""",
    measure_job=measure_job,
    gain=gain,
    limits_by_finding=True,
    at_best=True,  # a micro-batch that does less work seldom takes as much less time
)
