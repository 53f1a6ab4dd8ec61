"""What a rank is at where it was sampled: its data loader, a collective that it waits for, or code of its own.

In: sampled stacks of a training thread, innermost frame first.  Out: one kind a line. By the files of torch's own
loader and collectives; a thread within backward may compute or wait for its peers there, in C++, and is of no kind.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.sampling.sampled import line_of, own_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.sampling.code_line import CodeFrame, CodeLine
    from tuiadvisor.metrics.sampling.sampled import Sampled

LOADER, COLLECTIVE, OWN_CODE = "loader", "collective", "own code"
LOADER_FILES: Final = ("data/dataloader.py", "_utils/fetch.py", "_utils/pin_memory.py")
COLLECTIVE_FILES: Final = ("distributed_c10d.py", "_functional_collectives.py")
BACKWARD_FILES: Final = ("torch/_tensor.py", "autograd/graph.py", "autograd/__init__.py")


def line_kinds(sampled: Sampled) -> dict[CodeLine, str]:
    """Of each line the kind of most of its samples."""
    counts: dict[CodeLine, Counter[str]] = {}
    for index, number in Counter(sampled.samples).items():
        stack = sampled.stacks[index]
        counts.setdefault(line_of(stack), Counter())[kind_of(stack)] += number
    return {line: found.most_common(1)[0][0] for line, found in counts.items()}


def kind_of(stack: Sequence[CodeFrame]) -> str:
    """Of one stack; empty where it tells none.

    A loader calls the training's own dataset, so its frames may lie around the line too; a collective only below it.
    """
    if not stack:
        return ""
    below = stack[: own_index(stack)]
    if _any_of(stack, LOADER_FILES):
        return LOADER
    if _any_of(below, COLLECTIVE_FILES):
        return COLLECTIVE
    return "" if _any_of(below, BACKWARD_FILES) else OWN_CODE


def _any_of(frames: Sequence[CodeFrame], files: tuple[str, ...]) -> bool:
    return any(frame.file.endswith(files) for frame in frames if not frame.is_own)
