"""Which DDP module a backward was of, where several have done their forwards: told by their reducers' own books."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from tuiadvisor_probes import phases
from tuiadvisor_probes import step_clock as sc
from tuiadvisor_probes.model_hooks import (
    MAX_AWAITED,
    MAX_PASSED,
    SELDOM,
    SURE_AFTER,
    PendingBarrier,
    _book_barrier,
)

SIZE = 6  # gradients of a module


class Reducer:
    """Keeps when each gradient became ready, in ns since the module's last forward, until the next backward."""

    def __init__(self) -> None:
        self.ready = [50 + place for place in range(SIZE)]
        self.num_asked = 0

    def get_backward_stats(self) -> list[int]:
        self.num_asked += 1
        return list(self.ready)


class Training:
    """Forwards and backwards at moments, and what is booked of them."""

    def __init__(self) -> None:
        self.pending = PendingBarrier()
        self.num_backwards = 0
        self.booked: list[tuple[int, int]] = []
        self.moved: list[tuple[int, int, int]] = []
        clock = SimpleNamespace(
            said=0,
            detail_flag=0,
            latest_ready=-1,
            awaited=None,
            thin=SimpleNamespace(phase=phases.BACKWARD, alert=sc.BARRIER),
            move=lambda *what: self.moved.append(what),
            synchronized=lambda *what: self.booked.append(what),
        )
        self.probe: Any = SimpleNamespace(clock=clock)

    def forward(self, module: Any, at: int) -> None:
        self.pending.add(module, at)

    def backward(self, begin: int, end: int, *arrivals: tuple[Any, int, int]) -> None:
        """arrivals: (module, when its forward ended, when its last gradient was ready)."""
        self.num_backwards += 1  # no two have the same times, but for the last by chance
        for module, base, at in arrivals:
            module.reducer.ready = [at - base - self.num_backwards * place for place in range(SIZE)]
        self.pending.passed(_book_barrier(self.probe, self.pending, begin, end))


class Module:
    """What DDP's hooks ask of it."""

    def __init__(self) -> None:
        self.reducer = Reducer()


def module() -> Any:
    return Module()


def test_both_exchanges_of_two_modules_are_booked() -> None:
    """Both forwards, then a backward each: only the second's forward was the last."""
    one, other, training = module(), module(), Training()
    for start in (0, 10_000):
        training.forward(one, start + 100)
        training.forward(other, start + 200)
        training.backward(start + 300, start + 1_000, (one, start + 100, start + 700))
        training.backward(start + 1_000, start + 2_000, (other, start + 200, start + 1_900))

    assert [(700, 1_000), (1_900, 2_000), (10_700, 11_000), (11_900, 12_000)] == training.booked
    assert [300, 100, 300, 100] == [moved_ns for moved_ns, *_ in training.moved]
    assert {(phases.BACKWARD, phases.COMM_EXPOSED)} == {tuple(way) for _, *way in training.moved}
    assert [] == training.pending.awaited


def test_in_one_backward_of_two_modules_the_last_gradient_of_both_counts() -> None:
    one, other, training = module(), module(), Training()
    training.forward(one, 100)
    training.forward(other, 200)
    training.backward(300, 1_000, (one, 100, 900), (other, 200, 800))

    assert [(900, 1_000)] == training.booked
    assert [] == training.pending.awaited


def test_numbers_of_an_earlier_step_are_no_arrival() -> None:
    """By chance they lie within the other's backward: nothing of that module has become ready since."""
    one, other, training = module(), module(), Training()
    one.reducer.ready = [600] * SIZE
    training.forward(one, 100)
    training.forward(other, 200)
    training.backward(300, 1_000, (other, 200, 900))

    assert [(900, 1_000)] == training.booked
    assert [one] == [awaited.module for awaited in training.pending.awaited]


def test_of_one_module_nothing_is_asked_at_its_forward() -> None:
    """The usual training pays for one look a step."""
    one, training = module(), Training()
    for start, ready in ((0, 900), (10_000, 10_901)):
        training.forward(one, start + 100)
        training.backward(start + 300, start + 1_000, (one, start + 100, ready))

    assert one.reducer.num_asked == 2
    assert [(900, 1_000), (10_901, 11_000)] == training.booked


