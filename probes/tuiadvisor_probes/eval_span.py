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
_KEPT = (phases.CHECKPOINT, phases.EVAL)


class EvalSpan:
    """The evaluation under way, if any: end_ns is 0 when there is none."""

    __slots__ = (
        "begin_ns",
        "clock",
        "end_ns",
        "eval_mode_trains",
        "had_grad",
        "inside",
        "last_step",
        "num_forwards",
        "num_steps_in_a_row",
        "step",
        "totals",
    )

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock
        self.begin_ns = self.end_ns = self.num_forwards = self.num_steps_in_a_row = 0
        self.step = self.last_step = sc.UNKNOWN
        self.totals: list[int] = []
        self.inside = False  # the forward that runs now is one of ours
        self.had_grad = False
        self.eval_mode_trains = False

    def phase(self, *, grad_enabled: bool) -> int:
        """Phase of a forward that is not plain training."""
        if grad_enabled and self.eval_mode_trains:
            return phases.FORWARD
        self.inside = True
        self.had_grad = grad_enabled
        return phases.EVAL

    def after_forward(self, begin_ns: int, end_ns: int) -> None:
        """One evaluating forward is over; the time since the one before becomes evaluation too."""
        self.inside = False
        clock, before = self.clock, self.totals
        totals = list(clock.totals)
        if self.end_ns and self.step == clock.step:
            # A rollout has hundreds of them in a step: what has not moved is not touched, and nothing is asked twice.
            for phase, before_ns in enumerate(before):
                if totals[phase] != before_ns and phase not in _KEPT:
                    moved_ns, totals[phase] = totals[phase] - before_ns, before_ns
                    totals[phases.EVAL] += moved_ns
                    clock.move(moved_ns, phase, phases.EVAL)
        else:
            self.close()
            self.begin_ns, self.step, self.num_forwards = begin_ns, clock.step, 0
            self._flag()
            clock.settle_at_ns = 0  # the span ends with the step at the latest
        if not self.end_ns:
            clock.alert(sc.EVALUATING, True)
        self.end_ns = end_ns
        self.num_forwards += 1
        self.totals = totals

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
        if self.had_grad and self.num_forwards == 1 and self.step == self.clock.step:
            self.eval_mode_trains = True
            self.clock.move(self.end_ns - self.begin_ns, phases.EVAL, phases.FORWARD)
            self.clock.flags &= ~sc.FLAG_EVAL
            self.clock.said |= 1 << phases.FORWARD
            self.end_ns = 0
            self.clock.alert(sc.EVALUATING, False)
        else:
            self.close()

    def close(self) -> None:
        """Training goes on (or the step is over): write the span's event."""
        if self.end_ns and os.getpid() == self.clock.pid:
            unknown = sc.UNKNOWN
            self.clock.ring.put_event(
                KIND_EVAL,
                (self.step, self.begin_ns, self.end_ns, unknown, unknown, unknown, self.num_forwards),
            )
        self.end_ns = 0
        self.clock.alert(sc.EVALUATING, False)
