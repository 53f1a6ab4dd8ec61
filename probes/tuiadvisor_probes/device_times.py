"""What the device took for each phase of a step, by its own events, which are asked later and never waited for.

An event is recorded on the training's stream where a phase begins, where forward, backward and optimizer end, where
the data has come (what the device does until forward is the copy), and where the next step begins; the device writes
its own time into it when it gets there. At the end of later steps the last event of a step is asked (`query`); once the
device has passed it, the times between the events are read and one record a span goes into the event ring. The spans of
a step follow one another without a gap. The step's own record is long written by then, so device times are records of
their own.

The gradient barrier on the device: where DDP reduces in a backward, an event is recorded by a final callback of
autograd that is queued when the loss's gradient comes, so before DDP's own, which makes the stream wait for the
communication (`device_barrier`). From there to the end of backward the device waits: for late ranks, and for what
moving the gradients takes. No clock of another rank is needed, and nothing is waited for. Under FSDP2 there are many
such waits in forward and backward (`sharded_waits`).

Clocks: an event cannot happen on the device before it was recorded, nor before it last answered no, and one that
answers yes has happened by then. Together they bracket the device's clock within the step. Records use the early end;
the bracket's width goes with them (`seq`), and so does how far the device was at least behind the training thread at
the end of the phase (`detail`).

All ranks have to measure the same steps: by the sequence number of the gradients' group at a step's begin lots are
drawn, the same on all ranks (`is_drawn`), one in 2^bits. Not every so many steps: a look at the loss in every tenth
would then be in each of them or in none. Each rank finds its own bits, so that the cost stays below MAX_COST_SHARE of
the time; whoever has to save more measures a subset of the others' steps. While MAX_PENDING steps wait for the device
none is begun, and from then on fewer are. Events come from a pool and are used again. A graph being captured, a phase
too many: the step is dropped.
"""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any
from weakref import ref

from . import accelerator, phases
from . import step_clock as sc
from .device_memory import DeviceMemory
from .duty import Median
from .guard import is_the_hosts

if TYPE_CHECKING:
    from collections.abc import Callable

    from .accelerator import Accelerator
    from .guard import Hook
    from .host import Host

KIND_DEVICE_PHASE = 48
MAX_BORDERS = 1024  # of one step: 170 micro-steps of six
MAX_RESUMED = 256  # forwards of an evaluation: each has an event at its end
MAX_PENDING = (
    32  # steps the device may be behind the thread, as with graphs and a look at the loss now and then
)
MAX_RESOLVED = 2  # a step: after a look at the loss many are there at once
MAX_COST_SHARE = 1e-3
MAX_BITS = 8  # one step in 256
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: its multiples come back to no place near
# Measured whatever they cost, 25 ms in all on an H200: there are findings to make, and ranks attach one after another.
FIRST_STEPS = 48
FIRST_COST_NS = 50_000_000  # or until they have cost this, twice as much: a step may have hundreds of borders
# A step's waits are told apart by where in their order they lie, in so many parts: who comes last may do so early in a
# step, and another one late in it.
PARTS_BITS = 3
MAX_STILL = 3
WAITED = 3  # times the cheapest border: one that takes longer has waited for room in the launch queue
STEPS_OF_MEAN = 16
DEAR_NS = 30_000  # of one border, with cold caches and a slow driver: beyond it even the cheapest has waited
# By phase: whether its begin is a border, and whether its end is one even if nothing follows at once. After the others
# the device has no work of its own until the next begins. (No comprehension: torch.compile would look into it.)
_WORK = (phases.DATA_WAIT, phases.FORWARD, phases.BACKWARD, phases.OPTIMIZER, phases.EVAL)
_ENDS = tuple(map(_WORK.__contains__, range(phases.NUM_PHASES)))
_BEGINS = tuple(map((*_WORK, phases.H2D).__contains__, range(phases.NUM_PHASES)))
# What the device does after the data has come and before forward is the copy.
_AFTER_DATA = phases.H2D
# What may lie between two forwards of one evaluation, and belongs to it, as on the thread's clock (`eval_span`).
_WITHIN_EVAL = (phases.DATA_WAIT, phases.H2D, phases.OTHER)
# Phases that may be interrupted: what happens inside the others (an exposed all-reduce, a copy) belongs to them.
_HOLDS = tuple(map((phases.OPTIMIZER, phases.OTHER).__contains__, range(phases.NUM_PHASES)))


