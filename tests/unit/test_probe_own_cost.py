"""What the probe says that it costs: everything once, nothing of what the machine did meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuiadvisor.events import STEP_COLUMNS
from tuiadvisor_probes import guard, phases, ring, step_clock
from tuiadvisor_probes.guard import Hook, timed
from tuiadvisor_probes.step_record import OwnCost

US = 1_000


class Machine:
    """Time that only moves when told: the wall clock, and the thread's own, which stands still when it has no core."""

    def __init__(self) -> None:
        self.wall_ns = self.cpu_ns = 1_000

    def work(self, duration_ns: int) -> None:
        """Compute for so long."""
        self.wall_ns += duration_ns
        self.cpu_ns += duration_ns


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The clocks of step clock and guard."""
    found = Machine()
    for module in (step_clock, guard):
        monkeypatch.setattr(module, "monotonic_ns", lambda: found.wall_ns)
    monkeypatch.setattr(step_clock, "thread_time_ns", lambda: found.cpu_ns)
    return found


class Clock(step_clock.StepClock):
    """A step clock in which calling a hook takes known time."""

    training: Training

    def stand_in(self, *_args: Any, **_kwargs: Any) -> bool:
        """So long it takes."""
        self.training.machine.work(self.training.call_ns)
        return False


class Training:
    """Steps of one forward of 1 ms, on a clock whose writing takes known time."""

    def __init__(self, path: str, machine: Machine) -> None:
        from threading import get_ident

        ring.create_ring_file(path, 256, 16)
        self.machine = machine
        self.writer, self.reader = ring.RingWriter(path), ring.RingReader(path)
        self.writing_ns = 40 * US
        self.stolen_ns = 0
        self.call_ns = 0  # what calling a hook takes
        self.clock = Clock(self.writer, get_ident(), self.look)
        self.clock.training = self
        self.clock.flags = 0
        self.forward = timed(self.compute, Hook("forward", 0, lambda _: None), self.clock, phases.FORWARD)

    def look(self) -> None:
        """What is done beside the writing of kept steps."""
        self.machine.work(self.writing_ns)
        self.machine.wall_ns += self.stolen_ns

    def compute(self) -> None:
        """The host's own work."""
        self.machine.work(1000 * US)

    def steps(self, number: int) -> list[int]:
        """So many steps; the own cost of those written meanwhile, ns."""
        for _ in range(number):
            self.forward()
            self.clock.stepped = True
        column = STEP_COLUMNS.index("probe_cost_ns")
        return [row[column] for row in self.reader.take_steps()]

    def write_together(self, number: int) -> None:
        """From now on so many steps are written in a row."""
        self.clock.max_kept = number
        self.clock.settle_at_ns = self.clock.settle_at_seq = step_clock.FAR


@pytest.fixture
def training(tmp_path: Path, machine: Machine) -> Iterator[Training]:
    """A training with a ring."""
    found = Training(str(tmp_path / "ring"), machine)
    yield found
    found.writer.close()
    found.reader.close()


def test_writing_is_shared_by_the_steps_written(training: Training) -> None:
    """Ten steps in a row of 40 us are 4 us each; before, each was given the 40 us of a step written by itself."""
    training.steps(4)
    training.write_together(10)
    costs = training.steps(40)
    assert 30 <= len(costs)
    assert [4 * US] * 20 == costs[10:30]


def test_nothing_is_booked_twice_or_left_out(training: Training) -> None:
    """However steps are kept and written, the records' sum is what writing took, the last writing aside."""
    costs = training.steps(5)
    for number in (1, 3, 7, 32):
        training.write_together(number)
        costs += training.steps(70)
    num_writings = sum(costs) / training.writing_ns
    assert num_writings == pytest.approx(round(num_writings), abs=0.05)
    assert training.clock.cost.unbooked_ns == training.writing_ns
    assert 100 < num_writings < len(costs)


def test_a_core_that_is_taken_away_is_not_our_cost(training: Training) -> None:
    """The kernel gives the core to somebody else for 5 ms amid each writing: our work is 40 us as before."""
    training.stolen_ns = 5_000 * US
    assert max(training.steps(20)) <= training.writing_ns


def test_one_disturbed_hook_counts_for_no_other_step() -> None:
    """A change of phase takes 3 us; once it took 5 ms, because the core was away: no step is told to have cost that."""
    cost = OwnCost()
    told = [cost.of_hooks(0, 8 * 3 * US, 0, 8, 8) for _ in range(8)]
    told.append(cost.of_hooks(0, 8 * 3 * US + 5000 * US, 0, 8, 8))
    told.append(cost.of_hooks(0, 0, 0, 0, 8))
    assert [24 * US] * 10 == told


def test_detail_has_a_price_of_its_own() -> None:
    """A transition in a burst also writes its event: light steps are not priced by it, nor it by light ones."""
    cost = OwnCost()
    detail = step_clock.FLAG_DETAIL
    assert 8 * 9 * US == cost.of_hooks(detail, 8 * 9 * US, 0, 8, 8)
    assert 8 * 3 * US == cost.of_hooks(0, 8 * 3 * US, 0, 8, 8)
    assert 8 * 3 * US == cost.of_hooks(0, 0, 0, 0, 8)
    assert 8 * 9 * US == cost.of_hooks(detail, 0, 0, 0, 8)


def test_half_measured_steps_have_no_say() -> None:
    """Where measuring begins within a step, the few changes of phase it saw are those that come first: dearer ones."""
    cost = OwnCost()
    assert 8 * 3 * US == cost.of_hooks(0, 8 * 3 * US, 0, 8, 8)
    told = [cost.of_hooks(0, 2 * 30 * US, 0, 2, 8) for _ in range(9)]
    assert [8 * 3 * US] * 9 == told


def test_single_steps_are_measured_among_those_that_are_kept(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in 32, with all its changes of phase; the writing before it is taken off nobody's time."""
    clock = training.clock
    clock.spot_checks = True
    training.write_together(8)
    training.call_ns = 2 * US
    seen: list[tuple[int, int]] = []
    price = clock.cost.of_hooks

    def of_hooks(flags: int, hooks_ns: int, device_ns: int, num_measured: int, num_transitions: int) -> int:
        if num_measured:
            seen.append((hooks_ns // num_measured, num_measured))
        return price(flags, hooks_ns, device_ns, num_measured, num_transitions)

    monkeypatch.setattr(OwnCost, "of_hooks", staticmethod(of_hooks))
    training.steps(32 * 5)
    assert [2] * 5 == [num for _, num in seen]
    assert [1 * US] * 5 == [each_ns for each_ns, _ in seen]  # 2 us before a forward, nothing after it
    assert not clock.measuring
