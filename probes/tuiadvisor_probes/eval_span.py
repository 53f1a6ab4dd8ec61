"""Evaluation: forwards in eval mode or without gradients, and everything between them.

From the first such forward to the last one before training goes on, all time is `eval`: loading the evaluation's
batches and computing its scores belong to it. One EVAL event a span; detail: number of forwards.
An evaluation in every step (a rollout, a frozen teacher of the same model) is no interruption but part of the work:
from the fourth step in a row on, the steps are no longer flagged. Training in eval mode (frozen statistics) is
recognized by the backward that follows, and counts as forward from then on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import phases
from . import step_clock as sc

if TYPE_CHECKING:
    from .step_clock import StepClock

KIND_EVAL = 33
STEPS_UNTIL_USUAL = 3


class EvalSpan:
    """The evaluation under way, if any: end_ns is 0 when there is none.

    A rollout has hundreds of forwards in a step: those after the first are booked by `Books.evaluate`, and where the
    native core runs it sees them by itself, so what it moves is in the clock (`eval_step`, `eval_end_ns`,
    `num_evaluated`).
    """

    __slots__ = (
        "begin_ns",
        "clock",
        "eval_mode_trains",
        "had_grad",
        "inside",
        "last_step",
        "num_steps_in_a_row",
    )

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock
        self.begin_ns = self.num_steps_in_a_row = 0
        self.last_step = sc.UNKNOWN
        self.inside = False  # the forward that runs now is one of ours
        self.had_grad = False
        self.eval_mode_trains = False

    @property
    def end_ns(self) -> int:
        """When its latest forward ended."""
        return self.clock.eval_end_ns

    def phase(self, *, grad_enabled: bool) -> int:
        """Phase of a forward that is not plain training."""
        if grad_enabled and self.eval_mode_trains:
            self.close()
            return phases.FORWARD
        self.inside = True
        self.had_grad = grad_enabled
        return phases.EVAL

    def after_forward(self, begin_ns: int, end_ns: int) -> None:
        """One evaluating forward is over; the time since the one before becomes evaluation too."""
        self.inside = False
        clock = self.clock
        is_first = not clock.eval_end_ns or clock.eval_step != clock.step
        if is_first:
            self.close()
            self.begin_ns, clock.eval_step, clock.num_evaluated = begin_ns, clock.step, 0
            self._flag()
            clock.settle_at_ns = 0  # the span ends with the step at the latest
        clock.later(clock.books.evaluate, is_first)
        clock.eval_end_ns = end_ns
        clock.num_evaluated += 1
        if is_first:  # at last: a signal may come between any two of these
            clock.alert(sc.EVALUATING, True)

    def _flag(self) -> None:
        clock = self.clock
        if clock.step != self.last_step:
            follows = clock.step == self.last_step + 1
            self.num_steps_in_a_row = self.num_steps_in_a_row + 1 if follows else 1
            self.last_step = clock.step
        if self.num_steps_in_a_row <= STEPS_UNTIL_USUAL:
            clock.flags |= sc.FLAG_EVAL

    def before_backward(self) -> None:
        """A backward follows: if the forward kept gradients it was training in eval mode."""
        clock = self.clock
        if self.had_grad and clock.num_evaluated == 1 and clock.eval_step == clock.step:
            self.eval_mode_trains = True
            clock.move(clock.eval_end_ns - self.begin_ns, phases.EVAL, phases.FORWARD)
            clock.flags &= ~sc.FLAG_EVAL
            clock.said |= 1 << phases.FORWARD
            clock.eval_end_ns = 0
            clock.alert(sc.EVALUATING, False)
        else:
            self.close()

    def close(self) -> None:
        """Training goes on (or the step is over): write the span's event."""
        clock = self.clock
        if clock.eval_end_ns and os.getpid() == clock.pid:
            told = clock.eval_step, self.begin_ns, clock.eval_end_ns
            clock.ring.put_event(KIND_EVAL, (*told, *[sc.UNKNOWN] * 3, clock.num_evaluated))
        clock.eval_end_ns = 0
        clock.alert(sc.EVALUATING, False)
