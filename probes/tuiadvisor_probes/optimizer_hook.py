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
from .guard import attempt, not_traced, timed

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

    def begin(self, optimizer: Any, frame: Any) -> int:
        """optimizer.step, whose frame that is, has been entered; for count_entry: when, or when a step was closed."""
        clock = self.clock
        if self.open:
            self._close_dead()
        closed_ns = 0
        if clock.stepped and not clock.depth and self.done_in.get(id(optimizer)) == clock.step:
            # Model and data run inside its closure and begin no iteration.
            closed_ns = clock.close_step(monotonic_ns())
        begin_ns = clock.enter(sc.OPTIMIZER)
        self.open.append((frame, clock.depth if begin_ns else 0))
        return closed_ns or begin_ns

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
            while depth and clock.depth >= depth:
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

    # The guard is inside of these two: a frame less.
    def before(optimizer: Any, *_rest: Any) -> None:
        if not hook.active or get_ident() != own[0] or not clock.active:
            return
        try:
            called_ns = monotonic_ns() if clock.measuring else 0
            if span.end_ns:
                span.close()
            begin_ns = steps.begin(optimizer, sys._getframe(1))
            if called_ns:
                clock.count_entry(monotonic_ns() - called_ns, begin_ns)
        except Exception as error:  # noqa: BLE001 - this is the guard
            hook.failed(error)

    def after(optimizer: Any, *_rest: Any) -> None:
        if not hook.active or not clock.active:
            return
        try:
            if get_ident() != own[0]:
                if own[0] and clock.phase == sc.BACKWARD:
                    clock.stepped = True
                return
            called_ns = monotonic_ns() if clock.measuring else 0
            steps.end(optimizer)
            if called_ns:
                clock.count_exit(monotonic_ns() - called_ns)
            if (
                clock.step >= STEPS_BEFORE_ROOT_SEARCH
                and (clock.step >= roots.next_search or id(optimizer) not in roots.searched)
                and not probe.has_wrapper
                and roots.is_due(optimizer)
            ):
                roots.search(optimizer)
            if probe.looks_for_device:
                probe.looks_for_device = False
                attempt(hook, look_for_device, probe, optimizer)
        except Exception as error:  # noqa: BLE001 - this is the guard
            hook.failed(error)

    for register, callback in (
        (module.register_optimizer_step_pre_hook, before),
        (module.register_optimizer_step_post_hook, after),
    ):
        not_traced(callback)
        probe.registration(register(callback))
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
