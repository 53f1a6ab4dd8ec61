"""A step of a pipeline as a chart: a row a rank, a cell a moment; letter and number say what colour says.

In: chunks with begin and end as shares of the step.  Out: spans of exactly the asked width.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.text.line import Span
    from tuiadvisor.views.pipeline import PipelineChunk

IDLE = "."
SAME = "="  # the chunk goes on
ROLES = {"F": "phase:forward", "B": "phase:backward", "W": "phase:optimizer"}
NAMES = {"F": "forward", "B": "backward", "W": "weight gradients"}


def gantt_row(chunks: Sequence[PipelineChunk], width: int, *, with_stage: bool = False) -> list[Span]:
    """Return one rank's row; a cell shows what ran at its middle. with_stage: several stages on this rank."""
    cells = [_at((cell + 0.5) / width, chunks) for cell in range(width)]
    pieces: list[tuple[str, str]] = []
    for index, group in groupby(cells):
        size = len(list(group))
        if index < 0:
            pieces.append(("dim", IDLE * size))
        else:
            chunk = chunks[index]
            pieces.append((ROLES[chunk.kind], _label(chunk, size, with_stage=with_stage)))
    return [("".join(text for _, text in group), role) for role, group in groupby(pieces, key=itemgetter(0))]


def _at(moment: float, chunks: Sequence[PipelineChunk]) -> int:
    """Index of the chunk that runs at a moment, -1 where none does."""
    return next((place for place, one in enumerate(chunks) if one.begin <= moment < one.end), -1)


def _label(chunk: PipelineChunk, size: int, *, with_stage: bool) -> str:
    """F12, with the stage F12/5 where there is room for it; a letter alone in a single cell."""
    long = f"{chunk.kind}{chunk.micro_batch}/{chunk.stage}" if with_stage else ""
    short = f"{chunk.kind}{chunk.micro_batch}"
    text = next((one for one in (long, short, chunk.kind) if one and len(one) <= size), chunk.kind)
    return text.ljust(size, SAME)
