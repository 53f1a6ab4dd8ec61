"""Whether all that pipelines on devices take is their stages' work, alike on all, and the schedule's own bubble.

Each device times its chunks by a clock of its own. How chunks lie to each other is not known, but what a step takes is,
and what it would take if all stages were equal and sends were free. Where little is left beyond that, no stage, link,
thread or replica can cost much: whatever made ranks wait would lie in that rest. What lies within the chunks of all
stages alike is not seen by it: so chunks in which ranks meet, or in which the device may have waited for launches,
decide nothing.
In: PipelineLimits of each pipeline looked at, their chunks as the devices timed them.  Out: StageAccount, seconds a
step and shares. Source: the step of equal stages is What-if analysis's (OSDI'25).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.pipeline.pipeline_balance import unhidden_R
from tuiadvisor.metrics.pipeline.pipeline_limits import HEAVY_EXCESS, MAX_UNHIDDEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.metrics.pipeline.pipeline_balance import PipelineEvents
    from tuiadvisor.metrics.pipeline.pipeline_limits import PipelineLimits
    from tuiadvisor.metrics.steps.arrays import Floats

ALIKE: Final = (
    HEAVY_EXCESS / 2
)  # of the lightest stage's work: what half of a heavy stage's excess could not hide in
MAX_REST: Final = 0.05  # of the step: as rule heavy_stage, from where a loss is worth a warning
NUM_ERRORS: Final = 2.0  # standard errors that a stage's mean may be off


@dataclass(frozen=True, slots=True)
class StageAccount:
    """Seconds of the mean step, of the pipeline with the largest rest."""

    step_s: float
    between_s: float  # within its span beyond that of equal stages: sends, launches, stages that differ
    around_s: (
        float  # before its first chunk and after its last but the lightest optimizer: data, exchange, threads
    )
    uneven_share: float  # at most, by which a stage of any pipeline takes longer than the lightest
    stage: int  # that one
    rank: int  # and who holds it
    unhidden_share: float  # of its work, at most, that a rank's device waited for launches within chunks
    unhidden_rank: int

    @property
    def is_launch_bound(self) -> bool:
        """Whether what chunks took may be what launching them took."""
        return self.unhidden_share > MAX_UNHIDDEN

    @property
    def rest_s(self) -> float:
        """Neither work of equal stages nor the schedule's bubble nor the optimizer."""
        return self.between_s + self.around_s


def stage_account(
    looked_at: Sequence[tuple[PipelineLimits, PipelineEvents]], optimizer_s_R: Mapping[int, Floats]
) -> StageAccount | None:
    """None where a pipeline's order could not be simulated, or nothing tells how far a device was behind its thread.

    looked_at: limits and chunks of each pipeline. optimizer_s_R: by rank, its optimizer's seconds in steady steps.
    """
    if not looked_at:
        return None
    stages, shares, rests = [], [], []
    # The lightest one, as of stages: what others take longer for is no work that all have.
    optimizer_s = min(
        (float(seconds.mean()) for seconds in optimizer_s_R.values() if seconds.size), default=0.0
    )
    for limits, events in looked_at:
        if limits.equal_span_s is None or events.behind_ns is None:
            return None
        work_SK = limits.forward_s_SK + limits.backward_s_SK
        error_S = NUM_ERRORS * work_SK.std(axis=1) / max(work_SK.shape[1], 1) ** 0.5
        stages += list(
            zip(
                work_SK.mean(axis=1).tolist(),
                error_S.tolist(),
                limits.times.stages,
                limits.times.rank_S,
                strict=True,
            )
        )
        ranks = limits.times.ranks
        shares += list(zip(unhidden_R(events, ranks).tolist(), ranks, strict=True))
        span_s = float(limits.span_mean_s)
        rests.append((limits.step_s, span_s - limits.equal_span_s, limits.step_s - span_s - optimizer_s))
    least = min(stages)
    most = max(stages)
    unhidden_share, unhidden_rank = max(shares)
    step_s, between_s, around_s = max(rests, key=lambda entry: (entry[1] + entry[2]) / entry[0])
    return StageAccount(
        step_s=step_s,
        between_s=between_s,
        around_s=around_s,
        uneven_share=(most[0] + most[1] + least[1]) / least[0] - 1 if least[0] > 0 else np.inf,
        stage=most[2],
        rank=most[3],
        unhidden_share=unhidden_share,
        unhidden_rank=unhidden_rank,
    )
