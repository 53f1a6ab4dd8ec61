"""Optimizer step: torch's own global pre and post hooks, which fire for optimizers that exist already; GradScaler.

The post hook marks that a step of work is done; the step is closed by the next data, forward or backward event, so
several optimizers in one iteration make one step, and a closure's forwards and backwards keep their own phases. A
step that GradScaler skips (infinite gradients) ends the step of work too, marked SCALER_SKIP. Not seen: an optimizer
that is no torch.optim.Optimizer, a skip inside a fused optimizer, and steps taken by a thread of autograd's
(they end the step, their time stays in backward).
"""

from __future__ import annotations

import os
import sys
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from . import step_clock as sc
from .device_times import look_for_device
from .guard import attempt, guarded_callback, timed

if TYPE_CHECKING:
    from .install import Probe

KIND_SCALER_SKIP = 36
STEPS_BEFORE_ROOT_SEARCH = (
    2  # a DDP module shows itself in its first forward; only then search for another root
)


class OptimizerSteps:
    """Optimizer steps under way, each with its frame, so that one that raised is noticed and closed."""

    __slots__ = ("clock", "done_in", "num_done", "open")

    def __init__(self, clock: sc.StepClock) -> None:
        self.clock = clock
        self.num_done = 0
        self.done_in: dict[int, int] = {}  # id of the optimizer -> the clock's step it last finished in
        self.open: list[tuple[Any, int]] = []  # (frame of optimizer.step, depth of the clock's stack inside)

    def begin(self, optimizer: Any) -> None:
        """optimizer.step has been entered."""
        clock = self.clock
        if self.open:
            self._close_dead()
        if clock.stepped and not clock.stack and self.done_in.get(id(optimizer)) == clock.step:
            clock.close_step(monotonic_ns())  # model and data run inside its closure and begin no iteration
        depth = len(clock.stack) if clock.enter(sc.OPTIMIZER) else 0
        self.open.append((sys._getframe(3), depth))

    def end(self, optimizer: Any) -> None:
        """optimizer.step returns."""
        clock = self.clock
        self.num_done += 1
        self.done_in[id(optimizer)] = clock.step
        if self.open and self.open.pop()[1]:
            clock.leave()
            clock.observed |= 1 << sc.OPTIMIZER
        clock.stepped = True  # also where we were installed inside this very step

    def _close_dead(self) -> None:
        """Drop steps whose frame is gone: they raised, and torch calls no post hook then."""
        alive = set()
        frame: Any = sys._getframe(3)
        while frame is not None:
            alive.add(frame)
            frame = frame.f_back
        clock = self.clock
        while self.open and self.open[-1][0] not in alive:
            depth = self.open.pop()[1]
            while depth and len(clock.stack) >= depth:
                clock.leave()


def install(probe: Probe) -> None:
    """Register the two global hooks; older torch without them leaves steps unobserved."""
    module = sys.modules.get("torch.optim.optimizer")
    if module is None or not hasattr(module, "register_optimizer_step_pre_hook"):
        probe.absent("optimizer", "torch.optim has no global step hooks (torch < 2.0)")
        return
    clock = probe.clock
    own = clock.own
    steps = OptimizerSteps(clock)
    hook = probe.hook("optimizer")
    span, roots = probe.eval_span, probe.roots

    def before(optimizer: Any, *_rest: Any) -> None:
        if get_ident() == own[0] and clock.active:
            if span.end_ns:
                span.close()
            steps.begin(optimizer)

    def after(optimizer: Any, *_rest: Any) -> None:
        if not clock.active:
            return
        if get_ident() != own[0]:
            if own[0] and clock.phase == sc.BACKWARD:
                clock.stepped = True
            return
        steps.end(optimizer)
        if probe.looks_for_device:
            probe.looks_for_device = False
            attempt(hook, look_for_device, probe, optimizer)
        if clock.step >= STEPS_BEFORE_ROOT_SEARCH and not probe.has_wrapper and roots.is_due(optimizer):
            roots.search(optimizer)

    probe.registration(module.register_optimizer_step_pre_hook(guarded_callback(hook, before)))
    probe.registration(module.register_optimizer_step_post_hook(guarded_callback(hook, after)))
    probe.when_loaded("torch.amp.grad_scaler", "scaler", lambda module: _patch_scaler(probe, module, steps))


def _patch_scaler(probe: Probe, module: Any, steps: OptimizerSteps) -> None:
    clock = probe.clock
    hook = probe.hook("scaler")
    done_before = [0]

    def phase(args: tuple[Any, ...]) -> int:
        done_before[0] = steps.num_done
        return sc.OPTIMIZER if args[0]._enabled else -1

    def after(_begin_ns: int, _end_ns: int, _args: tuple[Any, ...], result: Any) -> None:
        # The scaler asked for the infinities itself; that its optimizer did not step is all we look at.
        if steps.num_done == done_before[0] and result is None:
            skipped(probe)

    scaler = module.GradScaler
    probe.patch(scaler, "step", lambda original: timed(original, hook, clock, phase, after))
    for name in ("unscale_", "update"):
        probe.patch(scaler, name, lambda original: timed(original, hook, clock, sc.OPTIMIZER))


def skipped(probe: Probe) -> None:
    """A step of work ended without its update."""
    clock = probe.clock
    clock.flags |= sc.FLAG_SCALER_SKIP
    clock.stepped = True
    if os.getpid() == clock.pid:
        now, unknown = monotonic_ns(), sc.UNKNOWN
        probe.ring.put_event(KIND_SCALER_SKIP, (clock.step, now, now, unknown, unknown, unknown, unknown))
