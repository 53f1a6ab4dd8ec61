"""What a data loader's worker is at, by its stack: the dataset, collate, handing over, or waiting for work.

In: one stack, innermost frame first.  Out: its stage, the frames of its loop. The frames are those of torch's own
worker loop; a worker that runs another one is at no stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.sampling.code_line import CodeFrame

DATASET, COLLATE, HANDS_OVER, IDLE = "in the dataset", "in collate", "handing over", "waiting for work"
FETCH_FILE, LOOP_FILE = "_utils/fetch.py", "_utils/worker.py"
# What torch's fetcher calls of a dataset; whatever else it calls is the collate function.
OF_DATASET: Final = frozenset({"__getitem__", "__getitems__", "__next__", "<listcomp>"})
OF_QUEUE: Final = {"get": IDLE, "put": HANDS_OVER}


def stage_of(stack: Sequence[CodeFrame]) -> str:
    """Of one stack; empty where it is in none."""
    for place, frame in enumerate(stack):
        inner = _function(stack[place - 1]) if place else ""
        if frame.file == FETCH_FILE and _function(frame) == "fetch":
            return DATASET if not inner or inner in OF_DATASET else COLLATE
        if frame.file == LOOP_FILE and _function(frame) == "_worker_loop":
            return OF_QUEUE.get(inner, "")
    return ""


def within_loop(stack: tuple[CodeFrame, ...]) -> tuple[CodeFrame, ...]:
    """The frames of a worker up to its loop; all of them where it has none of torch's."""
    loop = next(
        (
            place
            for place, frame in enumerate(stack)
            if frame.file == LOOP_FILE and _function(frame) == "_worker_loop"
        ),
        len(stack),
    )
    return stack[: loop + 1]


def _function(frame: CodeFrame) -> str:
    return frame.name.rpartition(".")[2]
