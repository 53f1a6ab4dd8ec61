"""Self times of the phases of a step, one record a step, written by the training thread alone.

Phases nest: time always belongs to the innermost one, so nested phases (a collective inside forward, a backward
inside the optimizer's closure) are counted once and the parts sum to the step exactly. A step ends where the next
iteration begins: at the first data, forward or backward event after an optimizer step; where several optimizers take
turns, after the last of them (`optimizer_turns`). No lock.

What a step costs is decided by the caches, which the training's own work has emptied: the same lines take ten times as
long after a matrix product. So a hook only notes what happened, a number and a time in a list (`Thin`, `guard.timed`),
and an ended step is noted likewise (`close_step`). The notes of several steps are booked in a row with warm caches
(`Books.book`) and written (`settle`), after 0.2 s at the latest; the first of them pays for all.
"""

from __future__ import annotations

import os
from threading import get_ident, get_native_id
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from . import forks, native
from . import ring as ring_file
from .books import CLOSED, LATER, MAX_NOTES, Books
from .collections_log import taken
from .phases import (
    ABSORBS,
    BACKWARD,
    BEGINS_ITERATION,
    DATA_WAIT,
    OTHER,
)
from .step_record import LONG_GC_NS, OwnCost, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from .optimizer_turns import Turns

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
NOW, NOW_STEP = ring_file.OFFSET_NOW // 8, ring_file.OFFSET_NOW // 8 + 2
THREAD, BURST = ring_file.OFFSET_THREAD // 8, ring_file.OFFSET_BURST // 8
UNKNOWN = -1
KIND_GC = 34
CPU_PERIOD = 8  # the thread's CPU clock is a real system call, 2 us with cold caches: one step in eight
SPOT_CHECK, SPOT_CHECK_AT = 32, 5  # every so many steps, not in one with the CPU clock
MAX_KEPT_NS = 200_000_000  # a step is written at most so long after its end, if another one ends by then
# The native core writes steps by itself, and for less than it costs to look after everything else beside it: leases,
# prices, late modules. That is done so often then, at once where the agent's words ask for something.
MAX_ALONE_NS = 1_000_000_000
MAX_BOOKED = 64  # steps that are kept until they are written together
FAR = 1 << 62

# Bits of Thin.alert: what a hook has to look after beyond noting that it was passed.
STEPPED, GONE, BROKEN, DEVICE, EVALUATING, MEASURING, BARRIER, ASKING = 1, 2, 4, 8, 16, 32, 64, 128
LOOKING = 256  # somebody reads the arguments of the next forward: the native core leaves it to Python's hook
STOPPED = GONE | BROKEN
CARE = STEPPED | ASKING | STOPPED | DEVICE | EVALUATING


class Thin:
    """All of the clock that a hook touches in a plain step: two words beside each other, one line of the cache."""

    __slots__ = ("alert", "phase")

    def __init__(self) -> None:
        self.alert = 0
        self.phase = OTHER


if TYPE_CHECKING or native.core is None:

    class Numbers:
        """What hooks and the end of a step count with; the native core has its own."""

        __slots__ = (
            "awaited",
            "awaited_ns",
            "begin",
            "burst_seen",
            "closing_ns",
            "comm_bytes",
            "detail_flag",
            "device",
            "eval_end_ns",
            "eval_step",
            "flags",
            "gc_log",
            "gc_ns",
            "group_of",
            "group_seq",
            "is_alone",
            "last_cpu_ns",
            "last_cpu_thread",
            "last_seq",
            "latest_ready",
            "light_ns",
            "max_kept",
            "micro_steps",
            "momentary",
            "next_look",
            "num_evaluated",
            "num_kept",
            "num_measured",
            "num_optimized",
            "num_written",
            "own_ns",
            "said",
            "samples",
            "settle_at_ns",
            "settle_at_seq",
            "share_ns",
            "sole_ddp",
            "spot_checks",
            "step",
            "tokens",
            "turns",
            "write_at_ns",
            "write_ns",
        )
        group_seq: Callable[[], int] | None  # sequence number of the gradient group
        group_of: Callable[[], Any] | None  # the DDP module whose group that is, weakly
        # For the native core: the only DDP module there is, weakly, and the one whose gradients are still to be
        # exchanged, since its forward ended; Python's hooks take that over where they come by instead (`model_hooks`).
        sole_ddp: Callable[[], Any] | None
        awaited: Callable[[], Any] | None
        awaited_ns: int
        gc_log: Any  # `collections_log`, once it is kept
        latest_ready: int  # of one module's gradients, by its reducer's clock, in the last exchange

        def let_go(self) -> None:
            """The ring's mapping goes."""
