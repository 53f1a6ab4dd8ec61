"""The duty cycle: bursts of whole steps, the same on all ranks, as many as the budget allows and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from thinned import crossed

from tuiadvisor_probes.duty import (
    BURST_STEPS,
    DETAIL,
    FIRST_BURST_STEPS,
    FIRST_STEPS,
    LEAST_SHARE,
    LIGHT,
    MEASURED,
    MIN_PERIOD_STEPS,
    OVER_PERIOD_STEPS,
    PPM,
    TAKE_EVERY,
    Duty,
)

US, MS = 1_000, 1_000_000


@dataclass
class Rank:
    """A training whose probe takes known time: light_ns a step, detail_ns more in a burst, switch_ns a change."""

    step_ns: int = 10 * MS
    light_ns: int = 8 * US
    detail_ns: int = 40 * US
    switch_ns: int = 20 * US
    seq_a_step: int = 3
    seq: int = 0
    wall_us: int = 1_700_000_000_000_000

    def run(self, duty: Duty, num_steps: int, asked: range = range(0)) -> Iterator[tuple[int, int, int]]:
        """(sequence number at the step's end, mode it ran in, what the probe took of it)."""
        mode, before = duty.mode, duty.mode
        for step in range(num_steps):
            changed = (mode == DETAIL) != (before == DETAIL)
            cost_ns = self.light_ns + (self.detail_ns if mode == DETAIL else 0) + self.switch_ns * changed
            if self.seq >= 0:
                self.seq += self.seq_a_step
            self.wall_us += self.step_ns // US
            yield self.seq, mode, cost_ns
            before, mode = mode, duty.after_step(self.step_ns, cost_ns, self.seq, self.wall_us, step in asked)


def bursts(modes: list[int]) -> list[int]:
    """Lengths of the runs of steps in detail."""
    text = "".join("d" if mode == DETAIL else " " for mode in modes)
    return [len(part) for part in text.split()]


def share(taken: list[tuple[int, int, int]], rank: Rank) -> float:
    """Share of the step time that the probe took."""
    return sum(cost for _, _, cost in taken) / (len(taken) * rank.step_ns)


def test_begins_with_measuring_then_one_burst() -> None:
    """The always-on tier is measured first, then what a burst costs; after it the end of the burst is measured too."""
    modes = [mode for _, mode, _ in Rank().run(Duty(), FIRST_STEPS + FIRST_BURST_STEPS + 3)]
    assert [MEASURED] * FIRST_STEPS == modes[:FIRST_STEPS]
    assert [DETAIL] * FIRST_BURST_STEPS == modes[FIRST_STEPS:-3]
    assert [MEASURED, MEASURED, LIGHT] == modes[-3:]


def test_bursts_are_whole_and_come_again() -> None:
    """Off between two bursts, each of the same number of consecutive steps."""
    modes = [mode for _, mode, _ in Rank().run(Duty(), 3000)]
    lengths = bursts(modes)
    assert len(lengths) > 10
    assert {BURST_STEPS} == set(lengths[1:-1])
    assert modes.count(LIGHT) > modes.count(DETAIL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("detail_ns", "budget_ppm"), crossed([10 * US, 40 * US, 400 * US, 4 * MS], [1000, 2500, 10_000])
)
def test_the_budget_holds(detail_ns: int, budget_ppm: int) -> None:
    """Whatever a step in detail costs, over many steps the probe takes no more than it may: it samples less."""
    rank, duty = Rank(detail_ns=detail_ns), Duty()
    duty.allow(budget_ppm)
    taken = list(rank.run(duty, 100_000 if detail_ns > MS else 20_000))  # the first burst is paid for, too
    after_first = taken[FIRST_STEPS + FIRST_BURST_STEPS + 1 :]
    allowed = max(budget_ppm / PPM, (1 + LEAST_SHARE) * rank.light_ns / rank.step_ns)
    assert share(after_first, rank) <= 1.02 * allowed
    assert len(bursts([mode for _, mode, _ in after_first])) >= 1


@pytest.mark.parametrize("seq_a_step", [3, 0])
def test_light_steps_may_be_told_together(seq_a_step: int) -> None:
    """Told of several light steps at once, as far as it says itself, the cycle is the one it is step by step."""
    rank, together = Rank(seq_a_step=seq_a_step, seq=0 if seq_a_step else -1), Duty()
    modes: list[int] = []
    waiting: list[tuple[int, int, int]] = []
    told = 0
    for seq, mode, cost_ns in rank.run(Duty(), 3000):
        modes.append(mode)
        assert together.mode == mode
        waiting.append((cost_ns, seq, rank.wall_us))
        position = rank.wall_us if together.by_clock else seq
        if len(waiting) >= together.num_until_due() or position >= together.next_position():
            told += 1
            for taken_ns, number, wall_us in waiting:
                together.after_step(rank.step_ns, taken_ns, number, wall_us, is_asked=False)
            waiting.clear()
    assert len(bursts(modes)) > 10
    assert told < 0.8 * len(modes)


def test_cheap_detail_still_leaves_most_steps_alone() -> None:
    """However much the budget allows, bursts come no closer than a fixed period."""
    duty = Duty()
    duty.allow(PPM // 2)
    modes = [mode for _, mode, _ in Rank().run(duty, 5000)]
    assert modes.count(DETAIL) <= 1.1 * BURST_STEPS / MIN_PERIOD_STEPS * len(modes)
    assert modes.count(DETAIL) >= 0.4 * BURST_STEPS / MIN_PERIOD_STEPS * len(modes)


def test_little_detail_where_the_always_on_tier_takes_all() -> None:
    """1 ms steps with 8 us of always-on cost leave nothing of 0.25 %: bursts then add a tenth of these 8 us at most."""
    rank = Rank(step_ns=MS)
    taken = list(rank.run(Duty(), 8000))[FIRST_STEPS + FIRST_BURST_STEPS + 1 :]
    assert 5 < len(bursts([mode for _, mode, _ in taken])) < 100
    assert share(taken, rank) <= 1.02 * (1 + LEAST_SHARE) * rank.light_ns / rank.step_ns


def test_detail_is_rare_where_the_budget_is_missed() -> None:
    """A burst that costs next to nothing is no reason to see a quarter of the steps while the budget is not held."""
    rank = Rank(step_ns=MS, detail_ns=0, switch_ns=0)
    modes = [mode for _, mode, _ in rank.run(Duty(), 8000)][FIRST_STEPS + FIRST_BURST_STEPS :]
    assert 0 < modes.count(DETAIL) <= 1.1 * BURST_STEPS / OVER_PERIOD_STEPS * len(modes)


def test_steps_written_one_by_one_are_not_the_price_of_the_others() -> None:
    """Measured and detailed steps take 30 us more because each is written at once: light steps are not priced so."""
    rank, duty = Rank(detail_ns=0, switch_ns=0), Duty()
    mode, taken = duty.mode, []
    for number in range(4000):
        rank.seq += rank.seq_a_step
        cost_ns = rank.light_ns + (0 if mode == LIGHT else 30 * US)
        taken.append(cost_ns)
        mode = duty.after_step(rank.step_ns, cost_ns, rank.seq, number, is_asked=False)
    assert rank.light_ns == duty.light_ns.value
    assert sum(taken[1000:]) <= 1.02 * 3000 * rank.step_ns * duty.budget_ppm / PPM


def test_no_budget_no_burst_and_a_new_budget_counts_at_once() -> None:
    """0 means no detail at all; raised later, bursts begin."""
    rank, duty = Rank(), Duty()
    duty.allow(0)
    assert [] == bursts([mode for _, mode, _ in rank.run(duty, 1000)])
    duty.allow(2500)
    assert len(bursts([mode for _, mode, _ in rank.run(duty, 1000)])) > 2


def by_seq(taken: list[tuple[int, int, int]], after: int) -> set[int]:
    """Sequence numbers of the steps in detail, the rank's own first burst left out."""
    return {seq for seq, mode, _ in taken if mode == DETAIL and seq > after}


def test_ranks_that_attached_apart_see_the_same_steps() -> None:
    """Attached 5, 17 and 40 steps after each other, their bursts are on the same steps of the job."""
    ranks = [Rank(seq=3 * late) for late in (0, 5, 17, 40)]
    seen = [
        by_seq(list(rank.run(Duty(), 4000 - rank.seq // 3)), 700) & set(range(700, 11_000)) for rank in ranks
    ]
    assert len(seen[0]) > 100
    assert seen[0] == seen[1] == seen[2] == seen[3]


def test_a_dearer_rank_sees_fewer_of_the_same_steps() -> None:
    """One rank has ten times the calls: it saves by leaving bursts out, and what it sees all others see too."""
    cheap, dear = Rank(), Rank(detail_ns=800 * US, light_ns=12 * US)
    seen_cheap, seen_dear = (by_seq(list(rank.run(Duty(), 20_000)), 600) for rank in (cheap, dear))
    assert 0 < len(seen_dear) < len(seen_cheap)
    assert seen_dear <= seen_cheap


def test_without_a_sequence_number_the_wall_clock_aligns() -> None:
    """Two ranks of one job without a common number: their bursts overlap in all but a step."""
    first, second = Rank(seq=-1), Rank(seq=-1, wall_us=1_700_000_000_000_000 + 50_000 + 900)
    steps = []
    for rank, start in ((first, 0), (second, 5)):
        taken = list(rank.run(Duty(), 4000 - start))
        steps.append(
            {start + number for number, (_, mode, _) in enumerate(taken) if mode == DETAIL and number > 100}
        )
    common = steps[0] & steps[1]
    assert len(steps[0]) > 100
    assert len(common) >= 0.7 * len(steps[0])


def test_a_number_that_stands_still_is_not_waited_for() -> None:
    """A group without collectives never advances: the clock takes over."""
    modes = [mode for _, mode, _ in Rank(seq_a_step=0, seq=7).run(Duty(), 3000)]
    assert len(bursts(modes)) > 5


def test_a_wanted_burst_ignores_the_budget_and_ends() -> None:
    """Every step while it is asked for, then off again; the cycle goes on as before."""
    rank, duty = Rank(detail_ns=40 * MS), Duty()
    modes = [mode for _, mode, _ in rank.run(duty, 2000, asked=range(500, 600))]
    assert [DETAIL] * 100 == modes[501:601]
    assert MEASURED == modes[601]
    assert DETAIL not in modes[602:650]


def test_one_disturbed_burst_does_not_stop_sampling() -> None:
    """The kernel took the core away in the middle of a hook once: bursts go on as before."""
    rank, duty = Rank(), Duty()
    list(rank.run(duty, 2000))
    bits = duty.bits
    rank.detail_ns = 20 * MS
    for _ in rank.run(duty, 2000):
        if duty.mode != DETAIL and duty.burst_ns.samples[-1] > MS:
            break
    rank.detail_ns = 40 * US
    list(rank.run(duty, 2000))
    assert bits == duty.bits


def test_costly_first_steps_are_not_taken_for_usual() -> None:
    """Describing itself costs the probe milliseconds in one of the first steps; bursts come as if it had not."""
    rank, duty = Rank(light_ns=8 * MS), Duty()
    list(rank.run(duty, 2))
    rank.light_ns = 8 * US
    assert len(bursts([mode for _, mode, _ in rank.run(duty, 200)])) >= 3


@pytest.mark.parametrize("budget_ppm", [2500, 200])
@pytest.mark.parametrize("seq_a_step", [3, 17])
def test_light_steps_told_together_change_no_burst(seq_a_step: int, budget_ppm: int) -> None:
    """Whether each light step is told by itself or all but the last at once: bursts begin after the same steps."""
    one_by_one = Duty()
    one_by_one.budget_ppm = budget_ppm
    expected = [mode for _, mode, _ in Rank(seq_a_step=seq_a_step).run(one_by_one, 3000)]
    rank, duty, modes, kept, num_told_together = Rank(seq_a_step=seq_a_step), Duty(), [], [], 0
    duty.budget_ppm = budget_ppm
    before = mode = duty.mode
    for _ in range(3000):
        changed = (mode == DETAIL) != (before == DETAIL)
        rank.seq += seq_a_step
        rank.wall_us += rank.step_ns // US
        modes.append(mode)
        kept.append(rank.light_ns + (rank.detail_ns if mode == DETAIL else 0) + rank.switch_ns * changed)
        before = mode
        if len(kept) < duty.num_until_due() and rank.seq < duty.next_position():
            continue
        samples = [(rank.step_ns, cost_ns) for cost_ns in kept[:-1:TAKE_EVERY]]
        last = (rank.seq - seq_a_step, rank.wall_us - rank.step_ns // US)
        if len(kept) > TAKE_EVERY and duty.after_light_steps(len(kept) - 1, samples, *last):
            num_told_together += len(kept) - 1
            kept = kept[-1:]
        first = rank.seq - seq_a_step * (len(kept) - 1)
        for turn, cost_ns in enumerate(kept):
            mode = duty.after_step(rank.step_ns, cost_ns, first + turn * seq_a_step, rank.wall_us, False)
        kept = []
    assert expected == modes
    assert num_told_together > 1000
