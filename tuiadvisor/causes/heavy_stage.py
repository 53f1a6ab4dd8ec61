"""A pipeline waits for a stage that takes longer than the others.

A stage that holds more work can but share it: no step becomes as short as if the others were the whole model. Only a
slow rank that is mended takes as long as the others, so that is the upper end of what is promised, and all of it where
the same stage takes less in another pipeline.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.before_window import since_before
from tuiadvisor.causes.cause import Cause, Details, Measured, rank_words
from tuiadvisor.metrics.pipeline.pipeline_limits import typical
from tuiadvisor.metrics.series.what_if import part_of

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.pipeline.pipeline_limits import PipelineLimits
    from tuiadvisor.metrics.series.what_if import Gain

WORDS: Final = {
    "forward": "nearly all of it in forward",
    "backward": "nearly all of it in backward",
    None: "in forward and backward",
}


def measure(diagnosis: Diagnosis, facts: Facts, job: Values) -> list[Measured]:
    """Heavy stages: one subject for those that are heavy in every pipeline, else one for each pipeline's own."""
    pipelines = facts.pipelines
    if pipelines is None:
        return []
    heavy = [limits for limits in pipelines.limits if limits.heavy_stages]
    if not heavy:
        return []
    same = len({frozenset(limits.heavy_stages) for limits in heavy}) == 1
    if same and len(heavy) == len(pipelines.limits):
        return [_measured(diagnosis, facts, heavy, job, 1 if len(heavy) > 1 else None)]
    return [_measured(diagnosis, facts, [limits], job, 0) for limits in heavy]


def _measured(
    diagnosis: Diagnosis, facts: Facts, group: list[PipelineLimits], job: Values, is_partition: int | None
) -> Measured:
    slowest = group[0]  # pipelines come slowest first, and the slowest sets the pace
    times = slowest.times
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
    host_of = dict(zip(diagnosis.table.ranks, diagnosis.table.hosts, strict=True))
    hosts = tuple(sorted({host_of[rank] for rank in ranks if rank in host_of}))
    is_work = is_partition == 1 and not _has_host_alone(hosts, ranks, host_of)
    gain, at_pace = _gains(slowest, is_partition, is_work=is_work)
    values: Values = {
        **job,
        "ranks": rank_words(ranks),
        "stages": _stage_words(slowest.heavy_stages),
        "phase": slowest.phase or "both",
        "phase_words": WORDS[slowest.phase],
        "loss_s": gain.loss_s if gain else None,
        "loss_share": gain.loss_s / gain.step_s if gain else None,
        "loss_share_low": gain.loss_low_s / gain.step_s if gain else None,
        "pace_loss_s": at_pace.loss_s if at_pace else None,
        "pace_loss_share": at_pace.loss_s / at_pace.step_s if at_pace else None,
        "pace_loss_share_low": at_pace.loss_low_s / at_pace.step_s if at_pace else None,
        "even_loss_s": slowest.even_s,
        "excess_s": float(work_S[row] - typical(work_S)),
        "excess_share": float(slowest.excess_S[row]),
        "hit_share": slowest.hit_share,
        "since": since,
        "since_words": f"since step {since:,}" if slowest.onset_seen else since_before(facts, gain),
        "steps_seen": len(slowest.steps),
        "is_partition": is_partition,
        "is_work": int(is_work),
    }
    details: Details = {
        f"stage_{stage}_s": float(work_S[index]) for index, stage in enumerate(times.stages[:64])
    }
    details["onset_seen"] = int(slowest.onset_seen)
    if gain is not None:
        details["loss_low_s"], details["loss_high_s"] = gain.loss_low_s, gain.loss_high_s
    is_open = not is_work and is_partition != 0
    return Measured(
        "stage",
        values,
        ranks,
        hosts,
        slowest.phase,
        gain,
        details,
        cure="" if is_partition == 0 else "with its work spread evenly",
        above="if it is not its work but its rank that is slow" if is_open else "",
    )


def _has_host_alone(hosts: tuple[str, ...], ranks: tuple[int, ...], host_of: dict[int, str]) -> bool:
    """Whether the ranks have one host among several for themselves: that may be what is slow."""
    if len(hosts) != 1:
        return not hosts
    on_it = {rank for rank, host in host_of.items() if host == hosts[0]}
    return on_it <= set(ranks)


def _gains(
    slowest: PipelineLimits, is_partition: int | None, *, is_work: bool
) -> tuple[Gain | None, Gain | None]:
    """(what is promised, what the others' pace would bring): by the latter it is judged how heavy the stage is."""
    pace = slowest.heavy_gain
    if pace is None or slowest.even_s is None or is_partition == 0:
        return pace, pace
    even = part_of(pace, slowest.even_s / pace.loss_s if pace.loss_s > 0 else 0.0)
    if is_work:
        return even, pace
    return replace(even, loss_high_s=pace.loss_high_s, speedup_high=pace.speedup_high), pace


def _stage_words(stages: tuple[int, ...]) -> str:
    return rank_words(tuple(sorted(stages))).replace("rank", "stage")


HEAVY_STAGE: Final = Cause(
    rules=("heavy_stage",),
    metrics="""
stage ranks text ranks that hold the heavy stages, e.g. "rank 2"
stage stages text heavy stages, e.g. "stage 2"
stage phase text forward or backward where most of the excess lies in one of them, else "both"
stage phase_words text the same in plain words
stage loss_s s a step, gone with its work spread evenly; of a rank that is slow, once it takes as long as the others
stage loss_share share of the step
stage loss_share_low share lower end of its interval
stage pace_loss_s s a step, gone if the stage took as long as the others; had only where its rank is slow
stage pace_loss_share share of the step
stage pace_loss_share_low share lower end of its interval
stage even_loss_s s a step, gone if the same work were spread evenly over the stages
stage excess_s s a step by which the stage takes longer than the typical one
stage excess_share share its excess as a share of the typical stage's time
stage hit_share share of the steps in which it is the heavy one
stage since steps job step since which it is
stage since_words text "since step 57" or "since the first step compared (steps are 26 % longer since ...)"
stage steps_seen steps whole steady steps compared
stage is_work flag 1 if it is the stage's work that is heavy and no slow rank or host may be, else 0
stage is_partition flag 1 if it is heavy in every pipeline of the job, 0 if only in some, unknown with one pipeline
""",
    scope="stage",
    measure=measure,
    in_stage_waits=True,
    limits_by_finding=True,
)
