"""Self times of the phases of a step, one record a step, written by the training thread alone.

Phases nest: time always belongs to the innermost one, so nested phases (a collective inside forward, a backward
inside the optimizer's closure) are counted once and the parts sum to the step exactly. A step ends where the next
iteration begins: at the first data, forward or backward event after an optimizer step. Budget: about 1 us a
transition with warm caches, no lock, no allocation beyond the record.

What a step costs is decided by the caches, which the training's own work has emptied: the same lines take ten times as
long after a matrix product. So an ended step is only kept (`close_step`), and kept steps are written together
(`settle`), several in a row with warm caches, after 0.2 s at the latest; the first of them pays for all.
"""

from __future__ import annotations

import os
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from . import forks
from . import ring as ring_file
from .step_record import OwnCost, write

if TYPE_CHECKING:
    from collections.abc import Callable

(
    DATA_WAIT,
    H2D,
    FORWARD,
    BACKWARD,
    COMM_EXPOSED,
    OPTIMIZER,
    CHECKPOINT,
    EVAL,
    PIPELINE_IDLE,
    OTHER,
) = range(10)
BEGINS_ITERATION = (True, False, True, True, False, False, False, True, True, False)
# What happens inside these is part of them: the loads of an evaluation, the barrier of a checkpoint.
ABSORBS = (False, False, False, False, False, False, True, True, False, False)

