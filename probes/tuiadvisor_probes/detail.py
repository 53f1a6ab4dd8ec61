"""The second tier: hooks that are there for a burst of steps, and out of the way before and after it.

Two kinds: a hook that is always there and records more during a burst (`instead`), and one that is there during a
burst only (`only`); between bursts the attribute is the identical object that it was before. Bursts begin and end
after a step, as `duty` says or as the agent asks through the ring. Putting 23 hooks in costs about 40 us, taking them
out 15: this too is counted against the budget.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from . import duty as dt
from . import native
from . import ring as ring_file
from . import step_clock as sc
from .patch import Patch

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET_WORD, BURST_WORD = ring_file.OFFSET_BUDGET // 8, ring_file.OFFSET_BURST // 8
MAX_BURST_NS = 600 * 10**9  # a word beyond it was not written by our agent
MICROSECOND_BITS = 10  # 2^10 ns
STEPS_ONE_BY_ONE = 32  # after the attach: parts that load late and the first figures on a screen do not wait


class Layer:
    """One attribute with another hook during a burst."""

    __slots__ = ("always", "make", "name", "original", "owner", "patch", "replacement")

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any], always: Patch | None) -> None:
        self.owner = owner
        self.name = name
        self.make = make
        self.always = always
        self.patch: Patch | None = None
        self.original: Any = None
        self.replacement: Any = None
        if always is not None:
            self.original = always.replacement
            self.replacement = make(always.wrapped)

    def put_in(self) -> None:
        """The burst begins."""
        if self.always is not None:
            self.always.exchange(self.replacement)
        elif self.patch is None:  # else somebody patched on top of it, and it is still there
            self.patch = Patch(self.owner, self.name, self._wrap)

    def take_out(self) -> None:
        """The burst ends."""
        if self.always is not None:
            self.always.exchange(self.original)
        elif self.patch is not None and self.patch.remove():
            self.patch = None

    def _wrap(self, wrapped: Any) -> Any:
        if self.replacement is None or self.original is not wrapped:
            self.original, self.replacement = wrapped, self.make(wrapped)
        return self.replacement


class Detail:
    """What changes during a burst, and when there is one."""

    def __init__(self, clock: sc.StepClock) -> None:
        self.clock = clock
        self.duty = dt.Duty(dt.MAX_TOGETHER if native.core is None else dt.MAX_ALONE)
        self.layers: list[Layer] = []
        self.endings: list[Callable[[], None]] = []
        self.has_point_to_point = False  # then sequence numbers differ between ranks
        self.wall_shift_ns = time_ns() - monotonic_ns()
        clock.measuring = True

    def start(self) -> None:
        """All hooks are in place: a burst that is already asked for begins within this very step."""
        if self._is_asked(monotonic_ns()):
            self.begin()

    def instead(self, always: Patch, make: Callable[[Any], Any]) -> None:
        """During a burst make(the host's function) is in the place of a patch that is always there."""
        self.layers.append(Layer(always.owner, always.name, make, always))

    def only(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """During a burst, and only then, make(the host's function) is in the place of this attribute."""
        self.layers.append(Layer(owner, name, make, None))

    def at_end(self, function: Callable[[], None]) -> None:
        """Call it at each burst's end."""
        self.endings.append(function)

    def after_steps(self) -> None:
        """Between two steps, after some were written: begin or end a burst, and say when to look again."""
        clock, duty = self.clock, self.duty
        words = clock.words
        if clock.step < 2:  # the first record is of a part of a step
            return
        said = words[BUDGET_WORD]
        if said and said - 1 != duty.budget_ppm:
            duty.allow(min(max(said - 1, 0), dt.PPM))
        is_asked = self._is_asked(clock.begin)
        mode = duty.mode
        settled = clock.settled
        last_ns = settled[-1][0]
        if mode == dt.LIGHT and clock.num_settled > dt.TAKE_EVERY and len(settled) > 1:
            end_ns, _, _, seq, *_ = settled[-2]
            position = sc.UNKNOWN if self.has_point_to_point else seq
            wall_us = end_ns + self.wall_shift_ns >> MICROSECOND_BITS
            some = settled[: -1 : dt.TAKE_EVERY if len(settled) == clock.num_settled else 1]
            samples = [(step_ns, cost_ns) for _, step_ns, cost_ns, *_ in some[-dt.NUM_SAMPLES :]]
            if duty.after_light_steps(clock.num_settled - 1, samples, position, wall_us):
                settled = settled[-1:]
        for end_ns, step_ns, cost_ns, seq, *_ in settled:
            mode = duty.after_step(
                step_ns,
                cost_ns,
                sc.UNKNOWN if self.has_point_to_point else seq,
                end_ns + self.wall_shift_ns >> MICROSECOND_BITS,
                is_asked and end_ns == last_ns,
            )
        if clock.spot_checks and mode != dt.LIGHT:
            clock.own_ns = clock.num_measured = 0  # of a check that was under way
        clock.spot_checks = clock.is_alone = mode == dt.LIGHT
        clock.measuring = mode != dt.LIGHT
        if mode == dt.DETAIL and not clock.detail_flag:
            self.begin()
        elif mode != dt.DETAIL and clock.detail_flag:
            self.end()
        clock.max_kept = duty.num_until_due() if clock.step >= STEPS_ONE_BY_ONE else 1
        position = duty.next_position()
        clock.settle_at_seq = sc.FAR if duty.by_clock else position
        if duty.by_clock:
            due_ns = (position << MICROSECOND_BITS) - self.wall_shift_ns
            clock.settle_at_ns = min(clock.settle_at_ns, due_ns)

    def _is_asked(self, now_ns: int) -> bool:
        until_ns: int = self.clock.words[BURST_WORD]
        return now_ns < until_ns <= now_ns + MAX_BURST_NS

    def begin(self) -> None:
        """Put everything in."""
        self.clock.detail_flag = sc.FLAG_DETAIL
        for layer in self.layers:
            layer.put_in()

    def end(self) -> None:
        """Take everything out."""
        for ending in self.endings:
            ending()
        self.clock.detail_flag = 0
        for layer in self.layers:
            layer.take_out()
