"""Optimizer step: torch's own global pre and post hooks, which fire for optimizers that exist already; GradScaler.

The post hook marks that a step of work is done; the step is closed by the next data, forward or backward event, so
several optimizers in a row make one step (those that take turns: `optimizer_turns`), and a closure's forwards and
backwards keep their own phases. A step that GradScaler skips (infinite gradients) ends the step of work too, marked
SCALER_SKIP. Not seen: an optimizer that is no torch.optim.Optimizer, a skip inside a fused optimizer, and steps taken
by a thread of autograd's (they end the step, their time stays in backward).
"""

from __future__ import annotations

import os
import sys
from functools import update_wrapper
from threading import get_ident
from time import monotonic_ns
from types import FunctionType
from typing import TYPE_CHECKING, Any

from . import native, phases, pickled
from . import step_clock as sc
from .attributes import unheard
from .compiled import has_compiled, must_not_recompile
from .device_times import look_for_device
from .guard import INSPECTION, attempt, failing, not_traced, nothing, timed
from .optimizer_turns import Turns
from .other_frames import callers, tops, variables
from .step_clock import NOW, STEPPED, STOPPED
from .step_hooks import StepHook, walking_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from .guard import Hook
    from .host import Host

KIND_SCALER_SKIP = 36
STAYED_OUT = -1
MOST_WRAPPED = 32  # functions around each other
STEPS_BEFORE_ROOT_SEARCH = (
    2  # a DDP module shows itself in its first forward; only then search for another root
)
STEPS_UNTIL_LOOK, MOST_UNTIL_LOOK = 8, 512  # for a root that is no longer called
LOOK_EVERY_NS = 50_000_000  # where steps are shorter than an eighth of it, after so many as it has


class OptimizerSteps:
    """Optimizer steps under way, so that one that raised is noticed and closed."""

    __slots__ = ("before", "clock", "done_in", "last_look", "looked_at", "open")

    def __init__(self, clock: sc.StepClock) -> None:
        self.clock = clock
        self.looked_at: set[int] = set()  # ids of optimizers
        self.before: tuple[int, int] = (0, -1)  # an optimizer's id, the steps it says it did before our first
        self.done_in: dict[int, int] = {}  # id of the optimizer -> the clock's step it last finished in
        self.last_look = 0, 0  # when, at which step
        self.open: list[tuple[int, int]] = []  # (id of the optimizer, phase around its step; or STAYED_OUT)

    def close_dead(self) -> None:
        """Drop steps that are no longer under way: they raised, and torch calls no post hook then.

        A new one begins. Whether it is inside of those tell the frames of torch's wrapper around `step`, which is the
        same code for all optimizers and has the optimizer as `self`; what it is called from inside is rare.
        """
        frame = sys._getframe(2)
        code = frame.f_code
        alive = set()
        while frame := frame.f_back:  # type: ignore[assignment]
            if frame.f_code is code:
                alive.add(id(frame.f_locals.get("self")))
        clock = self.clock
        while self.open and self.open[-1][0] not in alive:
            outer = self.open.pop()[1]
            if outer != STAYED_OUT and clock.phase == phases.OPTIMIZER:
                clock.change(outer, monotonic_ns())


def install(probe: Host) -> None:
    """Register the two global hooks; older torch without them leaves steps unobserved."""
    module = sys.modules.get("torch.optim.optimizer")
    if module is None or not hasattr(module, "register_optimizer_step_pre_hook"):
        probe.absent("optimizer", "torch.optim has no global step hooks (torch < 2.0)")
        return
    steps = OptimizerSteps(probe.clock)
    hook = probe.hook("optimizer")
    probe.stepping = attempt(INSPECTION, stepping, module.Optimizer) or ""
    before, after = _before(probe, steps, hook), _after(probe, steps, hook)
    walking = walking_code(module)
    # torch's hook tables are guards of a compiled step: a change of them compiles it anew.
    if has_compiled(walking) and must_not_recompile():
        _patch_classes(probe, module, before, after, lambda _step: True)
    else:
        _register(probe, module, before, after)
        _patch_classes(probe, module, before, after, lambda step: _calls_no_hooks(step, walking))
    probe.when_loaded("torch.amp.grad_scaler", "scaler", lambda module: _patch_scaler(probe, module))


