"""The named metrics of rules on pipelines: of the job, and of each group of heavy stages.

In: Pipelines.  Out: values and subjects; names, units and meanings are those of tuiadvisor_rules.metric_names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.advisor.judge.evidence import LEVEL_SHIFT_EXPLAINED_STEPS, Subject, rank_words
from tuiadvisor.metrics.pipeline.pipeline_limits import SMALL_BUBBLE, typical

if TYPE_CHECKING:
    from tuiadvisor.advisor.judge.pipelines import Pipelines
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.pipeline.pipeline_limits import PipelineLimits

Values = dict[str, object]
WORDS = {
    "forward": "nearly all of it in forward",
    "backward": "nearly all of it in backward",
    None: "in forward and backward",
}


def pipeline_values(pipelines: Pipelines | None) -> Values:
    """Metrics of scope `job`; all unknown, but zero ranks, for a job without stages."""
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
    times, gain = limits.times, limits.fill_gain
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
            pipeline_fill_loss_s=gain.loss_s if gain else 0.0,
            pipeline_fill_loss_share=gain.loss_s / gain.step_s if gain else 0.0,
            pipeline_micro_batches_wanted=limits.micro_batches_for.get(SMALL_BUBBLE),
        )
    return values


def explains_shift(pipelines: Pipelines | None, since: object) -> bool:
    """Whether a stage became heavy just when the step became longer."""
    if pipelines is None or not isinstance(since, int):
        return False
    onsets = [limits.since_step for limits in pipelines.limits if limits.since_step is not None]
    return any(abs(onset - since) <= LEVEL_SHIFT_EXPLAINED_STEPS for onset in onsets)


def stage_subjects(diagnosis: Diagnosis, pipelines: Pipelines | None, job: Values) -> list[Subject]:
    """Heavy stages: one subject for those that are heavy in every pipeline, else one for each pipeline's own."""
    if pipelines is None:
        return []
    heavy = [limits for limits in pipelines.limits if limits.heavy_stages]
    if not heavy:
        return []
    same = len({frozenset(limits.heavy_stages) for limits in heavy}) == 1
    if same and len(heavy) == len(pipelines.limits):
        return [_subject(diagnosis, heavy, job, 1 if len(heavy) > 1 else None)]
    return [_subject(diagnosis, [limits], job, 0) for limits in heavy]


def _subject(
    diagnosis: Diagnosis, group: list[PipelineLimits], job: Values, is_partition: int | None
) -> Subject:
    slowest = group[0]  # pipelines come slowest first, and the slowest sets the pace
    times, gain = slowest.times, slowest.heavy_gain
    row = times.stages.index(slowest.heavy_stages[0])
    ranks = tuple(
        sorted(
            {
                limits.times.rank_S[limits.times.stages.index(stage)]
                for limits in group
                for stage in limits.heavy_stages
            }
        )
    )
    work_S = slowest.work_S
    since = slowest.since_step
    values: Values = {
        **job,
        "ranks": rank_words(ranks),
        "stages": _stage_words(slowest.heavy_stages),
        "phase": slowest.phase or "both",
        "phase_words": WORDS[slowest.phase],
        "loss_s": gain.loss_s if gain else None,
        "loss_share": gain.loss_s / gain.step_s if gain else None,
        "loss_share_low": gain.loss_low_s / gain.step_s if gain else None,
        "even_loss_s": slowest.even_s,
        "excess_s": float(work_S[row] - typical(work_S)),
        "excess_share": float(slowest.excess_S[row]),
        "hit_share": slowest.hit_share,
        "since": since,
        "since_words": f"since step {since}" if slowest.onset_seen else "from the first step compared on",
        "steps_seen": len(slowest.steps),
        "is_partition": is_partition,
    }
    host_of = dict(zip(diagnosis.table.ranks, diagnosis.table.hosts, strict=True))
    hosts = tuple(sorted({host_of[rank] for rank in ranks if rank in host_of}))
    details: dict[str, float | int | str | None] = {
        f"stage_{stage}_s": float(work_S[index]) for index, stage in enumerate(times.stages[:64])
    }
    details["onset_seen"] = int(slowest.onset_seen)
    if gain is not None:
        details["loss_low_s"], details["loss_high_s"] = gain.loss_low_s, gain.loss_high_s
    return Subject("stage", values, ranks, hosts, slowest.phase, gain, details)


def _stage_words(stages: tuple[int, ...]) -> str:
    return rank_words(tuple(sorted(stages))).replace("rank", "stage")
