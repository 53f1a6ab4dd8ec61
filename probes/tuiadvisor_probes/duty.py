"""Which steps are seen in detail, and how often, so that the probe stays within its budget. No clock is read here.

A burst of consecutive steps in detail, then off: as long as the measured cost allows. Cost is paid in probe time a
step; spare = budget - cost of the always-on tier, but at least a twentieth of that cost, since the always-on tier
cannot be made smaller and a run without any detail is blind; one burst every `cost of a burst / spare` steps, and where
the always-on tier alone is over the budget, not more often than every 128. The cost of a burst is what its steps and
those measured after it took beyond as many light ones: they are written one by one, which is dearer by itself.

All ranks of a job must see the SAME steps, and nobody tells them. They share a position that advances with the job:
the process group's sequence number, or, where that says nothing, the wall clock (then a rank may begin a step before
or after another). A burst begins after the step that crossed a multiple of 2^bits of it. Each rank finds its own
`bits` from its own cost; since multiples of 2^(b+1) are multiples of 2^b, the steps of a rank that has to save more
are a subset of the others' steps, never other ones.
"""

from __future__ import annotations

LIGHT, MEASURED, DETAIL = range(3)
PPM = 1_000_000
DEFAULT_BUDGET_PPM = 2500
BURST_STEPS = 4
FIRST_BURST_STEPS = 24  # longer: there are findings to make, and ranks attach one after the other
FIRST_STEPS = 3  # measured before the first burst; the very first is a part of a step only
AFTER_STEPS = 2  # measured after a burst: the first of them pays for its end
MIN_PERIOD_STEPS = 4 * BURST_STEPS  # however cheap: detail fills the recording too
OVER_PERIOD_STEPS = 32 * BURST_STEPS  # where the always-on tier alone is over the budget
LIGHT_STEPS = 32  # after the first burst, before its price is known
MAX_TOGETHER = 64  # light steps told together: the code that is told them is cold
MAX_ALONE = (
    1024  # by the native core, which writes steps by itself; a second ends before, but where steps are short
)
OFF = -1
NEVER = 1 << 60  # a position beyond all sequence numbers and microseconds
LEAST_SHARE = 0.05  # of the always-on tier: where that alone is over budget, bursts add no more than this
NUM_SAMPLES = 9
TAKE_EVERY = 4  # light steps: a median costs 0.5 us