def stepping(optimizer_class: type) -> str:
    """Class of an optimizer whose step some thread is in; empty where none is.

    Of a step that began unseen no hook tells before it ends, and with closures, as LBFGS's, it may last minutes: its
    forwards and backwards alone look like a loop without an optimizer.
    """
    for top in tops().values():
        for frame in callers(top):
            if frame.f_code.co_name == "step" and issubclass(
                type(own := variables(frame).get("self")), optimizer_class
            ):
                return type(own).__name__[:40]
    return ""


def _register(probe: Host, module: Any, before: Callable[..., None], after: Callable[..., None]) -> None:
    """Among torch's own hooks, for all optimizers that are and will be."""
    for register, hooks, callback in (
        (
            module.register_optimizer_step_pre_hook,
            module._global_optimizer_pre_hooks,
            before,
        ),
        (
            module.register_optimizer_step_post_hook,
            module._global_optimizer_post_hooks,
            after,
        ),
    ):
        not_traced(callback)
        is_native = not isinstance(callback, FunctionType)
        probe.registration(
            StepHook(module, register, hooks, callback if is_native else pickled.callback(callback))
        )


def _patch_classes(
    probe: Host,
    module: Any,
    before: Callable[..., None],
    after: Callable[..., None],
    is_meant: Callable[[Any], bool],
) -> None:
    """Around `step` of the classes in use: a compiled caller looks it up when it gets there, and guards it not.

    is_meant: of the `step` that stands in a class. Not seen: a compiled `optimizer.step` itself, one below a learning
    rate scheduler, classes used later.
    """
    classes = list(module.Optimizer.__subclasses__())
    for found in classes:
        classes += [one for one in found.__subclasses__() if one not in classes]
        step = vars(found).get("step")
        if getattr(step, "hooked", False) and is_meant(step):
            probe.patch(found, "step", lambda original: _around(original, before, after), by_value=True)


def _calls_no_hooks(step: Any, walking: CodeType | None) -> bool:
    """Whether this is marked as hooked without torch's wrapper around it, as dynamo leaves it in torch 2.1."""
    if walking is None:
        return False
    seen = 0
    while step is not None and seen < MOST_WRAPPED:
        if getattr(step, "__code__", None) is walking:
            return False
        step, seen = getattr(step, "__wrapped__", None), seen + 1
    return step is None


def _around(
    original: Callable[..., Any], before: Callable[..., None], after: Callable[..., None]
) -> Callable[..., Any]:
    def tuiadvisor_hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self)
        result = original(self, *args, **kwargs)
        after(self)
        return result

    update_wrapper(tuiadvisor_hook, original)  # with torch's mark that the class has its wrapper
    tuiadvisor_hook._torchdynamo_inline = original  # type: ignore[attr-defined]
    return tuiadvisor_hook


