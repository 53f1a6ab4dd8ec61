"""What a data loader's worker is at, by its stack: the dataset, collate, handing over, or waiting for work.

In: sampled stacks of workers, innermost frame first.  Out: share of the samples by stage. The frames are those of
torch's own worker loop; a worker that runs another one is told of as nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.sampling.code_line import CodeFrame
    from tuiadvisor.metrics.sampling.sampled import Sampled

DATASET, COLLATE, HANDS_OVER, IDLE = "in the dataset", "in collate", "handing over", "waiting for work"
FETCH_FILE, LOOP_FILE = "_utils/fetch.py", "_utils/worker.py"
# What torch's fetcher calls of a dataset; whatever else it calls is the collate function.
OF_DATASET: Final = frozenset({"__getitem__", "__getitems__", "__next__", "<listcomp>"})
OF_QUEUE: Final = {"get": IDLE, "put": HANDS_OVER}


def worker_stages(workers: Sequence[Sampled]) -> dict[str, float]:
    """Share of all samples by stage, the largest first; what is at none of them is left out."""
    counts: Counter[str] = Counter()
    num = 0
    for worker in workers:
        at = [stage_of(stack) for stack in worker.stacks]
        counts.update(at[index] for index in worker.samples)
        num += len(worker.samples)
    return {stage: count / num for stage, count in counts.most_common() if stage}


def stage_of(stack: Sequence[CodeFrame]) -> str:
    """Of one stack; empty where it is in none."""
    for place, frame in enumerate(stack):
        inner = _function(stack[place - 1]) if place else ""
        if frame.file == FETCH_FILE and _function(frame) == "fetch":
            return DATASET if not inner or inner in OF_DATASET else COLLATE
        if frame.file == LOOP_FILE and _function(frame) == "_worker_loop":
            return OF_QUEUE.get(inner, "")
    return ""


def _function(frame: CodeFrame) -> str:
    return frame.name.rpartition(".")[2]