# Step, its borders, and what was answered of them: see DeviceTimes.
_Pending = tuple[int, list[tuple[Any, int, int]], list[tuple[int, int]], list[tuple[int, int]]]


class DeviceTimes:
    """Borders of the step in the making, and the steps whose events the device has not passed yet."""

    __slots__ = (
        "are_waits_untold",
        "bits",
        "borders",
        "cost_ns",
        "costs",
        "device",
        "free",
        "home",
        "hook",
        "is_at_home",
        "is_failed",
        "knows_exchange",
        "least_bits",
        "least_ns",
        "num_dropped",
        "num_measured",
        "num_resumed",
        "num_still",
        "pending",
        "position",
        "put_event",
        "resolve_ns",
        "seen",
        "shards",
        "spent_ns",
        "step_ns",
        "unseen",
        "waited_ns",
    )

    def __init__(self, hook: Hook, put_event: Any, device: Accelerator) -> None:
        self.hook = hook
        self.put_event = put_event
        self.device = device
        self.free: list[Any] = []
        # (event, phase from here on, clock when recorded) of the step in the making; None: it is not measured.
        self.borders: list[tuple[Any, int, int]] | None = None
        # (index of a border, clock at which it had happened, or had not).
        self.seen: list[tuple[int, int]] = []
        self.unseen: list[tuple[int, int]] = []
        self.pending: list[_Pending] = []
        self.cost_ns = 0  # of this step's borders
        self.waited_ns = 0  # in them, for room in the launch queue
        self.spent_ns = 0  # so far
        self.costs = Median(
            0
        )  # of a measured step; one in which the launch queue was full must not count for many
        self.step_ns = 0.0  # a running mean
        self.least_ns = DEAR_NS  # of one border
        self.resolve_ns = 0  # what reading a step's events took last
        self.bits = self.least_bits = 0
        self.position = -1  # of the group's sequence, or the step's number, when the last step ended
        self.num_dropped = 0
        self.num_measured = 0
        self.num_resumed = 0  # of the step in the making, see MAX_RESUMED
        self.num_still = 0  # steps in which the group's sequence stood still
        self.is_failed = False
        self.knows_exchange = False  # a module of DDP was seen
        self.home: Any = None  # the stream of the step's first border
        self.is_at_home: Callable[[], bool] | None = None  # asked before a step is measured
        self.shards: Any = None  # ShardedWaits, where FSDP2 was imported
        self.are_waits_untold = False  # of no step: there are others that nobody sees

    @property
    def is_measuring(self) -> bool:
        """Whether borders are recorded in the step in the making."""
        return self.borders is not None

    def begins(self, phase: int, outer: int, now: int) -> None:
        """The thread has entered a phase, coming from `outer`."""
        if phase == phases.EVAL and self.borders and _HOLDS[outer]:
            self._resume()
        is_border = self.borders is not None and _BEGINS[phase] and _HOLDS[outer]
        if is_border or (self.borders and self._meets(phase, outer)):
            self._border(phase, now)
        elif self.borders is not None and (not self.borders or self._is_copy(phase, outer)):
            # A wait for a neighbour, with which a step begins or which follows its data: its device waits, too.
            self._border(phases.OTHER, now)

    def _is_copy(self, phase: int, outer: int) -> bool:
        """Whether the thread comes to a neighbour's message from where its device is taken to copy the batch."""
        borders = self.borders
        return (
            phase == phases.PIPELINE_IDLE
            and outer == phases.OTHER
            and bool(borders)
            and borders[-1][1] == _AFTER_DATA  # type: ignore[index]
        )

    def ends(self, phase: int, outer: int, now: int) -> None:
        """The thread has left a phase and is back in `outer`."""
        if not self.borders:
            return
        if _BEGINS[phase] and _HOLDS[outer]:
            if _ENDS[phase] or outer != phases.OTHER:
                self._border(_AFTER_DATA if phase == phases.DATA_WAIT else outer, now)
        elif self._meets(phase, outer):
            self._border(outer, now)

    def _resume(self) -> None:
        """An evaluation goes on: the borders since its latest forward are none, which a rollout has hundreds of."""
        borders: list[tuple[Any, int, int]] = self.borders  # type: ignore[assignment]
        last = len(borders) - 1
        while last >= 0 and borders[last][1] in _WITHIN_EVAL:
            last -= 1
        if last < 0 or borders[last][1] != phases.EVAL:
            return
        self.num_resumed += 1
        if self.num_resumed > MAX_RESUMED:
            self._drop()
            return
        self.free += [event for event, _, _ in borders[last + 1 :]]
        del borders[last + 1 :]
        for answers in self.seen, self.unseen:
            while answers and answers[-1][0] > last:
                answers.pop()

    def _meets(self, phase: int, outer: int) -> bool:
        """Whether ranks meet within forward (DDP's buffers, SyncBatchNorm): whoever is late is waited for there.

        Only beside an exchange of gradients whose wait is told, and on the stream that computes.
        """
        if phase != phases.COMM_EXPOSED or outer != phases.FORWARD or not self.knows_exchange:
            return False
        try:
            return bool(self.device.stream() == self.home)
        except Exception as error:  # noqa: BLE001 - the guard
            self._failed(error)
            return False

    def unasked(self) -> None:
        """The backward that has returned was not the one that exchanged gradients: its device waited for nobody."""
        borders = self.borders
        for index in range(len(borders or ()) - 1, -1, -1):
            event, phase, recorded_ns = borders[index]  # type: ignore[index]
            if phase == phases.COMM_EXPOSED:
                borders[index] = (event, phases.BACKWARD, recorded_ns)  # type: ignore[index]
                return

    def waits_untold(self) -> None:
        """What was seen of waits in the step in the making is not all: it stays with the phase that it lies in."""
        borders = self.borders or []
        for index in range(1, len(borders)):
            event, phase, recorded_ns = borders[index]
            if phase == phases.COMM_EXPOSED:
                borders[index] = (event, borders[index - 1][1], recorded_ns)

    def stands(self, now: int, stream: Any) -> None:
        """From here on the stream waits for a collective. now: since when this takes our time."""
        self._border(phases.COMM_EXPOSED, now, stream)

    def goes_on(self, phase: int, now: int, stream: Any) -> None:
        """It has come, and this phase goes on."""
        self._border(phase, now, stream)

    def arrives(self, stream: Any) -> None:
        """All work of this rank's backward lies on the stream: from here on its device waits for the others'."""
        self._border(phases.COMM_EXPOSED, monotonic_ns(), stream)

    def _border(self, phase: int, now: int, stream: Any = None) -> None:
        """The device's time from here on belongs to `phase`. stream: if not the thread's own."""
        borders = self.borders
        if borders is None or (borders and borders[-1][1] == phase):
            return
        try:
            if self.device.is_capturing() or len(borders) >= MAX_BORDERS:
                self._drop()
                return
            # Asked before the next is recorded: has the device caught up with the thread here?
            last = len(borders) - 1
            if borders and not (self.seen and self.seen[-1][0] == last):
                asked_ns = monotonic_ns()
                if borders[-1][0].query():
                    self.seen.append((last, monotonic_ns()))
                else:
                    if self.unseen and self.unseen[-1][0] == last:
                        self.unseen.pop()
                    self.unseen.append((last, asked_ns))
            event = self.free.pop() if self.free else self.device.event()
            if stream is None:
                stream = self.device.stream()
            if not borders:
                self.home = stream
            recorded_ns = monotonic_ns()
            self.device.record(event, stream)
            borders.append((event, phase, recorded_ns))
            cost_ns = monotonic_ns() - now
            self.least_ns = min(self.least_ns, cost_ns)
            # Where the launch queue is full it was waited for, as the training's next launch would have: no cost.
            most_ns = WAITED * self.least_ns
            self.cost_ns += min(cost_ns, most_ns)
            self.waited_ns += max(cost_ns - most_ns, 0)
        except Exception as error:  # noqa: BLE001 - the guard: a device in trouble is the host's to notice
            self._failed(error)

    def _drop(self) -> None:
        """Forget the step in the making; its events are free."""
        if self.borders is not None:
            self._forget(self.borders)
            self.borders = None
            self.costs.add(self.cost_ns)  # else it would be tried in every step
            self.num_measured += 1

    def forget_step(self) -> None:
        """The step in the making will never end: another thread trains now."""
        if self.borders is not None:
            self._forget(self.borders)
            self.borders, self.cost_ns = None, 0

    def move(self, device: Accelerator) -> None:
        """The training is on another device now; events belong to the one that they were recorded on."""
        self.device = device
        self.num_dropped += len(self.pending)
        self.pending.clear()
        self.free.clear()
        self.borders = None

    def _failed(self, error: Exception) -> None:
        """Never again; what a signal's handler raised ends the step in the making only, and goes on to the host."""
        self.borders = None
        if not is_the_hosts(error):
            self.is_failed = True
            self.pending.clear()
            self.free.clear()
        self.hook.failed(error)

    def close_step(self, step: int, step_ns: int, seq: int) -> int:
        """The thread's step has ended; what the device has passed meanwhile is written. Returns our own ns in it.

        seq: of the gradients' group at its end, negative where it is not known.
        """
        if self.is_failed:
            return 0
        own_ns = 0
        try:
            self._end_waits()
            if self.borders and not self._is_here():
                self._drop()  # within it the training went elsewhere
            if self.borders:
                self._border(sc.UNKNOWN, monotonic_ns())
            borders = self.borders
            if borders and len(borders) > 1:
                self.pending.append((step, borders, self.seen, self.unseen))
                self.costs.add(self.cost_ns + self.resolve_ns)
                self.num_measured += 1
                self.spent_ns += self.resolve_ns
            own_ns = self.cost_ns
            self.spent_ns += own_ns
            self.least_ns = min(
                self.least_ns + (self.least_ns >> 6), DEAR_NS
            )  # what is cheapest is found anew
            self.borders = None
            self.cost_ns = 0
            # The mean: where the thread runs ahead most steps are short, and one waits for all of them.
            self.step_ns += (step_ns - self.step_ns) / (STEPS_OF_MEAN if self.step_ns else 1)
            is_due = self._move(step, seq)
            if self.pending and not self.device.is_capturing():
                for _ in range(MAX_RESOLVED):
                    if not self.pending or not self._resolve():
                        break
                    own_ns += self.resolve_ns
            if is_due and len(self.pending) >= MAX_PENDING:
                self.least_bits = min(self.bits + 1, MAX_BITS)
            elif is_due and self._is_here():
                self._begin_step()
        except Exception as error:  # noqa: BLE001 - the guard
            self._failed(error)
        return own_ns

    def _begin_step(self) -> None:
        """The next step is measured."""
        self.borders, self.seen, self.unseen, self.num_resumed = [], [], [], 0
        if self.shards is not None:
            now = monotonic_ns()
            self.shards.put_in()
            self.cost_ns += monotonic_ns() - now

    def _end_waits(self) -> None:
        """Of the step that ends no more waits come."""
        if self.shards is not None and self.shards.is_in:
            now = monotonic_ns()
            self.shards.take_out(self)
            self.cost_ns += monotonic_ns() - now
        if self.are_waits_untold:
            self.waits_untold()

    def _is_here(self) -> bool:
        return self.is_at_home is None or self.is_at_home()

    def _move(self, step: int, seq: int) -> bool:
        """Whether the next step is to be measured."""
        position = step + 1 if seq < 0 or self.num_still >= MAX_STILL else seq
        before, self.position = self.position, position
        self.num_still += position == before  # a group without collectives tells nothing
        is_due = position != before and is_drawn(position, self.bits)
        period = self.costs.value / (MAX_COST_SHARE * max(1.0, self.step_ns))
        is_settled = self.num_measured >= FIRST_STEPS or self.spent_ns > FIRST_COST_NS
        wanted = (max(1, round(period)) - 1).bit_length() if is_settled else 0
        self.bits = min(max(wanted, self.least_bits), MAX_BITS)
        return is_due

    def _resolve(self) -> bool:
        """Write the oldest pending step; False if the device has not passed its last border."""
        step, borders, seen, unseen = self.pending[0]
        first, last = borders[0][0], borders[-1][0]
        asked_ns = monotonic_ns()
        if not last.query():  # never synchronize(): the training would wait with us
            if unseen and unseen[-1][0] == len(borders) - 1:
                unseen.pop()
            unseen.append((len(borders) - 1, asked_ns))
            return False
        now = monotonic_ns()
        seen.append((len(borders) - 1, now))
        del self.pending[0]
        passed_ns = [0] + [int(first.elapsed_time(event) * 1e6) for event, _, _ in borders[1:]]
        self.free += [event for event, _, _ in borders]
        # When the first border was passed, on the host's clock: no earlier, and no later than.
        earliest_ns = max(
            *(clock_ns - passed for (_, _, clock_ns), passed in zip(borders, passed_ns, strict=True)),
            *(clock_ns - passed_ns[index] for index, clock_ns in unseen),
        )
        latest_ns = max(earliest_ns, min(clock_ns - passed_ns[index] for index, clock_ns in seen))
        num_waits = sum(phase == phases.COMM_EXPOSED for _, phase, _ in borders)
        nth = 0  # of them
        for index in range(len(borders) - 1):
            begin_ns, end_ns = earliest_ns + passed_ns[index], earliest_ns + passed_ns[index + 1]
            behind_ns = max(0, end_ns - borders[index + 1][2])
            place = sc.UNKNOWN
            if num_waits > 1 and borders[index][1] == phases.COMM_EXPOSED:
                place = num_waits << PARTS_BITS | (nth << PARTS_BITS) // num_waits
                nth += 1
            slots = (
                step,
                begin_ns,
                end_ns,
                borders[index][1],
                latest_ns - earliest_ns,
                place,
                behind_ns,
            )
            self.put_event(KIND_DEVICE_PHASE, slots)
        self.resolve_ns = monotonic_ns() - now
        return True

    def _forget(self, borders: list[tuple[Any, int, int]]) -> None:
        self.free += [event for event, _, _ in borders]
        self.num_dropped += 1


