"""What hooks have noted becomes phases and steps: the half of the step clock that can wait.

A note is two items of one list: a number, and what belongs to it. From 0 on: from that moment (ns) on time belongs to
phase `number & 15`, entered by a hook of group `number >> 4` (0: left, or entered without evidence of its own). CLOSED:
a step has ended. LATER: a function to be called at this place, for what is computed from the times before it.

Notes are booked in a row, many with the same few lines, in caches that the first of them has warmed: 0.3 us each, where
the same work in the hooks took 3 us behind a matrix product.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from .phases import BACKWARD, CHECKPOINT, COMM_EXPOSED, EVAL, FORWARD, NUM_PHASES, OTHER

CLOSED, LATER = -1, -2
UNKNOWN = -1
MAX_NOTES = 16_384  # items; a step of so many collectives is booked before it ends
COUNTS_MICRO_STEP = 1 << 16  # beside the bits of `observed` in a group
STAYS = (CHECKPOINT, EVAL, FORWARD)  # within an evaluation; forward: a student's that asks its teacher twice


class Books:
    """The step in the making, as far as it is booked, and the ended ones that are not written yet."""

    __slots__ = (
        "arrive_ns",
        "begin",
        "comm_before_ns",
        "comm_hidden_ns",
        "evaluated",
        "groups",
        "kept",
        "lock",
        "micro_steps",
        "num_transitions",
        "phase",
        "release_ns",
        "seen",
        "since",
        "step",
        "totals",
        "waited_at_latest_ns",
        "waited_before_ns",
        "waited_in",
    )

    def __init__(self, now: int) -> None:
        self.groups = [0]  # bits that entering a phase by a hook of this group sets
        self.kept: list[tuple[Any, ...]] = []  # see step_record.write
        self.lock = (
            Lock()
        )  # a probe that leaves by another thread books what the training thread may be booking
        self.seen = 0
        self.comm_before_ns = 0  # exposed communication of all closed steps
        self.phase = OTHER
        self.step = 0
        self.evaluated: list[int] = []  # totals as of the last evaluating forward
        # Exposed communication until the latest release, and until that of the step before `waited_in`.
        self.waited_in = self.waited_at_latest_ns = self.waited_before_ns = UNKNOWN
        self.restart(now)

    def restart(self, now: int) -> None:
        """The step in the making begins now."""
        self.since = self.begin = now
        self._reset()

    def _reset(self) -> None:
        self.totals = [0] * NUM_PHASES
        self.arrive_ns = self.release_ns = self.comm_hidden_ns = UNKNOWN
        self.micro_steps = self.num_transitions = 0

    def group(self, bits: int) -> int:
        """What to add to a phase's number so that entering it sets these bits."""
        if bits not in self.groups:
            self.groups.append(bits)
        return self.groups.index(bits) << 4

    def book(self, log: list[Any]) -> None:
        """Book the notes and take them off the list."""
        if not log or not self.lock.acquire(blocking=False):
            return
        try:
            whole = len(log) & ~1  # another thread may come between the two items of a note
            notes = log[:whole]
            del log[:whole]
            self._book(notes)
        finally:
            self.lock.release()

    def _book(self, notes: list[Any]) -> None:
        totals, phase, since, seen = self.totals, self.phase, self.since, self.seen
        num_transitions = self.num_transitions
        groups = self.groups
        each = iter(notes)
        for number, value in zip(each, each):  # noqa: B905 - strict costs, and pairs are whole
            if number >= 0:
                totals[phase] += value - since
                since = value
                if number > 15:
                    bits = groups[number >> 4]
                    seen |= bits
                    if (
                        bits & COUNTS_MICRO_STEP and phase != BACKWARD
                    ):  # an engine's backward counts the one inside
                        self.micro_steps += 1
                phase = number & 15
                num_transitions += 1
                continue
            self.phase, self.since, self.seen, self.num_transitions = phase, since, seen, num_transitions
            if number == CLOSED:
                self._close(value)
                totals = self.totals
                since, seen, num_transitions = self.since, self.seen, self.num_transitions
            else:
                function, arguments = value
                function(*arguments)
        self.phase, self.since, self.seen, self.num_transitions = phase, since, seen, num_transitions

    def _close(self, ended: tuple[int, int, int, int, int, tuple[int, ...]]) -> None:
        """A step has ended: see `StepClock.close_step`."""
        end, step, said, momentary, micro_steps, rest = ended
        self.totals[self.phase] += end - self.since
        self.comm_before_ns += self.totals[COMM_EXPOSED]
        self.kept.append(
            (
                step,
                self.begin,
                end,
                self.totals,
                self.arrive_ns,
                self.release_ns,
                self.comm_hidden_ns,
                self.micro_steps + micro_steps,
                (said | self.seen) & COUNTS_MICRO_STEP - 1,
                self.num_transitions,
                *rest,
            )
        )
        self.seen &= ~momentary
        self.step = step + 1
        self.restart(end)

    def move(self, duration_ns: int, source: int, target: int) -> None:
        """Reassign time that is booked."""
        self.totals[source] -= duration_ns
        self.totals[target] += duration_ns

    def evaluate(self, is_first: int) -> None:
        """An evaluating forward has ended. Unless it is the first, the time since the one before is evaluation too."""
        totals = self.totals
        if not is_first:
            for phase, before_ns in enumerate(self.evaluated):
                if totals[phase] != before_ns and phase not in STAYS:
                    totals[EVAL] += totals[phase] - before_ns
                    totals[phase] = before_ns
        self.evaluated = list(totals)

    def synchronized(self, arrive_ns: int, release_ns: int) -> None:
        """A wait from arrive_ns to release_ns, which is booked as exposed communication: the step's last one wins.

        A rank that waited for others earlier in the step (a buffer broadcast, FSDP's all-gathers, a micro-batch's
        all-reduce) has been brought into line there, and its arrival at the last barrier no longer shows who was late.
        So what it waited since the previous step's release is taken off: arrival = release - everything waited in
        between. For plain data parallel training with one barrier a step that is the very moment of arrival.
        """
        waited_ns = self.comm_before_ns + self.totals[COMM_EXPOSED]
        if self.step != self.waited_in:
            self.waited_in, self.waited_before_ns = self.step, self.waited_at_latest_ns
        self.waited_at_latest_ns = waited_ns
        if self.waited_before_ns == UNKNOWN:  # the first one since the probe came: nothing to compare with
            self.waited_before_ns = waited_ns - (release_ns - arrive_ns)
        self.arrive_ns = release_ns - (waited_ns - self.waited_before_ns)
        self.release_ns = release_ns

    def hide(self, duration_ns: int) -> None:
        """So much communication was hidden behind compute."""
        self.comm_hidden_ns = max(self.comm_hidden_ns, 0) + duration_ns
