"""Forward and backward of the model, and the gradient barrier inside DDP's backward.

DistributedDataParallel and FullyShardedDataParallel are patched on their classes; any other root is found by
`roots`. The barrier: DDP's reducer launches its all-reduces while backward computes and waits for them before
backward returns. The reducer itself keeps when each gradient became ready, so arrival = start of backward's
bookkeeping + the last ready time, at the price of reading one list (about 1 us for a small model, 30 ns a parameter).
On a device these are the times of launches; what its own clock says of the barrier is asked by `device_barrier`.
"""

from __future__ import annotations

import sys
from collections import deque
from operator import eq
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import ref

from . import device_barrier, phases
from . import step_clock as sc
from .books import COUNTS_MICRO_STEP
from .guard import STAY_OUT, attempt, timed
from .other_frames import callers

if TYPE_CHECKING:
    from collections.abc import Callable

    from .guard import Hook
    from .host import Host
    from .step_clock import StepClock

ENGINE = "_engine_run_backward"  # what torch.autograd's backward and grad share, told apart by keyword
MAX_AWAITED = 4  # modules at once
MAX_WAITS = 256  # of one backward, the latest: those before DDP's last gradient do not count
# Of such waits only Python's hooks know, and the native core does without them where it can. Nodes of a graph run in
# one order in every step: after so many backwards whose waits were all over by then, one wait in so many is asked.
SURE_AFTER, SELDOM = 8, 64
MAX_PASSED = 8  # backwards: a module that none of them was of will have none
SEEN = 1 << phases.FORWARD | 1 << phases.EVAL  # by the forward of a root


