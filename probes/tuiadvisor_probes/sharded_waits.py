"""Where FSDP2 lets the training's stream wait for a collective, by the device's own clock; in measured steps alone.

FSDP2 gathers and reduces on streams of its own. The training's stream waits for them at three places: before a layer's
gathered parameters are copied out (`wait_for_unshard`), in a layer's `post_backward` for the reduction of the layer
before, and when backward is finalized for the last ones. Around each an event is recorded; what lies between two such
borders is what this rank's device waited, and all else of forward and backward is its own work. The event that
`wait_for_unshard` is about to wait for is waited for a moment earlier, so that the copy behind it stays work.

Backward's hooks run in autograd's own thread on CUDA, while the training thread is within backward.

Who waits least is the last one only where all waits within forward and backward are seen, and all ranks meet at them.
So nothing is told of a step where parameters are sharded among some of the ranks (HSDP, tensor or expert parallel),
where another collective was called between the first gathering and the last reduction (SyncBatchNorm: by the sequence
numbers of the groups; any group of some ranks may be for that), beside DDP and among stages of a pipeline.

The hooks are put in where a measured step begins and taken out where it ends: other steps pass torch's own functions.
"""

from __future__ import annotations

import sys
from functools import update_wrapper
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from . import phases
from .detail import Layer
from .guard import attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from .device_times import DeviceTimes
    from .guard import Hook
    from .host import Host

# torch 2.6 on, and before, where the names below are not all there.
MODULES = (
    "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "torch.distributed._composable.fsdp._fsdp_param_group",
)
NAMES = ("unshard", "wait_for_unshard", "post_backward", "_wait_for_post_backward", "finalize_backward")
STATE, ENDS = "_fsdp_state", "_end_backward_iteration"  # where the last wait is from torch 2.15 on
OF_ALL = "FSDPMeshInfo"  # the class of what tells a group's ranks, where these are not replicated as well
MAX_BORDERS = 900  # of a step, so that there is room for those of its phases
MAX_UNTOLD = 8  # measured steps of which nothing is told, until no more is tried
AHEAD = ("FORWARD", "PRE_BACKWARD")  # states of a group in which it is gathered on a stream of its own
STANDS_IN = (phases.FORWARD, phases.BACKWARD, phases.OTHER)

ELSEWHERE = "FSDP2's parameters are sharded among some of the ranks, or replicated"
BESIDE = "ranks meet within forward and backward for other than FSDP2's parameters and gradients"
UNTIMED = (
    "FSDP2's parameters are gathered outside of training's forward and backward, too, as for an evaluation"
)
MIXED = "beside FSDP2 there is a module of DDP, or a pipeline"
TRACED = "FSDP2's hooks are compiled, or autograd is"
TOO_MANY = "FSDP2 waits too often in a step"
OTHERWISE = "this torch's FSDP2 waits at other places"


def install(probe: Host) -> None:
    """Look for FSDP2, whichever place it has in this torch."""
    for name in MODULES:
        probe.when_loaded(name, None, lambda module: _follow(probe, module))


def _follow(probe: Host, module: Any) -> None:
    group_class = getattr(module, "FSDPParamGroup", None)
    if probe.shards is not None or group_class is None:
        return
    if not all(name in vars(group_class) for name in NAMES):
        probe.absent("sharded_waits", OTHERWISE)
        return
    beside = sys.modules.get(module.__name__.rpartition(".")[0] + "." + STATE)
    state_class = getattr(beside, "FSDPState", None)
    probe.shards = shards = ShardedWaits(probe, probe.hook("sharded_waits"), group_class, state_class)
    probe.registration(shards)
    if probe.clock.device is not None:
        probe.clock.device.shards = shards


