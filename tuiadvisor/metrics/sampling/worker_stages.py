"""What the workers of a data loader are at, by their stacks.

In: sampled stacks of workers.  Out: share of the samples by stage.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tuiadvisor.metrics.sampling.worker_loop import stage_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.sampling.sampled import Sampled


def worker_stages(workers: Sequence[Sampled]) -> dict[str, float]:
    """Share of all samples by stage, the largest first; what is at none of them is left out."""
    counts: Counter[str] = Counter()
    num = 0
    for worker in workers:
        at = [stage_of(stack) for stack in worker.stacks]
        counts.update(at[index] for index in worker.samples)
        num += len(worker.samples)
    return {stage: count / num for stage, count in counts.most_common() if stage}