FLAG_FIRST, FLAG_COMPILE, FLAG_CHECKPOINT, FLAG_EVAL, FLAG_SCALER_SKIP, FLAG_GC, FLAG_DETAIL, FLAG_NO_SYNC = (
    1,
    2,
    4,
    8,
    16,
    32,
    64,
    128,
)
NOW_PHASE, NOW_SINCE, NOW_STEP = range(ring_file.OFFSET_NOW // 8, ring_file.OFFSET_NOW // 8 + 3)
UNKNOWN = -1
CPU_PERIOD = 8  # the thread's CPU clock is a real system call, 2 us with cold caches: one step in eight
MAX_DEPTH = 64  # of phases inside phases
MAX_KEPT_NS = 200_000_000  # a step is written at most so long after its end, if another one ends by then
FAR = 1 << 62


class StepClock:
    """Accumulates one step. Every method is called from the training thread only."""

    __slots__ = (
        "active",
        "arrive_ns",
        "backward_ended",
        "begin",
        "comm_before_ns",
        "comm_bytes",
        "comm_hidden_ns",
        "cost",
        "depth",
        "detail_flag",
        "device",
        "flags",
        "gc_ns",
        "group_seq",
        "kept",
        "last_cpu_ns",
        "last_seq",
        "max_kept",
        "measuring",
        "micro_steps",
        "momentary",
        "num_measured",
        "num_transitions",
        "observed",
        "on_step",
        "outers",
        "own",
        "own_ns",
        "peak_bytes",
        "phase",
        "pid",
        "release_ns",
        "ring",
        "samples",
        "settle_at_ns",
        "settle_at_seq",
        "settled",
        "since",
        "step",
        "stepped",
        "thread_ident",
        "tokens",
        "totals",
        "words",
        "write_ns",
    )

    def __init__(self, ring: Any, thread_ident: int, on_step: Callable[[], None]) -> None:
        """on_step() is called when steps were written: the place for leases, commands and late discoveries.

        It finds them in `settled`, and says by max_kept, settle_at_ns and settle_at_seq when the next are due.
        """
        self.ring = ring
        self.words = ring.words  # the ring's header, for the three words that say where the thread is now
        self.thread_ident = thread_ident
        self.own = forks.page_with(thread_ident)  # [0] is the ident here, 0 in a forked child
        self.on_step = on_step
        self.pid = os.getpid()
        self.active = True
        self.step = 0
        self.outers = [OTHER] * MAX_DEPTH  # the phases around this one
        self.depth = 0  # how many of them there are
        self.phase = OTHER
        self.observed = 0
        self.device: Any = None  # DeviceTimes, where the training is on a device
        self.peak_bytes = UNKNOWN  # of the device's memory, for the next record
        self.group_seq: Callable[[], int] | None = None  # sequence number of the gradient group
        self.last_seq = UNKNOWN
        self.last_cpu_ns = UNKNOWN
        self.kept: list[tuple[Any, ...]] = []  # ended steps that are not written yet
        self.settled: list[Any] = []  # of the steps just written, see step_record.write
        self.max_kept = 1
        self.settle_at_ns = self.settle_at_seq = FAR
        self.momentary = 0  # bits of `observed` that hold for one step only
        self.write_ns = 0  # what closing and writing took at the last transition
        self.cost = OwnCost()
        self.measuring = False  # hooks time themselves in this step
        self.detail_flag = 0  # FLAG_DETAIL while calls are recorded one by one
        self.comm_bytes = UNKNOWN
        self.comm_before_ns = 0  # exposed communication of all closed steps
        self.since = self.begin = monotonic_ns()
        self._reset()
        self.flags = FLAG_FIRST

    def _reset(self) -> None:
        self.totals = [0] * 10
        self.stepped = False
        self.flags = 0
        self.arrive_ns = UNKNOWN
        self.release_ns = UNKNOWN
        self.comm_hidden_ns = UNKNOWN
        self.micro_steps = 0
        self.samples = UNKNOWN
        self.tokens = UNKNOWN
        self.gc_ns = 0
        self.num_transitions = 0
        self.own_ns = 0  # of our own time in hooks, where it is measured
        self.num_measured = 0  # transitions in it
        self.backward_ended = False  # gradients are there; a collective from now on may be their reduction

    def enter(self, phase: int) -> int:
        """Time from now on belongs to `phase`; returns the clock, 0 to stay out (probe gone, absorbing phase).

        `guard.timed` has the same lines inline, as it has those of `leave`: there a call more is felt.
        """
        outer = self.phase
        if ABSORBS[outer]:
            return 0
        now = monotonic_ns()
        depth = self.depth
        if self.stepped and BEGINS_ITERATION[phase] and not depth:
            self.close_step(now)
        if not self.active or depth >= MAX_DEPTH:
            return 0
        self.totals[outer] += now - self.since
        self.outers[depth] = outer
        self.depth = depth + 1
        self.phase = phase
        self.since = now
        self.num_transitions += 2
        words = self.words
        words[NOW_PHASE] = phase
        words[NOW_SINCE] = now
        if self.device is not None:
            self.device.begins(phase, outer, now)
        return now

    def leave(self) -> int:
        """Back to the phase that was interrupted; returns the clock."""
        now = monotonic_ns()
        if not self.active:
            return now
        ended = self.phase
        self.totals[ended] += now - self.since
        self.since = now
        phase = OTHER
        if self.depth:
            self.depth = depth = self.depth - 1
            phase = self.outers[depth]
        self.phase = phase
        words = self.words
        words[NOW_PHASE] = phase
        words[NOW_SINCE] = now
        if self.device is not None:
            self.device.ends(ended, phase, now)
        return now

    def count_entry(self, own_ns: int, is_in: bool, has_closed: bool) -> None:
        """Our own time at the entry of a hook, which it may have stayed out of, or have closed a step in."""
        if self.measuring:
            self.own_ns += own_ns - (self.write_ns if has_closed else 0)
            if is_in:
                self.num_measured += 1

    def count_exit(self, own_ns: int) -> None:
        """Our own time since the host's call returned."""
        if self.measuring:
            self.own_ns += own_ns
            self.num_measured += 1

    def move(self, duration_ns: int, source: int, target: int) -> None:
        """Reassign time already booked: the backward wrapper learns afterwards how much of it was waiting."""
        self.totals[source] -= duration_ns
        self.totals[target] += duration_ns

    def close_step(self, now: int) -> int:
        """Keep the step that ends at `now`, write all that are kept if it is time; returns `now`."""
        self.totals[self.phase] += now - self.since
        self.since = now
        self.comm_before_ns += self.totals[COMM_EXPOSED]
        seq = UNKNOWN
        num_collectives = UNKNOWN
        if self.group_seq is not None:
            seq = self.group_seq()
            if self.last_seq != UNKNOWN:
                num_collectives = seq - self.last_seq
            self.last_seq = seq
        cpu_ns = UNKNOWN
        if self.last_cpu_ns != UNKNOWN:
            cpu_ns = thread_time_ns() - self.last_cpu_ns
            self.last_cpu_ns = UNKNOWN
        device_ns = 0
        if self.device is not None:
            device_ns = self.device.cost_ns
            self.device.close_step(self.step, now - self.begin)
        step, flags = self.step, self.flags
        self.kept.append(
            (
                step,
                self.begin,
                now,
                self.totals,
                self.arrive_ns,
                self.release_ns,
                self.comm_hidden_ns,
                seq,
                num_collectives,
                self.comm_bytes,
                self.micro_steps,
                self.samples,
                self.tokens,
                flags | self.detail_flag,
                self.observed,
                self.gc_ns,
                cpu_ns,
                device_ns,
                self.own_ns,
                self.num_measured,
                self.num_transitions,
            )
        )
        self.observed &= ~self.momentary
        self.step = step = step + 1
        self.words[NOW_STEP] = step
        self.begin = now
        self._reset()
        if not step % CPU_PERIOD:
            self.last_cpu_ns = thread_time_ns()
        # What is out of the ordinary (compiled, evaluated, skipped, captured) is told at once.
        if flags or len(self.kept) >= self.max_kept or now >= self.settle_at_ns or seq >= self.settle_at_seq:
            self.settle(now)
        return now

    def settle(self, now: int) -> None:
        """Write the kept steps, the last of which ended at `now`, and look after everything that can wait."""
        if os.getpid() != self.pid:  # a forked child (loader worker) inherited us: the ring is not ours
            self.active = False
            return
        begin_ns, cpu_ns = monotonic_ns(), thread_time_ns()
        self.cost.closing_ns.add(begin_ns - now)
        self.write_kept()
        self.settle_at_ns = now + MAX_KEPT_NS
        self.on_step()
        self.cost.unbooked_ns += thread_time_ns() - cpu_ns
        self.write_ns = monotonic_ns() - now

    def write_kept(self) -> None:
        """The kept steps into the ring, and nothing else."""
        kept, self.kept = self.kept, []
        self.settled = write(self.ring, kept, self.cost, self.peak_bytes)
        self.peak_bytes = UNKNOWN

    def flush(self) -> None:
        """Write what is kept and a finished step that no later event has closed (training ended, probe leaves)."""
        if self.active and self.stepped:
            self.close_step(monotonic_ns())
        if self.active and self.kept and os.getpid() == self.pid:
            self.write_kept()


def calibrate() -> int:
    """Nanoseconds of one enter or leave with warm caches, on a scratch ring in memory."""
    scratch = StepClock(_NullRing(), 0, lambda: None)
    rounds = 200
    begin = monotonic_ns()
    for _ in range(rounds):
        scratch.enter(FORWARD)
        scratch.leave()
    return (monotonic_ns() - begin) // (2 * rounds)


class _NullRing:
    """The header words of a ring, without a file."""

    def __init__(self) -> None:
        self.words = memoryview(bytearray(ring_file.INFO_OFFSET)).cast("q")
