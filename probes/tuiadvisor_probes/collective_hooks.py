"""Collectives and point-to-point calls made from Python: ProcessGroup's methods and Work.wait, on their classes.

Every caller passes there, also `from torch.distributed import all_reduce`. DDP's reducer calls from C++ and is not
seen here: its all-reduces of one backward are the gradient barrier of model_hooks.

Always: waits are exposed communication, and the wait for a collective that can reduce gradients may be the gradient
barrier; 1.1 us a wait, 0.8 us a call of such a collective. In detail (see `detail`), for all kinds: one event a call,
begin = entered, end = the wait returned (for an asynchronous call nobody waited for: unknown); about 2 us a call.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from . import phases
from . import step_clock as sc
from .attributes import unheard
from .guard import timed

if TYPE_CHECKING:
    from .host import Host

KINDS = {
    "allreduce": 1,
    "allreduce_coalesced": 1,
    "broadcast": 2,
    "allgather": 3,
    "_allgather_base": 3,
    "allgather_coalesced": 3,
    "allgather_into_tensor_coalesced": 3,
    "all_gather_single": 3,
    "reduce_scatter": 4,
    "_reduce_scatter_base": 4,
    "reduce_scatter_single": 4,
    "reduce_scatter_tensor_coalesced": 4,
    "reduce": 5,
    "alltoall": 6,
    "alltoall_base": 6,
    "all_to_all_single": 6,
    "gather": 7,
    "scatter": 8,
    "barrier": 9,
    "send": 10,
    "recv": 11,
    "recv_anysource": 11,
}
KIND_WAIT = 12
MONITORED = "monitored_barrier"
GRADIENT_KINDS = (1, 3, 4)  # all-reduce, all-gather, reduce-scatter
POINT_TO_POINT_KINDS = (10, 11)
UNNAMED = "a group without a name"
MAX_OPEN_WORKS = 256


def install(probe: Host) -> None:
    """Patch the pybind classes, once torch.distributed is loaded."""
    probe.when_loaded(
        "torch._C._distributed_c10d", "collectives", lambda module: _patch_groups(probe, module)
    )


def _patch_groups(probe: Host, c10d: Any) -> None:
    clock = probe.clock
    always = GradientWaits(probe)
    calls = CallEvents(probe, always)
    probe.detail.at_end(calls.close)
    hook = probe.hook("collectives")

    def timed_call(after: Any) -> Any:
        return partial(timed, hook=hook, clock=clock, phase_of=phases.COMM_EXPOSED, after=after)

    for name, kind in KINDS.items():
        if name in vars(c10d.ProcessGroup):
            in_detail = timed_call(calls.after_call(kind))
            if kind in GRADIENT_KINDS:
                patch = probe.patch(c10d.ProcessGroup, name, timed_call(always.after_call(kind)))
                probe.detail.instead(patch, in_detail)
            else:
                probe.detail.only(c10d.ProcessGroup, name, in_detail)
    if MONITORED in vars(c10d.ProcessGroup):  # it returns when all ranks have come, and no Work to wait for
        patch = probe.patch(c10d.ProcessGroup, MONITORED, timed_call(always.after_monitored))
        probe.detail.instead(patch, timed_call(calls.after_call(KINDS["barrier"])))
    wait_hook = probe.hook("work_wait")

    def wait_phase(_args: tuple[Any, ...]) -> int:
        return phases.PIPELINE_IDLE if clock.phase == phases.PIPELINE_IDLE else phases.COMM_EXPOSED

    def timed_wait(after: Any) -> Any:
        return partial(timed, hook=wait_hook, clock=clock, phase_of=wait_phase, after=after)

    patch = probe.patch(c10d.Work, "wait", timed_wait(always.after_wait))
    probe.detail.instead(patch, timed_wait(calls.after_wait))


class GradientWaits:
    """The waits that may be the gradient barrier. Works by their id, never a reference to them."""

    def __init__(self, probe: Host) -> None:
        self.clock = probe.clock
        self.pending = probe.forwards.pending
        self.open: dict[int, int] = {}  # id of a Work -> kind of its collective

    def after_call(self, kind: int) -> Any:
        """What to do when one ProcessGroup method has returned."""

        def after(begin_ns: int, end_ns: int, _args: tuple[Any, ...], work: Any) -> None:
            self.pending.waited(self.clock, begin_ns, end_ns)
            self.issued(kind, work)

        return after

    def issued(self, kind: int, work: Any) -> None:
        """A collective that can reduce gradients was issued."""
        self.clock.said |= 1 << phases.COMM_EXPOSED
        if work is not None:
            if len(self.open) >= MAX_OPEN_WORKS:
                del self.open[next(iter(self.open))]
            self.open[id(work)] = kind

    def after_monitored(self, begin_ns: int, end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        """A monitored barrier has returned: it waits as the wait for a barrier's Work does."""
        self.clock.said |= 1 << phases.COMM_EXPOSED
        self.pending.waited(self.clock, begin_ns, end_ns)

    def after_wait(self, begin_ns: int, end_ns: int, args: tuple[Any, ...], _result: Any) -> None:
        """Work.wait has returned."""
        clock = self.clock
        clock.said |= 1 << phases.COMM_EXPOSED
        self.pending.waited(clock, begin_ns, end_ns)
        kind = self.open.pop(id(args[0]), None)
        if kind is not None and not clock.stepped:
            clock.later(self._book, begin_ns, end_ns)

    def _book(self, begin_ns: int, end_ns: int) -> None:
        """Gradients reduced from Python, inside backward (FSDP) or after it (by the caller, DeepSpeed)."""
        books = self.clock.books
        if books.totals[phases.BACKWARD] or books.phase == phases.BACKWARD:
            books.synchronized(begin_ns, end_ns)