else:
    Numbers = native.core.Base


class StepClock(Numbers):
    """Accumulates one step. Every method is called from the training thread only, whichever that is now."""

    __slots__ = (
        "_active",
        "books",
        "cost",
        "early",
        "eval_span",
        "log",
        "num_settled",
        "on_step",
        "outers",
        "own",
        "peak_bytes",
        "pid",
        "ring",
        "settled",
        "settled_ns",
        "thin",
        "thread_ident",
        "words",
    )

    def __init__(self, ring: Any, thread_ident: int, on_step: Callable[[], None]) -> None:
        """on_step() is called when steps were written: the place for leases, commands and late discoveries.

        It finds them in `settled`, and says by max_kept, settle_at_ns and settle_at_seq when the next are due.
        """
        self.ring = ring
        self.words = ring.words  # the ring's header, for the two words that say where the thread is now
        self.thread_ident = thread_ident
        self.own = forks.page_with(thread_ident)  # [0] is the ident here, 0 in a forked child
        self.on_step = on_step
        self.pid = os.getpid()
        self._active = True
        self.thin: Thin = Thin() if native.core is None else native.core.Thin()
        self.step = 0
        self.outers: list[int] = []  # the phases around this one, where `enter` came by
        self.said = 0  # bits of `observed` that hooks set themselves; the others come with the notes
        # DeviceTimes, where the training is on a device; EvalSpan.
        self.device: Any = None
        self.eval_span: Any = None
        # Of the evaluation under way: its step, when its latest forward ended (0: there is none), how many they were.
        self.eval_step, self.eval_end_ns, self.num_evaluated = UNKNOWN, 0, 0
        self.turns: Turns | None = None  # where several optimizers step
        self.peak_bytes = UNKNOWN  # of the device's memory, for the next record
        self.group_seq = self.group_of = self.sole_ddp = self.awaited = self.gc_log = None
        self.awaited_ns, self.latest_ready = 0, UNKNOWN
        self.last_seq = self.last_cpu_ns = UNKNOWN
        self.last_cpu_thread = 0  # native id: an ended thread's ident is given to the next one
        self.num_kept = 0  # ended steps that are not written yet
        self.settled: list[Any] = []  # of the steps just written, or of some of them; see step_record.write
        self.num_settled = self.settled_ns = 0  # how many they were, when
        self.max_kept = 1
        self.early: list[Any] = []  # the same of those that the native core wrote by itself
        self.settle_at_ns = self.settle_at_seq = self.write_at_ns = FAR
        self.burst_seen = 0  # the agent's wish for detail, as of the last time everything was looked after
        self.momentary = 0  # bits of `observed` that hold for one step only
        self.write_ns = 0  # what closing and writing took in a transition that is measured
        self.spot_checks = (
            False  # single steps are measured, which are kept and written like those around them
        )
        self.cost = OwnCost()
        # The native core writes a step's record by itself, at its end, with these prices; how many it has written.
        self.is_alone, self.num_written = False, getattr(ring, "num_steps", 0)
        self.light_ns = self.closing_ns = self.share_ns = 0
        self.detail_flag = 0  # FLAG_DETAIL while calls are recorded one by one
        self.comm_bytes = UNKNOWN
        self.begin = monotonic_ns()
        self.books: Books = Books(self.begin) if native.core is None else native.core.Books(self.begin)
        # Notes, two items each: see `books`. The native ones book them as they come.
        self.log: Any = [] if native.core is None else self.books
        self.num_optimized = 0  # optimizer steps that ended
        self.next_look = 0  # the step at which the optimizer's hook looks for what has changed
        # Of the step in the making:
        self.flags = FLAG_FIRST
        self.micro_steps = 0  # beside those that the notes tell
        self.samples = self.tokens = UNKNOWN
        self.gc_ns = 0
        self.own_ns = 0  # of our own time in hooks, where it is measured
        self.num_measured = 0  # transitions in it
        if native.core is not None:
            # While it is calibrated there is no file.
            ring_map, capacity = getattr(ring, "map", None), getattr(ring, "step_capacity", 0)
            native.core.bind(self, self.thin, self.books, self.words, self.own, ring_map, capacity)

    def alert(self, bit: int, is_so: bool) -> None:
        """Set or clear one bit of Thin.alert."""
        thin = self.thin
        thin.alert = thin.alert | bit if is_so else thin.alert & ~bit

    @property
    def phase(self) -> int:
        """What the training thread is in."""
        return self.thin.phase

    @property
    def stepped(self) -> bool:
        """An optimizer step is over; the next data, forward or backward event begins another step."""
        return bool(self.thin.alert & STEPPED)

    @stepped.setter
    def stepped(self, is_so: bool) -> None:
        self.alert(STEPPED, is_so)

    @property
    def active(self) -> bool:
        """False once the probe has left, and in a forked child."""
        return self._active

    @active.setter
    def active(self, is_so: bool) -> None:
        self._active = is_so
        self.alert(GONE, not is_so)

    @property
    def measuring(self) -> bool:
        """Hooks time themselves in this step."""
        return bool(self.thin.alert & MEASURING)

    @measuring.setter
    def measuring(self, is_so: bool) -> None:
        self.alert(MEASURING, is_so)

    @property
    def observed(self) -> int:
        """Bit i: phase i has a working hook. As of the last booking."""
        return self.said | self.books.seen

    @property
    def totals(self) -> list[int]:
        """Nanoseconds by phase of the step in the making, until its last border."""
        self.catch_up()
        return self.books.totals

    @property
    def arrive_ns(self) -> int:
        """When this rank came to the step's last barrier."""
        self.catch_up()
        return self.books.arrive_ns

    @property
    def release_ns(self) -> int:
        """When it left it."""
        self.catch_up()
        return self.books.release_ns

    def catch_up(self) -> None:
        """Book what was noted."""
        self.books.book(self.log)

    def later(self, function: Callable[..., None], *arguments: int) -> None:
        """function(*arguments) when all that was noted before has been booked."""
        self.log.extend((LATER, (function, arguments)))

    def restart(self, now: int) -> None:
        """The step in the making begins now."""
        if self.gc_log:
            taken(self.gc_log)
        self.log.clear()
        self.begin = now
        self.books.restart(now)

    def change(self, phase: int, now: int) -> None:
        """Time from now on belongs to `phase`. `guard.timed` and `optimizer_hook` have these lines inline."""
        self.thin.phase = phase
        self.log.extend((phase, now))
        self.words[NOW] = now << 4 | phase
        if len(self.log) > MAX_NOTES:
            self.catch_up()

    def admit(self, phase: int) -> int:
        """Before a phase is entered while there is something to look after; returns the clock, 0 to stay out."""
        thin = self.thin
        if not self._active:
            return 0
        if thin.alert & EVALUATING and phase == BACKWARD:
            self.eval_span.before_backward()
        now = monotonic_ns()
        if thin.alert & (STEPPED | ASKING) and BEGINS_ITERATION[phase] and thin.phase == OTHER:
            if self.turns is None or self.turns.ends(phase == DATA_WAIT):
                self.close_step(now)
                if thin.alert & GONE:
                    return 0
            else:
                thin.alert = thin.alert & ~STEPPED | (ASKING if self.turns.asks_again else 0)
        if self.device is not None:
            self.device.begins(phase, thin.phase, now)
        return now

    def enter(self, phase: int) -> int:
        """Time from now on belongs to `phase`; returns the clock, 0 to stay out (probe gone, absorbing phase)."""
        outer = self.thin.phase
        if ABSORBS[outer]:
            return 0
        now = self.admit(phase)
        if now:
            self.outers.append(outer)
            self.change(phase, now)
        return now

    def leave(self) -> int:
        """Back to the phase that `enter` interrupted; returns the clock."""
        now = monotonic_ns()
        if self._active and self.outers:
            ended, outer = self.thin.phase, self.outers.pop()
            self.change(outer, now)
            if self.device is not None:
                self.device.ends(ended, outer, now)
        return now

    def stand_in(self, *_args: Any, **_kwargs: Any) -> bool:
        """What a hook has cost before its first line, once more and where it can be timed: a call, and whose it is."""
        return bool(get_ident() != self.own[0])

    def count_own(self, own_ns: int) -> None:
        """Our own time at one change of phase of a measured step, the end of a step in it aside."""
        self.own_ns += own_ns - self.write_ns
        self.write_ns = 0
        self.num_measured += 1

    def move(self, duration_ns: int, source: int, target: int) -> None:
        """Reassign time already booked: the backward wrapper learns afterwards how much of it was waiting."""
        self.later(self.books.move, duration_ns, source, target)

    def synchronized(self, arrive_ns: int, release_ns: int) -> None:
        """A wait that has been noted as exposed communication brought the ranks into line: see `Books.synchronized`."""
        self.later(self.books.synchronized, arrive_ns, release_ns)

    def close_step(self, now: int) -> int:
        """Note the end of the step at `now`, and settle if it is time; returns `now`."""
        seq = UNKNOWN
        num_collectives = UNKNOWN
        if self.group_seq is not None:
            seq = self.group_seq()
            if UNKNOWN not in (seq, self.last_seq):  # the module whose group it was may have gone
                num_collectives = seq - self.last_seq
            self.last_seq = seq
        cpu_ns = UNKNOWN
        if self.last_cpu_ns != UNKNOWN:
            if get_native_id() == self.last_cpu_thread:
                cpu_ns = thread_time_ns() - self.last_cpu_ns
            self.last_cpu_ns = UNKNOWN
        device_ns = waited_ns = 0
        if self.device is not None:
            device_ns = self.device.close_step(self.step, now - self.begin, seq)
            waited_ns, self.device.waited_ns = self.device.waited_ns, 0
        if self.gc_log:
            self.take_collections()
        step, flags = self.step, self.flags
        own_ns, num_measured = max(self.own_ns - waited_ns, 0), self.num_measured
        self.own_ns = self.num_measured = 0
        was = next_one = self.thin.alert & MEASURING
        if self.spot_checks:
            if was:  # the hook that closes a step is the first of the next one: the check ends there and is told there
                next_one = 0
                self.own_ns, self.num_measured, own_ns, num_measured = own_ns, num_measured, 0, 0
            elif step % SPOT_CHECK == SPOT_CHECK_AT:
                next_one = MEASURING
        self.log.extend(
            (
                CLOSED,
                (
                    now,
                    step,
                    self.said,
                    self.momentary,
                    self.micro_steps,
                    (
                        seq,
                        num_collectives,
                        self.comm_bytes,
                        self.samples,
                        self.tokens,
                        flags | self.detail_flag,
                        self.gc_ns,
                        cpu_ns,
                        device_ns,
                        own_ns,
                        num_measured,
                    ),
                ),
            )
        )
        self.said &= ~self.momentary
        self.step = step = step + 1
        self.num_kept += 1
        self.words[NOW_STEP] = step
        self.begin = now
        self.thin.alert = self.thin.alert & ~(STEPPED | ASKING | MEASURING) | next_one
        self.flags = self.micro_steps = self.gc_ns = 0
        self.samples = self.tokens = UNKNOWN
        if not step % CPU_PERIOD:
            self.last_cpu_ns, self.last_cpu_thread = thread_time_ns(), get_native_id()
        # What is out of the ordinary (compiled, evaluated, skipped, captured) is told at once.
        if (
            flags
            or self.num_kept >= min(self.max_kept, MAX_BOOKED)
            or now >= self.settle_at_ns
            or now >= self.write_at_ns
            or seq >= self.settle_at_seq
            or len(self.log) > MAX_NOTES
        ):
            self.settle(now)
        elif was:
            self.closed(now)
        self.write_ns = monotonic_ns() - now if was else 0
        return now

    def take_collections(self) -> None:
        """What the garbage collector took of the step that ends, in our own thread."""
        for begin_ns, end_ns, ident in taken(self.gc_log):
            if ident != self.own[0]:
                continue
            self.gc_ns += end_ns - begin_ns
            if end_ns - begin_ns > LONG_GC_NS and os.getpid() == self.pid:
                self.ring.put_event(
                    KIND_GC, (self.step, begin_ns, end_ns, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
                )

    def closed(self, now: int) -> None:
        """A measured step that ended at `now` is kept."""
        self.cost.closing_ns.add(monotonic_ns() - now)

    def settle(self, now: int) -> None:
        """Write the kept steps, the last of which ended at `now`, and look after everything that can wait."""
        if os.getpid() != self.pid:  # a forked child (loader worker) inherited us: the ring is not ours
            self.active = False
            return
        begin_ns, cpu_ns = monotonic_ns(), thread_time_ns()
        self.cost.closing_ns.add(begin_ns - now)
        self.words[THREAD] = get_native_id()
        self.write_kept()
        self.write_at_ns = now + MAX_KEPT_NS
        self.settle_at_ns = now + MAX_ALONE_NS
        self.burst_seen = self.words[BURST]
        self.on_step()
        self.cost.unbooked_ns += thread_time_ns() - cpu_ns
        if native.core is not None:
            self.price_alone(now)

    def price_alone(self, now: int) -> None:
        """What the native core says of the own cost of steps that it writes by itself, until the next `settle`."""
        cost = self.cost
        self.light_ns, self.closing_ns = cost.transition_ns.value, cost.closing_ns.value
        a_step_ns = (now - self.settled_ns) // max(1, self.num_settled)
        self.settled_ns = now
        if self.is_alone:  # of what was just looked after, each of the steps that will end before it is again
            num_steps = max(1, min(self.max_kept, MAX_ALONE_NS // max(1, a_step_ns)))
            self.share_ns, cost.unbooked_ns = cost.unbooked_ns // num_steps, 0

    def write_kept(self) -> None:
        """The kept steps into the ring, and nothing else."""
        self.catch_up()
        self.num_settled, self.num_kept = self.num_kept, 0
        if native.core is None:
            kept, self.books.kept = self.books.kept, []
            self.settled = write(self.ring, kept, self.cost, self.peak_bytes)
        else:
            ring, books = self.ring, self.log
            place = ring.map, ring.step_capacity, self.num_written
            early, self.early = self.early, []
            self.settled = early + books.write(ring, self.cost, *place, self.peak_bytes)
            self.num_written = ring.num_steps
        self.peak_bytes = UNKNOWN

    def hand_over(self, thread_ident: int, now: int) -> None:
        """Another thread trains from now on, which calls this; what the former one had not ended is no step.

        thread_ident: no thread's where nobody is listened to any more.
        """
        self.last_cpu_ns = UNKNOWN  # a thread's own clock
        if self.eval_span is not None and self.eval_span.end_ns:
            self.eval_span.close()
        if self.stepped:  # nothing began after it: it ended with the last that was seen of it
            self.close_step(max(self.words[NOW] >> 4, self.begin))
        if not self._active:
            return
        self.write_kept()
        if self.device is not None:
            self.device.forget_step()
        if self.turns is not None:
            self.turns.restart()
            self.alert(ASKING, False)
        self.outers.clear()
        self.thin.phase = OTHER
        self.flags, self.micro_steps, self.gc_ns, self.own_ns, self.num_measured = FLAG_FIRST, 0, 0, 0, 0
        self.samples = self.tokens = self.last_cpu_ns = UNKNOWN
        self.books.phase = OTHER
        self.restart(now)
        self.thread_ident = thread_ident
        is_known = thread_ident == get_ident()
        self.words[THREAD] = get_native_id() if is_known else 0
        self.words[NOW] = now << 4 | OTHER if is_known else UNKNOWN
        self.own[0] = thread_ident

    def flush(self) -> None:
        """Write what is kept and a finished step that no later event has closed (training ended, probe leaves).

        It ended with the last that was seen of it: what a process does before it ends is no step.
        """
        if self._active and self.stepped:
            self.close_step(max(self.words[NOW] >> 4, self.begin))
        if self._active and self.num_kept and os.getpid() == self.pid:
            self.write_kept()
