"""Who or what slows a re-simulated step: a worker, the last stage, unequal lengths, or no single one.

In: an OpWhatIf.  Out: causes, the one that explains most first; empty when the job does not straggle.
Thresholds are the published study's: S > 1.1 straggles, half of the slowdown names a cause, correlation 0.9. A worker
slower than its peers in nearly every step is named below them, too, with what it costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.traces.op_graph import COMPUTE

if TYPE_CHECKING:
    from tuiadvisor.metrics.traces.op_what_if import OpWhatIf, Slower

STRAGGLING: Final = (
    1.1  # OSDI'25, as op_what_if: a job straggles whose step is a tenth longer than the ideal one
)
NAMES_A_CAUSE: Final = 0.5  # OSDI'25: what explains half of the slowdown
CORRELATED: Final = 0.9  # OSDI'25: forward and backward of one micro-batch, where its sequences are long
LEAST_GAIN: Final = 0.005  # of the step: chosen; less is hidden in the pipeline's idle time
UNEQUAL: Final = 0.05  # lengths that differ by less than this do not make a step 10 % longer


@dataclass(frozen=True, slots=True)
class Cause:
    """kind: worker, last_stage, sequence_length or spread. share: of the slowdown it explains, None unknown."""

    kind: str
    share: float | None
    ranks: tuple[int, ...]
    words: str
    loss_s: float | None = None  # a step, where the cause is one worker's


def causes(result: OpWhatIf) -> tuple[Cause, ...]:
    """Largest share first. One cause of kind `spread` when the job straggles and nothing explains half of it."""
    found = _of_half(result) if result.S > STRAGGLING else []
    named = {rank for cause in found if cause.kind == "worker" for rank in cause.ranks}
    slower = [_slower(one, result) for one in result.slower if one.rank not in named and _costs(one, result)]
    if not found and result.S > STRAGGLING:
        return (*slower, Cause("spread", None, (), _alone(result) or _spread(result)))
    return (*found, *slower)


def _costs(one: Slower, result: OpWhatIf) -> bool:
    return one.gain_s >= LEAST_GAIN * result.simulated_s


def _slower(one: Slower, result: OpWhatIf) -> Cause:
    words = (
        f"rank {one.rank} computes {one.ratio:.2f}x as long as the others of its stage, the slowest in "
        f"{one.num_slowest} of {one.num_steps} steps; it costs {one.gain_s / result.simulated_s:.1%} of the step"
    )
    excess = result.simulated_s - result.ideal_s
    return Cause("worker", one.gain_s / excess if excess > 0 else None, (one.rank,), words, one.gain_s)


def _of_half(result: OpWhatIf) -> list[Cause]:
    """Those that explain half of the slowdown."""
    found = []
    if _is_of_workers(result) and len(result.S_dp) > 1:
        ranks = result.fixed_workers
        who = (
            "rank " + ", ".join(map(str, ranks)) if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
        )
        found.append(Cause("worker", result.M_W, ranks, f"{who}: slower than all peers"))
    if result.M_S is not None and result.M_S >= NAMES_A_CAUSE and len(result.S_stage) > 1:
        last = max(result.S_stage)
        ranks = tuple(sorted(worker.rank for worker in result.S_w if worker.stage == last))
        words = f"the last pipeline stage ({last}) has more work than the others: move layers off it"
        found.append(Cause("last_stage", result.M_S, ranks, words))
    if (
        result.forward_backward_correlation is not None
        and result.forward_variation is not None
        and result.forward_backward_correlation >= CORRELATED
        and result.forward_variation >= UNEQUAL
        and result.M_L is not None
        and result.M_L >= NAMES_A_CAUSE
    ):
        words = "micro-batches differ in length, forward and backward alike: balance tokens between them"
        found.append(Cause("sequence_length", result.M_L, (), words))
    found.sort(key=lambda cause: -(cause.share or 0.0))
    return found


def _is_of_workers(result: OpWhatIf) -> bool:
    """Long communication may be a wait for a rank that nobody recorded: only computation names a worker."""
    return all(share is not None and share >= NAMES_A_CAUSE for share in (result.M_W, result.M_W_compute))


def _alone(result: OpWhatIf) -> str:
    """Without a second data-parallel rank a slow worker and a stage with more work look alike; "" elsewhere."""
    if len(result.S_dp) > 1 or not _is_of_workers(result):
        return ""
    ranks = result.fixed_workers
    stages = sorted({worker.stage for worker in result.S_w if worker.rank in ranks})
    return (
        f"stage {', '.join(map(str, stages))} (rank {', '.join(map(str, ranks))}) is slower than the others: by its "
        "device or by its share of the model, which one data-parallel rank alone does not tell; record another"
    )


def _spread(result: OpWhatIf) -> str:
    slowest = max(result.S_t, key=lambda optype: result.S_t[optype])
    if slowest not in COMPUTE:
        return (
            f"{slowest} takes longer than its median: a slow link, or a wait for a rank that was not recorded"
        )
    return "no single worker, stage or length explains half of it"