class CallEvents:
    """In detail: collectives that were issued and not yet waited for, by the id of their Work, and their events."""

    def __init__(self, probe: Host, always: GradientWaits) -> None:
        self.probe = probe
        self.clock = probe.clock
        self.always = always
        self.open: dict[int, tuple[int, int, int, int, int]] = {}
        self.groups: dict[str, int] = {}

    def after_call(self, kind: int) -> Any:
        """What to do when one ProcessGroup method has returned."""

        def after(begin_ns: int, end_ns: int, args: tuple[Any, ...], work: Any) -> None:
            self.always.pending.waited(self.clock, begin_ns, end_ns)
            if kind in GRADIENT_KINDS:
                self.always.issued(kind, work)
            if not self.clock.detail_flag:
                return  # somebody patched on top of ours, so that it could not be taken out
            self.clock.said |= 1 << phases.COMM_EXPOSED
            if kind in POINT_TO_POINT_KINDS:
                self.probe.detail.has_point_to_point = True
            group = args[0]
            seq = self.probe.sequences.of(group)
            entry = (kind, begin_ns, self.group_number(group), seq, num_bytes(args[1:3]))
            if work is None:
                self.write(entry, end_ns, 0)
                return
            if len(self.open) >= MAX_OPEN_WORKS:
                self.write(self.open.pop(next(iter(self.open))), sc.UNKNOWN, sc.UNKNOWN)
            displaced = self.open.pop(id(work), None)
            if displaced is not None:
                self.write(displaced, sc.UNKNOWN, sc.UNKNOWN)
            self.open[id(work)] = entry

        return after

    def after_wait(self, begin_ns: int, end_ns: int, args: tuple[Any, ...], result: Any) -> None:
        """Work.wait has returned: the call it belongs to is complete."""
        self.always.after_wait(begin_ns, end_ns, args, result)
        if not self.clock.detail_flag:
            return
        entry = self.open.pop(id(args[0]), None)
        if entry is None:
            self.write((KIND_WAIT, begin_ns, sc.UNKNOWN, sc.UNKNOWN, sc.UNKNOWN), end_ns, sc.UNKNOWN)
        else:
            self.write(entry, end_ns, begin_ns - entry[1])

    def close(self) -> None:
        """The burst is over: when what is still under way completes will not be seen."""
        for entry in self.open.values():
            self.write(entry, sc.UNKNOWN, sc.UNKNOWN)
        self.open.clear()

    def write(self, entry: tuple[int, int, int, int, int], end_ns: int, detail: int) -> None:
        """One event; detail: ns from entering the call to the wait for it, unknown if nobody waited."""
        if os.getpid() != self.clock.pid:
            return
        kind, begin_ns, group, seq, size = entry
        self.probe.ring.put_event(kind, (self.clock.step, begin_ns, end_ns, group, seq, size, detail))

    def group_number(self, group: Any) -> int:
        """A small number for the group's name, stable within this process; the name goes into the info area."""
        name = _name_of(group)
        number = self.groups.get(name)
        if number is None:
            number = self.groups[name] = len(self.groups)
            self.probe.found_group(name, number)
        return number


def _name_of(group: Any) -> str:
    """Its own; in torch 2.1 a group has none, and torch.distributed keeps a table of them."""
    name = getattr(group, "group_name", None)
    if name is None:
        world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
        name = getattr(world, "pg_names", {}).get(group, UNNAMED)
    return str(name)


def num_bytes(tensors: tuple[Any, ...]) -> int:
    """Bytes of the tensors of a call (the larger of input and output), UNKNOWN for none."""
    largest = sc.UNKNOWN
    with unheard():
        for argument in tensors:
            total = _bytes_of(argument)
            largest = max(largest, total)
    return largest


def _bytes_of(argument: Any) -> int:
    if issubclass(type(argument), (list, tuple)):
        sizes = [_bytes_of(item) for item in argument]
        known = [size for size in sizes if size != sc.UNKNOWN]
        return sum(known) if known else sc.UNKNOWN
    size = getattr(argument, "nbytes", None)
    return size if isinstance(size, int) else sc.UNKNOWN