def test_a_second_forward_before_the_backward_sets_the_reducers_clock_anew() -> None:
    one, training = module(), Training()
    training.forward(one, 100)
    training.forward(one, 200)
    training.backward(300, 1_000, (one, 200, 950))

    assert [(950, 1_000)] == training.booked


def test_a_module_that_no_backward_is_of_is_not_awaited_for_ever() -> None:
    """A teacher that is called with gradients and never trained."""
    teacher, student, training = module(), module(), Training()
    training.forward(teacher, 100)
    for number in range(MAX_PASSED):
        start = 1_000 * number
        training.forward(student, start + 200)
        training.backward(start + 300, start + 900, (student, start + 200, start + 800))

    assert len(training.booked) == MAX_PASSED
    assert [] == training.pending.awaited


def test_a_backward_of_something_else_leaves_the_only_module_awaited() -> None:
    """The reducer still tells the exchange before: by chance that lies within the other's backward."""
    one, training = module(), Training()
    for start, ready in ((0, 1_400), (10_000, 11_401)):
        training.forward(one, start + 100)
        training.backward(start + 300, start + 1_399)
        training.backward(start + 1_399, start + 1_450)
        training.backward(start + 1_450, start + 2_000, (one, start + 100, ready + 100))

    assert [(1_500, 2_000), (11_501, 12_000)] == training.booked
    assert [] == training.pending.awaited


def test_a_module_that_its_program_has_let_go_is_not_held() -> None:
    one, training = module(), Training()
    training.forward(one, 100)
    gone = weakref.ref(one)
    del one
    assert gone() is None
    training.backward(300, 1_000)
    assert ([], []) == (training.booked, training.pending.awaited)


@pytest.mark.parametrize("num", [MAX_AWAITED + 3])
def test_there_is_room_for_few(num: int) -> None:
    training = Training()
    modules = [module() for _ in range(num)]
    for one in modules:
        training.forward(one, 100)

    assert modules[-MAX_AWAITED:] == [one.module for one in training.pending.awaited]


def test_a_probe_that_leaves_takes_out_what_it_put_into_the_graph() -> None:
    removed: list[None] = []
    pending = PendingBarrier()
    pending.arrival = SimpleNamespace(remove=lambda: removed.append(None))
    pending.remove()
    pending.remove()

    assert [None] == removed


def test_other_waits_behind_the_last_gradient_are_no_communication_twice() -> None:
    """Nor what lies before it, or outside of a backward that ends in an exchange."""
    one, training = module(), Training()
    clock = training.probe.clock
    training.forward(one, 100)
    for begin, end in ((400, 500), (650, 720), (800, 850)):
        training.pending.waited(clock, begin, end)
    training.backward(300, 1_000, (one, 100, 700))

    assert [300 - 20 - 50] == [moved_ns for moved_ns, *_ in training.moved]
    assert [(700, 1_000)] == training.booked

    clock.thin.phase = phases.FORWARD
    training.pending.waited(clock, 1_150, 1_950)
    clock.thin.phase, clock.thin.alert = phases.BACKWARD, 0
    training.pending.waited(clock, 1_150, 1_950)
    assert not training.pending.waits


def test_waits_that_are_over_before_the_last_gradient_are_seldom_asked_about() -> None:
    """The native core then books the exchange by itself; once one was not, all are asked."""
    one, training = module(), Training()
    pending, clock = training.pending, training.probe.clock
    asked = []

    def step(start: int, wait_at: int) -> None:
        training.forward(one, start + 100)
        pending.waited(clock, start + wait_at, start + wait_at + 10)
        asked.append(bool(pending.waits))
        training.backward(start + 300, start + 1_000, (one, start + 100, start + 700 + len(asked) % 2))

    for number in range(SURE_AFTER + SELDOM + 1):
        step(1_000 * number, 400)
    assert SURE_AFTER * [True] + SELDOM * [False] + [True] == asked
    asked.clear()
    for number in range(SELDOM + 4):
        step(1_000 * (1_000 + number), 800)
    assert SELDOM * [False] + 4 * [True] == asked