def is_drawn(position: int, bits: int) -> bool:
    """Whether the step that begins at this place of the job is one in 2^bits; with fewer bits it is, too."""
    return not (position * GOLDEN & (1 << 64) - 1) >> 64 - bits


def look_for_device(probe: Host, optimizer: Any, hook: Hook) -> None:
    """After the first optimizer step: whether the training is on a device with a clock of its own, and which."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    parameter = next(parameters, None)
    device = None if parameter is None else accelerator.of_parameter(parameter, probe.captures)
    if device is None:
        kind = "cpu" if parameter is None else str(accelerator.device_of(parameter).type)
        why = accelerator.NOT_ON_DEVICE
        if kind not in accelerator.NO_DEVICES:  # whose threads' clocks say nothing of it
            probe.device_kind, why = kind, accelerator.NO_TIMES.replace("KIND", kind)
            probe.put_info()
        probe.absent("device_times", why)
        return
    probe.device_kind, probe.device_uuid = device.kind, device.uuid()
    probe.absences.pop("h2d", None)
    times = probe.clock.device = DeviceTimes(hook, probe.ring.put_event, device)
    times.knows_exchange = probe.has_wrapper
    times.shards = probe.shards
    followed: Any = ref(parameter)
    times.is_at_home = lambda: _is_at_home(probe, times, followed)
    probe.clock.alert(sc.DEVICE, True)
    stats = getattr(getattr(sys.modules["torch"], "_C", None), "_cuda_memoryStats", None)
    if stats is None or device.kind != "cuda":
        probe.absent("device_memory", "this torch has no allocator statistics")
    else:
        memory_hook = probe.hook("device_memory")
        probe.memory = DeviceMemory(memory_hook, probe.ring.put_event, lambda: stats(times.device.index))
    probe.put_info()


def _is_at_home(probe: Host, times: DeviceTimes, followed: Any) -> bool:
    """Whether the parameters are on the device whose events are recorded: a module may be moved, for good or a while.

    On another device the next steps are timed there; in the host's memory (offloaded) none is.
    """
    parameter = followed()
    if parameter is None:  # replaced: where its heirs are is not known
        return True
    device, home = accelerator.device_of(parameter), times.device
    if (device.type, device.index or 0) == (home.device_type, home.index):
        return True
    moved = accelerator.of_parameter(parameter, home.captures)
    if moved is None or moved.kind != home.kind:
        return False
    times.move(moved)
    probe.device_uuid = moved.uuid()
    probe.put_info()
    return True