class Forwards:
    """Whether a forward trains or evaluates, the same for every kind of root."""

    def __init__(self, probe: Host) -> None:
        self.clock = probe.clock
        self.span = probe.eval_span
        self.pending = PendingBarrier()
        torch: Any = sys.modules.get("torch")
        self.is_grad_enabled: Callable[[], bool] = torch.is_grad_enabled if torch else bool

    def phase(self, args: tuple[Any, ...]) -> int:
        """Forward of a module in training; else evaluation, unless a backward shows otherwise."""
        return self._phase(args[0].training)

    def phase_of_wrapper(self, args: tuple[Any, ...]) -> int:
        """The same of what wraps one module: the mode is the wrapped one's, as where Lightning sets that one alone."""
        return self._phase(args[0].training or args[0].module.training)

    def _phase(self, is_training: bool) -> int:
        span, has_grad = self.span, self.is_grad_enabled()
        if is_training and has_grad:
            if span.end_ns:
                span.close()
            return phases.FORWARD
        return span.phase(grad_enabled=has_grad)

    def timed(
        self,
        original: Callable[..., Any],
        hook: Hook,
        phase: Any,
        roots: Any = (),
        meant: set[int] | None = None,
    ) -> Callable[..., Any]:
        """The wrapper of a root's forward; phase(args), roots and meant as for guard.timed."""
        return timed(
            original,
            hook,
            self.clock,
            phase,
            self.after_eval,
            observes=SEEN,
            after_phase=phases.EVAL,
            roots=roots,
            meant=meant,
            is_grad_enabled=self.is_grad_enabled,
        )

    def after_eval(self, begin_ns: int, end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        """An evaluating forward has returned."""
        if self.span.inside:
            self.span.after_forward(begin_ns, end_ns)


class Awaited:
    """A DDP module whose forward has left gradients to exchange."""

    __slots__ = ("base_ns", "known", "num_passed", "ready_before")

    def __init__(self, module: Any, base_ns: int) -> None:
        self.known = ref(module)  # a model that no backward follows is the host's to let go
        self.base_ns = base_ns
        self.num_passed = 0  # backwards of others
        self.ready_before: list[int] | None = None  # of the reducer, where that is asked

    @property
    def module(self) -> Any:
        """None where the host has let it go."""
        return self.known()

    def ready(self) -> list[int]:
        """When each gradient became ready, by the reducer's own clock; of the backward before where none was since."""
        module = self.module
        return [] if module is None else module.reducer.get_backward_stats()

    def looked(self) -> None:
        """Keep what the reducer says of the backward before."""
        self.ready_before = self.ready()


class PendingBarrier:
    """What DDP's forwards left for the backwards that follow them: mostly one, of several modules several."""

    __slots__ = ("arrival", "awaited", "num_apart", "num_left", "waits")

    def __init__(self) -> None:
        self.awaited: list[Awaited] = []  # in the order of their first forwards
        self.arrival: Any = None  # the handle of what tells the device's arrival in this backward
        # For other collectives, in this backward.
        self.waits: deque[tuple[int, int]] = deque(maxlen=MAX_WAITS)
        self.num_apart = 0  # backwards in a row whose waits were all over before the last gradient came
        self.num_left = 0  # waits to come of which nobody asks that

    def take_over(self, clock: StepClock) -> None:
        """What the native core awaits by itself, in plain steps of a training with one module, is awaited here."""
        awaited, clock.awaited = clock.awaited, None
        module = None if awaited is None else awaited()
        if module is not None:
            self.add(module, clock.awaited_ns)

    def add(self, module: Any, base_ns: int) -> None:
        """A forward has ended. Of several modules it has to be seen whose backward it was, so their books are kept."""
        for one in self.awaited:
            if one.module is module:
                one.base_ns = base_ns
                return
        self.awaited.append(Awaited(module, base_ns))
        if len(self.awaited) > 1:
            del self.awaited[:-MAX_AWAITED]
            for one in self.awaited:
                if one.ready_before is None:
                    one.looked()

    def waited(self, clock: StepClock, begin_ns: int, end_ns: int) -> None:
        """A wait for another collective is over and noted; DDP's exchange may have been under way meanwhile."""
        if clock.thin.phase != phases.BACKWARD or not clock.thin.alert & sc.BARRIER:
            return
        if self.num_left:
            self.num_left -= 1
            return
        self.take_over(clock)
        self.waits.append((begin_ns, end_ns))

    def waited_since(self, arrive_ns: int) -> int:
        """So much of the time since then is booked as exposed communication already."""
        since_ns = sum(
            end_ns - max(begin_ns, arrive_ns) for begin_ns, end_ns in self.waits if end_ns > arrive_ns
        )
        if self.waits:
            self.num_apart = 0 if since_ns else self.num_apart + 1
            self.num_left = SELDOM if self.num_apart >= SURE_AFTER else 0
        return since_ns

    def passed(self, exchanged: list[Awaited]) -> None:
        """A backward is over; who is still awaited is kept for a while: others' may come before its own."""
        self.waits.clear()
        kept = [one for one in self.awaited if one not in exchanged and one.module is not None]
        for one in kept:
            one.num_passed += 1
        self.awaited[:] = [one for one in kept if one.num_passed < MAX_PASSED]

    def remove(self) -> None:
        """Take out what was put into the backward's graph, as where the probe leaves in the middle of one."""
        if self.arrival is not None:
            self.arrival.remove()
            self.arrival = None


def install(probe: Host) -> None:
    """Patch DDP.forward, DDP._sync_buffers, FSDP1's forward and what torch.autograd.backward runs."""
    pending = probe.forwards.pending
    probe.when_loaded(
        "torch.nn.parallel.distributed",
        "forward_ddp",
        lambda module: _patch_ddp(probe, module.DistributedDataParallel, pending),
    )
    probe.when_loaded(
        "torch.distributed.fsdp.fully_sharded_data_parallel",
        "forward_fsdp1",
        lambda module: _patch_fsdp1(probe, module.FullyShardedDataParallel),
    )
    probe.when_loaded("torch.autograd", "backward", lambda module: _patch_backward(probe, module, pending))


def _patch_ddp(probe: Host, ddp_class: Any, pending: PendingBarrier) -> None:
    clock, forwards = probe.clock, probe.forwards

    def after(begin_ns: int, end_ns: int, args: tuple[Any, ...], result: Any) -> None:
        module = args[0]
        if forwards.span.inside:
            forwards.after_eval(begin_ns, end_ns, args, result)
        pending.take_over(clock)
        # What decides in DDP itself, too: its mode says nothing of whether gradients are exchanged.
        if module.require_backward_grad_sync and forwards.is_grad_enabled():
            # prepare_for_backward, the reducer's time base, was the last thing forward did.
            pending.add(module, end_ns)
            clock.alert(sc.BARRIER, True)
            if not probe.knows_ddp(module):
                probe.found_ddp(module)
                if type(module).forward is not ddp_class.forward:
                    probe.roots.add(
                        module
                    )  # a subclass does work of its own around the forward that is patched

    hook = probe.hook("forward_ddp")
    probe.patch(
        ddp_class,
        "forward",
        lambda original: timed(
            original,
            hook,
            clock,
            forwards.phase_of_wrapper,
            after,
            observes=SEEN,
            is_grad_enabled=forwards.is_grad_enabled,
            any_root=True,
            kind="DDP_FORWARD",
            awaited=pending.awaited,
        ),
    )

    def buffers_phase(args: tuple[Any, ...]) -> int:
        return phases.COMM_EXPOSED if args[0].will_sync_module_buffers() else STAY_OUT

    buffers_hook = probe.hook("ddp_buffers")
    if hasattr(ddp_class, "_sync_buffers") and hasattr(ddp_class, "will_sync_module_buffers"):
        probe.patch(
            ddp_class,
            "_sync_buffers",
            lambda original: timed(original, buffers_hook, clock, buffers_phase, probe.broadcast_seen),
        )


def _patch_fsdp1(probe: Host, fsdp_class: Any) -> None:
    """The outermost unit is the root; the units inside it pass through."""
    clock, forwards = probe.clock, probe.forwards

    def phase(args: tuple[Any, ...]) -> int:
        return STAY_OUT if clock.phase == phases.FORWARD else forwards.phase_of_wrapper(args)

    hook = probe.hook("forward_fsdp1")
    probe.patch(fsdp_class, "forward", lambda original: forwards.timed(original, hook, phase))


def _patch_backward(probe: Host, autograd: Any, pending: PendingBarrier) -> None:
    clock = probe.clock

    def after(begin_ns: int, end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        # One within another, as reentrant checkpoints do: that one exchanges. What a pipeline or an engine calls its
        # backward is none of torch's.
        stack = callers(sys._getframe(1)) if clock.phase == phases.BACKWARD else []
        if any(frame.f_code is its_code for frame in stack):
            return
        clock.alert(sc.BARRIER, False)
        pending.take_over(clock)
        is_asked = pending.arrival is not None
        pending.remove()
        exchanged = _book_barrier(probe, pending, begin_ns, end_ns)
        if (
            is_asked and not exchanged
        ):  # of another loss, or of a part of the model: the exchange is still to come
            clock.device.unasked()
        pending.passed(exchanged)
        if pending.awaited:
            clock.alert(sc.BARRIER, True)

    device_hook = probe.hook("device_barrier")

    def on_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        device = clock.device
        if pending.arrival is not None:  # of the backward that this one is within
            return
        pending.take_over(clock)
        if pending.awaited and device_hook.active and device is not None and device.is_measuring:
            pending.arrival = attempt(device_hook, ask, device, args, kwargs)

    def ask(device: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for one in pending.awaited:
            one.looked()
        return device_barrier.ask(device_hook, device, args, kwargs)

    probe.registration(pending)
    hook, seen = probe.hook("backward"), 1 << phases.BACKWARD | COUNTS_MICRO_STEP
    runs_engine = _passes_engine(autograd)
    name = ENGINE if runs_engine else "backward"
    its_code = getattr(getattr(autograd, name), "__code__", None)
    patch = probe.patch(
        autograd,
        name,
        lambda original: timed(
            original,
            hook,
            clock,
            phases.BACKWARD,
            after,
            observes=seen,
            after_alert=sc.BARRIER,
            on_device=on_device,
            stranger=probe.thread.backward,
            kind="DDP_BACKWARD",
            awaited=pending.awaited,
            only_with="accumulate_grad" if runs_engine else "",
            is_looked_up=runs_engine,
        ),
    )
    if runs_engine:  # where torch.compiler looks for it, to put it back there and here
        probe.patch(autograd.graph, ENGINE, lambda _original: patch.replacement)


def _passes_engine(autograd: Any) -> bool:
    """Whether torch.autograd.backward is torch's own and runs the engine by a function that can be replaced.

    That one is torch's own, too: what torch or others have put there for a while they will replace by the original. It
    is no part of what compiled code names: for another `torch.autograd.backward` that would be compiled anew, or end
    the training where that is forbidden. Any other backward is watched as a whole.
    """
    backward, inner = autograd.backward, vars(autograd).get(ENGINE)
    graph = sys.modules.get("torch.autograd.graph")
    if not _is_of(autograd, backward, "backward") or not _is_of(graph, inner, ENGINE):
        return False
    return inner is getattr(graph, ENGINE) and ENGINE in backward.__code__.co_names


def _is_of(module: Any, function: Any, name: str) -> bool:
    """Whether this is the function that the module itself defines under this name."""
    return (
        isinstance(function, FunctionType)
        and function.__globals__ is vars(module)
        and function.__code__.co_name == name
    )


def _book_barrier(probe: Host, pending: PendingBarrier, begin_ns: int, now: int) -> list[Awaited]:
    """Split the backward that ends now into compute and waiting for the all-reduces; the modules that it was of."""
    exchanged: list[Awaited] = []
    arrive, last, ready_of_last = 0, None, []
    for one in pending.awaited:
        ready = one.ready()
        latest = max(ready, default=0)
        at = one.base_ns + latest
        if not begin_ns <= at <= now:  # a graph without these parameters, or numbers of an earlier step
            continue
        if one.ready_before is None:
            if latest == probe.clock.latest_ready:  # as of the exchange before: none was since
                continue
        elif sum(map(eq, ready, one.ready_before)) > 1:
            continue  # one may be equal by chance
        probe.clock.latest_ready = latest
        exchanged.append(one)
        if at >= arrive:
            arrive, last, ready_of_last = at, one, ready
    if last is None:
        return exchanged
    clock = probe.clock
    clock.move(now - arrive - pending.waited_since(arrive), phases.BACKWARD, phases.COMM_EXPOSED)
    clock.said |= 1 << phases.COMM_EXPOSED
    clock.synchronized(arrive, now)
    if clock.detail_flag:
        layout = probe.buckets(last.module, ready_of_last) if probe.bucket_hook.active else None
        if layout is not None and layout.first:
            hidden_ns = max(ready_of_last) - max(ready_of_last[number] for number in layout.first)
            clock.later(clock.books.hide, hidden_ns)
            moments = (last.base_ns, begin_ns, now)
            attempt(probe.bucket_hook, layout.tell, probe.ring.put_event, clock.step, ready_of_last, moments)
    return exchanged
