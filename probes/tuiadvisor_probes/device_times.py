"""What the device took for each phase of a step, by CUDA events that are asked later and never waited for.

An event is recorded on the current stream where a phase begins, and where forward, backward and optimizer end; the
device writes its own time into it when it gets there. At the end of later steps the last event of a step is asked
(`query`); once the device has passed it, the times between the events are read and one record a phase goes into the
event ring. The step's own record is long written by then, so device times are records of their own.

Clocks: an event cannot happen on the device before it was recorded, and one that answers yes has happened by then.
Both together bracket the device's clock within the step. Records use the early end; the bracket's width goes with them
(`seq`), and so does how far the device was at least behind the training thread at the end of the phase (`detail`).

Cost: a step is measured only as often as keeps the cost below MAX_COST_SHARE of the time, by the cost of the last one.
Events come from a pool and are used again. No room, a graph being captured, a phase too many: the step is dropped.
"""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from . import phases
from . import step_clock as sc
from .device_memory import DeviceMemory

if TYPE_CHECKING:
    from .guard import Hook
    from .host import Host

KIND_DEVICE_PHASE = 48
MAX_BORDERS = 48  # of one step: six micro-steps of eight
MAX_PENDING = 4  # steps the device may be behind the thread
MAX_COST_SHARE = 1e-3
MAX_SKIPPED = 255
# By phase: whether its begin is a border, and whether its end is one even if nothing follows at once. After the others
# the device has no work of its own until the next begins.
_BEGINS = (True, True, True, True, False, True, False, False, False, False)
_ENDS = (False, False, True, True, False, True, False, False, False, False)
# Phases that may be interrupted: what happens inside the others (an exposed all-reduce, a copy) belongs to them.
_HOLDS = (False, False, False, False, False, True, False, False, False, True)
# A function in the place of Tensor.to is another `func` to every __torch_function__ that looks for it: a quantized
# tensor then stayed quantized, and a lazy layer refused its conversion.
COPIES_NOT_TIMED = "copies to the device are not timed; their time is in other"
NOT_ON_DEVICE = "the optimizer's parameters are not on a CUDA device"