# The guard and the lines of the clock's `enter` and `leave` are inside of these two: each call more is cold.
def _before(probe: Host, steps: OptimizerSteps, hook: Hook) -> Callable[..., None]:
    clock, span, under_way, done_in = probe.clock, probe.eval_span, steps.open, steps.done_in
    adopts = probe.thread.steps
    own, words, thin, note = clock.own, clock.words, clock.thin, clock.log.append
    code = clock.books.group(1 << phases.OPTIMIZER) | phases.OPTIMIZER

    def care(optimizer: Any) -> bool:
        """What is there beside a plain step; whether there is anything to note."""
        if not hook.active or not clock.active:
            return False
        if span.end_ns:
            span.close()
        if clock.stepped and clock.phase == phases.OTHER and done_in.get(id(optimizer)) == clock.step:
            clock.close_step(monotonic_ns())  # model and data run inside its closure and begin no iteration
        return clock.active

    def before(optimizer: Any, *_rest: Any) -> None:
        if get_ident() != own[0] and not adopts():
            return
        try:
            called_ns, alert = 0, thin.alert
            if alert & sc.MEASURING:
                called_ns = monotonic_ns()
                clock.stand_in(optimizer, *_rest)
            if alert & sc.CARE and not care(optimizer):
                return
            if under_way:
                steps.close_dead()
            outer = thin.phase
            if 5 < outer < 8:  # phases.ABSORBS
                under_way.append((id(optimizer), STAYED_OUT))
                return
            now = monotonic_ns()
            under_way.append((id(optimizer), outer))
            thin.phase = 5  # phases.OPTIMIZER
            note(code)
            note(now)
            words[NOW] = now << 4 | 5
            if alert & sc.DEVICE:
                clock.device.begins(phases.OPTIMIZER, outer, now)
            if called_ns:
                clock.count_own(monotonic_ns() - called_ns)
        except BaseException as error:  # noqa: BLE001 - this is the guard
            if hook.failed(error):
                clock.alert(sc.BROKEN, True)

    if native.core is None:
        return before
    gate: Callable[..., None] = native.core.Gate(
        clock,
        before,
        before,
        failing(hook, clock),
        None,
        nothing,
        phases.OPTIMIZER,
        code - phases.OPTIMIZER,
        native.core.BEFORE,
        pickled.does_nothing(),
        open=under_way,
        done=done_in,
    )
    return gate


def _after(probe: Host, steps: OptimizerSteps, hook: Hook) -> Callable[..., None]:
    clock, under_way, done_in = probe.clock, steps.open, steps.done_in
    own, words, thin, note = clock.own, clock.words, clock.thin, clock.log.append
    backwards = probe.thread.backwards  # who has asked for one steps for itself, not for ours

    def after(optimizer: Any, *_rest: Any) -> None:
        now = monotonic_ns()
        try:
            if get_ident() != own[0]:
                is_inside = own[0] and clock.phase == phases.BACKWARD and hook.active and clock.active
                if is_inside and get_ident() not in backwards:
                    clock.stepped = True
                return
            alert = thin.alert
            if alert & STOPPED and not (hook.active and clock.active):
                return
            outer = under_way[-1][1] if under_way else STAYED_OUT
            if under_way:  # a signal's exception between the two finds what to go back to
                under_way.pop()
            if outer != STAYED_OUT:
                thin.phase = outer
                note(outer)
                note(now)
                words[NOW] = now << 4 | outer
                if alert & sc.DEVICE:
                    clock.device.ends(phases.OPTIMIZER, outer, now)
            thin.alert |= STEPPED  # also where we were installed inside this very step
            number = id(optimizer)
            done_in[number] = step = clock.step
            clock.num_optimized += 1
            if alert & sc.MEASURING:
                clock.stand_in(optimizer, *_rest)
                clock.count_own(monotonic_ns() - now)
            if step >= clock.next_look or number not in steps.looked_at:
                _look(probe, steps, optimizer)
            if clock.turns is not None and clock.turns.stepped(number, sys._getframe(1)):
                clock.flags |= sc.FLAG_FIRST
        except BaseException as error:  # noqa: BLE001 - this is the guard
            if hook.failed(error):
                clock.alert(sc.BROKEN, True)

    if native.core is None:
        return after

    def look(optimizer: Any) -> None:
        _look(probe, steps, optimizer)
        # Found right now: from the next step on the core leaves optimizers that take turns to `after`.
        if clock.turns is not None and clock.turns.stepped(id(optimizer), sys._getframe(1)):
            clock.flags |= sc.FLAG_FIRST

    gate: Callable[..., None] = native.core.Gate(
        clock,
        after,
        after,
        failing(hook, clock),
        look,
        nothing,
        phases.OPTIMIZER,
        0,
        native.core.AFTER,
        pickled.does_nothing(),
        open=under_way,
        done=done_in,
        looked=steps.looked_at,
    )
    return gate


