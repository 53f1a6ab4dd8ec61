"""Stacks of one thread as they were sampled, and the line of the training's own code each of them is at.

A sample counts for the innermost line of code that is not a library's: that is what its author can change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.sampling.code_line import CodeLine
from tuiadvisor.metrics.sampling.line_shares import LIMITS
from tuiadvisor.metrics.sampling.worker_loop import HANDS_OVER, IDLE, stage_of, within_loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.sampling.code_line import CodeFrame


GLUE: Final = ("c10d_logger.py",)  # torch's decorator around every collective says nothing of which it is


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples of one thread of a rank, or of one worker of its data loader."""

    rank: int
    pid: int
    is_worker: bool
    way: str  # py-spy | inside | "" where there are none
    stacks: tuple[tuple[CodeFrame, ...], ...]  # each once, innermost first
    samples: tuple[int, ...]  # indices of them, in the order of time
    native: tuple[str, ...]  # Python and C of one look, innermost first
    num_steps: int | None  # that ended within elapsed_s
    elapsed_s: float | None
    why: str  # what could not be had

    @property
    def step_s(self) -> float | None:
        """A step while it was looked at; None where too few passed."""
        if self.elapsed_s is None or self.num_steps is None or self.num_steps < LIMITS["least_steps"].value:
            return None
        return self.elapsed_s / self.num_steps

    def lines(self) -> list[CodeLine]:
        """Where each sample was; of a loader's worker those in which it had work."""
        at = [self._line(stack) for stack in self.stacks]
        is_idle = [self.is_worker and stage_of(stack) in {IDLE, HANDS_OVER} for stack in self.stacks]
        return [at[index] for index in self.samples if not is_idle[index]]

    def _line(self, stack: tuple[CodeFrame, ...]) -> CodeLine:
        # A worker that was forked has the frames of who forked it beneath its loop: nothing is done there.
        return line_of(within_loop(stack) if self.is_worker else stack)

    def called(self) -> dict[CodeLine, str]:
        """What each line was calling most often; "" where it was at work itself, or in C."""
        counts: dict[CodeLine, Counter[str]] = {}
        for index, number in Counter(self.samples).items():
            stack = within_loop(self.stacks[index]) if self.is_worker else self.stacks[index]
            called = [frame for frame in stack[: own_index(stack)] if not frame.file.endswith(GLUE)]
            below = called[-1].name if called else ""
            counts.setdefault(line_of(stack), Counter())[below] += number
        return {line: found.most_common(1)[0][0] for line, found in counts.items()}


def line_of(stack: Sequence[CodeFrame]) -> CodeLine:
    """The innermost line of the training's own code, else the innermost of all."""
    if not stack:
        return CodeLine("", 0, "")
    frame = stack[own_index(stack)]
    return CodeLine(frame.file, frame.line, frame.name)


def own_index(stack: Sequence[CodeFrame]) -> int:
    """Of the innermost frame of the training's own code; 0 where none is."""
    return next((index for index, frame in enumerate(stack) if frame.is_own), 0)
