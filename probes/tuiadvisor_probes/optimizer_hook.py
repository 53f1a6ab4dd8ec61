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
    from collections.abc import Callable

    from .guard import Hook
    from .install import Probe

KIND_SCALER_SKIP = 36
STEPS_BEFORE_ROOT_SEARCH = (
    2  # a DDP module shows itself in its first forward; only then search for another root
)
STEPS_UNTIL_LOOK = 8  # for a root that is no longer called


class OptimizerSteps:
    """Optimizer steps under way, each with its frame, so that one that raised is noticed and closed."""

    __slots__ = ("clock", "done_in", "looked_at", "next_look", "num_done", "open")

    def __init__(self, clock: sc.StepClock) -> None:
        self.clock = clock
        self.num_done = 0
        self.next_look = 0  # a step
        self.looked_at: set[int] = set()  # ids of optimizers
        self.done_in: dict[int, int] = {}  # id of the optimizer -> the clock's step it last finished in
        self.open: list[tuple[Any, int]] = []  # (frame of optimizer.step, depth of the clock's stack inside)

    def close_dead(self, frame: Any) -> None:
        """Drop steps whose frame is gone: they raised, and torch calls no post hook then. frame: of a new one."""
        alive = set()
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
    steps = OptimizerSteps(probe.clock)
    hook = probe.hook("optimizer")
    for register, callback in (
        (module.register_optimizer_step_pre_hook, _before(probe, steps, hook)),
        (module.register_optimizer_step_post_hook, _after(probe, steps, hook)),
    ):
        not_traced(callback)
        probe.registration(register(callback))
    probe.when_loaded("torch.amp.grad_scaler", "scaler", lambda module: _patch_scaler(probe, module, steps))


# The guard and the lines of the clock's `enter` and `leave` are inside of these two: each call more is cold.
def _before(probe: Probe, steps: OptimizerSteps, hook: Hook) -> Callable[..., None]:
    clock, span, under_way, done_in = probe.clock, probe.eval_span, steps.open, steps.done_in
    own, words = clock.own, clock.words

    def before(optimizer: Any, *_rest: Any) -> None:
        called_ns = monotonic_ns() if clock.measuring else 0
        if not hook.active or get_ident() != own[0] or not clock.active:
            return
        try:
            frame = sys._getframe(1)
            if span.end_ns:
                span.close()
            if under_way:
                steps.close_dead(frame)
            outer, depth, has_closed = clock.phase, clock.depth, False
            now = monotonic_ns()
            if clock.stepped and not depth and done_in.get(id(optimizer)) == clock.step:
                # Model and data run inside its closure and begin no iteration.
                clock.close_step(now)
                now, has_closed = monotonic_ns(), True
            if clock.active and depth < sc.MAX_DEPTH and not sc.ABSORBS[outer]:
                clock.totals[outer] += now - clock.since
                clock.outers[depth] = outer
                clock.depth = depth = depth + 1
                clock.phase = sc.OPTIMIZER
                clock.since = now
                clock.num_transitions += 2
                words[sc.NOW_PHASE] = sc.OPTIMIZER
                words[sc.NOW_SINCE] = now
                if clock.device is not None:
                    clock.device.begins(sc.OPTIMIZER, outer, now)
                under_way.append((frame, depth))
            else:
                under_way.append((frame, 0))
            if called_ns:
                clock.count_entry(monotonic_ns() - called_ns, under_way[-1][1] > 0, has_closed)
        except Exception as error:  # noqa: BLE001 - this is the guard
            hook.failed(error)

    return before


def _after(probe: Probe, steps: OptimizerSteps, hook: Hook) -> Callable[..., None]:
    clock, under_way, done_in = probe.clock, steps.open, steps.done_in
    own, words = clock.own, clock.words

    def after(optimizer: Any, *_rest: Any) -> None:
        now = monotonic_ns()
        if not hook.active or not clock.active:
            return
        try:
            if get_ident() != own[0]:
                if own[0] and clock.phase == sc.BACKWARD:
                    clock.stepped = True
                return
            done_in[id(optimizer)] = step = clock.step
            if under_way and under_way.pop()[1]:
                ended, depth = clock.phase, clock.depth
                clock.totals[ended] += now - clock.since
                clock.since = now
                outer = sc.OTHER
                if depth:
                    clock.depth = depth = depth - 1
                    outer = clock.outers[depth]
                clock.phase = outer
                words[sc.NOW_PHASE] = outer
                words[sc.NOW_SINCE] = now
                if clock.device is not None:
                    clock.device.ends(ended, outer, now)
                clock.observed |= 1 << sc.OPTIMIZER
            clock.stepped = True  # also where we were installed inside this very step
            steps.num_done += 1
            if clock.measuring:
                clock.count_exit(monotonic_ns() - now)
            if step >= steps.next_look or id(optimizer) not in steps.looked_at:
                _look(probe, steps, hook, optimizer)
        except Exception as error:  # noqa: BLE001 - this is the guard
            hook.failed(error)

    return after


def _look(probe: Probe, steps: OptimizerSteps, hook: Hook, optimizer: Any) -> None:
    """For the root of an optimizer, and once for the device."""
    if probe.clock.step >= STEPS_BEFORE_ROOT_SEARCH:
        steps.looked_at.add(id(optimizer))
        steps.next_look = probe.clock.step + STEPS_UNTIL_LOOK
        if not probe.has_wrapper and probe.roots.is_due(optimizer):
            probe.roots.search(optimizer)
    if probe.looks_for_device:
        probe.looks_for_device = False
        attempt(hook, look_for_device, probe, optimizer)


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