def _look(probe: Host, steps: OptimizerSteps, optimizer: Any) -> None:
    """At an optimizer: for its root, for others that it takes turns with, and once for the device."""
    clock, number = probe.clock, id(optimizer)
    if clock.turns is None and len(steps.done_in) > 1:
        for other in [other for other, step in steps.done_in.items() if step != clock.step]:
            del steps.done_in[other]
        clock.turns = Turns(steps.done_in)
    if clock.step >= STEPS_BEFORE_ROOT_SEARCH:
        steps.looked_at.add(number)
        clock.next_look = clock.step + _until_look(steps, clock.step)
        if not probe.has_wrapper and probe.roots.is_due(optimizer):
            probe.roots.search(optimizer)
    if (
        probe.steps_before is None
        and (told := attempt(INSPECTION, steps_before, optimizer, clock.step)) is not None
    ):
        # Said by two looks in a row: a skipped step or optimizers that take turns would shift it.
        probe.steps_before = told if steps.before == (number, told) else None
        steps.before = number, told
    if probe.looks_for_device:
        probe.looks_for_device = False
        device_hook = probe.hook(
            "device_times"
        )  # its own: a device of another kind is no reason to lose the steps
        attempt(device_hook, look_for_device, probe, optimizer, device_hook)


def _until_look(steps: OptimizerSteps, step: int) -> int:
    """Steps until the next look, which has cold code to run."""
    now, (then, before) = monotonic_ns(), steps.last_look
    steps.last_look = now, step
    if then == 0 or step <= before:
        return STEPS_UNTIL_LOOK
    of_a_step_ns = max(1, (now - then) // (step - before))
    return max(STEPS_UNTIL_LOOK, min(MOST_UNTIL_LOOK, LOOK_EVERY_NS // of_a_step_ns))


def steps_before(optimizer: Any, step: int) -> int | None:
    """Steps that it did before step 0 of ours, by its own count (Adam's `step`), which a checkpoint brings back.

    None where it keeps none, or keeps it on a device: that would have to be waited for.
    """
    held = next(iter(optimizer.state.values()), None)
    count: Any = held.get("step") if isinstance(held, dict) else None
    torch: Any = sys.modules.get("torch")
    if torch is not None and issubclass(type(count), torch.Tensor):
        modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
        if (
            type(count) is not torch.Tensor or modes is None or modes()
        ):  # a mode of the training's own would see us ask
            return None
        with unheard():
            if count.device.type != "cpu" or count.numel() != 1:
                return None
            count = count.item()
    if not isinstance(count, (int, float)) or count != int(count):
        return None
    before = int(count) - 1 - step
    return before if before >= 0 else None


def _patch_scaler(probe: Host, module: Any) -> None:
    clock = probe.clock
    hook = probe.hook("scaler")
    done_before = [0]

    def phase(args: tuple[Any, ...]) -> int:
        done_before[0] = clock.num_optimized
        return phases.OPTIMIZER if args[0]._enabled else -1

    def after(_begin_ns: int, _end_ns: int, _args: tuple[Any, ...], result: Any) -> None:
        # The scaler asked for the infinities itself; that its optimizer did not step is all we look at.
        if clock.num_optimized == done_before[0] and result is None:
            skipped(probe)

    scaler = module.GradScaler
    probe.patch(scaler, "step", lambda original: timed(original, hook, clock, phase, after))
    for name in ("unscale_", "update"):
        probe.patch(scaler, name, lambda original: timed(original, hook, clock, phases.OPTIMIZER))


def skipped(probe: Host) -> None:
    """A step of work ended without its update."""
    clock = probe.clock
    clock.flags |= sc.FLAG_SCALER_SKIP
    clock.stepped = True
    if os.getpid() == clock.pid:
        now, unknown = monotonic_ns(), sc.UNKNOWN
        probe.ring.put_event(KIND_SCALER_SKIP, (clock.step, now, now, unknown, unknown, unknown, unknown))