class ShardedWaits:
    """The waits of the step in the making."""

    __slots__ = (
        "clock",
        "hook",
        "is_in",
        "is_last_due",
        "is_open",
        "is_over",
        "is_reducing",
        "layers",
        "num_calls",
        "num_untold",
        "probe",
        "seq_before",
        "step",
        "why_untold",
        "world",
    )

    def __init__(self, probe: Host, hook: Hook, group_class: Any, state_class: Any = None) -> None:
        self.probe, self.clock, self.hook = probe, probe.clock, hook
        makes = (
            self._behind_call,
            self._around_gather,
            self._around_reduce,
            self._behind_reduced,
            self._before_last,
        )
        self.layers = [Layer(group_class, name, make, None) for name, make in zip(NAMES, makes, strict=True)]
        if hasattr(state_class, ENDS):
            self.layers[-1] = Layer(state_class, ENDS, self._around_last, None)
        self.is_in = False
        self.is_over = False  # nothing is tried any more
        self.step = -1  # of the clock, whose first wait was seen
        self.world = 0
        self.seq_before: tuple[int, int] = (0, 0)
        self.num_calls = 0  # collectives that FSDP2 has called since that wait
        self.is_open = False  # a wait that began with a layer's `post_backward`
        self.is_reducing = False  # within one
        self.is_last_due = False  # gradients are reduced that the training's stream has not waited for
        self.why_untold = ""  # of this step
        self.num_untold = 0

    # -- measured steps --------------------------------------------------------------------------------------

    def put_in(self) -> None:
        """A measured step begins."""
        if self.is_over or not self.hook.active:
            return
        if _are_hooks_traced():
            self._end(TRACED)
        elif not self.is_in:
            self.is_in = True
            for layer in self.layers:
                layer.put_in()

    def take_out(self, times: DeviceTimes) -> None:
        """It has ended; where its waits do not tell who came last, they are none."""
        self.remove()
        if self.step != self.clock.step:
            return
        self.step = -1
        if not self.hook.active:  # it has failed in the middle: there are waits that it did not see
            times.waits_untold()
            return
        if self.is_last_due and not self.why_untold:
            self.why_untold = OTHERWISE
        if not self.why_untold:
            self.num_untold = 0
            return
        times.waits_untold()
        self.num_untold += 1
        if self.num_untold >= MAX_UNTOLD or self.why_untold == TOO_MANY:
            times.are_waits_untold = True  # nor by DDP's exchange, where that is beside it
            self._end(self.why_untold)

    def _end(self, why: str) -> None:
        """Nothing is tried any more."""
        self.is_over = True
        self.probe.absent("sharded_waits", why)
        self.probe.put_info()

    def remove(self) -> None:
        """Torch's own functions are back."""
        if self.is_in:
            self.is_in = False
            for layer in self.layers:
                layer.take_out()

    # -- what stands in the place of torch's functions --------------------------------------------------------

    def _behind_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tuiadvisor_hook(group: Any, *args: Any, **kwargs: Any) -> Any:
            before = getattr(group, "_all_gather_result", None)
            try:
                return original(group, *args, **kwargs)
            finally:
                if self.hook.active:
                    attempt(self.hook, self._called, group, before, args or tuple(kwargs.values()))

        return _in_place_of(original, tuiadvisor_hook)

    def _around_gather(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tuiadvisor_hook(group: Any, *args: Any, **kwargs: Any) -> Any:
            is_open = attempt(self.hook, self._gathers, group) if self.hook.active else None
            try:
                return original(group, *args, **kwargs)
            finally:
                if is_open:
                    attempt(self.hook, self._goes_on, is_open)

        return _in_place_of(original, tuiadvisor_hook)

    def _around_reduce(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tuiadvisor_hook(group: Any, *args: Any, **kwargs: Any) -> Any:
            if self.hook.active:
                attempt(self.hook, self._reduces, group)
            try:
                return original(group, *args, **kwargs)
            finally:
                self.is_reducing = False
                if self.is_open:  # without gradients nothing was reduced
                    attempt(self.hook, self._reduced)

        return _in_place_of(original, tuiadvisor_hook)

    def _behind_reduced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tuiadvisor_hook(group: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(group, *args, **kwargs)
            finally:
                # It is called where a reduction follows, so not for layers without gradients.
                self.is_last_due |= self.is_reducing
                self.num_calls += self.is_reducing
                if self.is_open:
                    attempt(self.hook, self._reduced)

        return _in_place_of(original, tuiadvisor_hook)

    def _before_last(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tuiadvisor_hook(group: Any, *args: Any, **kwargs: Any) -> Any:
            if self.hook.active:
                attempt(self.hook, self._finalizes, group)
            return original(group, *args, **kwargs)

        return _in_place_of(original, tuiadvisor_hook)

    def _around_last(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def tuiadvisor_hook(state: Any, *args: Any, **kwargs: Any) -> Any:
            is_open = attempt(self.hook, self._ends, state) if self.hook.active else None
            try:
                return original(state, *args, **kwargs)
            finally:
                if is_open:
                    attempt(self.hook, self._goes_on, is_open)

        return _in_place_of(original, tuiadvisor_hook)

    # -- borders -----------------------------------------------------------------------------------------------

    def _called(self, group: Any, before: Any, is_async: tuple[Any, ...]) -> None:
        """After a layer's parameters were asked for: they may be there, or on their way, so that nothing was called.

        is_async: what the call was given. Asked for by hand, as before forward, they are gathered on the stream that
        computes, which then has waited within the call, but for work that is waited for later.
        """
        result = group._all_gather_result
        if result is before:
            return
        if self.step == self.clock.step:
            self.num_calls += 1
        is_ahead = not any(is_async) and group._training_state.name in AHEAD
        if not is_ahead and result.all_gather_work is None and self._measured(group) is not None:
            self.why_untold = UNTIMED

    def _gathers(self, group: Any) -> int:
        """Before a layer's parameters are waited for. Out: 1 + the phase that goes on after the call; 0: it does."""
        now, phase, result = monotonic_ns(), self.clock.thin.phase, group._all_gather_result
        times = self._measured(group) if result else None
        if times is None:
            return 0
        stream = times.device.stream()
        times.stands(now, stream)
        event = result.all_gather_event
        # A call that the training's stream itself was told to wait for is waited for within.
        if event is None or result.all_gather_work is not None:
            return phase + 1
        if times.is_measuring:
            now = monotonic_ns()
            stream.wait_event(event)
            times.goes_on(phase, now, stream)
        return 0

    def _goes_on(self, phase_after: int) -> None:
        times = self.clock.device
        if times is not None and times.is_measuring:
            times.goes_on(phase_after - 1, monotonic_ns(), times.device.stream())

    def _reduces(self, group: Any) -> None:
        """Before a layer's gradients are reduced: is the reduction of an earlier one waited for?"""
        now = monotonic_ns()
        times = self._measured(group) if group.reduce_grads else None
        if times is None:
            return
        self.is_reducing = True
        stream, context = times.device.stream(), group.comm_ctx
        states = getattr(context, "reduce_scatter_states", None)
        if states is None:  # until torch 2.12 at most one
            states = () if context.reduce_scatter_state is None else (context.reduce_scatter_state,)
        is_last = getattr(group, "_param_group_index", 0) == getattr(group, "_num_param_groups", 1) - 1
        is_full = len(states) >= getattr(context, "reduce_scatter_max_input_buffers", 1)
        if len(group.modules) > 1 and group._training_state.name == "FORWARD":
            self.why_untold = BESIDE  # a wait more, where torch reduces a part of a layer
        if (is_last and is_full) or group._post_reduce_event is not None:
            self.is_open = True
            times.stands(now, stream)
        else:
            times.goes_on(phases.BACKWARD, now, stream)

    def _reduced(self) -> None:
        self.is_open = False
        times = self.clock.device
        if times is not None and times.is_measuring:
            times.goes_on(phases.BACKWARD, monotonic_ns(), times.device.stream())

    def _finalizes(self, group: Any) -> None:
        """At the end of backward, once for each layer: the first of them waits for all that is under way."""
        now, context = monotonic_ns(), group.comm_ctx
        if getattr(context, "_last_post_reduce_events", None) or group._post_reduce_event is not None:
            self._last(now)

    def _ends(self, state: Any) -> int:
        """The same from torch 2.15 on, once for all layers. Out: as of `_gathers`."""
        now = monotonic_ns()
        if not state._comm_ctx._last_post_reduce_events or not self._last(now):
            return 0
        return self.clock.thin.phase + 1

    def _last(self, now: int) -> bool:
        """The stream waits for all that is under way; whether that is told."""
        times = self._measured(None)
        if times is None:
            return False
        times.stands(now, times.device.stream())
        self.is_last_due = False
        if self._others_called():
            self.why_untold = BESIDE
        return True

    # -- whether waits tell --------------------------------------------------------------------------------------

    def _measured(self, group: Any) -> DeviceTimes | None:
        """The device's times, if the wait that comes is one to be timed. group: whose it is; None: of all."""
        times: DeviceTimes | None = self.clock.device
        phase = self.clock.thin.phase
        if times is None or not times.borders:
            return None
        if self.step != self.clock.step:
            self._begin_step(times)
        if not self.why_untold:
            if phase not in STANDS_IN or (phase != phases.BACKWARD and get_ident() != self.clock.own[0]):
                self.why_untold = UNTIMED
            elif group is not None and not self._is_of_all(group):
                self.why_untold = ELSEWHERE
            elif len(times.borders) >= MAX_BORDERS:
                self.why_untold = TOO_MANY
            elif times.device.stream() != times.home:
                self.why_untold = BESIDE
        return None if self.why_untold else times

    def _begin_step(self, times: DeviceTimes) -> None:
        self.step, self.num_calls, self.why_untold = self.clock.step, 0, ""
        self.is_open = self.is_reducing = self.is_last_due = False
        c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
        self.world = c10d.get_world_size()
        if self.probe.has_wrapper or self.probe.pipeline:
            self.why_untold = MIXED
        elif any(
            1 < group.size() < self.world and _is_for(group, times.device.device_type)
            for group in c10d._world.pg_map
        ):
            self.why_untold = BESIDE
        else:
            self.seq_before = self._numbers()

    def _is_of_all(self, group: Any) -> bool:
        """Whether this layer's parameters are sharded among all ranks, in backward too, and not replicated as well."""
        mesh, in_backward = group.mesh_info, group.post_forward_mesh_info
        if type(mesh).__name__ != OF_ALL or getattr(group, "_all_reduce_hook", None) is not None:
            return False
        meshes = (mesh,) if in_backward is None or in_backward is mesh else (mesh, in_backward)
        return all(one.shard_process_group.size() == self.world for one in meshes)

    def _numbers(self) -> tuple[int, int]:
        """(collectives that groups of all ranks have had so far, groups that do not count theirs)."""
        c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
        numbers = [
            self.probe.sequences.of(group) for group in c10d._world.pg_map if group.size() == self.world
        ]
        return sum(number for number in numbers if number >= 0), sum(number < 0 for number in numbers)

    def _others_called(self) -> bool:
        """Whether there were more collectives than FSDP2's since the step's first wait, or nobody counts."""
        (before, _), (now, num_uncounted) = self.seq_before, self._numbers()
        return num_uncounted > 0 or now - before > self.num_calls


def _are_hooks_traced() -> bool:
    """Whether dynamo looks through FSDP2's hooks (until torch 2.12), or compiles what autograd calls.

    It would compile anew for other functions in their place, and what it compiles reduces at other places.
    """
    settings, utils = (sys.modules.get(f"torch._dynamo.{name}") for name in ("config", "utils"))
    compiles_backward = getattr(settings, "compiled_autograd", False)
    counters = getattr(utils, "counters", {})
    has_compiled = "compiled_autograd" in counters and bool(counters["compiled_autograd"])
    return compiles_backward or has_compiled or not getattr(settings, "skip_fsdp_hooks", True)


def _is_for(group: Any, kind: str) -> bool:
    return any(str(device.type) == kind for device in getattr(group, "_device_types", ()))


def _in_place_of(original: Callable[..., Any], replacement: Any) -> Callable[..., Any]:
    update_wrapper(replacement, original, updated=())
    replacement._torchdynamo_inline = original  # as in guard.timed
    return replacement  # type: ignore[no-any-return]