class DeviceTimes:
    """Borders of the step in the making, and the steps whose events the device has not passed yet."""

    __slots__ = (
        "borders",
        "cost_ns",
        "event",
        "free",
        "hook",
        "is_capturing",
        "num_dropped",
        "num_skipped",
        "num_to_skip",
        "pending",
        "put_event",
        "resolve_ns",
        "seen",
    )

    def __init__(self, hook: Hook, put_event: Any, event: Any, is_capturing: Any) -> None:
        """event(): a new timing event; is_capturing(): whether a graph is captured on the current stream."""
        self.hook = hook
        self.put_event = put_event
        self.event = event
        self.is_capturing = is_capturing
        self.free: list[Any] = []
        # (event, phase from here on, clock when recorded) of the step in the making; None: it is not measured.
        self.borders: list[tuple[Any, int, int]] | None = None
        self.seen: list[tuple[int, int]] = []  # (index of a border, clock at which it had happened)
        self.pending: list[tuple[int, list[tuple[Any, int, int]], list[tuple[int, int]]]] = []
        self.cost_ns = 0  # of this step's borders
        self.resolve_ns = 0  # what reading a step's events took last
        self.num_to_skip = 1  # the step in which we come is a part of one
        self.num_skipped = 0
        self.num_dropped = 0

    def begins(self, phase: int, outer: int, now: int) -> None:
        """The thread has entered a phase, coming from `outer`."""
        if self.borders is not None and _BEGINS[phase] and _HOLDS[outer]:
            self._border(phase, now)

    def ends(self, phase: int, outer: int, now: int) -> None:
        """The thread has left a phase and is back in `outer`."""
        if self.borders and _BEGINS[phase] and _HOLDS[outer] and (_ENDS[phase] or outer != phases.OTHER):
            self._border(outer, now)

    def _border(self, phase: int, now: int) -> None:
        """The device's time from here on belongs to `phase`."""
        borders = self.borders
        if borders is None or (borders and borders[-1][1] == phase):
            return
        try:
            if self.is_capturing() or len(borders) >= MAX_BORDERS:
                self._drop()
                return
            # Asked before the next is recorded: has the device caught up with the thread here?
            if borders and borders[-1][0].query():
                self.seen.append((len(borders) - 1, monotonic_ns()))
            event = self.free.pop() if self.free else self.event()
            recorded_ns = monotonic_ns()
            event.record()
            borders.append((event, phase, recorded_ns))
            self.cost_ns += monotonic_ns() - now
        except Exception as error:  # noqa: BLE001 - the guard: a device in trouble is the host's to notice
            self._failed(error)

    def _drop(self) -> None:
        """Forget the step in the making; its events are free."""
        if self.borders is not None:
            self._forget(self.borders)
            self.borders = None

    def _failed(self, error: Exception) -> None:
        """Never again."""
        self.borders = None
        self.pending.clear()
        self.free.clear()
        self.num_to_skip = sys.maxsize
        self.hook.failed(error)

    def close_step(self, step: int, step_ns: int) -> None:
        """The thread's step has ended; what the device has passed meanwhile is written."""
        try:
            borders = self.borders
            if borders and len(borders) > 1:
                self.pending.append((step, borders, self.seen))
                if len(self.pending) > MAX_PENDING:
                    self._forget(self.pending.pop(0)[1])
                cost_ns = self.cost_ns + self.resolve_ns
                self.num_to_skip = min(MAX_SKIPPED, int(cost_ns / (MAX_COST_SHARE * max(1, step_ns))))
                self.num_skipped = 0
            else:
                self.num_skipped += 1
            self.borders = None
            self.cost_ns = 0
            if self.pending and not self.is_capturing():
                self._resolve()
            if self.num_skipped >= self.num_to_skip:
                self.borders, self.seen = [], []
        except Exception as error:  # noqa: BLE001 - the guard
            self._failed(error)

    def _resolve(self) -> None:
        """Write the oldest pending step, if the device has passed its last border."""
        step, borders, seen = self.pending[0]
        first, last = borders[0][0], borders[-1][0]
        if not last.query():  # never synchronize(): the training would wait with us
            return
        now = monotonic_ns()
        seen.append((len(borders) - 1, now))
        del self.pending[0]
        passed_ns = [0] + [int(first.elapsed_time(event) * 1e6) for event, _, _ in borders[1:]]
        self.free += [event for event, _, _ in borders]
        # When the first border was passed, on the host's clock: no earlier, and no later than.
        earliest_ns = max(
            clock_ns - passed for (_, _, clock_ns), passed in zip(borders, passed_ns, strict=True)
        )
        latest_ns = max(earliest_ns, min(clock_ns - passed_ns[index] for index, clock_ns in seen))
        for index in range(len(borders) - 1):
            begin_ns, end_ns = earliest_ns + passed_ns[index], earliest_ns + passed_ns[index + 1]
            behind_ns = max(0, end_ns - borders[index + 1][2])
            slots = (
                step,
                begin_ns,
                end_ns,
                borders[index][1],
                latest_ns - earliest_ns,
                sc.UNKNOWN,
                behind_ns,
            )
            self.put_event(KIND_DEVICE_PHASE, slots)
        self.resolve_ns = monotonic_ns() - now

    def _forget(self, borders: list[tuple[Any, int, int]]) -> None:
        self.free += [event for event, _, _ in borders]
        self.num_dropped += 1


def look_for_device(probe: Host, optimizer: Any) -> None:
    """After the first optimizer step: whether the training is on a CUDA device, and which."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    parameter = next(parameters, None)
    if parameter is None or not parameter.is_cuda:
        probe.absent("device_times", NOT_ON_DEVICE)
        return
    probe.absent("h2d", COPIES_NOT_TIMED)
    cuda = sys.modules["torch"].cuda
    probe.device_uuid = str(getattr(cuda.get_device_properties(parameter.device), "uuid", "")) or None
    hook = probe.hook("device_times")
    probe.clock.device = DeviceTimes(
        hook, probe.ring.put_event, lambda: cuda.Event(enable_timing=True), cuda.is_current_stream_capturing
    )
    probe.clock.alert(sc.DEVICE, True)
    stats = getattr(getattr(sys.modules["torch"], "_C", None), "_cuda_memoryStats", None)
    if stats is None:
        probe.absent("device_memory", "this torch has no allocator statistics")
    else:
        index = parameter.device.index or 0
        memory_hook = probe.hook("device_memory")
        probe.memory = DeviceMemory(memory_hook, probe.ring.put_event, lambda: stats(index))
    probe.put_info()
