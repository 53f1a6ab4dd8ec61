"""Self times of the phases of a step, one record a step, written by the training thread alone.

A stack of phases: time always belongs to the innermost one, so nested phases (a collective inside forward, a backward
inside the optimizer's closure) are counted once and the parts sum to the step exactly. A step ends where the next
iteration begins: at the first data, forward or backward event after an optimizer step. Budget: about 1 us a
transition with warm caches, no lock, no allocation beyond the record.
"""

from __future__ import annotations

import os
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from . import forks
from . import ring as ring_file
from .duty import Median

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
_BEGINS_ITERATION = (True, False, True, True, False, False, False, True, True, False)
# What happens inside these is part of them: the loads of an evaluation, the barrier of a checkpoint.
_ABSORBS = (False, False, False, False, False, False, True, True, False, False)

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
LONG_GC_NS = 1_000_000


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
        "detail_flag",
        "device",
        "flags",
        "gc_ns",
        "group_seq",
        "last_cpu_ns",
        "last_seq",
        "last_step_ns",
        "last_step_own_ns",
        "measuring",
        "micro_steps",
        "num_measured",
        "num_transitions",
        "observed",
        "on_step",
        "own",
        "own_ns",
        "phase",
        "pid",
        "price_ns",
        "release_ns",
        "ring",
        "samples",
        "since",
        "stack",
        "step",
        "stepped",
        "thread_ident",
        "tokens",
        "totals",
        "transition_ns",
        "words",
        "write_ns",
    )

    def __init__(self, ring: Any, thread_ident: int, on_step: Callable[[], None]) -> None:
        """on_step() is called after each written step: the place for leases, commands and late discoveries."""
        self.ring = ring
        self.words = ring.words  # the ring's header, for the three words that say where the thread is now
        self.thread_ident = thread_ident
        self.own = forks.page_with(thread_ident)  # [0] is the ident here, 0 in a forked child
        self.on_step = on_step
        self.pid = os.getpid()
        self.active = True
        self.step = 0
        self.stack: list[int] = []
        self.phase = OTHER
        self.observed = 0
        self.device: Any = None  # DeviceTimes, where the training is on a device
        self.group_seq: Callable[[], int] | None = None  # sequence number of the gradient group
        self.last_seq = UNKNOWN
        self.last_cpu_ns = UNKNOWN
        self.write_ns = 0  # what writing the last record cost
        self.transition_ns = 0  # cost of one transition: calibrated, then measured in steps of the training
        self.price_ns = Median(0)
        self.measuring = False  # hooks time themselves in this step
        self.detail_flag = 0  # FLAG_DETAIL while calls are recorded one by one
        self.last_step_ns = 0
        self.last_step_own_ns = 0  # what the probe took of the last step
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
        """Time from now on belongs to `phase`; returns the clock, 0 to stay out (probe gone, absorbing phase)."""
        if _ABSORBS[self.phase]:
            return 0
        now = monotonic_ns()
        if self.stepped and _BEGINS_ITERATION[phase] and not self.stack:
            now = self.close_step(now)
        if not self.active:
            return 0
        self.totals[self.phase] += now - self.since
        self.stack.append(self.phase)
        self.phase = phase
        self.since = now
        self.num_transitions += 2
        words = self.words
        words[NOW_PHASE] = phase
        words[NOW_SINCE] = now
        if self.device is not None:
            self.device.begins(phase, self.stack[-1], now)
        return now

    def leave(self) -> int:
        """Back to the phase that was interrupted; returns the clock."""
        now = monotonic_ns()
        if not self.active:
            return now
        ended = self.phase
        self.totals[ended] += now - self.since
        self.since = now
        self.phase = phase = self.stack.pop() if self.stack else OTHER
        words = self.words
        words[NOW_PHASE] = phase
        words[NOW_SINCE] = now
        if self.device is not None:
            self.device.ends(ended, phase, now)
        return now

    def count_entry(self, own_ns: int, begin_ns: int) -> None:
        """Our own time at the entry of a hook; begin_ns: what `enter` returned, 0: it stayed out."""
        if self.measuring:
            self.own_ns += own_ns
            if begin_ns == self.begin:  # the step before was closed in between: that is in write_ns
                self.own_ns -= self.write_ns
            if begin_ns:
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
        """Write the record of the step that ends at `now`; returns the clock after writing."""
        if os.getpid() != self.pid:  # a forked child (loader worker) inherited us: the ring is not ours
            self.active = False
            return now
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
        device_ns = self.device.cost_ns if self.device is not None else 0
        own_ns = self.write_ns + device_ns + self._hooks_ns(device_ns)
        self.last_step_ns = now - self.begin
        self.last_step_own_ns = own_ns
        flags = self.flags | self.detail_flag
        if self.arrive_ns == UNKNOWN:
            flags |= FLAG_NO_SYNC
        if self.gc_ns > LONG_GC_NS:
            flags |= FLAG_GC
        hidden_ns = self.comm_hidden_ns
        comm_total_ns = UNKNOWN if hidden_ns == UNKNOWN else hidden_ns + self.totals[COMM_EXPOSED]
        self.ring.put_step(
            (
                self.step,
                self.begin,
                now,
                *self.totals,
                self.arrive_ns,
                self.release_ns,
                comm_total_ns,
                seq,
                num_collectives,
                self.comm_bytes,
                self.micro_steps,
                self.samples,
                self.tokens,
                flags,
                self.observed | 1 << OTHER,
                own_ns,
                self.gc_ns,
                UNKNOWN,
                cpu_ns,
            )
        )
        if self.device is not None:
            self.device.close_step(self.step, now - self.begin)
        self.step += 1
        self.words[NOW_STEP] = self.step
        self.begin = now
        self._reset()
        if self.step % CPU_PERIOD == 0:
            self.last_cpu_ns = thread_time_ns()
        self.on_step()
        after = monotonic_ns()
        self.write_ns = after - now
        return now

    def _hooks_ns(self, device_ns: int) -> int:
        """The hooks' own time in this step: measured, or its transitions at the price measured in other steps.

        device_ns: within it, the time spent on device events, which not every step has.
        """
        if not self.num_measured:
            return self.num_transitions * self.transition_ns
        price_ns = max(0, self.own_ns - device_ns) // self.num_measured
        if not self.detail_flag:
            self.price_ns.add(price_ns)
            self.transition_ns = self.price_ns.value
        return price_ns * max(self.num_transitions, self.num_measured)

    def flush(self) -> None:
        """Write a finished step that no later event has closed (training ended, probe leaves)."""
        if self.active and self.stepped:
            self.close_step(monotonic_ns())


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