class Median:
    """Median of the last few samples: one in which the kernel took the core away must not count for thousands."""

    __slots__ = ("samples", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.samples: list[int] = []

    def add(self, sample: int) -> None:
        """One more."""
        samples = self.samples
        samples.append(sample)
        if len(samples) > NUM_SAMPLES:
            del samples[0]
        self.value = sorted(samples)[len(samples) // 2]


class Duty:
    """The cycle of one rank. `after_step` is called once a step and costs about 1 us with warm caches."""

    __slots__ = (
        "advance",
        "bits",
        "budget_ppm",
        "burst_ns",
        "burst_total_ns",
        "by_clock",
        "has_light",
        "in_burst",
        "light_ns",
        "mode",
        "most_together",
        "num_bursts",
        "num_left",
        "num_unpaid",
        "position",
        "step_ns",
        "was_asked",
    )

    def __init__(self, most_together: int = MAX_TOGETHER) -> None:
        """most_together: light steps told together, and, without bursts, until their rate is worked out anew."""
        self.most_together = most_together
        self.mode = MEASURED
        self.num_left = FIRST_STEPS
        self.bits = OFF
        self.budget_ppm = DEFAULT_BUDGET_PPM
        self.step_ns = Median(0)
        self.light_ns = Median(0)  # cost of a step without detail; of measured ones until there was another
        self.has_light = False
        self.advance = 0.0  # of the position, a step: a running mean
        self.burst_ns = Median(0)  # cost of a step of a burst, or measured after one
        self.burst_total_ns = 0.0  # of the burst under way and the steps measured after it
        self.num_unpaid = 0  # steps of the first one, which is longer: paid for before there is a second
        self.num_bursts = 0
        self.by_clock = False
        self.position = -1
        self.was_asked = False
        self.in_burst = False  # or in the steps measured after it

    def after_step(self, step_ns: int, cost_ns: int, seq: int, wall_us: int, is_asked: bool) -> int:
        """The mode of the next step.

        step_ns, cost_ns: of the step that has just ended. seq: the group's sequence number, negative where it is
        unknown or not the same on all ranks. is_asked: a burst is wanted by somebody who does not mind the cost.
        """
        crossed = self._move(seq, wall_us)
        if self.mode != LIGHT:
            self.burst_total_ns += cost_ns
        if self.mode == MEASURED and not self.has_light:
            self.step_ns.add(step_ns)
            self.light_ns.add(cost_ns)
        elif self.mode == LIGHT and self.num_left % TAKE_EVERY == 0:
            self._take_light(step_ns, cost_ns)
        if is_asked:
            self.was_asked = True
            self.num_left = 0
            self.mode = DETAIL
            return DETAIL
        self.num_left -= 1
        if self.num_left > 0:
            return self.mode
        if self.mode == DETAIL:
            self.mode, self.num_left = MEASURED, AFTER_STEPS
        elif self.mode == MEASURED and self.num_bursts == 0 and not self.in_burst and self.budget_ppm > 0:
            self._begin_burst(FIRST_BURST_STEPS)  # what it costs decides on all others
        elif self.mode == LIGHT and crossed:
            self._begin_burst(BURST_STEPS)
        elif self.mode == MEASURED:
            self._book_burst()
            self._think()
        elif self.num_left <= -self.most_together:
            if self.num_bursts == 0 and self.budget_ppm > 0:  # it was 0 until now
                self._begin_burst(FIRST_BURST_STEPS)
            else:
                self._think()
        return self.mode

    def after_light_steps(self, count: int, samples: list[tuple[int, int]], seq: int, wall_us: int) -> bool:
        """`after_step` for light steps that call for nothing, at a fifth of its price; False: they may, so tell each.

        samples: (step_ns, cost_ns) of some of them. seq, wall_us: of the last.
        """
        by_clock, before = self.by_clock or seq < 0, self.position
        position = wall_us if by_clock else seq
        if by_clock != self.by_clock or not 0 <= before <= position:
            return False
        if self.bits != OFF and before >> self.bits != position >> self.bits:
            return False
        self.position = position
        self.advance = _follow(self.advance, (position - before) / count)
        self.num_left = max(self.num_left - count, 1 - self.most_together)  # `after_step` works the rate out
        for step_ns, cost_ns in samples:
            self._take_light(step_ns, cost_ns)
        return True

    def num_until_due(self) -> int:
        """How many steps may end before `after_step` must be told of them, one after the other; a burst aside."""
        return (
            max(1, min(self.most_together, self.num_left + self.most_together)) if self.mode == LIGHT else 1
        )

    def next_position(self) -> int:
        """The step that reaches it may be followed by a burst: `after_step` must hear of that step at once."""
        if self.mode != LIGHT or self.bits == OFF:
            return NEVER
        return (self.position >> self.bits) + 1 << self.bits

    def allow(self, budget_ppm: int) -> None:
        """A new budget."""
        self.budget_ppm = budget_ppm
        if self.mode == LIGHT:
            self._think()

    def _move(self, seq: int, wall_us: int) -> bool:
        """Whether a multiple of 2^bits was crossed."""
        by_clock = self.by_clock or seq < 0
        position = wall_us if by_clock else seq
        before, self.position = self.position, position
        if by_clock != self.by_clock or before < 0 or position < before:
            self._change_axis(by_clock)
            return False
        self.advance = _follow(self.advance, position - before)
        return self.bits != OFF and before >> self.bits != position >> self.bits

    def _change_axis(self, by_clock: bool) -> None:
        self.by_clock = by_clock
        self.advance = 0.0
        self.bits = OFF
        if self.mode == LIGHT:
            self.num_left = BURST_STEPS - self.most_together  # a few steps on the new axis, then think

    def _take_light(self, step_ns: int, cost_ns: int) -> None:
        if (
            not self.has_light
        ):  # measured steps are written one by one, which costs more than what is always on
            self.has_light = True
            self.light_ns.samples.clear()
        self.step_ns.add(step_ns)
        self.light_ns.add(cost_ns)

    def _begin_burst(self, num_steps: int) -> None:
        self.mode, self.num_left, self.was_asked = DETAIL, num_steps, False
        self.burst_total_ns, self.num_unpaid = 0.0, 0
        self.in_burst = True

    def _book_burst(self) -> None:
        """A burst and the steps measured after it are over: what it cost, unless somebody asked for it."""
        if self.in_burst and not self.was_asked:
            a_step_ns = self.burst_total_ns / (BURST_STEPS + AFTER_STEPS)
            if self.num_bursts == 0:
                a_step_ns = self.burst_total_ns / (FIRST_BURST_STEPS + AFTER_STEPS)
                self.num_unpaid = FIRST_BURST_STEPS + AFTER_STEPS
            self.num_bursts += 1
            self.burst_ns.add(int(a_step_ns))
        self.in_burst = self.was_asked = False

    def _think(self) -> None:
        """Every how many steps a burst, from what was measured so far; then wait for its place."""
        # Without any step that is not written by itself the price of a burst is not known yet.
        self.mode, self.num_left = LIGHT, 0 if self.has_light else LIGHT_STEPS - self.most_together
        if self.advance <= 0 and not self.by_clock and self.position >= 0:
            self.position = -1
            self._change_axis(by_clock=True)  # a group whose number stands still tells nothing
        light_ns = self.light_ns.value
        spare_ns = self.budget_ppm * self.step_ns.value / PPM - light_ns
        least_steps = MIN_PERIOD_STEPS if spare_ns > 0 else OVER_PERIOD_STEPS
        spare_ns = max(spare_ns, LEAST_SHARE * light_ns)
        if (
            not self.has_light
            or spare_ns <= 0
            or self.advance <= 0
            or self.num_bursts == 0
            or self.budget_ppm == 0
        ):
            self.bits = OFF
            return
        num_steps = max(self.num_unpaid, BURST_STEPS + AFTER_STEPS)
        period = max(least_steps, num_steps * (self.burst_ns.value - light_ns) / spare_ns)
        self.bits = max(0, int(period * self.advance) - 1).bit_length()


def _follow(mean: float, sample: float) -> float:
    """A running mean over about eight samples that a single pause cannot drag away."""
    return sample if mean <= 0 else mean + (min(sample, 2 * mean) - mean) / 8
